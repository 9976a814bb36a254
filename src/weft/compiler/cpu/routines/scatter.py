"""Routines that scatter elements by indices: the transposes of gathers.

Elements that go to one place are combined in the order of the indices: no two units write the same
place, so that sums have the same bits for any number of threads.
"""

from collections.abc import Callable
from math import prod

import numpy as np

from ....core import dtypes
from ....core.record import record
from ....graph.graph import Literal
from ...emit.code import Code, LLValue, lanes_of
from ...emit.control import WORD, behind, each, when
from ...ir.routine import RoutineArray, array
from .gather import Indexed, index_at, move
from .registry import native
from .routine import NativeRoutine, RoutineBody

_BYTE, _ROW, _LOOK = 0.1, 2.0, 0.7  # nanoseconds
# Elements of a row that one unit writes: two cache lines, and four for float64.
BLOCK = 32
# Bytes of a range of places, and the most ranges.
LARGE, MOST = 1 << 18, 64


def element(dtype: np.dtype) -> str:
    """The LLVM type in which elements are moved and accumulated."""
    floats = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}
    return floats.get(dtype) or f"i{8 * dtype.itemsize}"


def fill_zeros(code: Code, target: LLValue, nbytes: LLValue | int) -> None:
    """Fill bytes with zeros."""
    code.module.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
    code.do(f"call void @llvm.memset.p0.i64(ptr {target.name}, i8 0, i64 {nbytes}, i1 false)")


