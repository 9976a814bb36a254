"""Routines that write elements by indices: of several writes to one place the last one counts."""

from math import gcd, prod

import numpy as np

from ....core import dtypes
from ....core.record import record
from ...emit.code import LLValue
from ...emit.control import when
from ...ir.routine import RoutineArray, array
from ..arrays import WIDEST
from ..machine import WORD
from .gather import GridIndexed
from .places import PlaceStage, ZerosStage
from .registry import grid
from .routine import GridRoutine, RoutineStage
from .threads import BLOCK, FAR, Thread


@record
class IndexStage(PlaceStage):
    """A thread for each of some indices of an axis of length n."""

    index: np.dtype
    n: int
    indices: int

    @property
    def count(self) -> int:
        return self.indices

    @property
    def extents(self) -> tuple[int, ...]:
        return (self.n,)


@record
class MarkStage(IndexStage):
    """1 + the last of the indices of each place, in zeros. Arrays: indices, places.

    The largest of some numbers does not depend on the order in which threads come.
    """

    def emit_place(self, t: Thread, at: LLValue) -> None:
        t.raise_to(1, t.index_at(0, self.index, at, self.n), t.word(at) + 1)


def _why_not_marked(n: int, indices: int) -> str:
    return f"{indices} indices of {n} places are too many" if max(n, indices + BLOCK) >= FAR else ""


@record
class GridIndexPut(GridIndexed):
    """out = x, then out[a, i[k], …] = v[a, k, …] for k in order; v may be one number."""

    one: bool

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        x = array(self.dtype, (self.lead, self.n, self.row))
        v = (1,) if self.one else (self.lead, self.indices, self.row)
        return x, array(self.index, (self.indices,)), array(self.dtype, v)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (array(self.dtype, (self.lead, self.n, self.row)),)

    @property
    def scratch(self) -> tuple[RoutineArray, ...]:
        return (array(dtypes.int32, (self.n,)),)

    @property
    def stages(self) -> tuple[RoutineStage, ...]:
        item = self.dtype.itemsize
        part = item if self.one else gcd(self.row * item, WIDEST)
        parts = self.row * item // part
        return (
            ZerosStage((4,), 4 * self.n),
            MarkStage((1, 4), self.index, self.n, self.indices),
            PutStage((0, 2, 4, 3), part, self.lead, self.n, self.indices, parts, self.one),
        )


@record
class PutStage(PlaceStage):
    """The old row or the last one written, `part` bytes in a thread.

    Arrays: old rows, new ones or one number, 1 + the number of the last of each place, results.
    """

    part: int
    lead: int
    n: int
    indices: int
    parts: int
    one: bool

    @property
    def count(self) -> int:
        return self.lead * self.n * self.parts

    @property
    def extents(self) -> tuple[int, ...]:
        return (self.lead * self.indices * self.parts,)

    def emit_place(self, t: Thread, at: LLValue) -> None:
        row, column = t.split(at, self.parts)
        a, place = t.split(row, self.n) if self.lead > 1 else (t.number(0), row)
        last = t.load(2, place, WORD)

        def write() -> None:
            k = a * self.indices + t.wide(last - 1)
            source = t.number(0) if self.one else k * self.parts + column
            t.put(3, at, t.fetch(1, source, self.part))

        when(last > 0, write)
        when(last.equals(0), lambda: t.put(3, at, t.fetch(0, at, self.part)))


@grid("checked_index_put")
def _index_put(graph, views, e) -> GridRoutine | str:
    (x, i, v), (axis,) = e.inputs, e.static
    a, c, w = (graph.avals[k] for k in (x, i, v))
    if 0 in (*a.shape, *c.shape):
        return "there is nothing to write"
    whole = (*a.shape[:axis], *c.shape, *a.shape[axis + 1 :])
    one = prod(w.shape) == 1
    if w.dtype != a.dtype or not (one or w.shape == whole):
        return "the value is not of the shape and dtype of what it is written to"
    made = GridIndexPut(
        *(a.dtype, c.dtype, prod(a.shape[:axis]), a.shape[axis], prod(c.shape)),
        *(prod(a.shape[axis + 1 :]), one),
    )
    return _why_not_marked(made.n, made.indices) or made


@record
class GridLastWrites(GridRoutine):
    """For each index of an axis of length n, whether none after it is the same."""

    index: np.dtype
    n: int
    indices: int

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        return (array(self.index, (self.indices,)),)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (array(dtypes.bool_, (self.indices,)),)

    @property
    def scratch(self) -> tuple[RoutineArray, ...]:
        return (array(dtypes.int32, (self.n,)),)

    @property
    def stages(self) -> tuple[RoutineStage, ...]:
        sizes = self.index, self.n, self.indices
        return (
            ZerosStage((2,), 4 * self.n),
            MarkStage((0, 2), *sizes),
            LastStage((0, 2, 1), *sizes),
        )


@record
class LastStage(IndexStage):
    """Whether an index is the last of its place. Arrays: indices, places, results."""

    def emit_place(self, t: Thread, at: LLValue) -> None:
        last = t.load(1, t.index_at(0, self.index, at, self.n), WORD)
        t.store(2, at, last.equals(t.word(at) + 1).cast("zext", "i8"))


@grid("checked_last_writes")
def _last_writes(graph, views, e) -> GridRoutine | str:
    (i,), (size,) = e.inputs, e.static
    aval = graph.avals[i]
    if 0 in (*aval.shape, size):
        return "there are no indices"
    count = prod(aval.shape)
    return _why_not_marked(size, count) or GridLastWrites(aval.dtype, size, count)
