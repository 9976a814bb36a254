"""The arena of an order of steps and of units that run again.

It is that of the schedule that `repeat` makes of the order, which takes longer.
"""

from collections.abc import Sequence

from ...core.record import record
from ..ir.schedule import ScheduleStep
from ..memory import (
    ArenaSlot,
    MemoryPlan,
    adopted_roots,
    bytes_by_step,
    may_inherit,
    passing_bytes,
    plan_slots,
    round_up,
)
from .recompute import Recipes
from .repeat import Emission, Emitter, Rerun


@record
class Slots:
    """The slots of the arena in an order of so many steps.

    adopted  those of library results that the target adopts; None if it adopts none
    """

    slots: list[ArenaSlot]
    steps: int
    adopted: list[ArenaSlot] | None = None

    @property
    def least(self) -> int:
        """The least that a plan takes: the bytes of the arena that are alive at the worst step.

        And those that are adopted at their worst step, since the arena stays as large as it is.
        """
        return sum([max(bytes_by_step(s, self.steps)) for s in (self.slots, self.adopted or ())])

    def plan(self) -> MemoryPlan:
        """The arena's layout."""
        return plan_slots(self.slots, self.steps, self.adopted)


class Footprint:
    """The slots of orders of one schedule."""

    def __init__(self, recipes: Recipes, alignment: int, adopts: bool = False):
        self._recipes, self._alignment, self._adopts = recipes, alignment, adopts
        self._apart = adopted_roots(recipes.schedule) if adopts else frozenset()
        self._sizes = [round_up(b.nbytes, alignment) for b in recipes.schedule.buffers]
        self._heirs: dict[int, list[tuple[int, int]]] = {}  # by the identity of a step

    def measure(self, order: Sequence[int | Rerun]) -> "Slots":
        """The slots of an order; its copies have the numbers that `repeat` gives them."""
        emitter = Emitter(self._recipes)
        steps = list(emitter.run(order))
        sizes = self._sizes + [self._sizes[i] for i in emitter.copied]
        first, last = self._lives(steps)
        slots = {i: ArenaSlot([i], sizes[i], k, last[i]) for i, k in first.items()}
        adopted = [slots.pop(i) for i in sorted(self._apart & slots.keys())]
        for k, step in enumerate(steps):
            nbytes = passing_bytes(self._recipes.schedule, step.step) if self._adopts else 0
            if nbytes:
                adopted.append(ArenaSlot([], round_up(nbytes, self._alignment), k, k))
            taken: set[int] = set()
            for pair in self._may_inherit(step.step):
                heir, parent = (step.copies.get(i, i) for i in pair)
                apart = not self._apart.isdisjoint((heir, parent))
                if apart or not first.get(heir) == k == last.get(parent):
                    continue
                if taken.isdisjoint((heir, parent)):
                    taken.update((heir, parent))
                    slot = slots[heir] = slots[parent]
                    slot.buffers.append(heir)
                    slot.last = last[heir]
        arena = list({id(s): s for s in slots.values()}.values())
        return Slots(arena, len(steps), adopted if self._adopts else None)

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
