"""Routines that gather elements by indices.

A guard has checked the indices; whatever they are, no access leaves its array.
"""

from math import prod

import numpy as np

from ....core import dtypes
from ....core.record import record
from ....graph.graph import Literal
from ...emit.code import Code, LLValue, lanes_of
from ...emit.control import behind, each
from ...ir.routine import RoutineArray, array
from .registry import native
from .routine import NativeRoutine, RoutineBody

_BYTE, _ROW = 0.1, 2.0  # nanoseconds, for each byte that is moved and for each index


def index_at(b: RoutineBody, number: int, dtype: np.dtype, k: LLValue, n: int) -> LLValue:
    """Index k of an axis of length n: negative ones count from the end, others are clamped."""
    code, kind = b.code, lanes_of(f"i{8 * dtype.itemsize}")
    raw = code.load(kind, code.address(b.arrays[number], k, kind.element), dtype.itemsize)
    i = raw.cast("sext" if dtype in dtypes.SIGNED else "zext", "i64")
    i = (i < 0).choose(i + n, i)
    b.require(i.compare("lt", n, signed=False), number)
    return i.compare("lt", n, signed=False).choose(i, i.same(n - 1))


def move(code: Code, target: LLValue, source: LLValue, nbytes: int) -> None:
    """Copy bytes that do not overlap."""
    code.module.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
    code.do(
        f"call void @llvm.memcpy.p0.p0.i64(ptr {target.name}, ptr {source.name}, "
        f"i64 {nbytes}, i1 false)"
    )


@record
class Indexed(NativeRoutine):
    """Picks along the middle one of three axes, (lead, n, row), by indices."""

    dtype: np.dtype
    index: np.dtype
    lead: int
    n: int
    indices: int
    row: int


@record
class Take(Indexed):
    """out[a, k, …] = x[a, i[k], …], with `row` elements for each index."""

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        x = array(self.dtype, (self.lead, self.n, self.row))
        return x, array(self.index, (self.indices,))

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (array(self.dtype, (self.lead, self.indices, self.row)),)

    @property
    def count(self) -> int:
        return self.lead * self.indices

    @property
    def cost(self) -> float:
        return self.count * (_ROW + _BYTE * self.row * self.dtype.itemsize)

    def body(self, b: RoutineBody) -> None:
        x, _, out = b.arrays
        nbytes = self.row * self.dtype.itemsize

        def unit(u: LLValue) -> None:
            k = u if self.lead == 1 else u.modulo(self.indices, False)
            at = index_at(b, 1, self.index, k, self.n)
            if self.lead > 1:
                at = u.divide(self.indices, False) * self.n + at
            move(b.code, behind(out, u * nbytes), behind(x, at * nbytes), nbytes)

        each(b.code, b.begin, b.end, unit)


@native("checked_take")
def _take(graph, views, e) -> NativeRoutine | str:
    x, i = e.inputs
    if isinstance(x, Literal) or isinstance(i, Literal):
        return "its operands are Python's numbers"
    (axis,), a, c = e.static, graph.avals[x], graph.avals[i]
    if 0 in (*a.shape, *c.shape):
        return "there is nothing to take"
    return Take(
        *(a.dtype, c.dtype, prod(a.shape[:axis])),
        *(a.shape[axis], prod(c.shape), prod(a.shape[axis + 1 :])),
    )
