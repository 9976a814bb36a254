"""Products with a short inner axis: every element of the result is a few multiplications.

BLAS packs its operands for long inner axes, and takes three times as long as storing the result.
Here some rows of the left matrix are kept in registers while rows of the right one stream by.
"""

from collections.abc import Mapping

import numpy as np

from ....core.record import record
from ....graph.graph import Equation, Graph
from ...emit.arithmetic import fma
from ...emit.code import LLValue
from ...emit.control import WORD, each, when
from ...emit.convert import memory_type
from ...emit.lanes_in_memory import read, splat, write
from ...ir.routine import RoutineArray, array
from ...ir.views import View
from .registry import native
from .routine import NativeRoutine, RoutineBody

_WRITTEN, _MULTIPLIED = 0.1, 0.02  # nanoseconds of an element of eight bytes
_KEPT = 16  # numbers of the left matrix that are kept in registers
PAGE = 4096  # bytes, by which processors compare addresses first


@record
class Thin(NativeRoutine):
    """c[i, j] = Σₖ a[i, k]·b[k, j]; the rows of b are contiguous."""

    dtype: np.dtype
    m: int
    n: int
    k: int
    a_strides: tuple[int, int]
    b_row: int

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        a = RoutineArray(self.dtype, (self.m, self.k), self.a_strides)
        return a, RoutineArray(self.dtype, (self.k, self.n), (self.b_row, 1))

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (array(self.dtype, (self.m, self.n)),)

    @property
    def rows(self) -> int:
        """How many rows are computed together."""
        fit = max(_KEPT // self.k, 1)
        return next(r for r in (4, 2, 1) if r <= fit and self.m % r == 0)

    @property
    def count(self) -> int:
        return self.m // self.rows

    @property
    def cost(self) -> float:
        each_ = (_WRITTEN + _MULTIPLIED * self.k) * self.dtype.itemsize / 8
        return self.m * self.n * each_

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    def body(self, b: RoutineBody) -> None:
        code, lanes = b.code, 64 // self.dtype.itemsize
        a, right, c = b.arrays
        element = memory_type(self.dtype).element

        def unit(u: LLValue) -> None:
            first = u * self.rows
            kept = [[number(first + r, k) for k in range(self.k)] for r in range(self.rows)]
            start, step, count = _way(code.address(c, first * self.n, element), right, self)

            def ends() -> None:
                """The first and last register of a row, where the others reach neither end."""
                for j in (0, self.n - lanes):
                    columns(kept, first, code.constant(WORD, j))

            when((count * lanes).compare("ne", self.n), ends)
            each(code, 0, count, lambda t: columns(kept, first, start + t * step))

        def number(i: LLValue, k: int) -> LLValue:
            down, along = self.a_strides
            place = code.address(a, i * down + k * along, element)
            return splat(read(code, place, self.dtype, 1, 0, 1), lanes)

        def columns(kept: list[list[LLValue]], first: LLValue, j: LLValue) -> None:
            """Some rows of the result at a register's columns."""
            lines = [
                read(
                    code,
                    code.address(right, j + k * self.b_row, element),
                    self.dtype,
                    lanes,
                    1,
                    lanes,
                )
                for k in range(self.k)
            ]
            for r, numbers in enumerate(kept):
                total = numbers[0] * lines[0]
                for x, y in zip(numbers[1:], lines[1:], strict=True):
                    total = fma(x, y, total)
                place = code.address(c, (first + r) * self.n + j, element)
                write(code, total, place, self.dtype, 1, lanes)

        each(code, b.begin, b.end, unit)


def _way(row: LLValue, right: LLValue, thin: Thin) -> tuple[LLValue, LLValue, LLValue]:
    """The columns of a row's registers: the first, the step to the next, and how many.

    They start at cache lines, since stores across two are slower. And they go backwards if the row
    lies a little past the right matrix in its page: a processor that compares only the low bits
    of addresses mistakes these loads for loads of what was just stored, and waits (4K aliasing).
    """
    code, size = row.code, thin.dtype.itemsize
    place, lanes = row.cast("ptrtoint", "i64"), 64 // size
    head = (-place & 63).divide(size, False)
    count = (thin.n - head).divide(lanes, False)
    past = (place - right.cast("ptrtoint", "i64")) & (PAGE - 1)
    forth, back = code.constant(WORD, lanes), code.constant(WORD, -lanes)
    backwards = (past - 1).compare("lt", PAGE // 2, False)
    start = backwards.choose(head + (count - 1) * lanes, head)
    return start, backwards.choose(back, forth), count


def _lies(e: Equation, position: int, view: View) -> bool:
    """The left matrix may have any strides; rows of the right one are contiguous."""
    return position == 0 or view.strides[-1] == 1


@native("thin_product", strided=_lies)
def _thin(graph: Graph, views: Mapping[int, View], e: Equation) -> Thin:
    a, b = (views[i] for i in e.inputs)
    (m, k), n = a.shape, b.shape[1]
    down, along = (0 if size == 1 else s for size, s in zip(a.shape, a.strides, strict=True))
    return Thin(graph.avals[e.outputs[0]].dtype, m, n, k, (down, along), b.strides[0])
