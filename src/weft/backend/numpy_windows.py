"""Windows over NumPy arrays, laid out so that each tap of all windows is one run of memory.

An axis that is walked in steps of s is dealt out into phases: positions r, r + s, r + 2s, ... of
the padded axis lie side by side. In a plane of such phases tap k of every window is found at
a fixed distance from the window's own place, so that a tap is copied, added or compared for
all windows at once. Where a row of windows is shorter than the plane's, what lies between two
rows is read too: these places, called idle here, are left out when results are taken away.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import gcd, prod

import numpy as np

from ..core.dtypes import HALF
from .window_sizes import counts_of, size_of

# The memory that a tile's columns may take: a core's second-level cache.
TILE_BYTES = 1 << 20


@dataclass(frozen=True)
class Phase:
    """Which elements of the array lie in which part of one phase's plane."""

    number: int
    source: tuple[slice, ...]
    target: tuple[slice, ...]


@dataclass(frozen=True)
class Taps:
    """Taps at regular distances: which ones of each axis, their first offset, their steps."""

    chosen: tuple[slice, ...]
    counts: tuple[int, ...]
    offset: int
    steps: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """The layout for one geometry.

    counts    windows along each axis
    plane     the lengths of a phase's plane; `row` is the length of all axes but the first
    phases    how the array is dealt out
    runs      the taps in groups whose offsets are regular; `offsets` has each tap's own
    bare      whether the array fills the plane: nothing has to be padded
    idle      whether rows of windows are shorter than the plane's rows
    complete  whether every element of the array is in a plane
    """

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    counts: tuple[int, ...]
    plane: tuple[int, ...]
    phases: tuple[Phase, ...]
    runs: tuple[Taps, ...]
    offsets: tuple[int, ...]
    bare: bool
    idle: bool
    complete: bool

    @property
    def row(self) -> int:
        return prod(self.plane[1:])

    @property
    def area(self) -> int:
        """The elements of a plane, all phases together."""
        return len(self.phases) * prod(self.plane)

    @property
    def run(self) -> int:
        """The places of all windows, idle ones included."""
        return self.counts[0] * self.row


