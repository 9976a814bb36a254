"""Routines that gather elements by indices.

A guard has checked the indices; whatever they are, no access leaves its array.
"""

from math import gcd, prod

import numpy as np

from ....core.record import record
from ...emit.code import LLValue
from ...ir.routine import RoutineArray, array
from ..arrays import WIDEST
from .places import PlaceStage
from .registry import grid
from .routine import GridRoutine, RoutineStage
from .threads import Along, Thread, place_along


@record
class GridIndexed(GridRoutine):
    """Picks along the middle one of three axes, (lead, n, row), by indices."""

    dtype: np.dtype
    index: np.dtype
    lead: int
    n: int
    indices: int
    row: int

    @property
    def sizes(self) -> Along:
        return Along(self.lead, self.n, self.indices, self.row)


@record
class GridTake(GridIndexed):
    """out[a, k, …] = x[a, i[k], …], with `row` elements for each index."""

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        x = array(self.dtype, (self.lead, self.n, self.row))
        return x, array(self.index, (self.indices,))

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (array(self.dtype, (self.lead, self.indices, self.row)),)

    @property
    def stages(self) -> tuple[RoutineStage, ...]:
        nbytes = self.row * self.dtype.itemsize
        return (TakeStage((0, 1, 2), nbytes, self.index, self.lead, self.n, self.indices),)


@record
class TakeStage(PlaceStage):
    """Rows of `nbytes`: a thread moves as many bytes as divide them, at most sixteen."""

    nbytes: int
    index: np.dtype
    lead: int
    n: int
    indices: int

    @property
    def part(self) -> int:
        """The bytes of a thread."""
        return gcd(self.nbytes, WIDEST)

    @property
    def count(self) -> int:
        return self.lead * self.indices * (self.nbytes // self.part)

    @property
    def extents(self) -> tuple[int, ...]:
        return (self.lead * self.n * (self.nbytes // self.part),)

    def emit_place(self, t: Thread, at: LLValue) -> None:
        parts = self.nbytes // self.part
        row, column = t.split(at, parts)
        a, k = t.split(row, self.indices) if self.lead > 1 else (t.number(0), row)
        source = a * self.n + t.index_at(1, self.index, k, self.n)
        t.put(2, at, t.fetch(0, source * parts + column, self.part))


@grid("checked_take")
def _take(graph, views, e) -> GridRoutine | str:
    (x, i), (axis,) = e.inputs, e.static
    a, c = graph.avals[x], graph.avals[i]
    if 0 in (*a.shape, *c.shape):
        return "there is nothing to take"
    return GridTake(
        *(a.dtype, c.dtype, prod(a.shape[:axis])),
        *(a.shape[axis], prod(c.shape), prod(a.shape[axis + 1 :])),
    )


@record
class GridTakeAlong(GridIndexed):
    """out[a, j, c] = x[a, i[a, j, c], c]."""

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        x = array(self.dtype, (self.lead, self.n, self.row))
        return x, array(self.index, (self.lead, self.indices, self.row))

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (array(self.dtype, (self.lead, self.indices, self.row)),)

    @property
    def stages(self) -> tuple[RoutineStage, ...]:
        return (TakeAlongStage((0, 1, 2), self.dtype.itemsize, self.index, self.sizes),)


@record
class TakeAlongStage(PlaceStage):
    """A thread for each element, of `item` bytes."""

    item: int
    index: np.dtype
    sizes: Along

    @property
    def count(self) -> int:
        return self.sizes.picked

    @property
    def extents(self) -> tuple[int, ...]:
        return (self.sizes.places,)

    def emit_place(self, t: Thread, at: LLValue) -> None:
        index = t.index_at(1, self.index, at, self.sizes.n)
        t.put(2, at, t.fetch(0, place_along(t, at, index, self.sizes), self.item))


@grid("checked_take_along_axis")
def _take_along(graph, views, e) -> GridRoutine | str:
    (axis,) = e.static
    x, i = (graph.avals[k] for k in e.inputs)
    if 0 in (*x.shape, *i.shape):
        return "there is nothing to take"
    lead, row = prod(i.shape[:axis]), prod(i.shape[axis + 1 :])
    return GridTakeAlong(x.dtype, i.dtype, lead, x.shape[axis], i.shape[axis], row)
