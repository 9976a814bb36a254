"""Kernels inside of a block's function: its threads compute them one after the other."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from math import prod

from ....core.record import record
from ...emit.code import Code, LLModule, LLValue, Type
from ...emit.control import behind, each, when
from ...ir.kernel import Kernel
from ..flat import FlatPlan
from ..folds import FoldPlan, fits_registers, power_of_two
from ..kernels import GridPlan, emit_grid, plan_grid
from ..machine import WARP, Machine, PtxMachine
from ..pieces import PiecePlan
from ..ptx import FEATURES
from ..steps import fold_of
from .routine import GridRoutine, RoutineStage

# Bytes that what is shared lies apart at least.
_APART = 16


@record(eq=False)
class BlockArray:
    """An array of a call: its first element, and its number among the entry's arrays, if any."""

    pointer: LLValue
    number: int | None = None

    def behind(self, count: LLValue | int) -> "BlockArray":
        """The array so many bytes further."""
        return BlockArray(behind(self.pointer, count), self.number)


@record(eq=False)
class Threads:
    """The threads of a block, and shared memory for the time of one call."""

    machine: Machine
    count: int
    room: LLValue | None

    @property
    def code(self) -> Code:
        return self.machine.code

    def number(self) -> LLValue:
        """The number of this thread, as a word."""
        return self.machine.thread().cast("zext", "i64")


