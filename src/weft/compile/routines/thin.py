"""Products with a short inner axis: every element of the result is a few multiplications.

BLAS packs its operands for long inner axes, and takes three times as long as writing the result.
Here some rows of the left matrix are kept in registers while rows of the right one pass by.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...graph.graph import Equation, Graph
from ..llvm.arithmetic import fma
from ..llvm.code import Value
from ..llvm.control import each
from ..llvm.convert import stored
from ..llvm.memory import read, splat, write
from ..views import View
from .registry import native
from .routine import Array, Body, Routine, array

_WRITTEN, _MULTIPLIED = 0.1, 0.02  # nanoseconds of an element of eight bytes
_KEPT = 16  # numbers of the left matrix that are kept in registers


@dataclass(frozen=True)
class Thin(Routine):
    """c[i, j] = Σₖ a[i, k]·b[k, j]; elements of b's rows lie in a line."""

    dtype: np.dtype
    m: int
    n: int
    k: int
    a_strides: tuple[int, int]
    b_row: int

    @property
    def operands(self) -> tuple[Array, ...]:
        a = Array(self.dtype, (self.m, self.k), self.a_strides)
        return a, Array(self.dtype, (self.k, self.n), (self.b_row, 1))

    @property
    def results(self) -> tuple[Array, ...]:
        return (array(self.dtype, (self.m, self.n)),)

    @property
    def rows(self) -> int:
        """How many rows are made together."""
        fit = max(_KEPT // self.k, 1)
        return next(r for r in (4, 2, 1) if r <= fit and self.m % r == 0)

    @property
    def count(self) -> int:
        return self.m // self.rows

    @property
    def cost(self) -> float:
        each_ = (_WRITTEN + _MULTIPLIED * self.k) * self.dtype.itemsize / 8
        return self.m * self.n * each_

    def body(self, b: Body) -> None:
        code, lanes = b.code, 64 // self.dtype.itemsize
        a, right, c = b.arrays
        element = stored(self.dtype).element
        whole, rest = divmod(self.n, lanes)

        def unit(u: Value) -> None:
            first = u * self.rows
            kept = [[number(first + r, k) for k in range(self.k)] for r in range(self.rows)]
            each(code, 0, whole, lambda j: columns(kept, first, j * lanes, lanes))
            if rest:
                columns(kept, first, code.constant(u.type, whole * lanes), rest)

        def number(i: Value, k: int) -> Value:
            down, along = self.a_strides
            place = code.address(a, i * down + k * along, element)
            return splat(read(code, place, self.dtype, 1, 0, 1), lanes)

        def columns(kept: list[list[Value]], first: Value, j: Value, count: int) -> None:
            """Some rows of the result at `count` columns."""
            lines = [
                read(
                    *(code, code.address(right, j + k * self.b_row, element)),
                    *(self.dtype, lanes, 1, count),
                )
                for k in range(self.k)
            ]
            for r, numbers in enumerate(kept):
                total = numbers[0] * lines[0]
                for x, y in zip(numbers[1:], lines[1:], strict=True):
                    total = fma(x, y, total)
                place = code.address(c, (first + r) * self.n + j, element)
                write(code, total, place, self.dtype, 1, count)

        each(code, b.begin, b.end, unit)


def _lies(e: Equation, position: int, view: View) -> bool:
    """The left matrix may lie in any way, rows of the right one in a line."""
    return position == 0 or view.strides[-1] == 1


@native("thin_product", strided=_lies)
def _thin(graph: Graph, views: Mapping[int, View], e: Equation) -> Thin:
    a, b = (views[i] for i in e.inputs)
    (m, k), n = a.shape, b.shape[1]
    down, along = (0 if size == 1 else s for size, s in zip(a.shape, a.strides, strict=True))
    return Thin(graph.avals[e.outputs[0]].dtype, m, n, k, (down, along), b.strides[0])
