"""Kernels launched on a GPU, real or emulated, with their arrays between guard regions."""

import os
from ctypes import c_uint8, memmove
from functools import cache

import numpy as np
import torch

from weft.compiler.cuda.gpu import Gpu, GridWork
from weft.compiler.cuda.stage import Stage
from weft.compiler.ir.kernel import Kernel

# Bytes before and after each array. With 0 an array ends where its memory does, so that NVIDIA's
# compute-sanitizer sees what goes on behind it.
GUARD = int(os.environ.get("WEFT_GUARD", "4096"))
PATTERN = 0xA5
ALIGNMENT = 256


@cache
def card() -> Gpu:
    """The first GPU of the machine."""
    from weft.compiler.cuda.device import gpu_of

    return gpu_of("cuda:0")


class Touched(AssertionError):
    """A kernel has written to memory that is not its own."""


class Region:
    """Memory of the host that arrays have in common, and a copy of it on a GPU.

    low, high  where it begins and ends
    """

    def __init__(self, gpu: Gpu, low: int, high: int):
        self.low, self.high = low, high
        self._start = GUARD + low % ALIGNMENT  # as aligned as on the host
        content = np.full(self._start + high - low + GUARD, PATTERN, np.uint8)
        content[self._own] = self.host
        self._before = content
        self._memory = gpu.arrays.empty(content.shape, np.dtype(np.uint8))
        self._memory.copy_(torch.from_numpy(content.copy()))
        self.writable = np.zeros(content.shape, bool)

    @property
    def host(self) -> np.ndarray:
        return np.ctypeslib.as_array((c_uint8 * (self.high - self.low)).from_address(self.low))

    @property
    def _own(self) -> slice:
        return slice(self._start, self._start + self.high - self.low)

    def place(self, gpu: Gpu, array: np.ndarray) -> int:
        """The address on the GPU of an array that lies in this region."""
        return gpu.arrays.address(self._memory) + self._start + array.ctypes.data - self.low

    def allow(self, array: np.ndarray) -> None:
        """Let the elements of an array be written; gaps between them stay what they are."""
        at = self._start + array.ctypes.data - self.low
        shape, steps = (*array.shape, array.itemsize), (*array.strides, 1)
        np.ndarray(shape, bool, self.writable, at, steps)[...] = True

    def take_back(self) -> None:
        """Copy it to the host, if only what may be written has changed."""
        after = self._memory.cpu().numpy()
        changed = (after != self._before) & ~self.writable
        if changed.any():
            at = np.flatnonzero(changed) - self._start
            raise Touched(f"bytes {at[:8]} of an array of {self.high - self.low} were written")
        own = np.ascontiguousarray(after[self._own])
        if not np.array_equal(own, self.host):
            memmove(self.low, own.ctypes.data, own.nbytes)


def regions(gpu: Gpu, arrays: tuple[np.ndarray, ...]) -> list[Region]:
    """The memory of arrays; those that overlap have one in common."""
    spans: list[list[int]] = []
    for low, high in sorted(np.lib.array_utils.byte_bounds(a) for a in arrays):
        if spans and low < spans[-1][1]:
            spans[-1][1] = max(high, spans[-1][1])
        else:
            spans.append([low, high])
    return [Region(gpu, *span) for span in spans]


class Launched:
    """A kernel or a stage on a GPU, with the methods of `Emulated`."""

    def __init__(self, gpu: Gpu, what: Kernel | Stage, aligned: int = 16):
        self.gpu, self.what = gpu, what
        work = GridWork(what, aligned)
        self._bind = gpu.functions([work]).launches[work]

    def run(self, *arrays: np.ndarray, down: bool = False) -> None:
        """Launch it on copies of arrays, and copy back what it has written.

        down  is of no meaning: nobody knows the order of threads
        """
        found = regions(self.gpu, arrays)
        homes = [next(r for r in found if _lies_in(a, r)) for a in arrays]
        reads = len(self.what.operands) if isinstance(self.what, Kernel) else 0
        for home, array in list(zip(homes, arrays, strict=True))[reads:]:
            home.allow(array)
        places = [r.place(self.gpu, a) for r, a in zip(homes, arrays, strict=True)]
        with self.gpu.current():
            self._bind(np.array(places, np.uint64), list(range(len(places))))()
            self.gpu.wait()
        for region in found:
            region.take_back()


def _lies_in(array: np.ndarray, region: Region) -> bool:
    low, high = np.lib.array_utils.byte_bounds(array)
    return region.low <= low and high <= region.high
