"""Products of small matrices by the threads of one block.

A thread has a tile of the result, or shares it with its neighbours: each of those takes a part of
the terms, and their sums are exchanged. A right operand that a loop does not change is loaded once,
before the loop, where the registers of all threads hold it.
"""

from collections.abc import Sequence
from functools import partial
from math import prod

import numpy as np

from ....core.record import record
from ...emit.arithmetic import fma
from ...emit.code import LLValue, lanes_of
from ...emit.control import WORD, each, when
from ...emit.convert import from_memory, memory_type, register_type, round_to_half, to_memory
from ...ir.schedule import GemmStep
from ..machine import WARP
from ..sweeps import both
from ..teams import Partial, fold_warp
from .inline import BlockArray, Threads, power_below

# Rows and columns of a thread's tile at most; terms that are emitted one by one.
ROWS, COLUMNS, UNROLLED = 8, 4, 16
# Sums that a thread collects side by side, at most.
SUMS = 16
# Registers of a thread for an operand that stays.
HELD = 64
_WIDEST = 16


@record
class GridProduct:
    """A product, its matrices numbered 0, 1 and 2, and how threads share it.

    rows, columns  of a thread's tile
    team           threads of a tile, each with every team-th group of `lanes` terms
    stays          whether the right operand is the same in all steps of a loop
    """

    step: GemmStep
    dtype: np.dtype
    rows: int
    columns: int
    team: int
    lanes: int
    threads: int
    stays: bool

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles along rows and columns."""
        return -(-self.step.m // self.rows), -(-self.step.n // self.columns)

    @property
    def units(self) -> int:
        """All tiles."""
        down, along = self.tiles
        return prod(self.step.batch) * down * along

    @property
    def at_once(self) -> int:
        """The tiles that all threads have at the same time."""
        return self.threads // self.team

    @property
    def terms(self) -> int:
        """The groups of terms of a thread."""
        return -(-self.step.k // (self.team * self.lanes))

    @property
    def held(self) -> bool:
        """Whether each thread holds its part of the right operand for the whole loop."""
        words = max(self.dtype.itemsize, 4) // 4
        few = self.terms * self.lanes * self.columns * words <= HELD
        return self.stays and few and self.units <= self.at_once


def plan_product(
    step: GemmStep, dtype: np.dtype, threads: int, aligned: int, stays: bool
) -> GridProduct:
    """How the threads of a block share a product."""
    rows, columns = power_below(min(step.m, ROWS)), 1
    if not stays:
        columns = power_below(min(step.n, COLUMNS))
    count = prod(step.batch)

    def units() -> int:
        return count * -(-step.m // rows) * -(-step.n // columns)

    least = threads // 4 if stays else threads
    while units() < least and rows * columns > 1:
        if columns >= rows:
            columns //= 2
        else:
            rows //= 2
    team = min(power_below(threads // max(units(), 1)), WARP, power_below(step.k))
    lanes = _term_lanes(step, dtype, team, aligned)
    return GridProduct(step, dtype, rows, columns, team, lanes, threads, stays)


def _term_lanes(step: GemmStep, dtype: np.dtype, team: int, aligned: int) -> int:
    """Terms that are loaded at once of the left operand, whose rows are contiguous."""
    if step.transpose_a or dtype.itemsize < 4:
        return 1
    strides = [s * dtype.itemsize for s in (step.lda, *step.a_strides)]
    lanes = _WIDEST // dtype.itemsize
    while lanes > 1:
        size = lanes * dtype.itemsize
        if step.k % (team * lanes) == 0 and not any(s % size for s in (aligned, *strides)):
            return lanes
        lanes //= 2
    return 1


# The cells that the sums of a tile are collected in, by row and column.
Sums = dict[tuple[int, int], list[LLValue]]
# By term and column of a thread.
Held = dict[tuple[int, int], LLValue]


@record(eq=False)
class Tile:
    """A thread's tile: its index in the batch, its rows and columns, and which of it exists.

    Missing rows and columns repeat the last one.
    """

    index: LLValue
    rows: list[LLValue]
    columns: list[LLValue]
    inside: LLValue
    row_exists: list[LLValue | None]
    column_exists: list[LLValue | None]


class ProductEmitter:
    """Emits a product: `hold` before the loop, if the right operand stays, and `emit` in it."""

    def __init__(
        self,
        product: GridProduct,
        threads: Threads,
        arrays: Sequence[BlockArray] | dict[int, BlockArray],
    ):
        self.product, self.step, self.threads = product, product.step, threads
        self.arrays, self.code, self.dtype = arrays, threads.code, product.dtype
        number = threads.number()
        self.member = number.modulo(product.team, False)
        self.place = number.divide(product.team, False)

    def hold(self) -> Held:
        """This thread's part of the right operand, before a loop that does not change it."""
        p, tile = self.product, self._tile(self.place)
        return {
            (t, c): self._right(tile, self._term(self.code.constant(WORD, t)), column)
            for t in range(p.terms * p.lanes)
            for c, column in enumerate(tile.columns)
        }

    def emit(self, held: Held | None = None) -> None:
        """Emit all tiles of a thread."""
        p = self.product
        if p.units <= p.at_once:
            self._unit(self.place, held)
            return
        turns = -(-p.units // p.at_once)
        each(self.code, 0, turns, lambda i: self._unit(self.place + i * p.at_once, None))

    # -- places -----------------------------------------------------------------------------------

    def _tile(self, unit: LLValue) -> Tile:
        """Neighbours have neighbouring columns."""
        p, (down, along) = self.product, self.product.tiles
        inside = unit < p.units
        unit = inside.choose(unit, p.units - 1)
        column, unit = unit.modulo(along, False), unit.divide(along, False)
        row, index = unit.modulo(down, False), unit.divide(down, False)
        rows, row_exists = _spread(row, p.rows, down, self.step.m)
        columns, column_exists = _spread(column, p.columns, along, self.step.n)
        return Tile(index, rows, columns, inside, row_exists, column_exists)

    def _term(self, t: LLValue) -> LLValue:
        """The number of this thread's term t, which may not exist."""
        p = self.product
        if p.lanes == 1:
            return t * p.team + self.member
        group, lane = t.divide(p.lanes, False), t.modulo(p.lanes, False)
        return (group * p.team + self.member) * p.lanes + lane

    def _exists(self, term: LLValue) -> LLValue | None:
        """Whether a term exists; None: all do."""
        p, k = self.product, self.step.k
        return None if k % (p.team * p.lanes) == 0 else term < k

    def _base(self, strides: tuple[int, ...], index: LLValue) -> LLValue:
        """The offset of a matrix of the batch."""
        at = index.same(0)
        for size, stride in zip(reversed(self.step.batch), reversed(strides), strict=True):
            at = at + index.modulo(size, False) * stride
            index = index.divide(size, False)
        return at

    def _left(self, tile: Tile, term: LLValue, row: LLValue, lanes: int = 1) -> LLValue:
        s = self.step
        at = self._base(s.a_strides, tile.index)
        at = at + (term * s.lda + row if s.transpose_a else row * s.lda + term)
        return self._load(0, at, lanes)

    def _right(self, tile: Tile, term: LLValue, column: LLValue) -> LLValue:
        s, exists = self.step, self._exists(term)
        term = term if exists is None else exists.choose(term, s.k - 1)
        at = self._base(s.b_strides, tile.index)
        at = at + (column * s.ldb + term if s.transpose_b else term * s.ldb + column)
        value = self._load(1, at)
        return value if exists is None else exists.choose(value, 0.0)

    def _pointer(self, matrix: int, at: LLValue, lanes: int) -> tuple[LLValue, int]:
        """The address of some elements, whose accesses are checked, and their size."""
        array, size = self.arrays[matrix], lanes * self.dtype.itemsize
        pointer = self.code.address(array.pointer, at, memory_type(self.dtype).element)
        if array.number is not None:
            self.threads.machine.access(array.number, pointer, size, size)
        return pointer, size

    def _load(self, matrix: int, at: LLValue, lanes: int = 1) -> LLValue:
        pointer, align = self._pointer(matrix, at, lanes)
        return from_memory(
            self.code.load(memory_type(self.dtype, lanes), pointer, align), self.dtype
        )

    # -- arithmetic -------------------------------------------------------------------------------

    def _unit(self, unit: LLValue, held: Held | None) -> None:
        """One tile: its terms, what the team has of them together, and the result."""
        p, code, tile = self.product, self.code, self._tile(unit)
        sums = self._open()
        if p.terms <= UNROLLED or held is not None:
            for t in range(p.terms):
                first = code.constant(WORD, t * p.lanes)
                known = (
                    {}
                    if held is None
                    else {
                        (lane, j): held[t * p.lanes + lane, j]
                        for lane in range(p.lanes)
                        for j in range(p.columns)
                    }
                )
                self._terms(tile, first, sums, known)
        else:
            last = p.terms * p.lanes
            each(code, 0, last, lambda t: self._terms(tile, t, sums, {}), p.lanes)
        parts = fold_warp(self.threads.machine, self._close(sums), p.team)
        stores = tile.inside if p.team == 1 else tile.inside & self.member.equals(0)
        for (i, j), part in zip(sums, parts, strict=True):
            able = both(stores, both(tile.row_exists[i], tile.column_exists[j]))
            assert able is not None
            when(able, partial(self._store, tile, i, j, part.value))

    def _open(self) -> Sums:
        """Sums of a tile, several of each if there are few: additions take some cycles each."""
        p, code, kind = self.product, self.code, register_type(self.dtype)
        count = p.lanes if p.rows * p.columns * p.lanes <= SUMS else 1
        keys = [(i, j) for i in range(p.rows) for j in range(p.columns)]
        sums = {key: [code.local(kind) for _ in range(count)] for key in keys}
        for cell in [cell for cells in sums.values() for cell in cells]:
            code.store(code.constant(kind, 0), cell, 64)
        return sums

    def _close(self, sums: Sums) -> list[Partial]:
        kind, made = register_type(self.dtype), []
        for cells in sums.values():
            values = [self.code.load(kind, cell, 64) for cell in cells]
            while len(values) > 1:
                values = [a + b for a, b in zip(values[::2], values[1::2], strict=True)]
            made.append(Partial("sum", values[0], self.dtype))
        return made

    def _terms(self, tile: Tile, first: LLValue, sums: Sums, held: Held) -> None:
        """Add some neighbouring terms to all sums of a tile; `held` is by lane and column."""
        p, code, kind = self.product, self.code, register_type(self.dtype)
        terms = [self._term(first + lane) for lane in range(p.lanes)]
        exists = self._exists(terms[0])
        start = terms[0] if exists is None else exists.choose(terms[0], self.step.k - 1)
        left = []
        for row in tile.rows:
            value = self._left(tile, start, row, p.lanes)
            value = value if exists is None else exists.choose(value, 0.0)
            left.append([_lane(value, lane) for lane in range(p.lanes)])
        for lane, term in enumerate(terms):
            for j, column in enumerate(tile.columns):
                right = held.get((lane, j))
                right = self._right(tile, term, column) if right is None else right
                for i, line in enumerate(left):
                    cells = sums[i, j]
                    cell = cells[lane % len(cells)]
                    before = code.load(kind, cell, 64)
                    code.store(fma(line[lane], right, before), cell, 64)

    def _store(self, tile: Tile, i: int, j: int, value: LLValue) -> None:
        s = self.step
        at = self._base(s.c_strides, tile.index) + tile.rows[i] * s.ldc + tile.columns[j]
        value = value if s.alpha == 1 else value * s.alpha
        if s.beta:
            value = fma(self._load(2, at), s.beta, value)
        pointer, align = self._pointer(2, at, 1)
        self.code.store(to_memory(round_to_half(value, self.dtype), self.dtype), pointer, align)


def _spread(
    first: LLValue, count: int, apart: int, size: int
) -> tuple[list[LLValue], list[LLValue | None]]:
    """Places that are `apart` from each other, and which of them exist; None: it does."""
    places = [first + j * apart for j in range(count)]
    exist = [None if (j + 1) * apart <= size else x < size for j, x in enumerate(places)]
    return [
        x if e is None else e.choose(x, size - 1) for x, e in zip(places, exist, strict=True)
    ], exist


def _lane(value: LLValue, lane: int) -> LLValue:
    kind = value.type
    if kind.lanes == 1:
        return value
    return value.code.emit(
        lanes_of(kind.element), f"extractelement {kind.text} {value.name}, i32 {lane}"
    )
