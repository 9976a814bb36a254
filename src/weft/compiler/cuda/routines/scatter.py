"""Routines that add elements up by indices: the transposes of gathers.

Elements that go to one place are added in the order of the indices, as on the CPU: sums have the
same bits in every run.
"""

from math import gcd, prod

import numpy as np

from ....core import dtypes
from ....core.record import record
from ...emit.code import LLValue, lanes_of
from ...ir.routine import RoutineArray, array
from ..arrays import WIDEST
from ..machine import WORD
from .gather import GridIndexed
from .ordering import Keys
from .places import PlaceStage, ZerosStage
from .registry import grid
from .routine import GridRoutine, RoutineStage
from .threads import Along, Thread, element, place_along, size_of

# Terms that are loaded together.
_TOGETHER = 4
# Lines of a scattered sum from which on a thread adds each up, and lengths up to which it does.
_LINES, _SHORT = 4096, 16


def parts_of(dtype: np.dtype) -> tuple[np.dtype, int]:
    """The dtype in which numbers are added, and how many of it a number is."""
    return (dtypes.to_real(dtype), 2) if dtype in dtypes.COMPLEX else (dtype, 1)


@record
class GridSegmentSum(GridIndexed):
    """Zeros, and out[a, i[k], …] += x[a, k, …] for k in order; complex numbers are two floats."""

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        x = array(self.dtype, (self.lead, self.indices, self.row))
        return x, array(self.index, (self.indices,))

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (array(self.dtype, (self.lead, self.n, self.row)),)

    @property
    def keys(self) -> Keys:
        return Keys(self.index, Along(1, self.n, self.indices, 1))

    @property
    def scratch(self) -> tuple[RoutineArray, ...]:
        return self.keys.scratch

    @property
    def stages(self) -> tuple[RoutineStage, ...]:
        stages, order, ends = self.keys.stages(1, 3)
        dtype, parts = parts_of(self.dtype)
        sizes = Along(self.lead, self.n, self.indices, self.row * parts)
        return *stages, SumStage((0, order, ends, 2), dtype, sizes)


@record
class SumStage(PlaceStage):
    """Sums of the rows of each place. Arrays: rows, ordered numbers of rows, ends, sums."""

    dtype: np.dtype
    sizes: Along

    @property
    def lanes(self) -> int:
        """The neighbouring columns of a thread."""
        return gcd(self.sizes.row, WIDEST // self.dtype.itemsize)

    @property
    def count(self) -> int:
        return self.sizes.places // self.lanes

    @property
    def extents(self) -> tuple[int, ...]:
        return self.sizes.places, self.sizes.picked

    def emit_place(self, t: Thread, at: LLValue) -> None:
        sizes, kind = self.sizes, lanes_of(element(self.dtype), self.lanes)
        line, column = t.split(at, sizes.row // self.lanes)
        a, place = t.split(line, sizes.n) if sizes.lead > 1 else (t.number(0), line)
        column, align = column * self.lanes, gcd(size_of(kind), t.aligned)
        begin, end = (t.load(2, place * 2 + n, WORD) for n in range(2))

        def some(count: int, p: LLValue, total: LLValue) -> list[LLValue]:
            rows = [t.wide(t.load(1, p + n, WORD)) for n in range(count)]
            places = [(a * sizes.indices + k) * sizes.row + column for k in rows]
            for term in [t.load(0, at, kind, align) for at in places]:
                total = total + term
            return [total]

        whole = begin + ((end - begin) & -_TOGETHER)
        none = t.code.constant(kind, 0)
        made = t.loop(begin, whole, _TOGETHER, [none], lambda p, v: some(_TOGETHER, p, v[0]))
        (total,) = t.loop(whole, end, 1, made, lambda p, v: some(1, p, v[0]))
        t.store(3, line * sizes.row + column, total, align)


@grid("checked_segment_sum")
def _segment_sum(graph, views, e) -> GridRoutine | str:
    (x, i), (axis, size) = e.inputs, e.static
    a, c = graph.avals[x], graph.avals[i]
    if 0 in (*a.shape, *c.shape, size):
        return "there is nothing to add up"
    if a.dtype in (*dtypes.HALF, dtypes.bool_):
        return f"sums of {a.dtype} are not made here"
    lead, row = prod(a.shape[:axis]), prod(a.shape[axis + len(c.shape) :])
    made = GridSegmentSum(a.dtype, c.dtype, lead, size, prod(c.shape), row)
    return made.keys.why_not() or made


@record
class GridScatterSum(GridIndexed):
    """Zeros, and out[a, i[a, j, c], c] += x[a, j, c] for j in order."""

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        shape = (self.lead, self.indices, self.row)
        return array(self.dtype, shape), array(self.index, shape)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (array(self.dtype, (self.lead, self.n, self.row)),)

    @property
    def keys(self) -> Keys:
        return Keys(self.index, self.sizes)

    @property
    def by_lines(self) -> bool:
        """Whether threads add lines up; otherwise all elements are ordered by their places."""
        lines = self.lead * self.row
        return lines >= _LINES or self.indices <= _SHORT or bool(self.keys.why_not())

    @property
    def scratch(self) -> tuple[RoutineArray, ...]:
        return () if self.by_lines else self.keys.scratch

    @property
    def stages(self) -> tuple[RoutineStage, ...]:
        dtype, parts = parts_of(self.dtype)
        if self.by_lines:
            zeros = ZerosStage((2,), self.sizes.places * self.dtype.itemsize)
            return zeros, LineSumStage((0, 1, 2), dtype, parts, self.index, self.sizes)
        stages, order, ends = self.keys.stages(1, 3)
        sizes = Along(1, self.sizes.places, self.sizes.picked, parts)
        return *stages, SumStage((0, order, ends, 2), dtype, sizes)


@record
class LineSumStage(PlaceStage):
    """A thread adds up a line (a, ·, c). Arrays: terms, indices, sums, which are zeros."""

    dtype: np.dtype
    parts: int
    index: np.dtype
    sizes: Along

    @property
    def count(self) -> int:
        return self.sizes.lead * self.sizes.row

    @property
    def extents(self) -> tuple[int, ...]:
        return self.sizes.picked * self.parts, self.sizes.places * self.parts

    def emit_place(self, t: Thread, at: LLValue) -> None:
        sizes, parts = self.sizes, self.parts
        kind, align = lanes_of(element(self.dtype), parts), self.dtype.itemsize
        a, c = t.split(at, sizes.row)

        def add(j: LLValue, _: list[LLValue]) -> list[LLValue]:
            k = (a * sizes.indices + j) * sizes.row + c
            to = place_along(t, k, t.index_at(1, self.index, k, sizes.n), sizes) * parts
            total = t.load(2, to, kind, align) + t.load(0, k * parts, kind, align)
            t.store(2, to, total, align)
            return []

        t.loop(t.number(0), t.number(sizes.indices), 1, [], add)


@grid("checked_scatter_sum")
def _scatter_sum(graph, views, e) -> GridRoutine | str:
    (axis, n), (x, i) = e.static, (graph.avals[k] for k in e.inputs)
    if 0 in (*x.shape, *i.shape, n):
        return "there is nothing to move"
    if x.dtype in (*dtypes.HALF, dtypes.bool_):
        return f"sums of {x.dtype} are not made here"
    lead, row = prod(i.shape[:axis]), prod(i.shape[axis + 1 :])
    return GridScatterSum(x.dtype, i.dtype, lead, n, i.shape[axis], row)
