"""Which buffers to keep across the peak of a schedule, and which to compute again after it.

Keeping a buffer takes its bytes; computing it again takes time, and others that are kept or
computed again. For a price of each byte, the cheapest choice is a minimum cut. As the price rises,
less is kept. What is computed again from the same kept buffers is there at once, so some buffers
are kept at any price: those that separate the schedule into segments.
"""

from bisect import bisect_right
from math import inf

import numpy as np

from ...core.record import record
from .recompute import Recipes

# Capacities are integers: the costs of all units together, and what is never cut.
_TOTAL, _NEVER, _DEAR = 1 << 27, 1 << 30, 1e18
# Prices of a byte, as powers of two of the average, and segments, as shares of what is kept.
_PRICES, _SEGMENTS = range(-6, 9), (0, 2, 4, 8, 16, 32, 64, 128)
_PROMISING = 3  # segmentations whose prices are looked at more closely


@record
class Choice:
    """The buffers that are kept, and estimates: the peak in bytes, and the time that it costs."""

    kept: frozenset[int]
    peak: float
    cost: float


class Cut:
    """The choices at one position of a schedule.

    profile  by position, the bytes that are alive
    """

    def __init__(self, recipes: Recipes, at: int, profile: list[int]):
        self.recipes, self.at = recipes, at
        self._profile = np.array(profile)
        self._units = [n for n, u in enumerate(recipes.units) if u.parts[-1].at <= at]
        node = {n: k for k, n in enumerate(self._units)}
        self._buffers = [i for i in recipes.sizes if recipes.unit_of[i] in node]
        self._place = {i: k + len(node) for k, i in enumerate(self._buffers)}
        self._sizes = np.array([recipes.sizes[i] for i in self._buffers], float)
        self._made = np.array([recipes.settled[i] for i in self._buffers], int)
        self._ends = {i: self._around(i) for i in self._buffers}
        self._needed = np.array([self._is_needed(i) for i in self._buffers], bool)
        self._owners = np.array([recipes.unit_of[i] for i in self._buffers], int)
        self._lasts = np.array([self._ends[i][0] for i in self._buffers], int)
        self._average = recipes.cost / max(self._sizes.sum(), 1.0)  # price of a byte
        self._connect(node)
        self._tables = [self._table(self._separators(n)) for n in _SEGMENTS]

    def _around(self, i: int) -> tuple[int, float]:
        """The last use of a buffer up to the position, and the first use after it."""
        uses = self.recipes.uses[i]
        n = bisect_right(uses, self.at)
        last = uses[n - 1] if n else self.recipes.settled[i]
        return last, uses[n] if n < len(uses) else inf

    def _connect(self, node: dict[int, int]) -> None:
        """The network: a buffer is kept if it is needed, and its unit does not run again."""
        recipes, source = self.recipes, len(node) + len(self._buffers)
        sink = source + 1
        self._scale = _TOTAL / max(recipes.cost, 1.0)
        edges = [(self._place[i], node[recipes.unit_of[i]], 0.0) for i in self._buffers]
        units = [(k, recipes.units[n]) for n, k in node.items()]
        for k, unit in units:
            again = unit.expires > self.at
            edges.append((k, sink, 1 + unit.cost * self._scale if again else _NEVER))
        edges += [(k, self._place[i], _NEVER) for k, unit in units for i in unit.reads]
        edges += [(source, self._place[i], _NEVER) for i in self._buffers if self._is_needed(i)]
        table = np.array(edges, float).reshape(-1, 3)
        self._edges = table[:, 0].astype(int), table[:, 1].astype(int)
        self._capacities = np.minimum(table[:, 2], _NEVER).astype(np.int32)

    def _is_needed(self, i: int) -> bool:
        return self._ends[i][1] < inf

    # -- segments ------------------------------------------------------------------------------

    def _separators(self, count: int) -> np.ndarray:
        """Which buffers separate the schedule into about so many segments."""
        chosen = np.zeros(len(self._buffers), bool)
        if not count:
            return chosen
        across, done = self._widths()
        for k in range(1, count):
            share = [(k + off) * done[-1] / count for off in (-0.5, 0.5)]
            low, high = np.searchsorted(done, share)
            if low < high <= self.at:
                at = low + int(np.argmin(across[low:high]))
                chosen |= self._crossing(at)
        return chosen

    def _widths(self) -> tuple[np.ndarray, np.ndarray]:
        """By position, bytes that steps up to the peak still read, and bytes needed after it."""
        change, weight = np.zeros(self.at + 2), np.zeros(self.at + 2)
        np.add.at(change, self._made, self._sizes)
        np.add.at(change, np.maximum(self._lasts, self._made), -self._sizes)
        np.add.at(weight, self._made, self._sizes * self._needed)
        return np.cumsum(change), np.cumsum(weight)

    def _crossing(self, at: int) -> np.ndarray:
        """Which buffers are made before a position and read after it, up to the peak.

        With them goes what their units make besides, which would run again for it.
        """
        found = (self._made <= at) & (self._lasts > at)
        return found | (self._needed & np.isin(self._owners, self._owners[found]))

    def every(self, n: int) -> frozenset[int]:
        """The buffers across every n-th place where the schedule is narrow."""
        width = [self._sizes[self._crossing(k)].sum() for k in range(self.at + 1)]
        narrow = [k for k in range(1, self.at) if width[k] <= min(width[k - 1], width[k + 1])]
        chosen = np.zeros(len(self._buffers), bool)
        for k in narrow[n - 1 :: n]:
            chosen |= self._crossing(k)
        return self.keep(np.where(chosen, 0.0, _DEAR)).kept

    def expensive(self, least: float) -> frozenset[int]:
        """The fewest bytes from which all else is computed at less than this cost per element."""
        return self.keep(np.full(len(self._buffers), self._average), least).kept

    def _table(self, free: np.ndarray) -> list[tuple[np.ndarray, Choice]]:
        """Choices at rising prices; separators are kept for nothing."""
        prices = [np.where(free, 0.0, self._average * 2.0**p) for p in _PRICES]
        return [(p, self.keep(p)) for p in prices]

    def choose(self, nbytes: float) -> Choice:
        """The cheapest choice whose peak is estimated not to pass some bytes, or the least."""

        def over(c: Choice) -> tuple[float, float]:
            return max(c.peak - nbytes, 0), c.cost

        promising = sorted(self._tables, key=lambda table: min([over(c) for _, c in table]))
        return min([self._between(table, nbytes) for table in promising[:_PROMISING]], key=over)

    def _between(self, table: list[tuple[np.ndarray, Choice]], nbytes: float) -> Choice:
        """The choice between two prices: what is made first pays the higher one."""
        fits = [n for n, (_, c) in enumerate(table) if c.peak <= nbytes]
        if not fits or not fits[0]:
            return table[fits[0]][1] if fits else min([c for _, c in table], key=lambda c: c.peak)
        (low, _), (high, best) = table[fits[0] - 1 : fits[0] + 1]
        first, last = 0, self.at + 1
        while last - first > max(self.at // 128, 1):
            middle = (first + last) // 2
            found = self.keep(np.where(self._made < middle, high, low))
            if found.peak <= nbytes:
                last, best = middle, min(best, found, key=lambda c: c.cost)
            else:
                first = middle
        return best

    # -- one choice ----------------------------------------------------------------------------

    def keep(self, prices: np.ndarray, cheap: float = inf) -> Choice:
        """The buffers to keep at prices of their bytes, in nanoseconds.

        cheap  the operations per element from which on a unit does not run again
        """
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import breadth_first_order, maximum_flow

        capacities, n = self._capacities.copy(), len(self._buffers)
        capacities[:n] = np.minimum(1 + prices * self._sizes * self._scale, _TOTAL)
        if cheap < inf:
            ends = slice(n, n + len(self._units))
            flops = np.array([self.recipes.flops(self.recipes.units[u]) for u in self._units])
            able = (flops < cheap) & (capacities[ends] < _NEVER)
            capacities[ends] = np.where(able, 1, _NEVER)
        source = len(self._units) + n
        graph = csr_array((capacities, self._edges), (source + 2, source + 2))
        rest = graph - maximum_flow(graph, source, source + 1).flow
        rest.data = np.maximum(rest.data, 0)
        rest.eliminate_zeros()
        reached = {*breadth_first_order(rest, source, return_predecessors=False).tolist()}
        again = {n for k, n in enumerate(self._units) if k in reached}
        unit_of = self.recipes.unit_of
        wanted = [i for i in self._buffers if self._place[i] in reached]
        kept = frozenset(i for i in wanted if unit_of[i] not in again)
        cost = sum([self.recipes.units[n].cost for n in again])
        return Choice(kept, self._estimate(kept, again), cost)

    def _estimate(self, kept: frozenset[int], again: set[int]) -> float:
        """The peak if units run again as soon as one that depends on them is needed."""
        recipes, change = self.recipes, np.zeros(len(self._profile) + 1)
        when: dict[int, float] = {}  # the first need of what a unit computes again
        stays: dict[int, float] = {}  # the last need of a kept buffer as an operand
        for n in sorted(again, reverse=True):
            unit = recipes.units[n]
            first = min([self._ends[i][1] for i in unit.writes if i in self._ends], default=inf)
            when[n] = min(when.get(n, inf), first)
            for i in unit.reads:
                if i in kept:
                    stays[i] = max(stays.get(i, 0), when[n])
                elif i in recipes.unit_of:
                    m = recipes.unit_of[i]
                    when[m] = min(when.get(m, inf), when[n])
        for n in again:
            for i in recipes.units[n].writes:
                if i in self._ends and self._is_needed(i):  # not there in between
                    change[self._ends[i][0] + 1] -= recipes.sizes[i]
                    change[int(when[n])] += recipes.sizes[i]
        for i, last in stays.items():
            natural = recipes.uses[i][-1] if recipes.uses[i] else recipes.settled[i]
            if last > natural:
                change[natural + 1] += recipes.sizes[i]
                change[int(last) + 1] -= recipes.sizes[i]
        return float((self._profile + np.cumsum(change)[:-1]).max())
