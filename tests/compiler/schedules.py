"""Schedules for tests: computed step by step in one arena, and graphs computed row by row."""

from ctypes import CFUNCTYPE, addressof, c_int64, c_void_p

import ml_dtypes
import numpy as np
from numpy.lib.stride_tricks import as_strided

import weft as wf
from weft.compiler.cpu.emit_kernel import native
from weft.compiler.cpu.functions import functions_of
from weft.compiler.cpu.runtime import thread_pool as threads
from weft.compiler.cpu.target import CPU
from weft.compiler.fusion import assemble
from weft.compiler.ir.kernel import Fold, Kernel
from weft.compiler.ir.routine import Routine
from weft.compiler.ir.schedule import (
    GemmStep,
    GuardStep,
    KernelStep,
    LibraryStep,
    NativeStep,
    Schedule,
    TiledStep,
)
from weft.compiler.ir.verify import verify
from weft.compiler.memory import Plan, plan
from weft.compiler.native.words import address, words
from weft.compiler.target import optimise
from weft.core.backends import BACKENDS, KERNELS
from weft.core.op import TABLE
from weft.graph.graph import Graph, Literal
from weft.graph.guard import told
from weft.graph.verify import verify as verify_graph

FOLDS = {"sum": "sum", "mean": "mean", "prod": "prod", "max": "amax", "min": "amin"}
FOLDS |= {"any": "any", "all": "all"}


def apply(op, values, static):
    """A row by NumPy's kernel; always a tuple of arrays."""
    kernel = KERNELS[op][np.ndarray]
    xp = BACKENDS[np.ndarray]
    with xp.quiet():
        z = kernel(list(values), *static) if op.arity is None else kernel(*values, *static)
    return tuple(map(xp.whole, (z,) if op.outputs == 1 else z))


def by_rows(graph: Graph, inputs) -> list[np.ndarray]:
    """A graph's outputs, equation by equation."""
    known = {**graph.constants, **dict(zip(graph.inputs, inputs, strict=True))}
    for e in graph.equations:
        values = [i.value if isinstance(i, Literal) else known[i] for i in e.inputs]
        known.update(zip(e.outputs, apply(e.op, values, e.static), strict=True))
    return [known[i] for i in graph.outputs]


def optimised(graph: Graph, check=None) -> Graph:
    """A graph after the passes for the CPU."""
    return optimise(graph, CPU.passes, check)


def scheduled(graph: Graph, donated=None) -> Schedule:
    """The CPU's schedule of such a graph."""
    return assemble.scheduled(graph, CPU, donated)


def compiled(graph: Graph, donated=None) -> Schedule:
    """A graph's schedule, checked after every pass and at the end."""
    made = scheduled(optimised(graph, verify_graph), donated)
    verify(made)
    return made


