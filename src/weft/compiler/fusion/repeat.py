"""Schedules in which units run again: new buffers for their results, and who reads which copy."""

from collections.abc import Sequence
from dataclasses import replace

from ...core.record import record
from ...graph.graph import Literal
from ..ir.schedule import (
    GemmStep,
    GuardStep,
    KernelStep,
    LibraryStep,
    NativeStep,
    Schedule,
    ScheduleStep,
    TiledStep,
)
from .recompute import NEVER, Recipes


@record
class Rerun:
    """A unit that runs again; later steps read its copies of the buffers in `keeps`."""

    unit: int
    keeps: frozenset[int]


def repeat(recipes: Recipes, order: Sequence[int | Rerun]) -> Schedule:
    """The schedule in an order of its steps, by position, and of units that run again."""
    return _Repeater(recipes).run(order)


class _Repeater:
    """Emits steps, each reading the newest kept copies of its operands."""

    def __init__(self, recipes: Recipes):
        self._recipes, self._schedule = recipes, recipes.schedule
        self._buffers = list(self._schedule.buffers)
        self._copy: dict[int, int] = {}  # the newest kept copy of each root that has copies
        self._views: dict[tuple[int, int], int] = {}  # by a view and the copy of its root

    def run(self, order: Sequence[int | Rerun]) -> Schedule:
        steps: list[ScheduleStep] = []
        product = NEVER  # the position of the tiled step whose product was emitted last
        for entry in order:
            if not isinstance(entry, Rerun):
                steps.append(self._renamed(self._schedule.steps[entry]))
                product = NEVER
                continue
            unit, before = self._recipes.units[entry.unit], dict(self._copy)
            self._copy |= {i: self._clone(i) for i in unit.writes}
            for p in unit.parts:
                step, whole = self._renamed(p.step), self._schedule.steps[p.at]
                if isinstance(whole, TiledStep) and p.at == product and p.step is whole.then:
                    last = steps.pop()
                    assert isinstance(step, KernelStep) and isinstance(last, GemmStep)
                    step = TiledStep(last, step, whole.tile)
                steps.append(step)
                product = p.at if whole is not p.step and isinstance(step, GemmStep) else NEVER
            for i in unit.writes:
                if i not in entry.keeps:
                    del self._copy[i]
                    self._copy |= {i: before[i]} if i in before else {}
        return replace(self._schedule, buffers=tuple(self._buffers), steps=tuple(steps))

    def _clone(self, i: int) -> int:
        self._buffers.append(replace(self._schedule.buffers[i], role="scratch", takes=None))
        return len(self._buffers) - 1

    def _buffer(self, i: int) -> int:
        root = self._schedule.storage(i)
        copy = self._copy.get(root)
        if copy is None or root == i:
            return i if copy is None else copy
        if (i, copy) not in self._views:
            self._buffers.append(replace(self._schedule.buffers[i], role="scratch", base=copy))
            self._views[i, copy] = len(self._buffers) - 1
        return self._views[i, copy]

    def _renamed(self, step: ScheduleStep) -> ScheduleStep:
        if not self._copy:
            return step
        if isinstance(step, KernelStep | NativeStep):
            operands, results = (tuple(map(self._buffer, x)) for x in (step.operands, step.results))
            return replace(step, operands=operands, results=results)
        if isinstance(step, GemmStep):
            a, b, c = map(self._buffer, (step.a, step.b, step.c))
            return replace(step, a=a, b=b, c=c)
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
