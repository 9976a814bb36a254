"""Blocks: the body of a loop or a branch as the code of one block of threads.

A block is to a body what a schedule is to a program, with offsets from pointers that the routine
has. All threads do its calls one after the other, and wait for each other where a call uses what
another one has written.
"""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import gcd, prod

import numpy as np

from ....core.op import Op
from ....core.record import record
from ....graph.graph import Equation, Graph
from ...emit.code import LLValue
from ...emit.control import POINTER, each
from ...emit.convert import memory_type
from ...ir.kernel import Kernel, Step
from ...ir.routine import Routine
from ...ir.schedule import (
    GemmStep,
    GuardStep,
    KernelStep,
    LibraryStep,
    NativeStep,
    Schedule,
    ScheduleStep,
    TiledStep,
)
from ...ir.views import View
from ...limits import Limits
from ...memory import plan, round_up
from ...target import Passes
from ..computes import PRODUCT_DTYPES, library_fails, supports
from ..costs import step_cost
from ..limits import GPU_LIMITS
from .inline import BlockArray, InlineKernel, InlineStages, Threads, inline_stages
from .products import GridProduct, Held, ProductEmitter, plan_product
from .registry import routine_of
from .routine import GridRoutine
from .slices import Slices
from .uses import ARENA, CONSTANT, SCRATCH, Place, Spans, Use, find_slices, settle, uses_of

# Elements and terms of products that one block computes in a step, at most: a body with more work
# is faster as kernels of its own.
MOST = 1 << 20


class BlockRoutine(GridRoutine):
    """A routine that one block of threads does, also inside of another one."""

    @property
    @abstractmethod
    def room(self) -> int:
        """Bytes of shared memory that single calls use, at most."""

    @property
    @abstractmethod
    def work(self) -> int:
        """Elements and terms that one block computes, all steps together."""

    @property
    def inner(self) -> "BlockRoutine | str":
        """The routine where it is part of another one, or why it cannot be."""
        return self

    @abstractmethod
    def emit_inside(self, threads: Threads, arrays: Sequence[BlockArray]) -> None:
        """Emit the part of one thread; arrays are operands, results and scratch."""


Work = InlineKernel | GridProduct | InlineStages | BlockRoutine


@record
class GridCall:
    """One computation, the places of its arrays, and whether threads wait before it."""

    work: Work
    places: tuple[Place, ...]
    waits: bool


