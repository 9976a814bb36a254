"""Schedules under a checkpoint strategy: steps run again so that the arena is smaller.

For a budget there is a ladder of schedules, each simulated in a fixed share of the bytes of the one
before. The ladder does not depend on the budget, and the first schedule is taken whose memory plan
fits: so the peak never rises as the budget falls.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import Protocol

from ... import errors
from ...core.checkpointing import MIB, CheckpointConfig, CheckpointStrategy
from ...core.origin import line_of
from ...core.record import record
from ..ir.schedule import GuardStep, LibraryStep, Schedule, ScheduleStep
from ..memory import MemoryPlan, Recomputation, call_bytes, live_bytes, plan
from .eviction import Eviction, evict
from .kept import Cut
from .recompute import Recipes
from .repeat import Rerun, repeat

# The share of bytes of each rung, the rungs in vain before the ladder ends, and the most rungs.
SHARE, VAIN, MOST = 0.9, 1, 40
# From this share of the first on, rungs are further apart: steps run again several times.
FEW, LESS = 0.2, 0.8


class Costs(Protocol):
    """The part of a target that is needed."""

    @property
    def alignment(self) -> int: ...

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
    fixed = call_bytes(schedule, placed).fixed
    if strategy is CheckpointStrategy.Full:
        found = ladder.smallest()
    elif strategy is CheckpointStrategy.Auto:
        found = schedule, placed
    else:
        found = ladder.by_strategy(config)
    if budget is None or found[1].size <= budget - fixed:
        return found
    fitting = ladder.first(budget - fixed)
    if fitting is None:
        raise _refusal(ladder, budget)
    return fitting


class Ladder:
    """The schedules that take less and less memory, and longer and longer."""

    def __init__(self, schedule: Schedule, placed: MemoryPlan, target: Costs):
        self.schedule, self.placed, self._target = schedule, placed, target
        self._rungs: list[_Rung] = [_Rung(schedule, placed.least, Recomputation(0, 0.0, 0))]
        self._planned: dict[int, MemoryPlan] = {0: placed}
        self._more = self._descend()

    @cached_property
    def recipes(self) -> Recipes:
        """The units that may run again."""
        return Recipes(self.schedule, self._target.cost, self._target.alignment)

    @cached_property
    def cut(self) -> Cut:
        """The choices at the peak."""
        live = live_bytes(self.schedule, self._target.alignment)
        return Cut(self.recipes, live.index(max(live)), live)

    def first(self, nbytes: int) -> tuple[Schedule, MemoryPlan] | None:
        """The first rung whose plan takes no more than some bytes."""
        for k, rung in enumerate(self._all()):
            if rung.least <= nbytes and self._plan(k).size <= nbytes:
                return rung.schedule, self._plan(k)
        return None

    def smallest(self) -> tuple[Schedule, MemoryPlan]:
        """The rung whose plan takes the fewest bytes."""
        rungs = list(self._all())
        best = 0
        for k in sorted(range(len(rungs)), key=lambda k: (rungs[k].least, k)):
            if rungs[k].least >= self._plan(best).size:
                break
            best = min(best, k, key=lambda k: (self._plan(k).size, k))
        return rungs[best].schedule, self._plan(best)

    def by_strategy(self, config: CheckpointConfig) -> tuple[Schedule, MemoryPlan]:
        """The schedule of a strategy without a budget, unless it takes more memory."""
        if config.strategy is CheckpointStrategy.None_ or not self.placed.size:
            return self.schedule, self.placed
        if config.strategy is CheckpointStrategy.Block:
            kept = self.cut.every(config.checkpoint_every_n)
        else:
            kept = self.cut.expensive(config.min_compute_cost)
        rung = self._rung(evict(self.recipes, float("inf"), self.cut.at, kept))
        self._rungs.append(rung)
        k = len(self._rungs) - 1
        return (
            (rung.schedule, self._plan(k))
            if rung.least < self.placed.size
            else (
                self.schedule,
                self.placed,
            )
        )

    # -- rungs -------------------------------------------------------------------------------

    def _all(self) -> Iterator["_Rung"]:
        yield from self._rungs
        for rung in self._more:
            self._rungs.append(rung)
            yield rung

    def _plan(self, k: int) -> MemoryPlan:
        if k not in self._planned:
            rung = self._rungs[k]
            placed = plan(rung.schedule, self._target.alignment)
            self._planned[k] = replace(placed, again=rung.again)
        return self._planned[k]

    def _descend(self) -> Iterator["_Rung"]:
        vain, limit, least = 0, float(self.placed.size), self.placed.size
        for _ in range(MOST):
            limit *= SHARE if limit > FEW * self.placed.size else LESS
            if vain > VAIN or not self.placed.size:
                return
            found = self._within(limit)
            if found is None:
                vain += 1
                continue
            rung = self._rung(found)
            vain = 0 if rung.least < least else vain + 1
            least = min(least, rung.least)
            yield rung

    def _within(self, limit: float) -> Eviction | None:
        """The schedule simulated in some bytes."""
        choice = self.cut.choose(limit)
        found = evict(self.recipes, limit, self.cut.at, choice.kept)
        if found is None or max(found.peak, choice.peak) > limit:
            other = evict(self.recipes, limit)
            both = [e for e in (found, other) if e is not None]
            found = min(both, key=lambda e: (max(e.peak - limit, 0), e.cost), default=None)
        return found

    def _rung(self, found: Eviction | None) -> "_Rung":
        assert found is not None
        schedule = repeat(self.recipes, found.order)
        count = sum([isinstance(x, Rerun) for x in found.order])
        again = Recomputation(count, found.cost / max(self.recipes.cost, 1.0), self.placed.size)
        return _Rung(schedule, max(live_bytes(schedule, self._target.alignment)), again)


@record
class _Rung:
    schedule: Schedule
    least: int
    again: Recomputation


# -- the refusal -------------------------------------------------------------------------------


def _refusal(ladder: Ladder, budget: int) -> errors.BudgetExceeded:
    schedule, placed = ladder.smallest()
    taken = call_bytes(schedule, placed)
    failure = errors.BudgetExceeded(
        f"compile: a budget of {_mib(budget)} MiB, and a call takes {_mib(taken.peak)} at least: "
        f"inputs (arguments, parameters, moments) {_mib(taken.inputs)}, new results (gradients) "
        f"{_mib(taken.fixed - taken.inputs)}, values in between {_mib(taken.arena)} "
        f"({_mib(ladder.placed.size)} if nothing is computed again); {_largest(ladder.schedule)}. "
        f"Give memory_budget_mb={_mib(taken.peak)}, or a smaller batch"
    )
    failure.smallest = taken.peak
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