@record(frozen=False, eq=False)
class InnerMachine:
    """A machine for one call: its arrays, and one of its blocks, of `size` threads, in turn."""

    threads: Threads
    arrays: Sequence[BlockArray]
    turn: LLValue
    size: int
    used: int = 0

    @property
    def code(self) -> Code:
        return self.threads.code

    @property
    def pointers(self) -> list[LLValue]:
        return [a.pointer for a in self.arrays]

    def thread(self) -> LLValue:
        thread = self.threads.machine.thread()
        return thread if self.size == self.threads.count else thread.modulo(self.size, False)

    def block(self) -> LLValue:
        return self.turn

    def barrier(self) -> None:
        self.threads.machine.barrier()

    def exchange(self, word: LLValue, distance: int) -> LLValue:
        return self.threads.machine.exchange(word, distance)

    def shared(self, kind: Type, count: int) -> LLValue:
        assert self.threads.room is not None, "a kernel that was not expected to share memory"
        at = self.used
        self.used += _apart(count * kind.lanes * kind.width // 8)
        return behind(self.threads.room, at)

    def access(self, array: int | LLValue, pointer: LLValue, size: int, align: int) -> None:
        assert isinstance(array, int), "kernels of a body are launched one by one"
        number = self.arrays[array].number
        if number is not None:
            self.threads.machine.access(number, pointer, size, align)

    def finish(self) -> None:
        pass


def _apart(nbytes: int) -> int:
    return -(-nbytes // _APART) * _APART


@record
class InlineKernel:
    """A kernel for the threads of one block.

    aligned  what all its pointers are multiples of, in bytes, or more
    """

    kernel: Kernel
    threads: int
    aligned: int

    @cached_property
    def planned(self) -> tuple[Kernel, GridPlan]:
        """The kernel in the form that threads compute, and how they share it."""
        return _plan(self.kernel, self.threads, self.aligned)

    @property
    def room(self) -> int:
        """Bytes of shared memory that its folds use."""
        kernel, plan = self.planned
        if not plan.grid or isinstance(plan, FlatPlan):
            return 0
        return _room(kernel, plan.lines if isinstance(plan, PiecePlan) else plan)

    def emit(self, threads: Threads, arrays: Sequence[BlockArray]) -> None:
        """Emit the part of one thread."""
        kernel, plan = self.planned

        def turn(number: LLValue) -> None:
            inner = InnerMachine(threads, arrays, number.cast("trunc", "i32"), threads.count)
            emit_grid(kernel, plan, inner, self.aligned)
            assert inner.used <= self.room
            if self.room and plan.grid > 1:  # the next turn uses the same memory
                inner.barrier()

        code = threads.code
        if plan.grid == 1:
            turn(code.constant(threads.number().type, 0))
        elif plan.grid:
            each(code, 0, plan.grid, turn)


def _plan(kernel: Kernel, threads: int, aligned: int) -> tuple[Kernel, GridPlan]:
    form, plan = plan_grid(kernel, aligned)
    if not plan.grid:
        return form, plan
    if isinstance(plan, FlatPlan):
        return form, _fit_flat(plan, threads)
    if isinstance(plan, PiecePlan):
        lines = replace(plan.lines, team=threads, lines=1)
        unrolled = fits_registers(form, lines.turns, lines.lanes, threads)
        return form, replace(plan, lines=replace(lines, unrolled=unrolled))
    return form, _fit_folds(form, plan, threads)


def _fit_flat(plan: FlatPlan, threads: int) -> FlatPlan:
    """Fewer elements side by side where there would be threads without any."""
    lanes, lines = plan.lanes, prod([axis.size for axis in plan.outer])
    while lanes > 1 and lines * (plan.lane.size // lanes) < threads:
        lanes //= 2
    rest = plan.lane.size % lanes
    groups = lines * (plan.lane.size // lanes + rest)
    return FlatPlan(plan.outer, plan.lane, lanes, rest, groups, 1, threads)


def _fit_folds(kernel: Kernel, plan: FoldPlan, threads: int) -> FoldPlan:
    lanes, groups, count = plan.lanes, plan.groups, plan.count
    if plan.lane_folded:
        while lanes > 1 and groups * count < threads:
            lanes //= 2
            groups = plan.lane.size // lanes if plan.rest else groups * 2
        team = min(power_of_two(groups), power_below(threads // count))
        team = threads if team > WARP else team
    else:
        count, lanes = count * lanes, 1
        team = min(power_of_two(groups), threads // WARP) if count < threads else 1
    lines = threads // team
    made = replace(plan, lanes=lanes, groups=groups, count=count, team=team, lines=lines)
    made = replace(made, rest=plan.lane.size % lanes if plan.rest else 0, held=False)
    return replace(made, unrolled=fits_registers(kernel, made.turns, lanes, team))


class _Measure(PtxMachine):
    """A machine that counts what a stage uses."""

    waits: int = 0
    used: int = 0

    def __init__(self, arrays: int):
        super().__init__(LLModule("", FEATURES), "measured", arrays)

    def barrier(self) -> None:
        self.waits += 1
        super().barrier()

    def shared(self, kind: Type, count: int) -> LLValue:
        self.used += _apart(count * kind.lanes * kind.width // 8)
        return super().shared(kind, count)


@record
class InlineStages:
    """A routine's stages for the threads of one block, one after the other.

    room  bytes of shared memory that a stage uses, at most
    """

    routine: GridRoutine
    aligned: int
    room: int

    @property
    def draws(self) -> bool:
        return self.routine.draws

    @property
    def work(self) -> int:
        """Threads of all stages."""
        return sum(s.grid * s.block for s in self.routine.stages)

    def emit(self, threads: Threads, arrays: Sequence[BlockArray]) -> None:
        """Emit the part of one thread."""
        for k, stage in enumerate(self.routine.stages):
            if k:
                threads.machine.barrier()
            stage = replace(stage, aligned=self.aligned)
            self._stage(threads, stage, [arrays[i] for i in stage.arrays])

    def _stage(self, threads: Threads, stage: RoutineStage, arrays: Sequence[BlockArray]) -> None:
        beside = threads.count // stage.block  # blocks that are done at the same time

        def turn(number: LLValue) -> None:
            block = number
            if beside > 1:
                block = number * beside + threads.number().divide(stage.block, False)
            inner = InnerMachine(threads, arrays, block.cast("trunc", "i32"), stage.block)
            if stage.grid % beside:
                when(block < stage.grid, lambda: stage.emit(inner))
            else:
                stage.emit(inner)
            assert inner.used <= self.room
            if inner.used:  # the next turn uses the same memory
                inner.barrier()

        each(threads.code, 0, -(-stage.grid // beside), turn)


def inline_stages(routine: GridRoutine, threads: int, aligned: int) -> InlineStages | str:
    """A routine as the threads of one block do it; otherwise the reason why they cannot."""
    room = 0
    for stage in routine.stages:
        measured = _Measure(len(stage.arrays))
        replace(stage, aligned=aligned).emit(measured)
        alone = stage.block == threads
        if not alone and (threads % stage.block or measured.waits or measured.used):
            name = type(routine).__name__
            return f"{name} in its body has blocks of {stage.block} threads, not of {threads}"
        room = max(room, measured.used)
    return InlineStages(routine, aligned, room)


def power_below(n: int) -> int:
    """The largest power of two that is not more than n; 1 if there is none."""
    return 1 << max(n.bit_length() - 1, 0)


def _room(kernel: Kernel, plan: FoldPlan) -> int:
    """Bytes of shared memory that folds across threads use."""
    widest = 8
    if not plan.lane_folded:
        each_one = plan.team * plan.lines * plan.lanes * widest if plan.team > 1 else 0
    else:
        each_one = widest * (plan.team // WARP) if plan.team > WARP else 0
    folds = sum(fold_of(kernel, i) is not None for i in kernel.live)
    return folds * _apart(each_one)
