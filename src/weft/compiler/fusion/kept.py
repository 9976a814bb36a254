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
from .min_cut import NEVER, MinCut, Network
from .recompute import Recipes

# Capacities are integers: the costs of all units together; and a price at which nothing is kept.
_TOTAL, _DEAR = 1 << 27, 1e18
# Prices of a byte, as powers of two of the average, and segments, as shares of what is kept.
_PRICES, _SEGMENTS = range(-4, 5), (0, 2, 4, 8, 16, 32, 64, 128)
_PROMISING = 3  # segmentations whose prices are looked at more closely


@record
class Choice:
    """A choice of what is kept, and estimates: the peak in bytes, and the time that it costs."""

    of: "Cut"
    cut: MinCut
    peak: float
    cost: float

    @property
    def kept(self) -> frozenset[int]:
        """The buffers that are kept."""
        return self.of.kept(self.cut)


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
        self._sizes = np.array([recipes.sizes[i] for i in self._buffers], float)
        self._made = np.array([recipes.settled[i] for i in self._buffers], int)
        self._ends = {i: self._around(i) for i in self._buffers}
        self._needed = np.array([self._is_needed(i) for i in self._buffers], bool)
        self._owners = np.array([node[recipes.unit_of[i]] for i in self._buffers], int)
        self._lasts = np.array([self._ends[i][0] for i in self._buffers], int)
        self._average = recipes.cost / max(self._sizes.sum(), 1.0)  # price of a byte
        self._scale = _TOTAL / max(recipes.cost, 1.0)
        self._costs = np.array([recipes.units[n].cost for n in self._units], float)
        self._able = np.array([recipes.units[n].expires > at for n in self._units], bool)
        self.network = self._connect()
        self._effects: dict[tuple[int, ...], _Effect] = {}  # by the units that run again
        self._tables = [_Table(self, self._separators(n)) for n in _SEGMENTS]

    def _around(self, i: int) -> tuple[int, float]:
        """The last use of a buffer up to the position, and the first use after it."""
        uses = self.recipes.uses[i]
        n = bisect_right(uses, self.at)
        last = uses[n - 1] if n else self.recipes.settled[i]
        return last, uses[n] if n < len(uses) else inf

    def _connect(self) -> Network:
        """The network: a buffer is kept if it is needed, and its unit does not run again.

        A buffer of which some parts are still to be written is there anyway.
        """
        place, units = {i: k for k, i in enumerate(self._buffers)}, self.recipes.units
        pairs = [
            (k, place[i]) for k, n in enumerate(self._units) for i in units[n].reads if i in place
        ]
        readers, read = np.array(pairs, int).reshape(-1, 2).T
        return Network(len(self._units), self._owners, self._needed, readers, read)

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

    def choose(self, nbytes: float) -> Choice:
        """The cheapest choice whose peak is estimated not to pass some bytes, or the least."""

        def over(c: Choice) -> tuple[float, float]:
            return max(c.peak - nbytes, 0), c.cost

        promising = sorted(self._tables, key=lambda table: over(table.first(nbytes)[1]))
        return min([self._between(table, nbytes) for table in promising[:_PROMISING]], key=over)

    def _between(self, table: "_Table", nbytes: float) -> Choice:
        """The choice between two prices: what is made first pays the higher one."""
        n, best = table.first(nbytes)
        if not n or best.peak > nbytes:
            return best
        low, high = table.prices(n - 1), table.prices(n)
        first, last = 0, self.at + 1
        while last - first > max(self.at // 64, 1):
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
        keeping = np.minimum(1 + prices * self._sizes * self._scale, _TOTAL).astype(np.int32)
        running = np.where(self._able, 1 + self._costs * self._scale, NEVER).astype(np.int32)
        if cheap < inf:
            flops = np.array([self.recipes.flops(self.recipes.units[n]) for n in self._units])
            running = np.where(self._able & (flops < cheap), 1, NEVER).astype(np.int32)
        found = self.network.cut(keeping, running)
        return Choice(self, found, self._estimate(found), float(self._costs[found.again].sum()))

    def kept(self, cut: MinCut) -> frozenset[int]:
        """The buffers that a cut keeps."""
        return frozenset([self._buffers[k] for k in np.flatnonzero(cut.kept)])

    def _estimate(self, cut: MinCut) -> float:
        """The peak if units run again as soon as one that depends on them is needed."""
        effects = [self._effect(c) for c in cut.components]
        if not effects:
            return float(self._profile.max())
        stays: dict[int, int] = {}
        for effect in effects:
            for i, last in effect.stays:
                stays[i] = max(stays.get(i, 0), last)
        where, nbytes = [e.where for e in effects], [e.nbytes for e in effects]
        for i, last in stays.items():
            uses, size = self.recipes.uses[i], self.recipes.sizes[i]
            natural = uses[-1] if uses else self.recipes.settled[i]
            if last > natural:
                where.append([natural + 1, last + 1])
                nbytes.append([size, -size])
        change = np.bincount(np.concatenate(where), np.concatenate(nbytes), len(self._profile) + 1)
        return float((self._profile + np.cumsum(change)[:-1]).max())

    def _effect(self, again: tuple[int, ...]) -> "_Effect":
        if again not in self._effects:
            self._effects[again] = self._compute_effect([self._units[k] for k in again])
        return self._effects[again]

    def _compute_effect(self, units: list[int]) -> "_Effect":
        recipes, again = self.recipes, {*units}
        when: dict[int, float] = {}  # the first need of what a unit computes again
        stays: dict[int, int] = {}  # the last need of a kept buffer as an operand
        where, nbytes = [], []
        # Units are numbered by their first parts, and read what others write at later ones, too.
        for n in sorted(units, key=lambda n: (recipes.units[n].parts[-1].at, n), reverse=True):
            unit = recipes.units[n]
            made = [i for i in unit.writes if i in self._ends]
            need = min([when.get(n, inf), *[self._ends[i][1] for i in made]])
            if need == inf:  # a cut that costs the same would leave it out
                continue
            for i in unit.reads:
                m = recipes.unit_of[i]
                if m in again:
                    when[m] = min(when.get(m, inf), need)
                else:
                    stays[i] = max(stays.get(i, 0), int(need))
            for i in made:
                if self._is_needed(i):  # not there in between
                    where += [self._ends[i][0] + 1, int(need)]
                    nbytes += [-recipes.sizes[i], recipes.sizes[i]]
        return _Effect(where, nbytes, tuple(stays.items()))


@record
class _Effect:
    """What it changes in the profile that units run again.

    where   positions, and beside them
    nbytes  the bytes by which the profile changes there
    stays   buffers that are kept longer for it, and the position of their last need
    """

    where: list[int]
    nbytes: list[int]
    stays: tuple[tuple[int, int], ...]


class _Table:
    """Choices at rising prices; separators are kept for nothing."""

    def __init__(self, cut: Cut, free: np.ndarray):
        self._cut, self._free = cut, free
        self._choices: list[Choice] = []

    def prices(self, n: int) -> np.ndarray:
        """By buffer, the n-th price of a byte."""
        return np.where(self._free, 0.0, self._cut._average * 2.0 ** _PRICES[n])

    def _choice(self, n: int) -> Choice:
        if n == len(self._choices):
            self._choices.append(self._cut.keep(self.prices(n)))
        return self._choices[n]

    def first(self, nbytes: float) -> tuple[int, Choice]:
        """The choice at the lowest price whose peak does not pass some bytes, or the least."""
        for n in range(len(_PRICES)):
            if self._choice(n).peak <= nbytes:
                return n, self._choices[n]
        return min(enumerate(self._choices), key=lambda c: c[1].peak)
