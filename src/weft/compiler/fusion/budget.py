"""Schedules under a checkpoint strategy: steps run again so that the arena is smaller.

For a budget there is a ladder of schedules, each simulated in a fixed share of the bytes of the one
before. Neither the ladder nor the way through it depends on the budget, but for whether a memory
plan fits: so the peak never rises as the budget falls.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from math import inf
from typing import Protocol

from ... import errors
from ...core.checkpointing import MIB, CheckpointConfig, CheckpointStrategy
from ...core.origin import line_of
from ...core.record import record
from ..ir.schedule import GuardStep, LibraryStep, Schedule, ScheduleStep
from ..memory import MemoryPlan, Recomputation, call_bytes
from .apart import take_apart
from .eviction import Eviction, evict
from .footprint import Footprint, Slots
from .kept import Cut
from .recompute import Recipes
from .repeat import Rerun, repeat

# Rungs in which the bytes halve, and those of a small step; the steps in vain before the ladder
# ends, and the last rung.
HALF, SMALL, VAIN, LAST = 32, 4, 2, 320


class Costs(Protocol):
    """The part of a target that is needed."""

    @property
    def alignment(self) -> int: ...

    @property
    def adopts(self) -> bool: ...

    def cost(self, schedule: Schedule, step: ScheduleStep) -> float:
        """The approximate nanoseconds of a step."""
        ...


def apply_checkpoints(
    schedule: Schedule, placed: MemoryPlan, target: Costs, config: CheckpointConfig
) -> tuple[Schedule, MemoryPlan]:
    """The schedule under a strategy, and its plan; with a budget, one that fits.

    Raises `BudgetExceeded` if none does.
    """
    ladder = Ladder(schedule, placed, target)
    budget, strategy = config.budget, config.strategy
    taken = call_bytes(schedule, placed)
    fixed = taken.peak - placed.peak + taken.tables
    if strategy is CheckpointStrategy.Full:
        found = ladder.smallest()
    elif strategy is CheckpointStrategy.Auto:
        found = schedule, placed
    else:
        found = ladder.by_strategy(config)
    if budget is None or found[1].peak <= budget - fixed:
        return found
    fitting = ladder.first(budget - fixed)
    if fitting is None:
        raise _refusal(ladder, budget, taken.tables)
    return fitting


class Ladder:
    """The schedules that take less and less memory, and longer and longer.

    Rung k is simulated in 2^(-k/HALF) of the bytes of the plain schedule. For a budget, first the
    rungs are tried in which the bytes halve. Below the last one that keeps to its bytes, those in
    between follow one by one, until they are in vain. Above the first one that fits, the rung with
    the most bytes that fits is found by bisection. Which rung is tried next depends only on
    whether the last one fits, and one above another is taken only if it does not take fewer bytes:
    so where the ways of two budgets part, the larger one gets the larger arena. If none fits,
    there is a second ladder, of the schedule with some of its kernels taken apart.

    apart  that schedule, in the second ladder
    """

    def __init__(
        self,
        schedule: Schedule,
        placed: MemoryPlan,
        target: Costs,
        apart: Schedule | None = None,
    ):
        self.schedule, self.placed, self._target, self._apart = schedule, placed, target, apart
        self._rungs: dict[int, _Rung | None] = {}
        self._plans: dict[int, MemoryPlan] = {0: placed}

    @cached_property
    def recipes(self) -> Recipes:
        """The units that may run again."""
        schedule = self._apart or self.schedule
        target = self._target
        return Recipes(schedule, target.cost, target.alignment, target.adopts)

    @cached_property
    def _second(self) -> "Ladder | None":
        apart = None if self._apart else take_apart(self.schedule)
        if apart is None or apart is self.schedule:
            return None
        return Ladder(self.schedule, self.placed, self._target, apart)

    @cached_property
    def cut(self) -> Cut:
        """The choices at the peak."""
        live = self.recipes.profile
        return Cut(self.recipes, live.index(max(live)), live)

    @cached_property
    def _footprint(self) -> Footprint:
        return Footprint(self.recipes, self._target.alignment, self._target.adopts)

    def first(self, nbytes: int) -> tuple[Schedule, MemoryPlan] | None:
        """The rung whose plan takes no more than some bytes."""
        above = 0
        for k in self._descent():
            if self._fits(k, nbytes):
                return self._make(self._raise(above, k, nbytes))
            above = k
        return None if self._second is None else self._second.first(nbytes)

    def smallest(self) -> tuple[Schedule, MemoryPlan]:
        """The rung whose plan takes the fewest bytes, of all those that a refusal has tried."""
        rungs = [(rung.least, k) for k in self._descent() if (rung := self._rung(k))]
        best = 0
        for least, k in sorted(rungs):
            if least >= self._size(best):
                break
            best = min(best, k, key=lambda k: (self._size(k), k))
        found = [self._make(best), *([self._second.smallest()] if self._second else [])]
        return min(found, key=lambda made: made[1].peak)

    def by_strategy(self, config: CheckpointConfig) -> tuple[Schedule, MemoryPlan]:
        """The schedule of a strategy without a budget, unless it takes more memory."""
        if config.strategy is CheckpointStrategy.None_ or not self.placed.peak:
            return self.schedule, self.placed
        if config.strategy is CheckpointStrategy.Block:
            kept = self.cut.every(config.checkpoint_every_n)
        else:
            kept = self.cut.expensive(config.min_compute_cost)
        rung = self._measure(evict(self.recipes, float("inf"), self.cut.at, kept))
        if rung is None or rung.least >= self.placed.peak:
            return self.schedule, self.placed
        made = replace(rung.slots.plan(), again=rung.again)
        return repeat(self.recipes, rung.order), made

    # -- which rungs ---------------------------------------------------------------------------

    def _descent(self) -> Iterator[int]:
        """The rungs that are tried until one fits."""
        if not self.placed.peak:
            return
        last = 0
        for k in range(HALF, LAST, HALF):
            rung = self._rung(k)
            if rung is None or rung.least > self._limit(k):
                break
            last = k
            yield k
        vain, least = 0, self._least(last)
        for k in range(last + SMALL, LAST, SMALL):
            if self._rung(k) is None:
                return
            yield k
            vain = 0 if self._least(k) < least else vain + 1
            least = min(least, self._least(k))
            if vain >= VAIN:
                return

    def _raise(self, above: int, k: int, nbytes: int) -> int:
        """The rung with the most bytes that fits, of those from one that fits up to one above."""
        while k - above > 1:
            middle = (above + k) // 2
            if self._fits(middle, nbytes) and self._size(middle) >= self._size(k):
                k = middle
            else:
                above = middle
        return k

    def _fits(self, k: int, nbytes: int) -> bool:
        return self._least(k) <= nbytes and self._size(k) <= nbytes

    # -- one rung ------------------------------------------------------------------------------

    def _limit(self, k: int) -> float:
        return self.placed.peak * 2.0 ** (-k / HALF)

    def _least(self, k: int) -> float:
        rung = self._rung(k)
        return inf if rung is None else rung.least

    def _size(self, k: int) -> int:
        if k not in self._plans:
            rung = self._rung(k)
            assert rung is not None
            self._plans[k] = rung.slots.plan()
        return self._plans[k].peak

    def _make(self, k: int) -> tuple[Schedule, MemoryPlan]:
        """The schedule of a rung, and its plan."""
        if not k:
            return self.schedule, self.placed
        rung, size = self._rung(k), self._size(k)
        assert rung is not None and size
        return repeat(self.recipes, rung.order), replace(self._plans[k], again=rung.again)

    def _rung(self, k: int) -> "_Rung | None":
        if k not in self._rungs:
            self._rungs[k] = self._measure(self._within(self._limit(k)))
        return self._rungs[k]

    def _within(self, limit: float) -> Eviction | None:
        """The schedule simulated in some bytes, of which the arena has what is not adopted."""
        limit -= self.recipes.outside
        choice = self.cut.choose(limit)
        best = evict(self.recipes, limit, self.cut.at, choice.kept)
        if best is not None and choice.peak <= limit and best.peak <= limit:
            return best
        return evict(self.recipes, limit, other=best) or best

    def _measure(self, found: Eviction | None) -> "_Rung | None":
        if found is None:
            return None
        count = sum([isinstance(x, Rerun) for x in found.order])
        again = Recomputation(count, found.cost / max(self.recipes.cost, 1.0), self.placed.size)
        slots = self._footprint.measure(found.order)
        return _Rung(found.order, slots, slots.least, again)


@record
class _Rung:
    order: list[int | Rerun]
    slots: Slots
    least: int
    again: Recomputation


# -- the refusal -------------------------------------------------------------------------------


def _refusal(ladder: Ladder, budget: int, tables: int) -> errors.BudgetExceeded:
    taken = call_bytes(*ladder.smallest())
    least = taken.peak + tables
    failure = errors.BudgetExceeded(
        f"compile: a budget of {_mib(budget)} MiB, and a call takes {_mib(least)} at least: "
        f"inputs (arguments, parameters, moments) {_mib(taken.inputs)}, new results (gradients) "
        f"{_mib(taken.fixed - taken.inputs)}, values in between {_mib(taken.arena)} "
        f"({_mib(ladder.placed.size)} if nothing is computed again), the program's tables "
        f"{_mib(tables)}; {_largest(ladder.schedule)}. "
        f"Give memory_budget_mb={_mib(least)}, or a smaller batch"
    )
    failure.smallest = least
    return failure


def _mib(nbytes: int) -> str:
    """Bytes in MiB, rounded up, so that a budget of so many is enough."""
    return f"{-(-nbytes * 1000 // MIB) / 1000:g}"


def _largest(schedule: Schedule) -> str:
    """The step with the most bytes of operands and results, and its line."""

    def nbytes(step: ScheduleStep) -> int:
        roots = {schedule.storage(i) for i in (*step.reads, *step.writes)}
        return sum([schedule.buffers[i].nbytes for i in roots])

    step = max(schedule.steps, key=nbytes)
    origins = (step.origin,) if isinstance(step, GuardStep | LibraryStep) else step.origins
    at = f", at {line_of(*origins[0])}" if origins else ""
    return f"the largest step reads and writes {_mib(nbytes(step))}{at}"
