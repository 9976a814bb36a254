"""Random numbers: a thread makes the variates of one block of a stream."""

from math import gcd

import numpy as np

from ....core.record import record
from ...emit.code import LLValue
from ...emit.control import when
from ...emit.convert import to_memory
from ...emit.philox import stream_words
from ...emit.variates import ROWS, Variates, variates_of
from ...ir.routine import RoutineArray, array
from ..arrays import WIDEST
from .places import PlaceStage
from .registry import grid
from .routine import GridRoutine, RoutineStage
from .threads import LONG, Thread, lane


@record
class GridDraw(GridRoutine):
    """`size` variates for each of some streams, (key, position, nonce) each."""

    variates: Variates
    streams: int
    size: int

    @property
    def draws(self) -> bool:
        return True

    def describe(self) -> list[str]:
        return self.variates.describe(self.streams, self.size)

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        return (array(np.dtype(np.uint64), (self.streams, 3)),)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (array(self.variates.dtype, (self.streams, self.size)),)

    @property
    def stages(self) -> tuple[RoutineStage, ...]:
        return (DrawStage((0, 1), self.variates, self.streams, self.size),)


@record
class DrawStage(PlaceStage):
    """The blocks of all streams, a thread for each."""

    variates: Variates
    streams: int
    size: int

    @property
    def groups(self) -> int:
        """The blocks of a stream."""
        return -(-self.size // self.variates.per_block)

    @property
    def count(self) -> int:
        return self.streams * self.groups

    @property
    def extents(self) -> tuple[int, ...]:
        return (self.count * self.variates.per_block,)

    def emit_place(self, t: Thread, at: LLValue) -> None:
        stream, group = t.split(at, self.groups) if self.streams > 1 else (t.number(0), at)
        key, position, nonce = (t.load(0, stream * 3 + i, LONG) for i in range(3))
        words = stream_words(key, position + group.cast("zext", "i64"), nonce, 1)
        made = to_memory(self.variates.of(words), self.variates.dtype)
        some = self.variates.per_block
        first, rest = stream * self.size + group * some, self.size % some
        if not rest:
            self._store(t, first, made, some)
            return
        whole = group < self.groups - 1
        when(whole, lambda: self._store(t, first, made, some))
        when(whole ^ True, lambda: self._store(t, first, made, rest))

    def _store(self, t: Thread, first: LLValue, made: LLValue, count: int) -> None:
        """Store the first numbers of those made, all at once if it is all of them."""
        item, some = self.variates.dtype.itemsize, self.variates.per_block
        apart = self.size if self.streams > 1 else 0
        if count == some:
            t.store(1, first, made, gcd(t.aligned, WIDEST, apart * item, some * item))
            return
        for n in range(count):
            t.store(1, first + n, lane(made, n))


@grid(*ROWS)
def _draw(graph, views, e) -> GridRoutine | str:
    found = variates_of(graph, e)
    return found if isinstance(found, str) else GridDraw(*found)
