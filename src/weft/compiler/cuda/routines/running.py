"""Scans along one axis: running sums, products, recurrences and extremes.

Lines that lie contiguous are scanned by blocks. Products of floats and recurrences are not:
products of parts overflow where those from the beginning on do not. A thread computes these, short
lines, and lines along other axes, from the beginning to the end.
"""

from math import prod

import numpy as np

from ....core import dtypes
from ....core.record import record
from ...emit.code import LLValue, lanes_of
from ...ir.routine import RoutineArray, array
from .lines import TOGETHER, ScanStage, TotalStage
from .places import PlaceStage
from .registry import grid
from .routine import GridRoutine, RoutineStage
from .rules import EXTREMES, Rule
from .scans import State
from .threads import BLOCK, LONG, Thread, element

# Lines shorter than this have a thread each.
_SHORT = 64
# Elements of a part of a long line at least, whole turns of a block; lines that need no parts.
_PART, _LINES = 4096, 128


@record
class GridRunning(GridRoutine):
    """y[a, t, c] from y[a, t − 1, c] and x[a, t, c], or several of those; extremes with indices."""

    kind: str
    dtype: np.dtype
    lead: int
    n: int
    row: int

    @property
    def _array(self) -> RoutineArray:
        return array(self.dtype, (self.lead, self.n, self.row))

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        return (self._array,) * (2 if self.kind == "linear_recurrence" else 1)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        if self.kind not in EXTREMES:
            return (self._array,)
        return self._array, array(dtypes.int64, (self.lead, self.n, self.row))

    @property
    def stages(self) -> tuple[RoutineStage, ...]:
        arrays, totals = range(len(self.operands) + len(self.results)), len(self.scratch)
        if not self.is_scanned:
            return (LineStage(tuple(arrays), self.rule, self.lead, self.n, self.row),)
        sizes = self.rule, self.lead, self.n, self.part
        places = tuple([len(arrays) + n for n in range(totals)])
        scan = ScanStage((*arrays, *places), *sizes)
        return (TotalStage((0, *places), *sizes), scan) if totals else (scan,)

    @property
    def rule(self) -> Rule:
        return Rule(self.kind, self.dtype)

    @property
    def is_scanned(self) -> bool:
        return self.row == 1 and self.n >= _SHORT and self.rule.scannable

    @property
    def part(self) -> int:
        """The elements that a block has of a line: of few long lines, whole turns."""
        if self.lead >= _LINES or self.n <= 2 * _PART:
            return self.n
        turn = BLOCK * TOGETHER
        return max(_PART, -(-self.n // (BLOCK * turn)) * turn)

    @property
    def scratch(self) -> tuple[RoutineArray, ...]:
        """The totals of parts."""
        if not self.is_scanned or self.part == self.n:
            return ()
        shape = (self.lead, -(-self.n // self.part))
        return tuple([array(a.dtype, shape) for a in self.results])


@record
class LineStage(PlaceStage):
    """A line in a thread, from the beginning to the end. Arrays: operands, then results."""

    rule: Rule
    lead: int
    n: int
    row: int

    @property
    def count(self) -> int:
        return self.lead * self.row

    @property
    def extents(self) -> tuple[int, ...]:
        return (self.lead * self.n * self.row,)

    def emit_place(self, t: Thread, at: LLValue) -> None:
        a, c = t.split(at, self.row)
        first = a * (self.n * self.row) + c
        kind, given = lanes_of(element(self.rule.dtype)), self.rule.given

        def place(i: LLValue) -> LLValue:
            return first + i * self.row

        def read(i: LLValue) -> list[LLValue]:
            return [t.load(n, place(i), kind) for n in range(given)]

        def write(i: LLValue, state: State) -> None:
            for n, part in enumerate(state):
                t.store(given + n, place(i), part)

        def some(count: int, i: LLValue, state: State) -> State:
            places = [i + n for n in range(count)]
            for k, x in zip(places, [read(k) for k in places], strict=True):
                state = self.rule.follow(state, x, k.cast("zext", "i64"))
                write(k, state)
            return state

        state = self.rule.start(read(t.number(0)), t.code.constant(LONG, 0))
        write(t.number(0), state)
        whole = 1 + (self.n - 1) // TOGETHER * TOGETHER
        ends = t.number(1), t.number(whole), t.number(self.n)
        made = t.loop(*ends[:2], TOGETHER, state, lambda i, v: some(TOGETHER, i, tuple(v)))
        t.loop(*ends[1:], 1, made, lambda i, v: some(1, i, tuple(v)))


_ROWS = ("cumsum", "cumprod", "linear_recurrence", "logcumsumexp", *EXTREMES)


@grid(*(f"prepared_{row}" for row in _ROWS))
def _running(graph, views, e) -> GridRoutine | str:
    out, axis = graph.avals[e.outputs[0]], e.static[0]
    known = {graph.avals[x].dtype for x in e.inputs} == {out.dtype}
    kinds = (dtypes.float32, dtypes.float64)
    row = e.op.name.removeprefix("prepared_")
    if row not in ("logcumsumexp", "linear_recurrence"):
        kinds += (*dtypes.SIGNED, *dtypes.UNSIGNED)
    if not known or out.dtype not in kinds:
        return f"it is not computed for {out.dtype} here"
    if 0 in out.shape:
        return "there is nothing to compute"
    sizes = prod(out.shape[:axis]), out.shape[axis], prod(out.shape[axis + 1 :])
    return GridRunning(row, out.dtype, *sizes)
