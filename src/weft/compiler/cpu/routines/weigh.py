"""The gradient of a convolution's weights as a routine, in parts that are summed afterwards.

Lanes go along the channels of the results, so that a position is one iteration of the inner loop,
and strides and sizes do not matter. Positions come in items: some rows (and columns) of an image.
Each part has items of its own, which are a function of the sizes alone, and accumulates them in
order. For an item the results are transposed, channels last, and the array is copied to the stack,
padded with zeros where windows reach outside.
"""

from itertools import pairwise
from math import prod

import numpy as np

from ....core.record import record
from ...emit.code import LLValue, lanes_of
from ...emit.control import WORD, each
from ...ir.routine import RoutineArray, array
from ..lanes import (
    ELEMENT,
    accumulators,
    broadcast,
    least,
    loop_carrying,
    masked_load,
    multiply_add,
    transpose_lanes,
    within,
)
from .items import PARTS, WorkCut, cut_of, pad_channels
from .packing import PlaneRows, copy_rows
from .routine import NativeRoutine, RoutineBody
from .windows import Side

# Taps that are unrolled.
MOST_TAPS = 144
_RATE = {4: 60.0, 8: 30.0}


@record
class Weights(NativeRoutine):
    """made[part, g, c, tap, o] = Σ over its positions p of y[n, g, o, p] · x[n, g, c, p and tap].

    The last axis is padded to whole registers, and so is not more than `ceiling` of outs.
    """

    dtype: np.dtype
    images: int
    groups: int
    outs: int
    ins: int
    sides: tuple[Side, Side]

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        size, counts = [s.size for s in self.sides], [s.count for s in self.sides]
        x = array(self.dtype, (self.images, self.groups * self.ins, *size))
        return x, array(self.dtype, (self.images, self.groups * self.outs, *counts))

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        taps = prod(s.taps for s in self.sides)
        return (array(self.dtype, (self.parts, self.groups, self.ins, taps, self.padded)),)

    @property
    def padded(self) -> int:
        """The channels of the results, in whole registers."""
        return pad_channels(self.outs, self.dtype)

    @property
    def cut(self) -> WorkCut:
        """How the work is divided."""
        made = cut_of(self.sides, self.outs, self.ins, self.images, self.dtype)
        assert made is not None, "`cut_of` was asked first"
        return made

    @property
    def items(self) -> tuple[int, int]:
        """How many items there are down and across an image."""
        down, across = self.sides
        return -(-down.count // self.cut.rows), -(-across.count // self.cut.columns)

    @property
    def parts(self) -> int:
        """How many partial sums there are of each weight."""
        most = max(PARTS // (self.groups * self.blocks), 1)
        return max(min(most, self.images * prod(self.items)), 1)

    @property
    def blocks(self) -> int:
        """The number of blocks of the channels of the results."""
        return -(-self.padded // self.cut.outs)

    @property
    def count(self) -> int:
        return self.parts * self.groups * self.blocks

    @property
    def cost(self) -> float:
        terms = prod(s.taps * s.count for s in self.sides)
        products = self.images * self.groups * self.padded * self.ins * terms
        return 2 * products / _RATE[self.dtype.itemsize]

    @property
    def flops(self) -> int:
        terms = prod(s.taps * s.count for s in self.sides)
        return 2 * self.images * self.groups * self.outs * self.ins * terms

    def body(self, b: RoutineBody) -> None:
        each(b.code, b.begin, b.end, _WeightsEmitter(b, self).unit)


@record
class _WeightItem:
    """Positions that are accumulated: how many, and the elements that the first one reads."""

    rows: LLValue
    columns: LLValue
    x: LLValue


class _WeightsEmitter:
    """Emits the routine."""

    def __init__(self, b: RoutineBody, routine: Weights):
        self.b, self.code, self.routine, self.cut = b, b.code, routine, routine.cut
        self.x, self.y, self.out = b.arrays
        self.down, self.across = routine.sides
        self.element = ELEMENT[routine.dtype]
        self.item, one = routine.dtype.itemsize, lanes_of(self.element)
        cut = self.cut
        self.turned = self.code.local(one, cut.rows * cut.padded * cut.outs)
        self.copy = self.code.local(one, routine.ins * cut.area) if cut.area else None
        self.taps = self.down.taps * self.across.taps
        self.width = cut.width if self.copy is not None else self.across.size
        self.area = cut.area if self.copy is not None else self.down.size * self.across.size

    def _at(self, base: LLValue, offset: LLValue | int) -> LLValue:
        return self.code.address(base, offset, self.element)

    def _word(self, n: int) -> LLValue:
        return self.code.constant(WORD, n)

    def unit(self, u: LLValue) -> None:
        """One part of one group and block of channels."""
        routine, cut = self.routine, self.cut
        block, u = u.modulo(routine.blocks, False), u.divide(routine.blocks, False)
        group, part = u.modulo(routine.groups, False), u.divide(routine.groups, False)
        channel = block * cut.outs
        outs = least(routine.padded - channel, cut.outs)
        size = routine.ins * self.taps * routine.padded
        start = (part * routine.groups + group) * size + channel
        self.b.require((start >= 0) & (start < routine.results[0].size), 2)
        target = self._at(self.out, start)
        self._clear_weights(target, outs)
        items = routine.images * prod(routine.items)
        first = (part * items).divide(routine.parts, False)
        last = ((part + 1) * items).divide(routine.parts, False)
        each(self.code, first, last, lambda i: self._add_item(i, group, channel, outs, target))

    def _clear_weights(self, target: LLValue, outs: LLValue) -> None:
        """Zero the weights of a unit."""
        kind = lanes_of(self.element, self.cut.lanes)
        zero = self.code.constant(kind, 0.0)

        def line(k: LLValue) -> None:
            row = self._at(target, k * self.routine.padded)

            def register(v: LLValue) -> None:
                self.code.store(zero, self._at(row, v * self.cut.lanes), self.item)

            each(self.code, 0, outs.divide(self.cut.lanes, False), register)

        each(self.code, 0, self._word(self.routine.ins * self.taps), line)

    def _add_item(
        self, i: LLValue, group: LLValue, channel: LLValue, outs: LLValue, target: LLValue
    ) -> None:
        """One item: transpose its results, copy its elements, and accumulate the weights."""
        routine, cut, (down, across) = self.routine, self.cut, self.routine.items
        column, i = i.modulo(across, False) * cut.columns, i.divide(across, False)
        row, image = i.modulo(down, False) * cut.rows, i.divide(down, False)
        rows = least(self.down.count - row, cut.rows)
        columns = least(self.across.count - column, cut.columns)
        plane = image * routine.groups + group
        self._turn(plane, channel, outs, (row, rows), (column, columns))
        x = self._elements(plane, row, column)
        self._sums(_WeightItem(rows, columns, x), outs, target)

    # -- results, channels last ----------------------------------------------------------------

    def _turn(
        self, plane: LLValue, channel: LLValue, outs: LLValue, rows: tuple, columns: tuple
    ) -> None:
        """The results of an item as (row, column, channel), in squares of lanes."""
        cut, lanes = self.cut, self.cut.lanes
        height, width = self.down.count, self.across.count
        (row, many), (column, wide) = rows, columns

        def line(r: LLValue) -> None:
            into = self._at(self.turned, r * (cut.padded * cut.outs))

            def square(k: LLValue) -> None:
                o = k.modulo(cut.outs // lanes, False) * lanes
                c = k.divide(cut.outs // lanes, False) * lanes
                mask = within(self.code, c, 1, lanes, wide)
                found = []
                for j in range(lanes):
                    there = (channel + o + j) < self.routine.outs
                    one = there.choose(self._word(-1), 0).cast("trunc", "i1")
                    at = ((plane * self.routine.outs + channel + o + j) * height + row + r) * width
                    found.append(self._results(at + column + c, mask, one))
                for j, value in enumerate(transpose_lanes(found)):
                    place = self._at(into, (c + j) * cut.outs + o)
                    self.code.store(value, place, self.item)

            squares = -(-self.cut.columns // lanes) * (cut.outs // lanes)
            each(self.code, 0, self._word(squares), square)

        each(self.code, 0, many, line)

    def _results(self, at: LLValue, mask: LLValue, there: LLValue) -> LLValue:
        code, lanes = self.code, self.cut.lanes
        kind = lanes_of("i1", lanes)
        none = code.emit(
            kind, f"select i1 {there}, {kind.text} {mask}, {kind.text} zeroinitializer"
        )
        if self.b.verdict is not None:
            bits = code.emit(lanes_of(f"i{lanes}"), f"bitcast {kind.text} {none} to i{lanes}")
            count = bits.intrinsic("ctpop").cast("zext", "i64")
            size = self.routine.operands[1].size
            self.b.require(count.equals(0) | ((at >= 0) & (at + count <= size)), 1)
        return masked_load(code, self._at(self.y, at), self.element, lanes, none)

    # -- elements ------------------------------------------------------------------------------

    def _elements(self, plane: LLValue, row: LLValue, column: LLValue) -> LLValue:
        """The elements that an item's first position reads, of the first channel."""
        routine, cut = self.routine, self.cut
        first = plane * routine.ins
        top = row * self.down.stride - self.down.before
        left = column * self.across.stride - self.across.before
        if self.copy is None:
            height, width = self.down.size, self.across.size
            return self._at(self.x, (first * height + top) * width + left)
        planes, size = routine.operands[0].shape, (self.down.size, self.across.size)
        how = PlaneRows(
            *(0, self.element, planes[0] * planes[1], size, cut.lanes, 1, (0,), cut.width),
        )
        every, span = self._word(routine.ins), self.down.span(cut.rows)
        copy_rows(self.b, how, self.copy, cut.area, (first, every), (top, span), left)
        return self.copy

    # -- sums ----------------------------------------------------------------------------------

    def _sums(self, item: _WeightItem, outs: LLValue, target: LLValue) -> None:
        """Accumulate an item into all weights: blocks of channels and taps, in registers."""
        vectors, lanes = self.cut.vectors, self.cut.lanes
        room = accumulators() // vectors
        deep = max(min(room // self.taps, self.routine.ins), 1)
        runs = -(-self.taps // room)
        ends = [self.taps * k // runs for k in range(runs + 1)]

        def several(o: LLValue) -> None:
            for low, high in pairwise(ends):
                self._by_channels(item, o * (vectors * lanes), vectors, (low, high), deep, target)

        each(self.code, 0, outs.divide(vectors * lanes, False), several)
        if self.cut.outs // lanes % vectors or self.routine.padded % self.cut.outs:
            whole = outs.divide(vectors * lanes, False) * vectors

            def rest(o: LLValue) -> None:
                for low, high in pairwise(ends):
                    self._by_channels(item, o * lanes, 1, (low, high), deep, target)

            each(self.code, whole, outs.divide(lanes, False), rest)

    def _by_channels(
        self, item: _WeightItem, out: LLValue, vectors: int, taps: tuple, deep: int, target: LLValue
    ) -> None:
        whole, rest = divmod(self.routine.ins, deep)

        def channels(k: LLValue) -> None:
            self._block(item, out, vectors, taps, k * deep, deep, target)

        each(self.code, 0, self._word(whole), channels)
        if rest:
            self._block(item, out, vectors, taps, self._word(whole * deep), rest, target)

    def _block(
        self,
        item: _WeightItem,
        out: LLValue,
        vectors: int,
        taps: tuple,
        channel: LLValue,
        deep: int,
        target,
    ) -> None:
        """The sums of a block over all positions, added to the weights."""
        code, lanes, cut = self.code, self.cut.lanes, self.cut
        kind = lanes_of(self.element, lanes)
        seen = [c * self.area + self._tap(t) for c in range(deep) for t in range(*taps)]
        x = self._at(item.x, channel * self.area)
        y = self._at(self.turned, out)

        def row(_: LLValue, values: list[LLValue]) -> list[LLValue]:
            x, y, *sums = values

            def column(_: LLValue, values: list[LLValue]) -> list[LLValue]:
                x, y, *sums = values
                made = self._position(x, y, sums, seen, vectors)
                return [self._at(x, self.across.stride), self._at(y, cut.outs), *made]

            _, _, *made = loop_carrying(code, item.columns, [x, y, *sums], column)
            x = self._at(x, self.down.stride * self.width)
            return [x, self._at(y, cut.padded * cut.outs), *made]

        sums = [code.constant(kind, 0.0)] * (len(seen) * vectors)
        _, _, *sums = loop_carrying(code, item.rows, [x, y, *sums], row)
        base = self._at(target, channel * (self.taps * self.routine.padded) + out)
        for c in range(deep):
            for k, t in enumerate(range(*taps)):
                for v in range(vectors):
                    at = (c * self.taps + t) * self.routine.padded + v * lanes
                    place = self._at(base, at)
                    made = sums[(c * (taps[1] - taps[0]) + k) * vectors + v]
                    code.store(code.load(kind, place, self.item) + made, place, self.item)

    def _tap(self, t: int) -> int:
        """The offset of a tap from the window's first element."""
        row, column = divmod(t, self.across.taps)
        return row * self.down.dilation * self.width + column * self.across.dilation

    def _position(self, x: LLValue, y: LLValue, sums: list, seen: list[int], vectors: int) -> list:
        code, lanes, made = self.code, self.cut.lanes, list(sums)
        kind = lanes_of(self.element, lanes)
        found = [code.load(kind, self._at(y, v * lanes), self.item) for v in range(vectors)]
        for k, far in enumerate(seen):
            one = broadcast(code, self._at(x, far), self.element, lanes)
            for v, value in enumerate(found):
                made[k * vectors + v] = multiply_add(one, value, made[k * vectors + v])
        return made
