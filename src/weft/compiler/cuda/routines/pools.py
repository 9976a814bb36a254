"""Routines of max pooling: the largest element of each window, and what is put back at its tap.

A thread looks at all taps of a window, or at all windows that an element is a tap of: nothing is
added by two threads, and sums have the order of the taps, as on the CPU.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from math import inf, prod

import numpy as np

from ....core import dtypes
from ....core.record import record
from ....graph.graph import Graph
from ...emit.code import LLValue, lanes_of
from ...emit.convert import from_memory, memory_type, register_type, round_to_half, to_memory
from ...ir.routine import RoutineArray, array
from .places import PlaceStage
from .registry import grid
from .routine import GridRoutine, RoutineStage
from .threads import Thread

# The most taps of a window: the code has all of them.
_TAPS = 49


@record
class Windows:
    """Windows over the two middle axes of (lead, *size, row), `counts` of them along each."""

    lead: int
    size: tuple[int, int]
    counts: tuple[int, int]
    row: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    before: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.lead, *self.size, self.row)

    @property
    def pooled(self) -> tuple[int, ...]:
        return (self.lead, *self.counts, self.row)

    def taps(self) -> Iterator[tuple[int, int]]:
        """The taps, in order."""
        return product(range(self.kernel[0]), range(self.kernel[1]))

    def within(self, axis: int) -> bool:
        """Whether all windows lie within the array along an axis."""
        last = (self.counts[axis] - 1) * self.stride[axis]
        end = last + (self.kernel[axis] - 1) * self.dilation[axis]
        return self.before[axis] == 0 and end < self.size[axis]


@record
class GridPool(GridRoutine):
    dtype: np.dtype
    tap: np.dtype
    windows: Windows


@record
class GridMaxPool(GridPool):
    """The largest element of each window, and its tap: the first of equal ones, the last NaN."""

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        return (array(self.dtype, self.windows.shape),)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        pooled = self.windows.pooled
        return array(self.dtype, pooled), array(self.tap, pooled)

    @property
    def stages(self) -> tuple[RoutineStage, ...]:
        return (MaxPoolStage((0, 1, 2), self.dtype, self.tap, self.windows),)


@record
class GridPoolPut(GridPool):
    """Zeros, with each window's number added at its tap."""

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        pooled = self.windows.pooled
        return array(self.dtype, pooled), array(self.tap, pooled)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (array(self.dtype, self.windows.shape),)

    @property
    def stages(self) -> tuple[RoutineStage, ...]:
        return (PoolPutStage((0, 1, 2), self.dtype, self.tap, self.windows),)


@record
class PoolStage(PlaceStage):
    dtype: np.dtype
    tap: np.dtype
    windows: Windows

    @property
    def extents(self) -> tuple[int, ...]:
        return prod(self.windows.shape), prod(self.windows.pooled)

    def number(self, t: Thread, array: int, at: LLValue) -> LLValue:
        """An element, half types as float32."""
        return from_memory(t.load(array, at, memory_type(self.dtype)), self.dtype)

    def split(self, t: Thread, at: LLValue, sizes: tuple[int, int]) -> tuple[LLValue, ...]:
        """A place of (lead, *sizes, row) by axes."""
        rest, c = t.split(at, self.windows.row)
        rest, j = t.split(rest, sizes[1])
        n, i = t.split(rest, sizes[0])
        return n, i, j, c

    def place(self, at: tuple[LLValue, ...], sizes: tuple[int, int]) -> LLValue:
        n, i, j, c = at
        return ((n * sizes[0] + i) * sizes[1] + j) * self.windows.row + c


@record
class MaxPoolStage(PoolStage):
    """A thread for each window. Arrays: elements, the largest ones, taps."""

    @property
    def count(self) -> int:
        return prod(self.windows.pooled)

    def emit_place(self, t: Thread, at: LLValue) -> None:
        w = self.windows
        n, i, j, c = self.split(t, at, w.counts)
        rows = [self._along(t, 0, i, p) for p in range(w.kernel[0])]
        columns = [self._along(t, 1, j, q) for q in range(w.kernel[1])]
        best = tap = None
        for k, (p, q) in enumerate(w.taps()):
            (r, inside), (s, besides) = rows[p], columns[q]
            x = self._element(t, (n, r, s, c), [v for v in (inside, besides) if v is not None])
            number = t.code.constant(lanes_of(f"i{8 * self.tap.itemsize}"), k)
            if best is None or tap is None:
                best, tap = x, self._first(t, x, rows, columns, number)
                continue
            better = (x > best) | x.is_nan()
            best, tap = better.choose(x, best), better.choose(number, tap)
        assert best is not None and tap is not None
        t.store(1, at, to_memory(best, self.dtype))
        t.store(2, at, tap)

    def _first(self, t: Thread, x: LLValue, rows: list, columns: list, zero: LLValue) -> LLValue:
        """The tap that counts after the first one, x: the first inside, if none exceeds −∞."""
        w, first = self.windows, zero
        if max(w.before) <= 0:
            return zero
        for axis, (places, step) in enumerate(((rows, w.kernel[1]), (columns, 1))):
            along = zero
            for k in range(1, w.kernel[axis]):
                if w.before[axis] > (k - 1) * w.dilation[axis]:
                    along = (places[k - 1][0] < 0).choose(zero.same(k * step), along)
            first = first + along
        return x.equals(-inf).choose(first, zero)

    def _along(self, t: Thread, axis: int, i: LLValue, k: int) -> tuple[LLValue, LLValue | None]:
        """Where tap k of window i is along an axis, and whether it is in the array."""
        w = self.windows
        at = i * w.stride[axis] + (k * w.dilation[axis] - w.before[axis])
        inside = at.compare("lt", w.size[axis], signed=False)  # a negative one is large
        return at, None if w.within(axis) else inside

    def _element(self, t: Thread, at: tuple[LLValue, ...], inside: list[LLValue]) -> LLValue:
        place = self.place(at, self.windows.size)
        if not inside:
            return self.number(t, 0, place)
        valid = inside[0] if len(inside) == 1 else inside[0] & inside[1]
        x = self.number(t, 0, valid.choose(place, t.number(0)))
        return valid.choose(x, -inf)


