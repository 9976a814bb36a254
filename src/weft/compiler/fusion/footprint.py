"""The bytes that are alive in an order of steps and of units that run again.

They are those of the schedule that `repeat` makes of the order, which takes longer.
"""

from collections.abc import Sequence
from itertools import accumulate

from ..ir.schedule import ScheduleStep
from ..memory import may_inherit, round_up
from .recompute import Recipes
from .repeat import Emission, Emitter, Rerun


class Footprint:
    """The bytes of orders of one schedule."""

    def __init__(self, recipes: Recipes, alignment: int):
        self._recipes = recipes
        self._sizes = [round_up(b.nbytes, alignment) for b in recipes.schedule.buffers]
        self._heirs: dict[int, list[tuple[int, int]]] = {}  # by the identity of a step

    def most(self, order: Sequence[int | Rerun]) -> int:
        """The bytes that are alive at the worst step: the least size of an arena."""
        emitter = Emitter(self._recipes)
        steps = list(emitter.run(order))
        sizes = self._sizes + [self._sizes[i] for i in emitter.copied]
        first, last = self._lives(steps)
        change = [0] * (len(steps) + 1)
        for i, k in first.items():
            change[k] += sizes[i]
            change[last[i] + 1] -= sizes[i]
        for k, step in enumerate(steps):
            taken: set[int] = set()
            for heir, parent in self._may_inherit(step.step):
                pair = step.copies.get(heir, heir), step.copies.get(parent, parent)
                if first.get(pair[0]) == k == last.get(pair[1]) and taken.isdisjoint(pair):
                    taken.update(pair)
                    change[k] -= sizes[heir]  # one place for both
                    change[k + 1] += sizes[heir]
        return max(accumulate(change))

    def _lives(self, steps: Sequence[Emission]) -> tuple[dict[int, int], dict[int, int]]:
        """The steps that write buffers of the arena first, and that use them last."""
        first: dict[int, int] = {}
        last: dict[int, int] = {}
        scratch = self._recipes.sizes
        for k, step in enumerate(steps):
            copies = step.copies
            for i in self._recipes.roots(step.step):
                copy = copies.get(i)
                if copy is not None or i in scratch:
                    buffer = i if copy is None else copy
                    first.setdefault(buffer, k)
                    last[buffer] = k
        return first, last

    def _may_inherit(self, step: ScheduleStep) -> list[tuple[int, int]]:
        found = self._heirs.get(id(step))
        if found is None:
            found = self._heirs[id(step)] = list(may_inherit(self._recipes.schedule, step))
        return found
