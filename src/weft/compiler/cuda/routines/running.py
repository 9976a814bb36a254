"""Scans along one axis: running sums, products, recurrences and extremes.

Lines that lie contiguous are scanned by a block each. Products of floats and recurrences are not:
products of parts overflow where those from the beginning on do not. A thread computes these, short
lines, and lines along other axes, from the beginning to the end.
"""

from math import gcd, prod

import numpy as np

from ....core import dtypes
from ....core.record import record
from ...emit.code import LLValue, Type, lanes_of
from ...emit.logarithms import logaddexp
from ...ir.routine import RoutineArray, array
from ..arrays import WIDEST
from ..machine import WARP, Machine
from .places import PlaceStage
from .registry import grid
from .routine import GridRoutine, Stage
from .scans import Scan, State, scan_block
from .threads import BLOCK, LONG, Thread, element, join, lane, start_thread

_EXTREMES = ("cummax", "cummin")
# Lines shorter than this have a thread each; elements of a thread that are loaded together.
_SHORT, _TOGETHER = 64, 4


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
        if self.kind not in _EXTREMES:
            return (self._array,)
        return self._array, array(dtypes.int64, (self.lead, self.n, self.row))

    @property
    def stages(self) -> tuple[Stage, ...]:
        arrays = tuple(range(len(self.operands) + len(self.results)))
        rule = Rule(self.kind, self.dtype)
        if self.row == 1 and self.n >= _SHORT and rule.scannable:
            return (ScanStage(arrays, rule, self.lead, self.n),)
        return (LineStage(arrays, rule, self.lead, self.n, self.row),)


@record
class Rule:
    """What is computed along a line. A state is the number so far, of extremes also its place."""

    kind: str
    dtype: np.dtype

    @property
    def scannable(self) -> bool:
        product = self.kind == "cumprod" and self.dtype in dtypes.REAL
        return not product and self.kind != "linear_recurrence"

    @property
    def given(self) -> int:
        return 2 if self.kind == "linear_recurrence" else 1

    @property
    def types(self) -> tuple[Type, ...]:
        """The types of a state."""
        one = lanes_of(element(self.dtype))
        return (one, LONG) if self.kind in _EXTREMES else (one,)

    def start(self, x: list[LLValue], at: LLValue) -> State:
        """The state of the element at a place alone."""
        return (x[-1], at) if self.kind in _EXTREMES else (x[-1],)

    def follow(self, before: State, x: list[LLValue], at: LLValue) -> State:
        """The state at a place, after another one."""
        if self.kind == "linear_recurrence":
            return (x[1] + x[0] * before[0],)
        return self.combine(before, self.start(x, at))

    def combine(self, first: State, second: State) -> State:
        """The state of two parts of a line."""
        a, b = first[0], second[0]
        if self.kind == "cumsum":
            return (a + b,)
        if self.kind == "cumprod":
            return (a * b,)
        if self.kind == "logcumsumexp":
            return (logaddexp(a, b),)
        taken = self._is_taken(a, b)
        return taken.choose(b, a), taken.choose(second[1], first[1])

    def _is_taken(self, before: LLValue, x: LLValue) -> LLValue:
        """Whether x becomes the extreme: NaN always does, and is never replaced."""
        signed = self.dtype in dtypes.SIGNED
        better = x.compare("ge" if self.kind == "cummax" else "le", before, signed)
        return better | x.is_nan() if self.dtype in dtypes.REAL else better

    def scan(self, t: Thread) -> Scan:
        """The operation of a scan, and what changes no element that follows it."""
        numbers = [t.code.constant(self.types[0], self._identity())]
        places = [t.code.constant(LONG, 0)] if self.kind in _EXTREMES else []
        return Scan(self.combine, (*numbers, *places))

    def _identity(self) -> float | int:
        is_real = self.dtype in dtypes.REAL
        if self.kind == "cumsum":
            return -0.0 if is_real else 0  # −0 added to a −0 keeps its sign
        if self.kind == "cumprod":
            return 1
        if is_real:
            return float("inf") if self.kind == "cummin" else float("-inf")
        limits = np.iinfo(self.dtype)
        limit = limits.max if self.kind == "cummin" else limits.min
        return int(np.array(limit, self.dtype).view(f"i{self.dtype.itemsize}"))


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
        whole = 1 + (self.n - 1) // _TOGETHER * _TOGETHER
        ends = t.number(1), t.number(whole), t.number(self.n)
        made = t.loop(*ends[:2], _TOGETHER, state, lambda i, v: some(_TOGETHER, i, tuple(v)))
        t.loop(*ends[1:], 1, made, lambda i, v: some(1, i, tuple(v)))


@record
class ScanStage(Stage):
    """A contiguous line in a block. Arrays: the operand, then results."""

    rule: Rule
    lead: int
    n: int

    @property
    def block(self) -> int:
        block = WARP
        while block < BLOCK and block * _TOGETHER < self.n:
            block *= 2
        return block

    @property
    def grid(self) -> int:
        return self.lead

    def emit(self, machine: Machine, aligned: int) -> None:
        some = self.block * _TOGETHER
        t = start_thread(machine, aligned, self.lead * self.n, self.n + some)
        scan = self.rule.scan(t)
        first = t.wide(machine.block()) * self.n
        thread = t.wide(machine.thread()) * _TOGETHER

        def turn(i: LLValue, carried: list[LLValue]) -> State:
            own = self._read(t, first, i + thread, scan.identity)
            for n in range(1, _TOGETHER):
                own[n] = scan.combine(own[n - 1], own[n])
            before, total = scan_block(t, scan, own[-1], self.block, some < self.n)
            before = scan.combine(tuple(carried), before)
            self._write(t, first, i + thread, [scan.combine(before, x) for x in own])
            return scan.combine(tuple(carried), total)

        t.loop(t.number(0), t.number(self.n), some, scan.identity, turn)
        machine.finish()

    @property
    def _lanes(self) -> int:
        """The neighbouring elements that are accessed together: lines are whole groups of them."""
        return gcd(self.n, _TOGETHER)

    def _align(self, t: Thread, item: int) -> int:
        return gcd(self._lanes * item, t.aligned, WIDEST)

    def _read(self, t: Thread, first: LLValue, at: LLValue, none: State) -> list[State]:
        """The elements of a thread, each as a state; beyond the line, ones that change nothing."""
        kind, lanes, made = self.rule.types[0], self._lanes, list[State]()
        for k in range(0, _TOGETHER, lanes):
            inside = at + k < self.n
            place = first + inside.choose(at + k, at.same(0))
            align = self._align(t, self.rule.dtype.itemsize)
            group = t.load(0, place, lanes_of(kind.element, lanes), align)
            for n in range(lanes):
                where = (at + (k + n)).cast("zext", "i64")
                state = self.rule.start([lane(group, n)], where)
                made.append(tuple([inside.choose(x, y) for x, y in zip(state, none, strict=True)]))
        return made

    def _write(self, t: Thread, first: LLValue, at: LLValue, made: list[State]) -> None:
        for k in range(0, _TOGETHER, self._lanes):

            def put(k: int = k) -> None:
                for n in range(len(made[0])):
                    group = join([state[n] for state in made[k : k + self._lanes]])
                    align = self._align(t, group.type.width // 8)
                    t.store(1 + n, first + at + k, group, align)

            t.when(at + k < self.n, put)


_ROWS = ("cumsum", "cumprod", "linear_recurrence", "logcumsumexp", *_EXTREMES)


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
