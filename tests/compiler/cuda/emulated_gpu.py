"""An emulated GPU: its memory is the host's, its kernels run in the emulator of grids.

Captured graphs are emulated, too: nothing is done while one is captured, and a replay does all of
it at the addresses that the arrays had then, wherever those of the call are.
"""

from contextlib import nullcontext
from ctypes import c_char, memmove
from threading import Lock, local
from time import sleep

import numpy as np
import torch

from weft.compiler.cuda.gpu import GridFunctions, GridWork
from weft.compiler.cuda.routines.many import ManyStage
from weft.compiler.cuda.target import Cuda
from weft.compiler.ir.kernel import Kernel, reach
from weft.compiler.raw.arrays import arrays_on
from weft.compiler.target import Measure

from .emulator import Emulated


def _work_extents(what) -> list[tuple[int, int]] | None:
    """The same of all parameters of what is launched; None if nobody knows."""
    if isinstance(what, Kernel):
        return _extents(what)
    if not isinstance(what, ManyStage):
        return None
    found: dict[int, tuple[int, int]] = {}
    for kernel, *places in what.members:
        for at, (low, high) in zip(places, _extents(what.kernels[kernel]), strict=True):
            ends = found.get(at, (low, high))
            found[at] = min(low, ends[0]), max(high, ends[1])
    return [found[at] for at in range(len(what.arrays))]


def _extents(kernel: Kernel) -> list[tuple[int, int]]:
    """From an array's first element, the bytes that a kernel may access of it."""
    found = []
    for o in kernel.operands:
        low, high = reach(kernel.domain, o.strides)
        found.append((low * o.dtype.itemsize, high * o.dtype.itemsize))
    for r in kernel.results:
        sizes = list(kernel.domain)
        if kernel.settled[r.value] % 2:
            sizes = [1 if a in kernel.folded else n for a, n in enumerate(sizes)]
        if r.over_rows:
            sizes[0] = -(-sizes[0] // kernel.piece)
        low, high = reach(sizes, r.strides)
        width = kernel.dtypes[r.value].itemsize
        found.append((low * width, high * width))
    return found


class EmulatedGpu:
    """The processor as a GPU; see `weft.compiler.cuda.gpu.Gpu`."""

    name, sm = "torch", 90

    def __init__(self):
        self.arrays = arrays_on("torch")
        self.yields = False  # whether other threads may go on before each launch
        self._thread = local()  # whether it replays a graph
        self._lock = Lock()  # grids run one after the other
        self._made: dict[GridWork, Emulated] = {}
        self.launched = self.captured = 0

    def current(self):
        return nullcontext()

    def functions(self, works):
        for work in works:
            if work not in self._made:
                self._made[work] = Emulated(work.what, max(work.aligned, 1))
        made = list(self._made.items())
        return GridFunctions({w: self._launcher(w, e) for w, e in made}, False)

    def _launcher(self, work: GridWork, emulated: Emulated):
        def bind(words, positions):
            def launch():
                if self.yields:
                    sleep(0)
                table = words[positions].astype(np.int64)
                with self._lock:
                    self._run(work, emulated, table)

            return launch

        return bind

    def _run(self, work: GridWork, emulated: Emulated, table: np.ndarray) -> None:
        self.launched += 1
        if work.stops and np.ctypeslib.as_array(_pointer(int(table[-1])), (1,))[0]:
            return
        extents, ends = _work_extents(work.what), [(0, 1 << 62)] * len(table)
        if extents is not None:
            pairs = zip(table, extents, strict=False)
            ends = [(a + low, a + high) for a, (low, high) in pairs]
        if emulated.plan.grid:
            emulated.go(table, ends, down=bool(self.launched % 2))

    def writer(self, address, count):
        words = np.zeros(count, np.uint64)

        def write():
            replays = getattr(self._thread, "replays", False)
            assert not replays, "cells are written before a graph, not in it"
            memmove(address, words.ctypes.data, words.nbytes)

        return write, words

    def within(self, stream):
        return nullcontext()

    def wait(self):
        pass

    def pinned(self, shape, dtype):
        return torch.zeros(shape, dtype=self.arrays.raw_dtype(dtype))

    def measure(self, schedule, actions, after):
        for k, action in enumerate(actions):
            action()
            after(k)
        return [Measure(1e-6 * k, k, k / len(actions)) for k in range(len(actions))]

    def stream(self):
        return 0

    def capture(self, work):
        frame, self.captured = work.__self__._frame, self.captured + 1
        bound = work.__self__.signature.argument
        whole = {k: _unowned(x) if k in bound else x for k, x in frame._whole.items()}
        words = frame.words.copy()

        def replay():
            frame._whole, now = whole.copy(), frame._whole
            frame.words[:], here = words, frame.words.copy()
            self._thread.replays = True
            try:
                work()
            finally:
                frame._whole, self._thread.replays = now, False
                frame.words[:] = here

        return replay


def _pointer(address: int):
    from ctypes import POINTER, c_int64, cast

    return cast(address, POINTER(c_int64))


def _unowned(x: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor, which a graph knows by its address and does not hold."""
    if not x.nbytes:
        return torch.empty(x.shape, dtype=x.dtype)
    memory = (c_char * x.nbytes).from_address(x.data_ptr())
    return torch.frombuffer(memory, dtype=x.dtype).reshape(x.shape)


def emulated_target() -> Cuda:
    """The CUDA target for an emulated GPU."""
    return Cuda(EmulatedGpu())
