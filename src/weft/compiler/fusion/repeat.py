"""Schedules in which units run again: new buffers for their results, and who reads which copy."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...core.record import record
from ...graph.graph import Literal
from ..ir.schedule import (
    Buffer,
    GemmStep,
    GuardStep,
    KernelStep,
    LibraryStep,
    NativeStep,
    Schedule,
    ScheduleStep,
    TiledStep,
)
from .recompute import Recipes


@record
class Rerun:
    """A unit that runs again; later steps read its copies of the buffers in `keeps`."""

    unit: int
    keeps: frozenset[int]


@record
class Emission:
    """A step of the old schedule, or a part of one, in an order.

    copies  by root, the copy that it reads or writes instead
    """

    step: ScheduleStep
    copies: dict[int, int]


def repeat(recipes: Recipes, order: Sequence[int | Rerun]) -> Schedule:
    """The schedule in an order of its steps, by position, and of units that run again."""
    emitter = Emitter(recipes)
    emissions = list(emitter.run(order))
    schedule = recipes.schedule
    clones = [replace(schedule.buffers[i], role="scratch", takes=None) for i in emitter.copied]
    renaming = _Renaming(schedule, [*schedule.buffers, *clones])
    steps = tuple([renaming.apply(e) for e in emissions])
    return replace(schedule, buffers=tuple(renaming.buffers), steps=steps)


class Emitter:
    """Says which copies the steps of an order read and write: the newest that are kept.

    copied  the roots of the copies, which are numbered after the buffers of the schedule
    """

    def __init__(self, recipes: Recipes):
        self._recipes, self._schedule = recipes, recipes.schedule
        self._base = len(self._schedule.buffers)
        self._copy: dict[int, int] = {}
        self.copied: list[int] = []

    def run(self, order: Sequence[int | Rerun]) -> Iterator[Emission]:
        """The steps in their order; a product and its epilogue that follow each other are one."""
        product: tuple[int, Emission] | None = None  # the position of a tiled step, and its product
        for at, step in self._steps(order):
            whole, made = self._schedule.steps[at], self._emission(step)
            if isinstance(whole, TiledStep) and step is whole.then and product and product[0] == at:
                made, product = Emission(whole, product[1].copies | made.copies), None
            if product:
                yield product[1]
            if isinstance(whole, TiledStep) and step is whole.product:
                product = at, made
            else:
                product = None
                yield made
        if product:
            yield product[1]

    def _steps(self, order: Sequence[int | Rerun]) -> Iterator[tuple[int, ScheduleStep]]:
        """Steps and parts with their positions, while `_copy` is what they read and write."""
        for entry in order:
            if not isinstance(entry, Rerun):
                yield entry, self._schedule.steps[entry]
                continue
            unit = self._recipes.units[entry.unit]
            before = {i: self._copy.get(i) for i in unit.writes}
            for i in unit.writes:
                self._copy[i] = self._base + len(self.copied)
                self.copied.append(i)
            for p in unit.parts:
                yield p.at, p.step
            for i, old in before.items():
                if i not in entry.keeps:
                    del self._copy[i]
                    self._copy |= {} if old is None else {i: old}

    def _emission(self, step: ScheduleStep) -> Emission:
        roots = self._recipes.roots(step) if self._copy else ()
        return Emission(step, {i: self._copy[i] for i in roots if i in self._copy})


class _Renaming:
    """Steps that read and write copies.

    buffers  of the new schedule: also views of copies
    """

    def __init__(self, schedule: Schedule, buffers: list[Buffer]):
        self._schedule, self.buffers = schedule, buffers
        self._copy: dict[int, int] = {}
        self._views: dict[tuple[int, int], int] = {}  # by a view and the copy of its root

    def apply(self, emission: Emission) -> ScheduleStep:
        self._copy = emission.copies
        return self._renamed(emission.step)

    def _buffer(self, i: int) -> int:
        root = self._schedule.storage(i)
        copy = self._copy.get(root)
        if copy is None or root == i:
            return i if copy is None else copy
        if (i, copy) not in self._views:
            self.buffers.append(replace(self._schedule.buffers[i], role="scratch", base=copy))
            self._views[i, copy] = len(self.buffers) - 1
        return self._views[i, copy]

    def _renamed(self, step: ScheduleStep) -> ScheduleStep:
        if not self._copy:
            return step
        if isinstance(step, KernelStep | NativeStep):
            operands, results = (tuple(map(self._buffer, x)) for x in (step.operands, step.results))
            return replace(step, operands=operands, results=results)
        if isinstance(step, GemmStep):
            a, b, c = map(self._buffer, (step.a, step.b, step.c))
            bias = None if step.bias is None else self._buffer(step.bias)
            return replace(step, a=a, b=b, c=c, bias=bias)
        return self._renamed_other(step)

    def _renamed_other(self, step: ScheduleStep) -> ScheduleStep:
        if isinstance(step, TiledStep):
            product, then = self._renamed(step.product), self._renamed(step.then)
            assert isinstance(product, GemmStep) and isinstance(then, KernelStep)
            return replace(step, product=product, then=then)
        if isinstance(step, LibraryStep):
            inputs = [i if isinstance(i, Literal) else self._buffer(i) for i in step.inputs]
            return replace(step, inputs=tuple(inputs))
        assert isinstance(step, GuardStep)
        seen = step.seen and (self._buffer(step.seen[0]), *step.seen[1:])
        return replace(step, flag=self._buffer(step.flag), seen=seen)
