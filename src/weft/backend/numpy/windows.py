"""Windows over NumPy arrays, laid out so that each tap of all windows is one run of memory.

An axis with stride s is split into phases: positions r, r + s, r + 2s, ... of the padded axis lie
side by side. In a plane of such phases tap k of every window is at a fixed offset from the window's
own position, so that a tap is copied, added or compared for all windows at once. Where a row of
windows is shorter than the plane's, the positions between two rows, called idle here, are computed
too and dropped from the results.
"""

from functools import cached_property, lru_cache
from itertools import product
from math import gcd, prod
from typing import Any

import numpy as np

from ...core.dtypes import HALF
from ...core.record import record
from ..shared.window_sizes import counts_of, size_of
from .types import Padding, Sizes

# The memory that a tile's columns may take: a core's second-level cache.
TILE_BYTES = 1 << 20
# The memory that the planes and runs of a block may take, with a few passes over each: a core's
# share of the last-level cache. Smaller blocks cost more in overhead than they save.
BLOCK_BYTES = 1 << 22


@record
class Phase:
    """Which elements of the array lie in which part of one phase's plane."""

    source: tuple[slice, ...]
    target: tuple[slice, ...]


@record
class WindowLayout:
    """The layout for one geometry.

    counts    windows along each axis
    plane     the lengths of a phase's plane; `row` is the length of all axes but the first
    phases    how the array is split
    taps      for each tap its phase, and its offset there from the window's own place
    bare      whether the array fills the planes: nothing has to be padded
    idle      whether rows of windows are shorter than the plane's rows
    complete  whether every element of the array is in a plane
    """

    counts: tuple[int, ...]
    plane: tuple[int, ...]
    phases: tuple[Phase, ...]
    taps: tuple[tuple[int, int], ...]
    bare: bool
    idle: bool
    complete: bool

    @cached_property
    def row(self) -> int:
        return prod(self.plane[1:])

    @cached_property
    def area(self) -> int:
        """The elements of a plane."""
        return prod(self.plane)

    @cached_property
    def run(self) -> int:
        """The places of all windows, idle ones included."""
        return self.counts[0] * self.row