def blocks(row: int) -> int:
    """The number of blocks of a row."""
    return -(-row // BLOCK)


def by_blocks(b: RoutineBody, row: int, do: Callable[[LLValue, LLValue, int], None]) -> None:
    """do(a, start, width) for each unit: the leading index, and a block of the row."""
    code, many = b.code, blocks(row)

    def unit(u: LLValue) -> None:
        a = u if many == 1 else u.divide(many, False)
        block = code.constant(WORD, 0) if many == 1 else u.modulo(many, False)
        rest = row % BLOCK
        if many > 1 or not rest:
            whole = row // BLOCK
            when(block < whole, lambda: do(a, block * BLOCK, BLOCK))
        if rest:
            last = row - rest
            when(block.equals(many - 1), lambda: do(a, code.constant(WORD, last), rest))

    each(code, b.begin, b.end, unit)


@record
class Scattered(Indexed):
    """Writes along the middle axis, a unit for each block of a row."""

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (array(self.dtype, (self.lead, self.n, self.row)),)

    @property
    def count(self) -> int:
        return self.lead * blocks(self.row)


@record
class SegmentSum(Scattered):
    """Zeros, and out[a, i[k], …] += x[a, k, …] for k in order; complex numbers are two floats."""

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        x = array(self.dtype, (self.lead, self.indices, self.row))
        return x, array(self.index, (self.indices,))

    @property
    def parts(self) -> tuple[np.dtype, int]:
        """The dtype that is accumulated, and how many of it are in a row."""
        if self.dtype in dtypes.COMPLEX:
            return dtypes.to_real(self.dtype), 2 * self.row
        return self.dtype, self.row

    @property
    def ranges(self) -> int:
        """The number of ranges of places, if there are many places and few indices; else 0.

        Each range reads all indices, and accumulates those that are its own.
        """
        nbytes = self.n * self.row * self.dtype.itemsize
        return min(MOST, nbytes // LARGE) if self.n > self.indices else 0

    @property
    def count(self) -> int:
        return self.lead * (self.ranges or blocks(self.parts[1]))

    @property
    def cost(self) -> float:
        rows = self.lead * self.indices
        zeros = self.lead * self.n * self.row * self.dtype.itemsize
        looks = _LOOK * rows * self.ranges
        moved = rows * (_ROW + _BYTE * self.row * self.dtype.itemsize)
        return moved + looks + 0.5 * _BYTE * zeros

    def body(self, b: RoutineBody) -> None:
        if self.ranges:
            each(b.code, b.begin, b.end, lambda u: self._range(b, u))
            return
        by_blocks(b, self.parts[1], lambda a, start, width: self._block(b, a, start, width))

    def _block(self, b: RoutineBody, a: LLValue, start: LLValue, width: int) -> None:
        """Some columns of all places."""
        code, (x, _, out), (dtype, row) = b.code, b.arrays, self.parts
        item = dtype.itemsize
        source = behind(x, (a * (self.indices * row) + start) * item)
        target = behind(out, (a * (self.n * row) + start) * item)

        def clear(s: LLValue) -> None:
            fill_zeros(code, behind(target, s * (row * item)), width * item)

        if width == row:
            fill_zeros(code, target, self.n * row * item)
        else:
            each(code, 0, self.n, clear)

        def one(k: LLValue) -> None:
            place = behind(target, index_at(b, 1, self.index, k, self.n) * (row * item))
            self._add(code, place, behind(source, k * (row * item)), width)

        each(code, 0, self.indices, one)

    def _range(self, b: RoutineBody, u: LLValue) -> None:
        """All columns of some places."""
        code, (x, _, out), (dtype, row) = b.code, b.arrays, self.parts
        item, step = dtype.itemsize, -(-self.n // self.ranges)
        a, low = u.divide(self.ranges, False), u.modulo(self.ranges, False) * step
        size = (low.same(self.n) - low < step).choose(low.same(self.n) - low, low.same(step))
        size = (size < 0).choose(size.same(0), size)
        target = behind(out, (a * self.n + low) * (row * item))
        fill_zeros(code, target, size * (row * item))

        def one(k: LLValue) -> None:
            at = index_at(b, 1, self.index, k, self.n) - low

            def put() -> None:
                source = behind(x, (a * self.indices + k) * (row * item))
                place, whole = behind(target, at * (row * item)), row - row % BLOCK

                def some(c: LLValue, width: int) -> None:
                    self._add(code, behind(place, c * item), behind(source, c * item), width)

                each(code, 0, whole, lambda c: some(c, BLOCK), BLOCK)
                if row > whole:
                    some(code.constant(WORD, whole), row - whole)

            when(at.compare("lt", size, signed=False), put)

        each(code, 0, self.indices, one)

    def _add(self, code: Code, place: LLValue, source: LLValue, width: int) -> None:
        dtype, _ = self.parts
        kind, item = lanes_of(element(dtype), width), dtype.itemsize
        total = code.load(kind, place, item) + code.load(kind, source, item)
        code.store(total, place, item)


@native("checked_segment_sum")
def _segment_sum(graph, views, e) -> NativeRoutine | str:
    x, i = e.inputs
    if isinstance(x, Literal) or isinstance(i, Literal):
        return "its operands are Python's numbers"
    (axis, size), a, c = e.static, graph.avals[x], graph.avals[i]
    if 0 in (*a.shape, *c.shape, size):
        return "there is nothing to add up"
    if a.dtype in (*dtypes.HALF, dtypes.bool_):
        return f"sums of {a.dtype} are not made here"
    lead, row = prod(a.shape[:axis]), prod(a.shape[axis + len(c.shape) :])
    return SegmentSum(a.dtype, c.dtype, lead, size, prod(c.shape), row)


@record
class IndexPut(Scattered):
    """out = x, then out[a, i[k], …] = v[a, k, …] for k in order; v may be one number."""

    one: bool

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        x = array(self.dtype, (self.lead, self.n, self.row))
        v = (1,) if self.one else (self.lead, self.indices, self.row)
        return x, array(self.index, (self.indices,)), array(self.dtype, v)

    @property
    def cost(self) -> float:
        nbytes = self.lead * self.row * self.dtype.itemsize
        return self.lead * self.indices * _ROW + _BYTE * nbytes * (self.n + self.indices)

    def body(self, b: RoutineBody) -> None:
        code, (x, _, v, out), row = b.code, b.arrays, self.row
        item = self.dtype.itemsize

        def do(a: LLValue, start: LLValue, width: int) -> None:
            first = (a * (self.n * row) + start) * item
            old, target = behind(x, first), behind(out, first)

            def copy(s: LLValue) -> None:
                at = s * (row * item)
                move(code, behind(target, at), behind(old, at), width * item)

            if width == row:
                move(code, target, old, self.n * row * item)
            else:
                each(code, 0, self.n, copy)
            source = v if self.one else behind(v, (a * (self.indices * row) + start) * item)

            def put(k: LLValue) -> None:
                place = behind(target, index_at(b, 1, self.index, k, self.n) * (row * item))
                if not self.one:
                    move(code, place, behind(source, k * (row * item)), width * item)
                    return
                each(code, 0, width, lambda j: move(code, behind(place, j * item), source, item))

            each(code, 0, self.indices, put)

        by_blocks(b, row, do)


@native("checked_index_put")
def _index_put(graph, views, e) -> NativeRoutine | str:
    if any(isinstance(x, Literal) for x in e.inputs):
        return "its operands are Python's numbers"
    (x, i, v), (axis,) = e.inputs, e.static
    a, c, w = (graph.avals[k] for k in (x, i, v))
    if 0 in (*a.shape, *c.shape):
        return "there is nothing to write"
    whole = (*a.shape[:axis], *c.shape, *a.shape[axis + 1 :])
    one = prod(w.shape) == 1
    if w.dtype != a.dtype or not (one or w.shape == whole):
        return "the value is not of the shape and dtype of what it is written to"
    return IndexPut(
        *(a.dtype, c.dtype, prod(a.shape[:axis]), a.shape[axis], prod(c.shape)),
        *(prod(a.shape[axis + 1 :]), one),
    )


@record
class LastWrites(NativeRoutine):
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
        return (array(np.dtype(np.int64), (self.n,)),)

    @property
    def count(self) -> int:
        return 1

    @property
    def cost(self) -> float:
        return 2.0 * self.indices

    def body(self, b: RoutineBody) -> None:
        """The places of indices that do not occur are never read."""
        code, (_, out, last) = b.code, b.arrays

        def place(k: LLValue) -> LLValue:
            return code.address(last, index_at(b, 0, self.index, k, self.n), "i64")

        def compare(k: LLValue) -> None:
            same = code.load(WORD, place(k), 8).equals(k)
            code.store(same.cast("zext", "i8"), code.address(out, k, "i8"), 1)

        def all_of_it(_: LLValue) -> None:
            each(code, 0, self.indices, lambda k: code.store(k, place(k), 8))
            each(code, 0, self.indices, compare)

        each(code, b.begin, b.end, all_of_it)


@native("checked_last_writes")
def _last_writes(graph, views, e) -> NativeRoutine | str:
    (i,), (size,) = e.inputs, e.static
    if isinstance(i, Literal) or 0 in (*graph.avals[i].shape, size):
        return "there are no indices"
    return LastWrites(graph.avals[i].dtype, size, prod(graph.avals[i].shape))