@record
class PoolPutStage(PoolStage):
    """A thread for each element. Arrays: the windows' numbers, taps, sums."""

    @property
    def count(self) -> int:
        return prod(self.windows.shape)

    def emit_place(self, t: Thread, at: LLValue) -> None:
        w = self.windows
        n, i, j, c = self.split(t, at, w.size)
        rows = [self._along(t, 0, i, p) for p in range(w.kernel[0])]
        columns = [self._along(t, 1, j, q) for q in range(w.kernel[1])]
        total = t.code.constant(register_type(self.dtype), 0.0)
        for k, (p, q) in enumerate(w.taps()):
            (r, inside), (s, besides) = rows[p], columns[q]
            place, once = (n, r, s, c), (inside & besides).choose(t.number(1), t.number(0))
            add = partial(self._add, t, place, k)
            (total,) = t.loop(t.number(0), once, 1, [total], add)
        t.store(2, at, to_memory(round_to_half(total, self.dtype), self.dtype))

    def _add(
        self, t: Thread, at: tuple[LLValue, ...], k: int, _: LLValue, total: list[LLValue]
    ) -> list[LLValue]:
        """Add the number of a window, if its tap is k."""
        place = self.place(at, self.windows.counts)
        tap = t.load(1, place, lanes_of(f"i{8 * self.tap.itemsize}"))
        return [total[0] + tap.equals(k).choose(self.number(t, 0, place), 0.0)]

    def _along(self, t: Thread, axis: int, i: LLValue, k: int) -> tuple[LLValue, LLValue]:
        """The window that has an element at tap k along an axis, and whether there is one."""
        w = self.windows
        first = i + w.before[axis]
        ahead = k * w.dilation[axis]
        window, rest = t.split(first - ahead, w.stride[axis])
        there = window.compare("lt", w.counts[axis], signed=False) & rest.equals(0)
        return window, there & first.compare("ge", ahead, signed=False)


@grid("max_pool", "max_pool_last")
def _max_pool(graph: Graph, views, e) -> GridRoutine | str:
    x, taps = graph.avals[e.inputs[0]], graph.avals[e.outputs[1]]
    found = _windows(e.op.name, x.shape, taps.shape, e.static)
    if isinstance(found, str) or x.dtype not in dtypes.REAL:
        return found if isinstance(found, str) else f"{x.dtype} is not pooled here"
    return GridMaxPool(x.dtype, taps.dtype, found)


@grid("pool_put", "pool_put_last")
def _pool_put(graph: Graph, views, e) -> GridRoutine | str:
    (y, taps), x = (graph.avals[i] for i in e.inputs), graph.avals[e.outputs[0]]
    found = _windows(e.op.name, x.shape, y.shape, e.static)
    if isinstance(found, str):
        return found
    if y.dtype not in dtypes.REAL or taps.dtype.kind not in "iu":
        return f"{y.dtype} is not put here"
    return GridPoolPut(y.dtype, taps.dtype, found)


def _windows(row: str, shape, pooled, static) -> Windows | str:
    """The windows of a pool from arrays of a shape, or why there is no code for them."""
    kernel, stride, padding, dilation = static
    axes = len(kernel)
    if 0 in (*shape, *pooled):
        return "there is nothing to pool"
    if axes > 2 or prod(kernel) > _TAPS:
        return "its windows are large"
    if any(a < 0 for a, _ in padding):
        return "its windows begin inside of the array"
    last = row.endswith("_last")
    cut, end = len(shape) - axes - last, len(shape) - last
    return Windows(
        prod(shape[:cut]),
        _pair(shape[cut:end], 1),
        _pair(pooled[cut:end], 1),
        shape[-1] if last else 1,
        _pair(kernel, 1),
        _pair(stride, 1),
        _pair([a for a, _ in padding], 0),
        _pair(dilation, 1),
    )


def _pair(numbers: Sequence[int], missing: int) -> tuple[int, int]:
    """Numbers for two axes."""
    *first, second = numbers
    return int(first[0]) if first else missing, int(second)