@lru_cache(maxsize=512)
def plan_of(
    size: Sizes, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> WindowLayout:
    """The layout of windows of `kernel` elements over the last axes, which have this size."""
    counts = counts_of(size, kernel, stride, padding, dilation)
    reach = [d * (k - 1) // s for k, s, d in zip(kernel, stride, dilation, strict=True)]
    plane = tuple(p + r for p, r in zip(counts, reach, strict=True))
    axes = zip(size, kernel, stride, padding, dilation, plane, strict=True)
    phases = tuple(
        Phase(tuple(source for source, _ in parts), tuple(target for _, target in parts))
        for parts in product(*[dealt(*axis) for axis in axes])
    )
    bare = all(t == slice(0, q) for ph in phases for t, q in zip(ph.target, plane, strict=True))
    idle = plane[1:] != counts[1:]
    complete = sum(_elements(phase.source, size) for phase in phases) == prod(size)
    taps = _taps(kernel, stride, dilation, plane)
    return WindowLayout(counts, plane, phases, taps, bare, idle, complete)


def _elements(source: tuple[slice, ...], size: Sizes) -> int:
    """How many elements slices of an array choose."""
    return prod([len(range(*s.indices(n))) for s, n in zip(source, size, strict=True)])


def residues(k: int, s: int, d: int) -> list[int]:
    """The phases that taps of an axis fall into."""
    return sorted({j * d % s for j in range(min(k, s))})


def dealt(
    n: int, k: int, s: int, padding: tuple[int, int], d: int, q: int
) -> list[tuple[slice, slice]]:
    """For each phase of an axis, its elements as source and target."""
    return [place_taps(n, r, s, padding[0], q) for r in residues(k, s, d)]


def place_taps(n: int, offset: int, s: int, before: int, q: int) -> tuple[slice, slice]:
    """Elements offset, offset + s, ... of a padded axis, q of them: which there are, and where."""
    first = max(0, -((offset - before) // s))  # the first place at or after element 0
    last = max(first, min(q, (n - 1 + before - offset) // s + 1))
    start = first * s + offset - before
    return slice(start, start + (last - first) * s, s), slice(first, last)


def _taps(
    kernel: Sizes, stride: Sizes, dilation: Sizes, plane: Sizes
) -> tuple[tuple[int, int], ...]:
    """Each tap's phase and offset."""
    axes = list(zip(kernel, stride, dilation, plane, strict=True))
    phases = [residues(k, s, d) for k, s, d, _ in axes]
    found = []
    for place in product(*map(range, kernel)):
        number = offset = 0
        for t, mine, (_, s, d, q) in zip(place, phases, axes, strict=True):
            number = number * len(mine) + mine.index(t * d % s)
            offset = offset * q + t * d // s
        found.append((number, offset))
    return tuple(found)


@record
class PhasePart:
    """Elements of one phase, whose transposed convolution is a convolution with stride 1.

    source    the elements
    taps      the taps that reach them, in opposite order
    padding   what to add around the windows, whose steps are one and whose dilation is given
    """

    source: tuple[slice, ...]
    taps: tuple[slice, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]


@lru_cache(maxsize=512)
def parts_of(
    counts: Sizes, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> tuple[tuple[PhasePart, ...], bool]:
    """The phases of the array under the windows, and whether they are all of it."""
    size = size_of(counts, kernel, stride, padding, dilation)
    axes = zip(size, counts, kernel, stride, padding, dilation, strict=True)
    parts, total = [], 0
    for chosen in product(*[_parts(*axis) for axis in axes]):
        source, taps, pads, steps = zip(*chosen, strict=True)
        parts.append(PhasePart(source, taps, pads, steps))
        total += _elements(source, size)
    return tuple(parts), total == prod(size)


def _parts(
    n: int, p: int, k: int, s: int, padding: tuple[int, int], d: int
) -> list[tuple[slice, slice, tuple[int, int], int]]:
    """(elements, taps, padding, dilation) of each phase of an axis that has elements."""
    period, q = s // gcd(s, d), p + d * (k - 1) // s
    phases = dict(zip(residues(k, s, d), dealt(n, k, s, padding, d, q), strict=True))
    found = []
    for i in range(min(period, k)):
        source, places = phases[i * d % s]
        last, step = (k - 1 - i) // period, period * d // s
        count = places.stop - places.start
        before = i * d // s + last * step - places.start
        after = count + step * last - p - before
        first = i + last * period
        taps = slice(first, None, -period)
        if count:
            found.append((source, taps, (before, after), step if last else 1))
    return found


def wide(dtype: np.dtype) -> np.dtype:
    """The dtype to compute in: half precision adds up in float32."""
    return np.dtype(np.float32) if dtype in HALF else dtype


def cut(total: int, each: int) -> list[tuple[int, int]]:
    """The ends of pieces of a length."""
    return [(a, min(a + each, total)) for a in range(0, total, each)]


def cells(run: np.ndarray, plan: WindowLayout) -> np.ndarray:
    """(..., length) as rows of windows, without idle places."""
    rows = run.reshape(*run.shape[:-1], run.shape[-1] // plan.row, *plan.plane[1:])
    used: tuple[Any, ...] = (..., *[slice(0, p) for p in plan.counts[1:]])
    return rows[used] if plan.idle else rows


def lay_runs(y: np.ndarray, dtype: np.dtype, plan: WindowLayout) -> np.ndarray:
    """Results (n, c, *counts) as runs (n, c, run), with zeros in idle places."""
    if not plan.idle:
        return np.ascontiguousarray(y, dtype).reshape(*y.shape[:2], plan.run)
    runs = np.zeros((*y.shape[:2], plan.run), dtype)
    cells(runs, plan)[...] = y
    return runs


class Planes:
    """Planes for some arrays, in one memory: (phases, arrays, channels, *plane)."""

    plan: WindowLayout
    channels: int
    apart: int
    memory: np.ndarray
    planes: np.ndarray

    def __init__(
        self, plan: WindowLayout, arrays: int, channels: int, dtype: np.dtype, fill: float = 0
    ):
        self.plan, self.channels = plan, channels
        self.apart = arrays * channels * plan.area  # from one phase to the next
        size = len(plan.phases) * self.apart
        # The last row of windows reads as far as a row does: beyond the last plane.
        self.memory = np.empty(size + plan.row, dtype)
        self.memory[size if plan.bare else 0 :] = fill
        planes = self.memory[:size]
        self.planes = planes.reshape(len(plan.phases), arrays, channels, *plan.plane)

    def lay(self, x: np.ndarray) -> None:
        """Split arrays (n, channels, *size) into the planes; the padding stays."""
        for planes, phase in zip(self.planes, self.plan.phases, strict=True):
            planes[: len(x), :, *phase.target] = x[:, :, *phase.source]

    def collect(self, x: np.ndarray) -> None:
        """Merge the planes into arrays (n, channels, *size)."""
        for planes, phase in zip(self.planes, self.plan.phases, strict=True):
            x[:, :, *phase.source] = planes[: len(x), :, *phase.target]

    def taps(self, n: int) -> list[np.ndarray]:
        """The elements under each tap of the windows of n arrays: (n, channels, run)."""
        plan, dtype, item = self.plan, self.memory.dtype, self.memory.itemsize
        shape = n, self.channels, plan.run
        strides = self.channels * plan.area * item, plan.area * item, item
        starts = [(phase * self.apart + offset) * item for phase, offset in plan.taps]
        return [np.ndarray(shape, dtype, self.memory, start, strides) for start in starts]
