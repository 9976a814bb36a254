"""A second target, of NumPy alone: it interprets schedules step by step, in the planned memory.

It has no threads, no native code and no products of its own, but all that a target has to have. It
computes rows that the CPU does not (complex numbers are fused, routines read arrays as they lie),
and memory that nothing has written holds NaN and odd numbers, so that a wrong plan shows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np

from weft.compiler.cache import schedules
from weft.compiler.calling import Calling, library_results, refusal, strided
from weft.compiler.ir.kernel import FoldStep, Kernel
from weft.compiler.ir.routine import Routine, RoutineArray, array
from weft.compiler.ir.schedule import (
    GemmStep,
    GuardStep,
    KernelStep,
    LibraryStep,
    NativeStep,
    Schedule,
)
from weft.compiler.ir.verify import verify
from weft.compiler.limits import LIMITS
from weft.compiler.memory import MemoryPlan, verify_plan
from weft.compiler.passes.algebra import algebra
from weft.compiler.passes.bodies import bodies
from weft.compiler.passes.common import common
from weft.compiler.passes.contract import contract
from weft.compiler.passes.copies import apart, copies
from weft.compiler.passes.dead import dead
from weft.compiler.passes.expand import EXPANSIONS, expand
from weft.compiler.passes.fold import fold
from weft.compiler.passes.layout import layout
from weft.compiler.passes.loops import loops
from weft.compiler.passes.pooling import pooling
from weft.compiler.passes.products import products
from weft.compiler.passes.sink import sink
from weft.compiler.target import optimise
from weft.core.backends import BACKENDS, KERNELS
from weft.core.dispatch import beside_bfloat16
from weft.core.dtypes import accumulator, float32, float64
from weft.core.op import TABLE, Op
from weft.graph.graph import Literal
from weft.ops.batching import pointwise
from weft.ops.table import whole

FOLD_ROWS = {op.folds: name for name, op in whole().items() if op.folds}
OVER_ROWS = {
    **{"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum},
    **{"any": np.logical_or, "all": np.logical_and},
}


def apply(op: Op, values: Sequence, static: tuple) -> tuple[np.ndarray, ...]:
    """A row by NumPy's kernel."""
    kernel, xp, values = KERNELS[op][np.ndarray], BACKENDS[np.ndarray], beside_bfloat16(op, values)
    with xp.quiet():
        z = kernel(list(values), *static) if op.arity is None else kernel(*values, *static)
    return tuple(map(xp.whole, (z,) if op.outputs == 1 else z))


# -- one call's memory -----------------------------------------------------------------------


