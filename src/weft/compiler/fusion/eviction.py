"""Eviction: which buffers are dropped and computed again so that a schedule fits into some bytes.

The schedule is walked step by step, and all later uses are known. Where the buffers that are
there would pass the limit, those are dropped first that are cheap to compute again for their size
and for the time until they are needed: the score is cost / (bytes · distance), as in Dynamic Tensor
Rematerialization (Kirisame et al. 2021), and the cost includes the dropped buffers that have to be
computed again before. A buffer that no later step reads is kept as long as there is room: others
may be computed from it again.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from math import inf

import numpy as np

from ...core.record import record
from .recompute import NEVER, Recipes
from .repeat import Rerun

# The most units that are run again for one buffer, and the most time for all of them, as a multiple
# of that of the schedule.
CHAIN, AGAIN = 128, 3.0
# How often costs are looked at, for each step, before a walk that drops most of what it computes is
# given up.
PATIENCE = 64
# The share of the limit that buffers which are too small to be dropped may take together.
SMALL = 1 / 128


@record
class Eviction:
    """An order of steps and units that run again.

    cost  of the units that run again, in nanoseconds
    peak  the bytes of the buffers that are there at once, without regard to their places
    """

    order: list[int | Rerun]
    cost: float
    peak: int


def evict(
    recipes: Recipes,
    limit: float,
    at: int = NEVER,
    keep: frozenset[int] = frozenset(),
    other: Eviction | None = None,
) -> Eviction | None:
    """Run a schedule in as few bytes as the limit, or as few as can be.

    None if that takes forever, or is no better than another way.

    keep  the buffers that are kept across position `at`; all others are dropped before it
    """
    longest = AGAIN * recipes.cost
    if other is None:
        return _Walk(recipes, limit, at, keep, inf, longest).run()
    over = max(other.peak - limit, 0)
    longest = longest if over else other.cost
    found = _Walk(recipes, limit, at, keep, limit + over, longest).run()
    better = found is not None and (max(found.peak - limit, 0), found.cost) < (over, other.cost)
    return found if better else None


class _Walk:
    """What is there while a schedule is walked.

    now     the position of the next step
    here    the buffers that are there
    used    their bytes
    wanted  when a buffer that is not there is needed again; of no other ones
    pinned  how many steps that are about to run need a buffer

    looks   how often what dropping a buffer costs was looked at

    most, longest  the bytes and nanoseconds beyond which it is given up
    """

    def __init__(
        self,
        recipes: Recipes,
        limit: float,
        at: int,
        keep: frozenset[int],
        most: float,
        longest: float,
    ):
        self.recipes, self.limit, self.at, self.keep = recipes, limit, at, keep
        self.most, self.longest = most, longest
        self.now, self.used, self.peak, self.cost, self.looks = 0, 0, 0, 0.0, 0
        self.here: set[int] = set()
        self.wanted: dict[int, float] = {}
        self.pinned: dict[int, int] = {}
        self.order: list[int | Rerun] = []
        self.changed: dict[int, None] = {}  # buffers whose scores are to be computed again
        self.scores = _Scores(recipes.sizes)
        self.small = _smallest(recipes.sizes, SMALL * limit if limit < inf else 0)

    def run(self) -> Eviction | None:
        recipes = self.recipes
        for k in range(len(recipes.reads)):
            reads, makes = recipes.reads[k], recipes.makes[k]
            self._pin(reads)
            for i in reads:
                if i not in self.here:
                    self._compute(i)
            self._take(sum([recipes.sizes[i] for i in makes]))
            if self.cost > self.longest or self.peak > self.most:
                return None
            if self.looks > PATIENCE * len(recipes.reads):
                return None
            self.here.update(makes)
            for i in makes:  # it was, if another result of its unit was dropped before it was made
                self.wanted.pop(i, None)
            self.order.append(k)
            self.now = k + 1
            self._unpin(reads)
            for i in recipes.ends[k]:
                self._settle(i)
        return Eviction(self.order, self.cost, self.peak)

    # -- when buffers are needed ---------------------------------------------------------------

    def _next_use(self, i: int) -> float:
        uses = self.recipes.uses[i]
        n = bisect_left(uses, self.now)
        return uses[n] if n < len(uses) else inf

    def _need(self, i: int) -> float:
        """The position at which a buffer is read next, by a step or by a unit that runs again."""
        here, wanted = self.here, self.wanted
        if i not in here:
            return wanted.get(i, inf)
        need = self._next_use(i)
        for c in self.recipes.children[i]:
            if c not in here and c in wanted and wanted[c] < need:
                need = wanted[c]
        return need

    def _chain(self, i: int, when: float, most: float = CHAIN) -> set[int] | None:
        """The units to run again for a buffer; None if they cannot all run at that position."""
        here, sources, expires = self.here, self.recipes.sources, self.recipes.expires
        found: set[int] = set()
        todo = [self.recipes.unit_of[i]]
        while todo:
            n = todo.pop()
            if n in found:
                continue
            if expires[n] < when or len(found) >= most:
                return None
            found.add(n)
            for j, m in sources[n]:
                if j not in here:
                    todo.append(m)
        return found

    def _cost(self, i: int) -> tuple[float, float]:
        """What dropping a buffer costs, infinite if it must stay, and when it is needed."""
        recipes, need, size = self.recipes, self._need(i), self.recipes.sizes[i]
        dead = need == inf
        self.looks += 1
        if not size:
            return inf, 0
        if dead:  # only what is computed from it may still be dropped
            needs = {c: self._need(c) for c in recipes.children[i] if c in self.here}
            need = min(needs.values(), default=inf)
            if sum([recipes.sizes[c] for c, t in needs.items() if t < inf]) <= size:
                return 0.0, need
        units = self._chain(i, need)
        own = recipes.units[recipes.unit_of[i]]
        if units is None:
            return (4 * own.cost if dead else inf), need
        cost = sum([recipes.units[n].cost for n in units])
        shared = [self.wanted.get(j, inf) for j in own.writes if j != i and j not in self.here]
        apart = min([abs(t - need) for t in shared], default=inf)
        return cost - own.cost * max(1 - apart / max(need - self.now, 1), 0), need

    # -- what is there -------------------------------------------------------------------------

    def _pin(self, buffers: Iterable[int]) -> None:
        for i in buffers:
            self.pinned[i] = self.pinned.get(i, 0) + 1

    def _unpin(self, buffers: Iterable[int]) -> None:
        for i in buffers:
            self.pinned[i] -= 1
            self._settle(i)

    def _settle(self, i: int) -> None:
        """Free a buffer that nothing can need; queue one that may be dropped from now on."""
        if self.pinned.get(i) or self.recipes.settled[i] >= self.now or i not in self.here:
            return
        if not self._useful(i):
            self._leave(i)
            return
        if i in self.small:
            return
        if self.now <= self.at and i not in self.keep and self._next_use(i) > self.at:
            if self._chain(i, self._need(i)) is not None:
                self._drop(i)
                return
        self.changed[i] = None

    def _leave(self, i: int) -> None:
        self.here.remove(i)
        self.used -= self.recipes.sizes[i]
        self.scores.remove(i)

    def _useful(self, i: int) -> bool:
        if self._need(i) < inf:
            return True
        if self.at >= 0:
            return self.now <= self.at and i in self.keep
        return any([self._need(c) < inf for c in self.recipes.children[i]])

    def _take(self, nbytes: int) -> None:
        """Make room for new buffers, as far as possible."""
        while self.used + nbytes > self.limit:
            i = self._cheapest()
            if i is None:
                break
            self._drop(i)
        self.used += nbytes
        self.peak = max(self.peak, self.used)

    def _cheapest(self) -> int | None:
        """The buffer with the least score; scores that are not new are lower bounds, mostly."""
        scores = self.scores
        scores.advance(self.now)
        for i in self.changed:
            if i in self.here:
                scores.put(i, *self._cost(i))
        self.changed.clear()
        while (i := scores.least()) is not None:
            if self.pinned.get(i):  # it is put back when it is free
                scores.remove(i)
                continue
            scores.put(i, *self._cost(i))
            if scores.least() == i:
                break
        return i

    def _drop(self, i: int) -> None:
        recipes, need = self.recipes, self._need(i)
        self._leave(i)
        self.wanted[i] = inf
        todo = [i] if need < inf else []
        while todo:  # whatever is not there and needed for it
            j = todo.pop()
            if self.wanted.get(j, inf) > need:
                self.wanted[j] = need
                for source, _ in recipes.sources[recipes.unit_of[j]]:
                    if source not in self.here:
                        todo.append(source)
        for j in recipes.units[recipes.unit_of[i]].writes:  # cheaper now, if needed together
            if j in self.here:
                self._settle(j)

    def _compute(self, i: int) -> None:
        """Run the units again that a buffer needs."""
        recipes = self.recipes
        chain = self._chain(i, self.now, inf)
        assert chain is not None, "dropped, and cannot be computed again"
        for n in chain:
            self._pin(recipes.units[n].reads)
        for n in self._in_order(chain):
            unit = recipes.units[n]
            taken = recipes.nbytes(unit)
            self._take(taken)
            self.cost += unit.cost
            keeps = [j for j in unit.writes if self._is_missing(j)]
            self.here.update(keeps)
            self.used -= taken - sum([recipes.sizes[j] for j in keeps])
            self.order.append(Rerun(n, frozenset(keeps)))
            for j in keeps:
                self.wanted.pop(j, None)
            self._unpin(unit.reads)
            for j in keeps:
                self._settle(j)
                for c in recipes.children[j]:  # cheaper to compute now
                    self._settle(c)

    def _in_order(self, chain: set[int]) -> Iterator[int]:
        """The order in which units run again: that of the schedule, with one exception.

        Units that read no scratch buffer run right before the first one that reads what they write:
        a chain of layers would otherwise begin with the weights of all of them.
        """
        units, sources = self.recipes.units, self.recipes.sources
        waiting = {n for n in chain if not units[n].reads}
        # Units are numbered by their first parts, and read what others write at later ones, too.
        for n in sorted(chain - waiting, key=lambda n: (units[n].parts[-1].at, n)):
            for _, m in sources[n]:
                if m in waiting:
                    waiting.remove(m)
                    yield m
            yield n
        yield from sorted(waiting)

    def _is_missing(self, i: int) -> bool:
        """Whether a buffer is not there, and needed now or later."""
        if i not in self.recipes.sizes or i in self.here:
            return False
        return bool(self.pinned.get(i)) or self.wanted.get(i, inf) < inf


def _smallest(sizes: dict[int, int], nbytes: float) -> frozenset[int]:
    """The smallest buffers, which take no more than some bytes together."""
    order = sorted(sizes, key=lambda i: (sizes[i], i))
    count = np.searchsorted(np.cumsum([sizes[i] for i in order]), nbytes, "right")
    return frozenset(order[:count])


class _Scores:
    """What dropping each buffer costs, for each of its bytes and each step until it is needed.

    sizes  by buffer, its bytes
    """

    def __init__(self, sizes: dict[int, int]):
        self._buffers = [*sizes]
        self._place = {i: k for k, i in enumerate(self._buffers)}
        self._sizes = np.array([*sizes.values()], float)
        self._costs, self._needs = np.full(len(sizes), inf), np.zeros(len(sizes))
        self._scores = np.full(len(sizes), inf)
        self._now = 0

    def advance(self, now: int) -> None:
        """Come to a position: the steps until buffers are needed are fewer."""
        if now != self._now:
            self._now = now
            steps = np.maximum(self._needs - now, 1)
            np.divide(self._costs, np.multiply(self._sizes, steps, out=steps), out=self._scores)

    def put(self, i: int, cost: float, need: float) -> None:
        """Say what dropping a buffer costs, and when it is needed again."""
        k = self._place[i]
        if cost == inf:
            need = 0
        self._costs[k], self._needs[k] = cost, need
        self._scores[k] = cost / (self._sizes[k] * max(need - self._now, 1))

    def remove(self, i: int) -> None:
        """Leave a buffer out."""
        self.put(i, inf, 0)

    def least(self) -> int | None:
        """The buffer with the least score, if there is one that may be dropped."""
        if not self._buffers:
            return None
        k = int(self._scores.argmin())
        return None if self._scores[k] == inf else self._buffers[k]
