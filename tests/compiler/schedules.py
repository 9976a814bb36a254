"""Schedules for tests: computed step by step in one arena, and graphs computed row by row."""

from ctypes import CFUNCTYPE, addressof, c_int64, c_void_p

import ml_dtypes
import numpy as np

import weft as wf
from weft.compiler.cpu.emit_kernel import native
from weft.compiler.cpu.functions import functions_of
from weft.compiler.cpu.runtime import thread_pool as threads
from weft.compiler.fusion import assemble
from weft.compiler.ir.routine import Routine
from weft.compiler.ir.schedule import (
    KernelStep,
    NativeStep,
    Schedule,
    TiledStep,
)
from weft.compiler.ir.verify import verify
from weft.compiler.memory import plan
from weft.compiler.native.words import address, words
from weft.compiler.pipeline import current_target
from weft.compiler.target import optimise
from weft.graph.graph import Graph, Literal
from weft.graph.verify import verify as verify_graph

from .interpreter import ByNumPy, Memory, apply


def by_rows(graph: Graph, inputs) -> list[np.ndarray]:
    """A graph's outputs, equation by equation."""
    known = {**graph.constants, **dict(zip(graph.inputs, inputs, strict=True))}
    for e in graph.equations:
        values = [i.value if isinstance(i, Literal) else known[i] for i in e.inputs]
        known.update(zip(e.outputs, apply(e.op, values, e.static), strict=True))
    return [known[i] for i in graph.outputs]


def optimised(graph: Graph, check=None) -> Graph:
    """A graph after the passes of the target."""
    return optimise(graph, current_target().passes, check)


def scheduled(graph: Graph, donated=None) -> Schedule:
    """The target's schedule of such a graph."""
    return assemble.schedule_graph(graph, current_target(), donated)


def compiled(graph: Graph, donated=None) -> Schedule:
    """A graph's schedule, checked after every pass and at the end."""
    made = scheduled(optimised(graph, verify_graph), donated)
    verify(made)
    return made


class Machine(Memory):
    """A schedule that is interpreted; the CPU's routines and, if asked for, kernels are native.

    by_native  whether kernels are
    placed     where scratch memory lies; None: as the CPU has it
    """

    def __init__(self, schedule: Schedule, inputs, by_native: bool = False, placed=None):
        self.by_native = by_native
        pairs = zip(schedule.inputs, inputs, strict=True)
        arrays = {i: np.array(x, schedule.buffers[i].dtype) for i, x in pairs}
        for i, b in enumerate(schedule.buffers):
            if b.role == "output" and b.base is None and b.takes is None:
                arrays[i] = np.full(b.nbytes, 0xFF, np.uint8).view(b.dtype)
        super().__init__(schedule, plan(schedule) if placed is None else placed, arrays)

    def run(self) -> list[np.ndarray]:
        for step in self.schedule.steps:
            self.do(step)
        return [self.array(i).copy() for i in self.schedule.outputs]

    def do(self, step) -> None:
        if isinstance(step, TiledStep):
            self.do(step.product)
            self.do(step.then)
        elif isinstance(step, NativeStep) and not isinstance(step.routine, ByNumPy):
            call_routine(step.routine, self._pointers(step))
        elif isinstance(step, KernelStep) and self.by_native:
            native(step.kernel)(self._pointers(step))
        else:
            super().do(step)

    def _pointers(self, step) -> list[np.ndarray]:
        """What lies from the first elements of a step's buffers on."""
        buffers, storage = self.schedule.buffers, self.schedule.storage
        places = (*step.operands, *step.results)
        return [self.lines[storage(i)][buffers[i].offset :] for i in places]


_PROTOTYPE = CFUNCTYPE(None, c_void_p, c_int64, c_int64)


def call_routine(routine: Routine, arrays: list[np.ndarray], pieces: int = 1) -> None:
    """A routine's native code on arrays, its last pieces first; accesses are checked."""
    code, verdict = functions_of([(routine, True)]), c_int64(0)
    call = _PROTOTYPE(code.addresses[routine, True])
    record = words(len(arrays) + 1)
    record[:] = [*(a.ctypes.data for a in arrays), addressof(verdict)]
    step = -(-routine.count // (pieces * routine.grain)) * routine.grain
    for begin in reversed(range(0, routine.count, max(step, 1))):
        call(address(record), begin, min(begin + step, routine.count))
    assert verdict.value == 0, f"array {verdict.value - 1} was left by {routine}"


def shared_alike(compiled, arrays) -> int:
    """How many routines of a compiled function threads share, with the same bits for any number."""
    compiled(*map(wf.tensor, arrays))
    run, before, found = compiled._last().executable, threads.width(), set()
    try:
        for width in (1, 2, 3):
            threads.resize(width)
            memory, made = run._memory(), [np.empty(s, d) for s, d in run.fresh]
            assert memory.first(*arrays, *made) == 0
            found.add(b"".join(m.tobytes() for m in made))
    finally:
        threads.resize(before)
    assert len(found) == 1
    tasks = run.segments[0]
    return sum(isinstance(t.step, NativeStep) and t.count > t.chunk for t in tasks)


def compare(got, want, units: float = 64, least=None) -> None:
    """The same values but for so many units of rounding of the largest number of each array.

    `least` is a dtype whose units count where the array's own are smaller.
    """
    for a, b in zip(got, want, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if b.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
            continue
        eps = [float(ml_dtypes.finfo(d).eps) for d in (b.dtype, least) if d is not None]
        bound = units * max(eps)
        a, b = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (a, b))
        size = np.abs(b[np.isfinite(b)]).max(initial=0.0)
        np.testing.assert_allclose(a, b, rtol=bound, atol=bound * size)
