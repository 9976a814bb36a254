"""Routines with an index along one axis for each element."""

from math import prod

from ....core import dtypes
from ....core.record import record
from ....graph.graph import Literal
from ...emit.code import LLValue, lanes_of
from ...emit.control import behind, each
from ...ir.routine import RoutineArray, array
from .gather import Indexed, index_at, move
from .registry import native
from .routine import NativeRoutine, RoutineBody
from .scatter import Scattered, by_blocks, element, fill_zeros

_EACH = 2.0  # nanoseconds for an element


@record
class TakeAlong(Indexed):
    """out[a, j, c] = x[a, i[a, j, c], c]."""

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        x = array(self.dtype, (self.lead, self.n, self.row))
        return x, array(self.index, (self.lead, self.indices, self.row))

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (array(self.dtype, (self.lead, self.indices, self.row)),)

    @property
    def line(self) -> int:
        """The length of a contiguous run of the result that one unit writes."""
        return self.row if self.row > 1 else self.indices

    @property
    def count(self) -> int:
        return self.lead * self.indices * self.row // self.line

    @property
    def cost(self) -> float:
        return _EACH * self.count * self.line

    def body(self, b: RoutineBody) -> None:
        (x, _, out), item, code = b.arrays, self.dtype.itemsize, b.code

        def unit(u: LLValue) -> None:
            a = u if self.row == 1 else u.divide(self.indices, False)
            source = behind(x, a * (self.n * self.row * item))
            first = u * self.line

            def one(c: LLValue) -> None:
                at = index_at(b, 1, self.index, first + c, self.n)
                at = at if self.row == 1 else at * self.row + c
                move(code, behind(out, (first + c) * item), behind(source, at * item), item)

            each(code, 0, self.line, one)

        each(code, b.begin, b.end, unit)


@record
class ScatterSum(Scattered):
    """Zeros, and out[a, i[a, j, c], c] += x[a, j, c] for j in order."""

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        shape = (self.lead, self.indices, self.row)
        return array(self.dtype, shape), array(self.index, shape)

    @property
    def cost(self) -> float:
        return _EACH * self.lead * self.row * (self.indices + 0.1 * self.n)

    def body(self, b: RoutineBody) -> None:
        code, (x, _, out), item = b.code, b.arrays, self.dtype.itemsize
        real, row = dtypes.to_real(self.dtype), self.row
        kind = lanes_of(element(real), 2 if self.dtype in dtypes.COMPLEX else 1)

        def do(a: LLValue, start: LLValue, width: int) -> None:
            source, target = a * (self.indices * row) + start, a * (self.n * row) + start

            def clear(s: LLValue) -> None:
                fill_zeros(code, behind(out, (target + s * row) * item), width * item)

            each(code, 0, self.n, clear)

            def add(j: LLValue) -> None:
                def one(c: LLValue) -> None:
                    k = source + j * row + c
                    to = target + index_at(b, 1, self.index, k, self.n) * row + c
                    place = behind(out, to * item)
                    term = code.load(kind, behind(x, k * item), real.itemsize)
                    old = code.load(kind, place, real.itemsize)
                    code.store(old + term, place, real.itemsize)

                each(code, 0, width, one)

            each(code, 0, self.indices, add)

        by_blocks(b, row, do)


@native("checked_take_along_axis", "checked_scatter_sum")
def _along(graph, views, e) -> NativeRoutine | str:
    if any(isinstance(x, Literal) for x in e.inputs):
        return "its operands are Python's numbers"
    x, i = (graph.avals[k] for k in e.inputs)
    axis = e.static[0]
    summed = e.op.name == "checked_scatter_sum"
    n = e.static[1] if summed else x.shape[axis]
    if 0 in (*x.shape, *i.shape, n):
        return "there is nothing to move"
    if summed and x.dtype in (*dtypes.HALF, dtypes.bool_):
        return f"sums of {x.dtype} are not made here"
    make = ScatterSum if summed else TakeAlong
    lead, row = prod(i.shape[:axis]), prod(i.shape[axis + 1 :])
    return make(x.dtype, i.dtype, lead, n, i.shape[axis], row)