@record
class GridBlock:
    """Calls in order; constants by their bytes, as hexadecimal digits.

    slices   what is loaded of xs before the steps that use it
    scratch  bytes of memory, those included that the routine uses itself
    room     bytes of shared memory that single calls use, at most
    """

    calls: tuple[GridCall, ...]
    constants: tuple[str, ...]
    slices: Slices
    scratch: int
    room: int
    work: int

    def describe(self) -> list[str]:
        """What is computed, a line for each call, and more for loops and branches in it."""
        return [line for c in self.calls for line in _describe(c.work)]

    @property
    def endless(self) -> bool:
        """Whether it contains a loop that may be endless."""
        return any(isinstance(c.work, BlockRoutine) and c.work.endless for c in self.calls)

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers."""
        works = [c.work for c in self.calls]
        return any(isinstance(w, InlineStages | BlockRoutine) and w.draws for w in works)


def _describe(work: Work) -> list[str]:
    if isinstance(work, InlineKernel):
        rows = [s.row if isinstance(s, Step) else f"fold {s.kind}" for s in work.kernel.steps]
        domain = "×".join(map(str, work.kernel.domain)) or "1"
        return [f"kernel {domain}: {', '.join(rows) or 'copy'}"]
    if isinstance(work, GridProduct):
        s = work.step
        return [f"product {'×'.join(map(str, (*s.batch, s.m, s.k)))} · {s.k}×{s.n}"]
    if isinstance(work, InlineStages):
        return [type(work.routine).__name__]
    title, *inside = work.describe() or [type(work).__name__]
    return [title, *[f"  {line}" for line in inside]]


# -- from graphs ---------------------------------------------------------------------------------


class _Bodies:
    """What bodies are lowered for: see `compiler.target.Lowering`."""

    alignment: int = 64
    adopts: bool = False
    limits: Limits = GPU_LIMITS
    passes: Passes = ()
    product_dtypes: Collection[np.dtype] = PRODUCT_DTYPES

    def supports(self, graph: Graph, e: Equation) -> str:
        return supports(graph, e)

    def routine(self, graph: Graph, views: Mapping[int, View], e: Equation) -> Routine | str | None:
        made = routine_of(graph, views, e)
        return made.inner if isinstance(made, BlockRoutine) else made

    def takes_long(self, work: Kernel | Routine | GemmStep, dtype: np.dtype | None = None) -> bool:
        return False

    def library_fails(self, op: Op) -> bool:
        return library_fails(op)

    def cost(self, schedule: Schedule, step: ScheduleStep) -> float:
        return step_cost(schedule, step)

    def tune(self, schedule: Schedule, tight: bool) -> Schedule:
        return schedule


def schedule_body(graph: Graph) -> Schedule | str:
    """The schedule of a body after the passes; otherwise the reason why no block computes it."""
    from ...fusion.assemble import schedule_graph  # which imports the routines

    schedule = schedule_graph(graph, _Bodies())
    for s in schedule.steps:
        if isinstance(s, LibraryStep):
            return f"its body calls a library for {s.op.name} at {s.line}: {s.reason}"
        if isinstance(s, GuardStep):
            return f"its body has a check: {s.message}"
        assert not isinstance(s, TiledStep), "only whole programs have them"
    return schedule


def keep_near(schedule: Schedule, carries: int) -> Schedule:
    """A body whose kernels store what later steps read of its ys a second time, in scratch memory.

    Arrays of ys are far away: what was just written there takes long to be read.
    """
    steps, buffers = list(schedule.steps), list(schedule.buffers)
    for y in schedule.outputs[carries:]:
        writes = [k for k, s in enumerate(steps) if y in s.writes]
        reads = [k for k, s in enumerate(steps) if y in s.reads]
        first = steps[writes[0]] if len(writes) == 1 else None
        if not reads or not isinstance(first, KernelStep) or buffers[y].base is not None:
            continue
        near, at = len(buffers), first.results.index(y)
        buffers.append(replace(buffers[y], role="scratch", takes=None))
        kernel = first.kernel
        kernel = replace(kernel, results=(*kernel.results, kernel.results[at]))
        steps[writes[0]] = replace(first, kernel=kernel, results=(*first.results, near))
        for k in reads:
            steps[k] = _reading(steps[k], {y: near})
    return replace(schedule, buffers=tuple(buffers), steps=tuple(steps))


def _reading(s, names: dict[int, int]):
    """A step that reads other buffers."""
    if isinstance(s, GemmStep):
        return replace(s, a=names.get(s.a, s.a), b=names.get(s.b, s.b))
    return replace(s, operands=tuple([names.get(i, i) for i in s.operands]))


# By steps, the bytes by which each of their arrays moves from block to block.
Shifts = Sequence[tuple[int, ...]]


def block_of(
    schedule: Schedule,
    inputs: Sequence[Place],
    outputs: Sequence[Place],
    scratch: int,
    threads: int,
    shifts: Shifts | None = None,
    blocks: int = 1,
) -> GridBlock | str:
    """The block of a body's schedule; otherwise the reason why there is none.

    inputs, outputs  their places
    scratch          bytes of the scratch memory that are used otherwise
    shifts, blocks   where a grid of blocks has some rows each
    """
    memory = plan(schedule)
    roots = dict(zip(schedule.inputs, inputs, strict=True))
    roots |= zip(map(schedule.storage, schedule.outputs), outputs, strict=True)
    roots |= {i: Place(ARENA, at) for i, at in memory.offsets.items()}
    roots |= {i: Place(CONSTANT - k) for k, i in enumerate(schedule.constants)}
    uses = [uses_of(schedule, s, roots) for s in schedule.steps]
    if shifts is not None:
        uses = [
            [u.moved(shift, blocks) for u, shift in zip(*step, strict=True)]
            for step in zip(uses, shifts, strict=True)
        ]
    ahead = find_slices(uses, round_up(scratch), threads)
    begin = ahead.at + 2 * ahead.size
    uses = [[settle(u, ahead, begin) for u in step] for step in uses]
    made: list[GridCall] = []
    spans = Spans()
    for s, used in zip(schedule.steps, uses, strict=True):
        work = _work(schedule, s, used, threads)
        if isinstance(work, str):
            return work
        waits = spans.enter(used, _room(work))
        made.append(GridCall(work, tuple([u.place for u in used]), waits))
    constants = tuple(np.ascontiguousarray(v).tobytes().hex() for v in schedule.constants.values())
    room = max([_room(c.work) for c in made], default=0)
    total = sum(_size(c.work) for c in made)
    if total > MOST:
        return f"a step of its body has {total} elements and terms, too many for one block"
    return GridBlock(tuple(made), constants, ahead, begin + memory.size, room, total)


def _room(work: Work) -> int:
    return 0 if isinstance(work, GridProduct) else work.room


def _size(work: Work) -> int:
    if isinstance(work, InlineKernel):
        return prod(work.kernel.domain)
    if isinstance(work, GridProduct):
        return work.step.flops // 2
    return work.work


def _work(schedule: Schedule, s, uses: Sequence[Use], threads: int) -> Work | str:
    aligned = [u.place.aligned(u.dtype.itemsize) for u in uses]
    if isinstance(s, GemmStep):
        dtype, right = uses[2].dtype, uses[1].place
        step = replace(s, a=0, b=1, c=2, origins=())
        stays = right.pointer >= 0 and not right.stride and schedule.buffers[s.b].role == "input"
        return plan_product(step, dtype, threads, aligned[0], stays)
    if isinstance(s, KernelStep):
        return InlineKernel(s.kernel, threads, gcd(*aligned))
    assert isinstance(s, NativeStep) and isinstance(s.routine, GridRoutine)
    if isinstance(s.routine, BlockRoutine):
        return s.routine
    return inline_stages(s.routine, threads, gcd(*aligned))


# -- emitting ------------------------------------------------------------------------------------


class BlockEmitter:
    """Emits blocks into the function of a routine.

    base  the pointers that are not among the routine's arrays, by their numbers
    step  the index of the loop, by which strided arrays advance
    """

    def __init__(self, threads: Threads, arrays: Sequence[BlockArray], scratch: BlockArray):
        self.threads, self.code, self.arrays = threads, threads.code, arrays
        self.base: dict[int, BlockArray] = {SCRATCH: scratch}
        self.step: LLValue | None = None

    def hold(self, block: GridBlock) -> dict[int, Held]:
        """What stays in registers during a loop, by calls; emitted before it."""
        return {
            k: ProductEmitter(c.work, self.threads, self._fixed(c)).hold()
            for k, c in enumerate(block.calls)
            if isinstance(c.work, GridProduct) and c.work.held
        }

    def write(self, block: GridBlock, held: Mapping[int, Held] | None = None) -> None:
        """Emit all calls at the current point."""
        for k, digits in enumerate(block.constants):
            name = self.code.module.data(bytes.fromhex(digits))
            self.base[CONSTANT - k] = BlockArray(LLValue(self.code, POINTER, f"@{name}"))
        for k, c in enumerate(block.calls):
            if c.waits:
                self.threads.machine.barrier()
            arrays = self._arrays(c)
            if isinstance(c.work, GridProduct):
                emitter = ProductEmitter(c.work, self.threads, arrays)
                emitter.emit((held or {}).get(k))
            elif isinstance(c.work, BlockRoutine):
                c.work.emit_inside(self.threads, arrays)
            else:
                c.work.emit(self.threads, arrays)

    def _fixed(self, c: GridCall) -> dict[int, BlockArray]:
        """The right operand of a product."""
        return {1: self.resolve(c.places[1])}

    def _arrays(self, c: GridCall) -> list[BlockArray]:
        return [self.resolve(p) for p in c.places]

    def resolve(self, p: Place) -> BlockArray:
        """Where an array is at this step of the loop."""
        array = self.arrays[p.pointer] if p.pointer >= 0 else self.base[p.pointer]
        array = array.behind(p.offset) if p.offset else array
        if p.shift:
            block = self.threads.machine.block().cast("zext", "i64")
            array = array.behind(block * p.shift)
        if p.stride:
            assert self.step is not None, "an array of steps outside of a loop"
            array = array.behind(self.step * p.stride)
        return array


def move(threads: Threads, to: BlockArray, source: BlockArray, dtype: np.dtype, n: int) -> None:
    """Copy n contiguous elements."""
    code, kind, size = threads.code, memory_type(dtype), dtype.itemsize

    def one(i: LLValue) -> None:
        here, there = (code.address(a.pointer, i, kind.element) for a in (source, to))
        for array, pointer in ((source, here), (to, there)):
            if array.number is not None:
                threads.machine.access(array.number, pointer, size, size)
        code.store(code.load(kind, here, size), there, size)

    each(code, threads.number(), n, one, threads.count)