@lru_cache(maxsize=512)
def plan_of(size, kernel, stride, padding, dilation) -> Plan:
    """The layout of windows of `kernel` elements over the last axes, which have this size."""
    counts = counts_of(size, kernel, stride, padding, dilation)
    reach = [d * (k - 1) // s for k, s, d in zip(kernel, stride, dilation, strict=True)]
    plane = tuple(p + r for p, r in zip(counts, reach, strict=True))
    axes = zip(size, kernel, stride, padding, dilation, plane, strict=True)
    dealt = [_dealt(*axis) for axis in axes]
    phases = tuple(
        Phase(k, tuple(source for source, _ in parts), tuple(target for _, target in parts))
        for k, parts in enumerate(product(*dealt))
    )
    runs, offsets = _taps(kernel, stride, dilation, plane)
    whole = all(t == slice(0, q) for ph in phases for t, q in zip(ph.target, plane, strict=True))
    bare = len(phases) == 1 and whole
    idle = plane[1:] != counts[1:]
    complete = sum(_elements(phase.source, size) for phase in phases) == prod(size)
    return Plan(size, kernel, counts, plane, phases, runs, offsets, bare, idle, complete)


def _elements(source, size) -> int:
    """How many elements slices of an array choose."""
    return prod([len(range(*s.indices(n))) for s, n in zip(source, size, strict=True)])


def _residues(k: int, s: int, d: int) -> list[int]:
    """The phases that taps of an axis fall into."""
    return sorted({j * d % s for j in range(min(k, s))})


def _dealt(n, k, s, padding, d, q) -> list[tuple[slice, slice]]:
    """For each phase of an axis, the elements it takes and the places it puts them."""
    found = []
    for r in _residues(k, s, d):
        first = max(0, -((r - padding[0]) // s))  # the first place at or behind element 0
        last = min(q, (n - 1 + padding[0] - r) // s + 1)
        start = first * s + r - padding[0]
        last = max(first, last)
        found.append((slice(start, start + (last - first) * s, s), slice(first, last)))
    return found


def _taps(kernel, stride, dilation, plane) -> tuple[tuple[Taps, ...], tuple[int, ...]]:
    """The taps' offsets, in regular groups and one by one."""
    strides = [prod(plane[i + 1 :]) for i in range(len(plane))]
    phases = [_residues(k, s, d) for k, s, d in zip(kernel, stride, dilation, strict=True)]
    axes = []
    for k, s, d in zip(kernel, stride, dilation, strict=True):
        period = s // gcd(s, d)
        axes.append([(i, period, d, s, k) for i in range(min(period, k))])
    runs = []
    offsets = np.empty(kernel, np.int64)
    for first in product(*axes):
        number = offset = 0
        chosen, counts, steps = [], [], []
        for axis, (i, period, d, s, k) in enumerate(first):
            number = number * len(phases[axis]) + phases[axis].index(i * d % s)
            offset += i * d // s * strides[axis]
            chosen.append(slice(i, k, period))
            counts.append(len(range(i, k, period)))
            steps.append(period * d // s * strides[axis])
        offset += number * prod(plane)
        runs.append(Taps(tuple(chosen), tuple(counts), offset, tuple(steps)))
        grid = [np.arange(c) * step for c, step in zip(counts, steps, strict=True)]
        offsets[tuple(chosen)] = offset + sum(np.ix_(*grid))
    return tuple(runs), tuple(offsets.ravel().tolist())


@dataclass(frozen=True)
class Part:
    """Elements of one phase, seen from which the windows' taps in it are a convolution.

    source    the elements
    taps      the taps that reach them, in opposite order
    padding   what to add around the windows, whose steps are one and whose dilation is given
    """

    source: tuple[slice, ...]
    taps: tuple[slice, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]


@lru_cache(maxsize=512)
def parts_of(counts, kernel, stride, padding, dilation) -> tuple[tuple[Part, ...], bool]:
    """The phases of the array under the windows, and whether they are all of it."""
    size = size_of(counts, kernel, stride, padding, dilation)
    axes = zip(size, counts, kernel, stride, padding, dilation, strict=True)
    parts, total = [], 0
    for chosen in product(*[_parts(*axis) for axis in axes]):
        source, taps, pads, steps = zip(*chosen, strict=True)
        parts.append(Part(source, taps, pads, steps))
        total += _elements(source, size)
    return tuple(parts), total == prod(size)


def _parts(n, p, k, s, padding, d) -> list:
    """(elements, taps, padding, dilation) of each phase of an axis that has elements."""
    period, q = s // gcd(s, d), p + d * (k - 1) // s
    phases = dict(zip(_residues(k, s, d), _dealt(n, k, s, padding, d, q), strict=True))
    found = []
    for i in range(min(period, k)):
        source, places = phases[i * d % s]
        last, step = (k - 1 - i) // period, period * d // s
        count = places.stop - places.start
        before = i * d // s + last * step - places.start
        behind = count + step * last - p - before
        first = i + last * period
        taps = slice(first, None, -period)
        if count:
            found.append((source, taps, (before, behind), step if last else 1))
    return found


def wide(dtype: np.dtype) -> np.dtype:
    """The dtype to compute in: half precision adds up in float32."""
    return np.dtype(np.float32) if dtype in HALF else dtype


def cut(total: int, each: int) -> list[tuple[int, int]]:
    """The ends of pieces of a length."""
    return [(a, min(a + each, total)) for a in range(0, total, each)]


def cells(run: np.ndarray, plan: Plan) -> np.ndarray:
    """(..., length) as rows of windows, without idle places."""
    rows = run.reshape(*run.shape[:-1], run.shape[-1] // plan.row, *plan.plane[1:])
    return rows[..., *[slice(0, p) for p in plan.counts[1:]]] if plan.idle else rows


def laid(y: np.ndarray, memory: np.ndarray, plan: Plan) -> np.ndarray:
    """Results (n, ..., *counts) as runs (n, ..., run) in memory whose idle places are zero."""
    runs = memory[: len(y)]
    cells(runs, plan)[...] = y
    return runs


class Sheets:
    """Planes for some arrays, one after the other in one memory: (arrays, channels, planes)."""

    def __init__(self, plan: Plan, arrays: int, channels: int, dtype: np.dtype, fill: float = 0):
        self.plan, self.channels = plan, channels
        self.itemsize = dtype.itemsize
        # The last row of windows reads as far as a row does: beyond the last plane.
        self.memory = np.empty(arrays * channels * plan.area + plan.row, dtype)
        if not plan.bare:
            self.memory.fill(fill)
        else:
            self.memory[arrays * channels * plan.area :] = fill
        planes = self.memory[: arrays * channels * plan.area]
        self.planes = planes.reshape(arrays, channels, len(plan.phases), *plan.plane)

    def lay(self, x: np.ndarray) -> None:
        """Deal out arrays (n, channels, *size); what is padding stays as it is."""
        planes = self.planes[: len(x)]
        for phase in self.plan.phases:
            planes[:, :, phase.number, *phase.target] = x[:, :, *phase.source]

    def collect(self, x: np.ndarray) -> None:
        """Put the planes together again, into arrays (n, channels, *size)."""
        planes = self.planes[: len(x)]
        for phase in self.plan.phases:
            x[:, :, *phase.source] = planes[:, :, phase.number, *phase.target]

    def tap(self, offset: int, n: int, start: int, length: int) -> np.ndarray:
        """One tap of a run of windows: (n, channels, length)."""
        area = self.plan.area * self.itemsize
        return np.ndarray(
            (n, self.channels, length),
            self.memory.dtype,
            self.memory,
            (offset + start) * self.itemsize,
            (self.channels * area, area, self.itemsize),
        )

    def packed(self, memory: np.ndarray, n: int, start: int, length: int) -> np.ndarray:
        """All taps of a run of windows, in `memory`: (channels, *kernel, n, length)."""
        plan, item = self.plan, self.itemsize
        area, taken = plan.area * item, self.channels * len(plan.offsets) * n * length
        columns = memory[:taken].reshape(self.channels, *plan.kernel, n, length)
        for taps in plan.runs:
            columns[:, *taps.chosen] = np.ndarray(
                (self.channels, *taps.counts, n, length),
                self.memory.dtype,
                self.memory,
                (taps.offset + start) * item,
                (area, *[s * item for s in taps.steps], self.channels * area, item),
            )
        return columns