class Memory:
    """What a schedule's buffers hold while its steps are done, one after the other.

    arrays  by storages, those of inputs and outputs
    """

    def __init__(self, schedule: Schedule, placed: MemoryPlan, arrays: dict[int, np.ndarray]):
        self.schedule = schedule
        arena = np.full(placed.size, 0xFF, np.uint8)
        self.lines = {i: a.reshape(-1) for i, a in arrays.items()}
        for i, x in schedule.constants.items():
            self.lines[i] = np.array(x).reshape(-1)
            self.lines[i].flags.writeable = False
        for i, b in enumerate(schedule.buffers):
            if i in placed.offsets:
                at = placed.offsets[i]
                self.lines[i] = arena[at : at + b.nbytes].view(b.dtype)
            elif b.takes is not None:
                self.lines[i] = self.lines[b.takes].view(b.dtype)

    def walk(self, i: int, sizes, strides, shift: int = 0) -> np.ndarray:
        """Buffer i from its first element, or so many behind it, by strides in elements."""
        line = self.lines[self.schedule.storage(i)]
        return strided(line, self.schedule.buffers[i].offset + shift, sizes, strides)

    def array(self, i: int) -> np.ndarray:
        """Buffer i."""
        b = self.schedule.buffers[i]
        return self.walk(i, b.shape, b.strides)

    def do(self, step) -> None:
        """One step."""
        if isinstance(step, KernelStep):
            for part in self._parts(step):
                self._kernel(step, *part)
        elif isinstance(step, GemmStep):
            self._gemm(step)
        elif isinstance(step, NativeStep):
            self._routine(step)
        elif isinstance(step, LibraryStep):
            values = [i.value if isinstance(i, Literal) else self.array(i) for i in step.inputs]
            for i, z in zip(step.outputs, library_results(step, values), strict=True):
                if i in self.lines:
                    self.array(i)[...] = z
                else:  # it has no place in the arena
                    self.lines[i] = np.array(z, self.schedule.buffers[i].dtype).reshape(-1)
        else:
            assert isinstance(step, GuardStep), step
            if not self.array(step.flag):
                raise refusal(step, None if step.seen is None else self.array(step.seen[0]))

    def _gemm(self, step: GemmStep) -> None:
        a, b, c, *bias = (self.walk(*access) for access in step.accesses())
        a = a.swapaxes(-1, -2) if step.transpose_a else a
        b = b.swapaxes(-1, -2) if step.transpose_b else b
        wide = accumulator(c.dtype)
        with BACKENDS[np.ndarray].quiet():
            made = step.alpha * (a.astype(wide) @ b.astype(wide))
            made = made + step.beta * c.astype(wide) if step.beta else made
            c[...] = made + bias[0].astype(wide) if bias else made

    def _routine(self, step: NativeStep) -> None:
        routine = step.routine
        assert isinstance(routine, ByNumPy)
        pairs = zip(step.operands, routine.operands, strict=True)
        values = [self.walk(i, a.shape, a.strides) for i, a in pairs]
        made = apply(routine.op, values, routine.static)
        for i, a, z in zip(step.results, routine.results, made, strict=True):
            self.walk(i, a.shape, a.strides)[...] = z

    # -- kernels -------------------------------------------------------------------------------

    def _parts(self, step: KernelStep) -> Iterator[tuple[Kernel, int, int]]:
        """A kernel in two parts, the last one first: units may be done in any order.

        One is written before the other is read: a result in an operand's place must bear that.
        """
        kernel = step.kernel
        kept = [a for a, n in enumerate(kernel.domain) if n > 1 and a not in kernel.folded]
        if not kept or kernel.piece:
            yield kernel, 0, 0
            return
        axis, n = kept[0], kernel.domain[kept[0]]
        for begin, end in ((n // 2, n), (0, n // 2)):
            sizes = (*kernel.domain[:axis], end - begin, *kernel.domain[axis + 1 :])
            yield replace(kernel, domain=sizes), axis, begin

    def _kernel(self, step: KernelStep, kernel: Kernel, axis: int, begin: int) -> None:
        """Sweep by sweep: operands are read anew in each, what is known for all of it is kept."""

        def shift(access) -> int:
            return begin * access.strides[axis] if begin else 0

        kept: dict[int, np.ndarray] = {}
        for k in range(max(kernel.sweeps, 1)):
            values: list[np.ndarray] = []
            for i, o in zip(step.operands, kernel.operands, strict=True):
                sizes = sizes_of(
                    kernel, len(values)
                )  # what does not move is there if folds are empty
                fresh = self.walk(i, sizes, o.strides, shift(o)).copy(order="K")
                values.append(kept.get(len(values), fresh))
            compute(kernel, values, kept)
            depths = enumerate(kernel.settled)
            kept = {i: values[i] for i, depth in depths if depth % 2 and depth < 2 * k + 2}
            for i, r in zip(step.results, kernel.results, strict=True):
                if max(kernel.settled[r.value], 0) // 2 == k:
                    value = stored(kernel, r, values[r.value])
                    self.walk(i, value.shape, r.strides, shift(r))[...] = value


def sizes_of(kernel: Kernel, value: int) -> list[int]:
    """The domain of a value: one that is known for all of a fold is there once for each."""
    once = kernel.folded if kernel.settled[value] % 2 else ()
    return [1 if a in once else n for a, n in enumerate(kernel.domain)]


def compute(kernel: Kernel, values: list[np.ndarray], kept: dict[int, np.ndarray]) -> None:
    """Append the values of a kernel's steps, row by row; those that are kept are taken."""
    for s in kernel.steps:
        if len(values) in kept:
            values.append(kept[len(values)])
        elif isinstance(s, FoldStep):
            whole = np.broadcast_to(values[s.value], kernel.domain)
            if s.kind in ("sum", "prod", "mean"):
                whole = whole.astype(s.dtype, copy=False)
            (z,) = apply(TABLE[FOLD_ROWS[s.kind]], [whole], (kernel.folded, True))
            values.append(np.asarray(z, s.dtype))
        else:
            operands = [i.value if isinstance(i, Literal) else values[i] for i in s.inputs]
            (z,) = apply(TABLE[s.row], operands, s.static)
            values.append(np.asarray(z, s.dtype))


def stored(kernel: Kernel, result, value: np.ndarray) -> np.ndarray:
    """What a result writes: a folded value once for each fold, columns once for each piece."""
    if result.over_rows:
        pieces = range(0, kernel.domain[0], kernel.piece)
        return OVER_ROWS[result.over_rows].reduceat(
            np.broadcast_to(value, kernel.domain), pieces, axis=0, dtype=value.dtype
        )
    return np.broadcast_to(value, sizes_of(kernel, result.value))


# -- the target ------------------------------------------------------------------------------


@dataclass(frozen=True)
class ByNumPy(Routine):
    """A row of arrays wherever they lie, all of it at once."""

    op: Op
    static: tuple
    read: tuple[RoutineArray, ...]
    written: tuple[RoutineArray, ...]

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        return self.read

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return self.written

    @property
    def draws(self) -> bool:
        return self.op.name.startswith("draw_")


def _unwritten(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """New memory, full of NaN and odd numbers."""
    made = np.empty(shape, dtype)
    made.reshape(-1).view(np.uint8).fill(0xFF)
    return made


class Interpreted(Calling):
    """A schedule that is interpreted at each call."""

    from_disk = False
    memory_type = Memory

    def __init__(self, schedule: Schedule, placed: MemoryPlan):
        verify(schedule)
        verify_plan(schedule, placed)
        super().__init__(schedule)
        self.plan = placed

    def run(self, arrays, room=None, ending=None):
        """The outputs; `ending` gets them instead, where something is changed."""
        values = self._bind(list(arrays), [None] * len(self.fresh) if room is None else room)
        memory = self.memory_type(
            self.schedule, self.plan, dict(zip(self.signature.buffers, values, strict=True))
        )
        done = 0
        try:
            for step in self.schedule.steps:
                memory.do(step)
                done += 1
        except BaseException:
            if ending is not None:
                ending.stop(done)
            raise
        made = [self._output(memory, i, values) for i in self.schedule.outputs]
        return made if ending is None else ending.finish(made)

    def _output(self, memory: Memory, i: int, values: list[np.ndarray]) -> np.ndarray:
        return values[self.signature.argument[i]] if self.is_bound(i) else memory.array(i)

    def _bind(self, values: list, room: Sequence) -> list[np.ndarray]:
        self.check_count(len(values))
        written = self.signature.written
        for i, x in enumerate(values):
            if not self._fits(x, i) or (i in written and not x.flags.writeable):
                self.adapt(values, i)
        for i in range(len(values)):
            if any([i != j and np.shares_memory(values[i], values[j]) for j in written]):
                self.separate(values, i)
        for x, like in zip(room, self.fresh, strict=True):
            able = self._fits(x, len(values)) and x.flags.owndata and x.flags.writeable
            # What was brought is somebody's until it is written: a guard may still end the call.
            values.append(x if able else _unwritten(*like))
        return values

    def _fits(self, x, i: int) -> bool:
        """Whether array i can be bound as it is."""
        b = self.schedule.buffers[self.signature.buffers[i]]
        if type(x) is not np.ndarray or (x.dtype, x.shape) != (b.dtype, b.shape):
            return False
        return x.flags.c_contiguous and x.flags.aligned

    def facts(self) -> Iterator[tuple[str, str]]:
        yield "runs as", f"{len(self.schedule.steps)} steps that NumPy does one after the other"


# Elementwise rows beside those that vmap treats as such, and what is not elementwise among these.
ELEMENTWISE, OTHERS = ("gate", "sign_product"), ("one_hot", "transfer")
ROUTINES = (
    *("matmul", "convolution", "convolution_biased", "convolution_transposed"),
    *("convolution_weight", "max_pool", "pool_pick", "pool_put", "sum_pool", "spread_pool"),
    *("checked_take", "checked_take_along_axis", "checked_segment_sum", "prepared_cumsum"),
    *("prepared_sort", "prepared_argsort", "draw_words", "draw_uniform", "draw_normal"),
)
PRODUCT_DTYPES = (float32, float64)


def passes_of(product_dtypes) -> tuple:
    """What holds for any machine that multiplies in these dtypes, and nothing besides."""

    def inside(graph):
        return bodies(graph, lambda body: optimise(body, passes_of(product_dtypes)))

    return (
        ("dead", dead),
        ("loops", loops),
        ("fold", fold),
        ("pooling", pooling),
        ("expand", lambda graph: expand(graph, EXPANSIONS)),
        ("contract", partial(contract, dtypes=product_dtypes)),
        ("algebra", algebra),
        ("layout", layout),
        ("fold again", fold),
        ("algebra again", algebra),
        ("common", common),
        ("bodies", inside),
        ("sink", sink),
        ("copies", lambda graph: copies(graph, ROUTINES, lambda *_: True, product_dtypes)),
        ("common again", common),
        ("products", partial(products, dtypes=product_dtypes)),
        ("dead again", dead),
        ("apart", apart),
    )


class Interpreter:
    """NumPy as a machine."""

    key, alignment, product_dtypes = ("interpreter",), 16, PRODUCT_DTYPES
    limits, adopts, passes = LIMITS, False, passes_of(PRODUCT_DTYPES)

    def supports(self, graph, e) -> str:
        avals = [graph.avals[i] for i in (*e.inputs, *e.outputs) if not isinstance(i, Literal)]
        if any(a.device != "cpu" for a in avals):
            return "it is elsewhere"
        if e.op.folds or e.op.moves == "parts":
            return ""
        if len(avals) == 1:
            return "its operands are Python's numbers"
        point = (e.op.batch is pointwise and e.op.arity is not None) or e.op.name in ELEMENTWISE
        own = TABLE.get(e.op.name) is e.op and e.op.outputs == 1 and e.op.name not in OTHERS
        return "" if point and own else "it is not elementwise"

    def routine(self, graph, views, e) -> Routine | str | None:
        if e.op.name not in ROUTINES:
            return None
        inputs = [i for i in e.inputs if not isinstance(i, Literal)]
        avals = [graph.avals[i] for i in (*inputs, *e.outputs)]
        if len(inputs) < len(e.inputs) or any(a.device != "cpu" for a in avals):
            return "it is of Python's numbers, or elsewhere"
        dtypes = [a.dtype for a in avals]
        read = [
            RoutineArray(d, views[i].shape, views[i].strides)
            for d, i in zip(dtypes, inputs, strict=False)
        ]
        written = [array(a.dtype, a.shape) for a in avals[len(inputs) :]]
        return ByNumPy(e.op, e.static, tuple(read), tuple(written))

    def takes_long(self, work, dtype=None) -> bool:
        return isinstance(work, Kernel) and prod(work.domain) > 64

    def library_fails(self, op: Op) -> bool:
        return True

    def tune(self, schedule: Schedule, tight: bool) -> Schedule:
        return schedule

    def cost(self, schedule: Schedule, step) -> float:
        return float(sum([schedule.buffers[i].size for i in (*step.reads, *step.writes)]))

    def build(self, schedule: Schedule, plan: MemoryPlan, capture: bool = True) -> Interpreted:
        return Interpreted(schedule, plan)


schedules.ROUTINES.add(__name__)
INTERPRETER = Interpreter()