UFUNCS = {
    **{"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum},
    **{"any": np.logical_or, "all": np.logical_and},
}


class Machine:
    """A schedule's memory: an arena by the plan, the inputs' and the outputs' own."""

    def __init__(self, schedule: Schedule, inputs, by_native: bool = False):
        self.schedule, self.by_native = schedule, by_native
        self.plan: Plan = plan(schedule)
        # Memory that nobody has written is full of NaN and odd numbers.
        self.arena = np.full(self.plan.size + 64, 0xFF, np.uint8)
        self.flat: dict[int, np.ndarray] = {}
        for i, x in zip(schedule.inputs, inputs, strict=True):
            self.flat[i] = np.array(x, schedule.buffers[i].dtype).reshape(-1)
        for i, x in schedule.constants.items():
            self.flat[i] = np.array(x).reshape(-1)
            self.flat[i].flags.writeable = False
        for i, b in enumerate(schedule.buffers):
            if b.base is None and i not in self.flat:
                self.flat[i] = self._placed(i, b)

    def _placed(self, i, b) -> np.ndarray:
        if b.takes is not None:
            return self.flat[b.takes].view(b.dtype)
        if b.role == "output" or i not in self.plan.offsets:
            return np.full(b.nbytes, 0xFF, np.uint8).view(b.dtype)
        start = self.plan.offsets[i]
        return self.arena[start : start + b.nbytes].view(b.dtype)

    def memory(self, i: int) -> np.ndarray:
        """What lies from buffer i's first element on."""
        return self.flat[self.schedule.storage(i)][self.schedule.buffers[i].offset :]

    def walk(self, i: int, sizes, strides) -> np.ndarray:
        """Buffer i by strides counted in elements."""
        flat = self.memory(i)
        return as_strided(flat, sizes, [s * flat.itemsize for s in strides])

    def array(self, i: int) -> np.ndarray:
        b = self.schedule.buffers[i]
        return self.walk(i, b.shape, b.strides)

    def run(self) -> list[np.ndarray]:
        for step in self.schedule.steps:
            self._do(step)
        return [self.array(i).copy() for i in self.schedule.outputs]

    def _do(self, step) -> None:
        if isinstance(step, KernelStep):
            (self._native if self.by_native else self._kernel)(step)
        elif isinstance(step, GemmStep):
            self._gemm(step)
        elif isinstance(step, TiledStep):
            self._gemm(step.product)
            self._do(step.then)
        elif isinstance(step, NativeStep):
            places = (*step.operands, *step.results)
            call_routine(step.routine, [self.memory(i) for i in places])
        elif isinstance(step, GuardStep):
            if not self.array(step.flag):
                seen = step.seen and (self.array(step.seen[0]), *step.seen[1:])
                raise step.error(told(step.message, *seen) if seen else step.message)
        else:
            self._library(step)

    def _library(self, step: LibraryStep) -> None:
        values = [i.value if isinstance(i, Literal) else self.array(i) for i in step.inputs]
        for i, z in zip(step.outputs, apply(step.op, values, step.static), strict=True):
            self.array(i)[...] = z

    def _gemm(self, step: GemmStep) -> None:
        a, b, c = (self.walk(*access) for access in step.accesses())
        a = a.swapaxes(-1, -2) if step.transpose_a else a
        b = b.swapaxes(-1, -2) if step.transpose_b else b
        c[...] = step.alpha * (a @ b) + (step.beta * c if step.beta else 0)

    def _native(self, step: KernelStep) -> None:
        arrays = [self.memory(i) for i in (*step.operands, *step.results)]
        native(step.kernel)(arrays)

    def _kernel(self, step: KernelStep) -> None:
        kernel = step.kernel
        values = [
            self.walk(i, kernel.domain, o.strides).copy()
            for i, o in zip(step.operands, kernel.operands, strict=True)
        ]
        compute(kernel, values)
        for i, r in zip(step.results, kernel.results, strict=True):
            folded = kernel.settled[r.value] % 2 == 1
            sizes = [1 if folded and a in kernel.folded else n for a, n in enumerate(kernel.domain)]
            first = tuple(slice(0, n) for n in sizes)
            value = values[r.value][first]
            if r.over_rows:
                value = np.broadcast_to(values[r.value], kernel.domain)
                pieces = range(0, kernel.domain[0], kernel.piece)
                value = UFUNCS[r.over_rows].reduceat(value, pieces, axis=0)
            self.walk(i, value.shape, r.strides)[...] = value


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
            threads.gather(width)
            memory, made = run._memory(), [np.empty(s, d) for s, d in run.fresh]
            assert memory.first(*arrays, *made) == 0
            found.add(b"".join(m.tobytes() for m in made))
    finally:
        threads.gather(before)
    assert len(found) == 1
    tasks = run.segments[0]
    return sum(isinstance(t.step, NativeStep) and t.count > t.chunk for t in tasks)


def compute(kernel: Kernel, values: list[np.ndarray]) -> None:
    """Append the values of a kernel's steps, row by row."""
    for s in kernel.steps:
        if isinstance(s, Fold):
            whole = np.broadcast_to(values[s.value], kernel.domain)
            op, static = TABLE[FOLDS[s.kind]], (kernel.folded, True)
            (z,) = apply(op, [whole], static)
        else:
            operands = [i.value if isinstance(i, Literal) else values[i] for i in s.inputs]
            (z,) = apply(TABLE[s.row], operands, s.static)
        values.append(np.asarray(z, s.dtype))


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
