"""Scans along one axis: running sums, products, recurrences and extremes.

A unit is a line along the axis, or some lines side by side: results do not depend on how the units
are divided. Sums of a single line of floats are computed sixteen at a time, by doubling.
"""

from math import prod

import numpy as np

from ....core import dtypes
from ....core.record import record
from ....graph.graph import Literal
from ...emit.code import LLValue, Type, lanes_of
from ...emit.control import WORD, each
from ...emit.lanes_in_memory import splat
from ...emit.logarithms import logaddexp
from ...ir.routine import RoutineArray, array
from .registry import native
from .routine import NativeRoutine, RoutineBody
from .scatter import blocks, by_blocks, element

_EACH = {"logcumsumexp": 20.0, "cummax": 3.0, "cummin": 3.0}
_LANES = 16


@record
class Running(NativeRoutine):
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
    def has_indices(self) -> bool:
        return self.kind in ("cummax", "cummin")

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        if not self.has_indices:
            return (self._array,)
        return self._array, array(dtypes.int64, (self.lead, self.n, self.row))

    @property
    def count(self) -> int:
        return self.lead * blocks(self.row)

    @property
    def cost(self) -> float:
        return _EACH.get(self.kind, 1.0) * self.lead * self.n * self.row

    def body(self, b: RoutineBody) -> None:
        if self.kind == "cumsum" and self.row == 1 and self.dtype in dtypes.REAL:
            each(b.code, b.begin, b.end, lambda u: self._scan(b, u * self.n))
            return
        by_blocks(b, self.row, lambda a, start, width: self._block(b, a, start, width))

    def _block(self, b: RoutineBody, a: LLValue, start: LLValue, width: int) -> None:
        """Lines side by side in lanes; logarithms, which fill registers, line by line."""
        if self.kind != "logcumsumexp":
            self._lines(b, a, start, width)
            return
        each(b.code, 0, width, lambda c: self._lines(b, a, start + c, 1))

    def _lines(self, b: RoutineBody, a: LLValue, start: LLValue, width: int) -> None:
        """Lines side by side, each from the beginning to the end."""
        code, kind = b.code, lanes_of(element(self.dtype), width)
        first = a * (self.n * self.row) + start
        given, made = b.arrays[: len(self.operands)], b.arrays[len(self.operands) :]
        carry, places = code.local(kind), code.local(lanes_of("i64", width))

        def read(array: LLValue, at: LLValue) -> LLValue:
            return code.load(kind, code.address(array, at, kind.element), self.dtype.itemsize)

        def write(at: LLValue, y: LLValue, index: LLValue | None) -> None:
            code.store(y, code.address(made[0], at, kind.element), self.dtype.itemsize)
            code.store(y, carry, 64)
            if index is not None:
                code.store(index, code.address(made[1], at, "i64"), 8)
                code.store(index, places, 64)

        none = code.constant(lanes_of("i64", width), 0) if self.has_indices else None
        write(first, read(given[-1], first), none)

        def step(t: LLValue) -> None:
            at = first + t * self.row
            before, x = code.load(kind, carry, 64), [read(g, at) for g in given]
            if not self.has_indices:
                write(at, self._combine(before, x), None)
                return
            taken = self._is_taken(before, x[0])
            index = code.load(lanes_of("i64", width), places, 64)
            write(at, taken.choose(x[0], before), taken.choose(splat(t, width), index))

        each(code, 1, self.n, step)

    def _combine(self, before: LLValue, x: list[LLValue]) -> LLValue:
        if self.kind == "cumsum":
            return before + x[0]
        if self.kind == "cumprod":
            return before * x[0]
        if self.kind == "linear_recurrence":
            return x[1] + x[0] * before
        return logaddexp(before, x[0])

    def _is_taken(self, before: LLValue, x: LLValue) -> LLValue:
        """Whether x becomes the extreme: NaN always does, and is never replaced."""
        signed = self.dtype in dtypes.SIGNED
        better = x.compare("ge" if self.kind == "cummax" else "le", before, signed)
        return better | x.is_nan() if self.dtype in dtypes.REAL else better

    def _scan(self, b: RoutineBody, first: LLValue) -> None:
        """Running sums of one line."""
        code, (x, out), item = b.code, b.arrays, self.dtype.itemsize
        name = element(self.dtype)
        total, whole = code.local(lanes_of(name)), self.n - self.n % _LANES
        # A −0 that is added to nothing keeps its sign.
        code.store(code.constant(lanes_of(name), -0.0), total, 64)

        def some(t: LLValue, width: int) -> None:
            kind = lanes_of(name, width)
            y = code.load(kind, code.address(x, first + t, name), item)
            y = _prefix_sums(y) + splat(code.load(lanes_of(name), total, 64), width)
            code.store(y, code.address(out, first + t, name), item)
            code.store(_last(y), total, 64)

        each(code, 0, whole, lambda t: some(t, _LANES), _LANES)
        if self.n > whole:
            some(code.constant(WORD, whole), self.n - whole)


def _last(y: LLValue) -> LLValue:
    kind: Type = y.type
    if kind.lanes == 1:
        return y
    text = f"extractelement {kind.text} {y.name}, i32 {kind.lanes - 1}"
    return y.code.emit(lanes_of(kind.element), text)


def _prefix_sums(y: LLValue) -> LLValue:
    """Prefix sums of lanes: add the neighbour, then the one two before, and so on."""
    lanes, far = y.type.lanes, 1
    none = y.same(-0.0)
    while far < lanes:
        picks = ", ".join(f"i32 {i - far if i >= far else lanes}" for i in range(lanes))
        text = f"shufflevector {y.type.text} {y.name}, {y.type.text} {none.name}"
        y = y + y.code.emit(y.type, f"{text}, <{lanes} x i32> <{picks}>")
        far *= 2
    return y


_ROWS = ("cumsum", "cumprod", "linear_recurrence", "logcumsumexp", "cummax", "cummin")


@native(*(f"prepared_{row}" for row in _ROWS))
def _running(graph, views, e) -> NativeRoutine | str:
    if any(isinstance(x, Literal) for x in e.inputs):
        return "its operands are Python's numbers"
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
    return Running(row, out.dtype, *sizes)
