"""Elementwise kernels over flat NumPy arrays of any length."""

from collections.abc import Callable, Sequence
from ctypes import addressof, c_void_p

import numpy as np

from ..ir.kernel import Kernel

# More elements than any array has: each call of a kernel is given a range of them.
MOST = 1 << 40


class FlatKernel:
    """A compiled elementwise kernel over one-dimensional arrays.

    Arrays are given as operands, then results; a result may overwrite an operand. An operand with
    stride 0 is an array of one number.
    """

    def __init__(self, kernel: Kernel):
        from ..cpu.emit_kernel import native  # slow to load, and few programs need it

        self._native = native(kernel)
        self._moving = [any(o.strides) for o in kernel.operands] + [True] * len(kernel.results)
        self._operands = len(kernel.operands)
        assert self._native.image.count == MOST
        self.grain: int = self._native.image.grain

    def over(self, arrays: Sequence[np.ndarray]) -> Callable[[int, int], None]:
        """A function that computes the elements from start to stop, both multiples of `grain`."""
        pointers = (c_void_p * (len(arrays) + 1))(*[a.ctypes.data for a in arrays])
        place, call, held = addressof(pointers), self._native.call, (pointers, arrays)

        def do(start: int, stop: int, held=held) -> None:
            call(place, start, stop)

        return do

    def rest(self, arrays: Sequence[np.ndarray], start: int, stop: int) -> None:
        """Compute the last elements, fewer than `grain`, in padded copies."""
        lines: dict[int, np.ndarray] = {}
        for a, moves in zip(arrays, self._moving, strict=True):
            if moves and id(a) not in lines:
                lines[id(a)] = np.zeros(self.grain, a.dtype)
        for a, moves in zip(arrays[: self._operands], self._moving, strict=False):
            if moves:
                lines[id(a)][: stop - start] = a[start:stop]
        self.over([lines.get(id(a), a) for a in arrays])(0, self.grain)
        for a in arrays[self._operands :]:
            a[start:stop] = lines[id(a)][: stop - start]

    def __call__(self, arrays: Sequence[np.ndarray], size: int) -> None:
        """Compute all elements."""
        whole = size // self.grain * self.grain
        self.over(arrays)(0, whole)
        if whole < size:
            self.rest(arrays, whole, size)
