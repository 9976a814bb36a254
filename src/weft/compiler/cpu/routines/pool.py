"""Pooling as routines: windows over rows of an array, a register of windows at a time.

A unit is a row of windows, or the rows of the array that one stride of the windows covers.
Gradients are gathered: each element reads the windows that it is in, so that no two units write the
same.
"""

from functools import partial
from math import inf, prod

import numpy as np

from ....core.record import record
from ...emit.code import Code, LLValue, lanes_of
from ...emit.control import WORD, each, when
from ...emit.lanes_in_memory import first, splat, write
from ...ir.routine import RoutineArray, array
from ..lanes import ELEMENT, join_vectors, lanes_along, masked_load, shuffle, within
from .routine import NativeRoutine, RoutineBody, require_lanes
from .windows import Side

# Strides of windows for which elements are shuffled from registers; for others, gathered.
_PICKED = (1, 2, 4)
_TAP = 0.05  # nanoseconds for one tap of one window
_NUMBER = {np.dtype(np.uint8): "i8", np.dtype(np.int64): "i64"}


class LaneRows:
    """Rows of one of a routine's arrays, plane by plane, loaded by lanes."""

    b: RoutineBody
    code: Code
    number: int
    element: str
    height: int
    width: int
    planes: int

    def __init__(
        self, b: RoutineBody, number: int, element: str, size: tuple[int, int], planes: int
    ):
        self.b, self.code, self.number, self.element = b, b.code, number, element
        self.height, self.width, self.planes = *size, planes

    def lanes(
        self,
        plane: LLValue,
        row: LLValue,
        column: LLValue,
        lanes: int,
        step: int,
        safe: bool,
        rest: float = 0.0,
    ) -> LLValue:
        """Elements `step` apart from a place on; `rest` outside. `safe`: all are inside."""
        code, width = self.code, self.width
        start = (plane * self.height + row) * width
        there = row.compare("lt", self.height, signed=False)
        limit = there.choose(row.same(width), 0)
        mask = first(code, lanes, lanes) if safe else within(code, column, step, lanes, limit)
        size = self.planes * self.height * width
        require_lanes(self.b, self.number, start + column, step, mask, size)
        pointer = code.address(self.b.arrays[self.number], start + column, self.element)
        kind = lanes_of(self.element, lanes)
        if step == 1:
            if safe:
                return code.load(kind, pointer, kind.width // 8)
            return masked_load(code, pointer, self.element, lanes, mask, rest)
        steps = ", ".join(f"i64 {step * k}" for k in range(lanes))
        places = code.emit(
            lanes_of("ptr", lanes),
            f"getelementptr {self.element}, ptr {pointer.name}, <{lanes} x i64> <{steps}>",
        )
        name = f"llvm.masked.gather.{kind.mangled}.v{lanes}p0"
        align = code.constant(lanes_of("i32"), kind.width // 8)
        return code.call(name, kind, [places, align, mask, code.constant(kind, rest)])

    def place(self, plane: LLValue, row: LLValue, column: LLValue, count: int) -> LLValue:
        """The address for storing elements, contiguous or strided."""
        at = (plane * self.height + row) * self.width + column
        size = self.planes * self.height * self.width
        self.b.require((at >= 0) & (at + (count - 1) < size), self.number)
        return self.code.address(self.b.arrays[self.number], at, self.element)


@record
class Pool(NativeRoutine):
    """Windows reduced to one number: `max` (and its tap), `sum`, or `pick`: the element at a tap.

    planes  the contiguous arrays that windows slide over
    number  the dtype of taps
    """

    kind: str
    dtype: np.dtype
    number: np.dtype
    planes: int
    sides: tuple[Side, Side]

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        x = array(self.dtype, (self.planes, *(s.size for s in self.sides)))
        return (x, self._taps) if self.kind == "pick" else (x,)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        y = array(self.dtype, (self.planes, *(s.count for s in self.sides)))
        return (y, self._taps) if self.kind == "max" else (y,)

    @property
    def _taps(self) -> RoutineArray:
        return array(self.number, (self.planes, *(s.count for s in self.sides)))

    @property
    def count(self) -> int:
        return self.planes * self.sides[0].count

    @property
    def cost(self) -> float:
        each = prod(s.count * s.taps for s in self.sides) + prod(s.size for s in self.sides)
        return _TAP * self.planes * each * self.dtype.itemsize / 4

    def body(self, b: RoutineBody) -> None:
        writer = _PoolEmitter(b, self)
        each(b.code, b.begin, b.end, writer.row)


class _PoolEmitter:
    """Emits `Pool`."""

    def __init__(self, b: RoutineBody, routine: Pool):
        self.b, self.code, self.routine = b, b.code, routine
        self.down, self.across = routine.sides
        self.element, self.number = ELEMENT[routine.dtype], _NUMBER[routine.number]
        self.lanes = lanes_along(self.across.count, routine.dtype)
        counts = (self.down.count, self.across.count)
        planes, last = routine.planes, len(b.arrays) - 1
        self.x = LaneRows(b, 0, self.element, (self.down.size, self.across.size), planes)
        self.y = LaneRows(b, last - (routine.kind == "max"), self.element, counts, planes)
        self.taps = LaneRows(b, 1 if routine.kind == "pick" else last, self.number, counts, planes)

    def row(self, u: LLValue) -> None:
        plane, row = u.divide(self.down.count, False), u.modulo(self.down.count, False)
        whole, rest = divmod(self.across.count, self.lanes)

        def windows(v: LLValue) -> None:
            self._windows(plane, row, v * self.lanes, self.lanes)

        each(self.code, 0, self.code.constant(WORD, whole), windows)
        if rest:
            self._windows(plane, row, self.code.constant(WORD, whole * self.lanes), rest)

    def _windows(self, plane: LLValue, row: LLValue, column: LLValue, count: int) -> None:
        """A register of windows, `count` of which are valid."""
        routine = self.routine
        seen = list(self._read_taps(plane, row, column, count))
        if routine.kind == "max":
            made, taps = self._largest(seen, self._first(row, column))
            self._put(self.taps, taps, routine.number, plane, row, column, count)
        elif routine.kind == "sum":
            made = seen[0]
            for value in seen[1:]:
                made = made + value
        else:
            made = self._pick(seen, plane, row, column, count)
        self._put(self.y, made, routine.dtype, plane, row, column, count)

    def _put(self, rows: LaneRows, value: LLValue, dtype, plane, row, column, count: int) -> None:
        write(self.code, value, rows.place(plane, row, column, count), dtype, 1, count)

    def _first(self, row: LLValue, column: LLValue) -> LLValue | None:
        """Of a register of windows, the first taps inside of the array; None: number 0 for all."""
        down, across = self.down, self.across
        number = lanes_of(self.number, self.lanes)
        taps = None
        if down.before > 0:
            along = self.code.constant(WORD, 0)
            for k, count in _outside(down):
                along = (row < count).choose(k * across.taps, along)
            taps = splat(along.cast("trunc", self.number), self.lanes)
        if across.before > 0:
            along = self.code.constant(number, 0)
            for k, count in _outside(across):
                limit = column.same(count)
                mask = within(self.code, column, 1, self.lanes, limit)
                along = mask.choose(self.code.constant(number, k), along)
            taps = along if taps is None else taps + along
        return taps

    def _largest(self, seen: list[LLValue], first: LLValue | None) -> tuple[LLValue, LLValue]:
        """The largest elements and their taps: the first of equal ones, and the last NaN.

        first  the taps of windows that are −∞ alone
        """
        best = seen[0]
        number = lanes_of(self.number, self.lanes)
        taps = self.code.constant(number, 0)
        if first is not None:
            taps = best.equals(-inf).choose(first, taps)
        for k, value in enumerate(seen[1:], 1):
            larger = (value > best) | value.is_nan()
            best = larger.choose(value, best)
            taps = larger.choose(self.code.constant(number, k), taps)
        return best, taps

    def _pick(self, seen: list[LLValue], plane, row, column, count: int) -> LLValue:
        taps = self.taps.lanes(plane, row, column, self.lanes, 1, count == self.lanes)
        made = self.code.constant(seen[0].type, 0.0)
        for k, value in enumerate(seen):
            made = taps.equals(k).choose(value, made)
        return made

    def _read_taps(self, plane: LLValue, row: LLValue, column: LLValue, count: int):
        """What each tap reads, in order."""
        s, lanes, across = self.across.stride, self.lanes, self.across
        rest = -inf if self.routine.kind == "max" else 0.0
        for i in range(self.down.taps):
            at = row * self.down.stride + (i * self.down.dilation - self.down.before)
            blocks: dict[int, LLValue] = {}
            for j in range(across.taps):
                far, part = divmod(j * across.dilation - across.before, s)
                if s not in _PICKED:
                    safe = self.down.inside and across.inside and count == lanes
                    start = column * s + (far * s + part)
                    yield self.x.lanes(plane, at, start, lanes, s, safe, rest)
                    continue
                if far not in blocks:
                    safe = self.down.inside and count == lanes and self._is_there(far)
                    start = (column + far) * s
                    blocks[far] = join_vectors(
                        [
                            self.x.lanes(plane, at, start + k * lanes, lanes, 1, safe, rest)
                            for k in range(s)
                        ]
                    )
                both = blocks[far]
                picks = [k * s + part for k in range(lanes)]
                yield both if s == 1 else shuffle(both, both, picks)

    def _is_there(self, far: int) -> bool:
        """Whether whole registers of windows stay inside at an offset."""
        s, whole = self.across.stride, self.across.count // self.lanes * self.lanes
        return far >= 0 and (whole - 1 + far) * s + s - 1 < self.across.size


def _outside(side: Side) -> list[tuple[int, int]]:
    """(k, n): the first n windows along an axis have their first k taps before the array."""
    found = []
    for k in range(1, side.taps):
        ahead = side.before - (k - 1) * side.dilation
        if ahead > 0:
            found.append((k, min(side.count, -(-ahead // side.stride))))
    return found


@record
class Unpool(NativeRoutine):
    """The gradient of pooling: each window's value is added to elements of the window.

    kind           "put" (max pooling): added to the element that the window's tap names; "spread"
                   (average pooling): to all its elements
    number         the dtype of the taps
    size           the array's last two axes; `counts` are the windows along them
    rows, columns  the array's elements along each axis, by residue modulo the stride, with the
                   windows that they read
    width          the taps of a window along the last axis
    """

    kind: str
    dtype: np.dtype
    number: np.dtype
    planes: int
    size: tuple[int, int]
    counts: tuple[int, int]
    rows: tuple[Side, ...]
    columns: tuple[Side, ...]
    width: int

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        y = array(self.dtype, (self.planes, *self.counts))
        taps = array(self.number, (self.planes, *self.counts))
        return (y, taps) if self.kind == "put" else (y,)

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (array(self.dtype, (self.planes, *self.size)),)

    @property
    def turns(self) -> int:
        """The units of a plane."""
        return max(side.count for side in self.rows)

    @property
    def count(self) -> int:
        return self.planes * self.turns

    @property
    def cost(self) -> float:
        taps = [sum(s.count * s.taps for s in sides) for sides in (self.rows, self.columns)]
        each = prod(taps) + prod(self.size)
        return 2 * _TAP * self.planes * each * self.dtype.itemsize / 4

    def body(self, b: RoutineBody) -> None:
        each(b.code, b.begin, b.end, _UnpoolEmitter(b, self).unit)


class _UnpoolEmitter:
    """Emits `Unpool`."""

    def __init__(self, b: RoutineBody, routine: Unpool):
        self.b, self.code, self.routine = b, b.code, routine
        self.element, self.number = ELEMENT[routine.dtype], _NUMBER[routine.number]
        self.most = max(side.count for side in routine.columns)
        self.lanes = lanes_along(self.most, routine.dtype)
        planes = routine.planes
        self.y = LaneRows(b, 0, self.element, routine.counts, planes)
        self.taps = LaneRows(b, 1, self.number, routine.counts, planes)
        self.x = LaneRows(b, len(b.arrays) - 1, self.element, routine.size, planes)

    def unit(self, u: LLValue) -> None:
        turns = self.routine.turns
        plane, turn = u.divide(turns, False), u.modulo(turns, False)
        for side in self.routine.rows:
            when(turn < side.count, partial(self._row, plane, turn, side))

    def _row(self, plane: LLValue, turn: LLValue, down: Side) -> None:
        """One row of the array: registers of elements of each residue."""
        least = min(side.count for side in self.routine.columns)
        whole, lanes = least // self.lanes, self.lanes

        def cells(v: LLValue) -> None:
            self._cells(plane, turn, down, v * lanes, None)

        each(self.code, 0, self.code.constant(WORD, whole), cells)
        for start in range(whole * lanes, self.most, lanes):
            self._cells(plane, turn, down, self.code.constant(WORD, start), start)

    def _cells(self, plane: LLValue, turn: LLValue, down: Side, column: LLValue, start) -> None:
        """Elements of all residues; from the static `start` on, not all of them are valid."""
        row = turn * down.step + down.first
        sides = sorted(self.routine.columns, key=lambda side: side.first)
        made = [self._sum_windows(plane, turn, column, down, side, start is None) for side in sides]
        step, lanes = sides[0].step, self.lanes
        if len(sides) == step and step in _PICKED:
            width = self.routine.size[1]
            left = lanes * step if start is None else min(width - start * step, lanes * step)
            for k, value in enumerate(_interleave(made)):
                count = min(max(left - k * lanes, 0), lanes)
                if count:
                    place = self.x.place(plane, row, column * step + k * lanes, count)
                    write(self.code, value, place, self.routine.dtype, 1, count)
            return
        for side, value in zip(sides, made, strict=True):
            count = lanes if start is None else min(max(side.count - start, 0), lanes)
            if count:
                span = (count - 1) * step + 1
                place = self.x.place(plane, row, column * step + side.first, span)
                write(self.code, value, place, self.routine.dtype, step, count)

    def _sum_windows(
        self, plane: LLValue, turn: LLValue, column: LLValue, down: Side, across: Side, whole: bool
    ) -> LLValue:
        """The sum over the windows of some elements, in the order of their taps."""
        lanes, code = self.lanes, self.code
        kind = lanes_of(self.element, lanes)
        total: LLValue | None = None
        several = down.taps * across.taps > 1
        safe = whole and down.inside and across.inside
        for i in reversed(range(down.taps)):
            for j in reversed(range(across.taps)):
                row = turn + (i * down.dilation - down.before)
                at = column + (j * across.dilation - across.before)
                value = self.y.lanes(plane, row, at, lanes, 1, safe)
                if self.routine.kind == "put":
                    tap = down.first_tap + i * down.tap_step
                    tap = tap * self.routine.width + across.first_tap + j * across.tap_step
                    taps = self.taps.lanes(plane, row, at, lanes, 1, safe)
                    value = taps.equals(tap).choose(value, code.constant(kind, 0.0))
                if several:
                    value = value + (code.constant(kind, 0.0) if total is None else total)
                total = value
        return code.constant(kind, 0.0) if total is None else total


def _interleave(parts: list[LLValue]) -> list[LLValue]:
    """Interleave parts: the first lanes of all, then the second ones, …, in as many registers."""
    if len(parts) == 1:
        return parts
    lanes, n = parts[0].type.lanes, len(parts)
    both = join_vectors(parts)
    order = [(k % n) * lanes + k // n for k in range(n * lanes)]
    return [shuffle(both, both, order[k * lanes : (k + 1) * lanes]) for k in range(n)]
