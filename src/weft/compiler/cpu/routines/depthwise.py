"""The gradient of the weights of a depthwise convolution, as a routine.

With one channel of results, lanes can only go along positions: every tap has a register of sums,
whose lanes are added in the end. A unit is some images of one channel.
"""

from math import prod

import numpy as np

from ....core.record import record
from ...emit.code import LLValue, lanes_of
from ...emit.control import WORD, each
from ...ir.routine import RoutineArray, array
from ..lanes import (
    ELEMENT,
    accumulators,
    lanes_along,
    least,
    load,
    loop_carrying,
    multiply_add,
    shuffle,
)
from .blocking import Blocks, Tiles, tiles_of
from .items import PARTS
from .packing import PlaneRows, copy_rows
from .routine import NativeRoutine, RoutineBody
from .windows import Side

_RATE = {4: 12.0, 8: 6.0}  # flops per nanosecond


@record
class ChannelWeights(NativeRoutine):
    """made[part, c, 0, tap, 0] = Σ over its positions p of y[n, c, p] · x[n, c, p and tap]."""

    dtype: np.dtype
    images: int
    channels: int
    sides: tuple[Side, Side]

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        lead = self.images, self.channels
        x = array(self.dtype, (*lead, *(s.size for s in self.sides)))
        return x, array(self.dtype, (*lead, *(s.count for s in self.sides)))

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (array(self.dtype, (self.parts, self.channels, 1, self.taps, 1)),)

    @property
    def taps(self) -> int:
        return prod(s.taps for s in self.sides)

    @property
    def parts(self) -> int:
        """How many partial sums there are of each weight."""
        return max(min(self.images, PARTS // self.channels), 1)

    @property
    def count(self) -> int:
        return self.parts * self.channels

    @property
    def cost(self) -> float:
        return self.flops / _RATE[self.dtype.itemsize]

    @property
    def flops(self) -> int:
        return 2 * self.images * self.channels * prod(s.count * s.taps for s in self.sides)

    @property
    def lanes(self) -> int:
        return lanes_along(self.sides[1].count, self.dtype)

    @property
    def tiles(self) -> Tiles | None:
        """How a plane is tiled; None unless whole rows fit."""
        blocks = Blocks(self.lanes, 1, 1, 1)
        many, item = self.images * self.channels, self.dtype.itemsize
        tiles = tiles_of(self.sides, blocks, 1, 1, many, item)
        return tiles if tiles is not None and tiles.across == 1 else None

    def body(self, b: RoutineBody) -> None:
        each(b.code, b.begin, b.end, _DepthwiseEmitter(b, self).unit)


class _DepthwiseEmitter:
    """Emits the routine."""

    def __init__(self, b: RoutineBody, routine: ChannelWeights):
        tiles = routine.tiles
        assert tiles is not None, "`tiles` was asked first"
        self.b, self.code, self.routine, self.tiles = b, b.code, routine, tiles
        self.x, self.y, self.out = b.arrays
        self.down, self.across = routine.sides
        self.element, self.item = ELEMENT[routine.dtype], routine.dtype.itemsize
        self.lanes = routine.lanes
        self.kind = lanes_of(self.element, self.lanes)
        self.sums = self.code.local(self.kind, routine.taps)
        self.copy = self.code.local(lanes_of(self.element), tiles.area) if tiles.copied else None

    def _at(self, base: LLValue, offset: LLValue | int) -> LLValue:
        return self.code.address(base, offset, self.element)

    def _word(self, n: int) -> LLValue:
        return self.code.constant(WORD, n)

    def unit(self, u: LLValue) -> None:
        """All taps of one channel, for the images of a part."""
        routine, code = self.routine, self.code
        channel, part = u.modulo(routine.channels, False), u.divide(routine.channels, False)
        size = self.item * self.lanes
        for t in range(routine.taps):
            code.store(code.constant(self.kind, 0.0), self._at(self.sums, t * self.lanes), size)
        first = (part * routine.images).divide(routine.parts, False)
        last = ((part + 1) * routine.images).divide(routine.parts, False)

        def image(n: LLValue) -> None:
            plane = n * routine.channels + channel
            each(code, 0, self._word(self.tiles.down), lambda k: self._tile(plane, k))

        each(code, first, last, image)
        self.b.require((u >= 0) & (u < routine.count), 2)
        target = self._at(self.out, u * routine.taps)
        for t in range(routine.taps):
            found = code.load(self.kind, self._at(self.sums, t * self.lanes), size)
            code.store(_add_lanes(found), self._at(target, t), self.item)

    def _tile(self, plane: LLValue, k: LLValue) -> None:
        """Accumulate some rows of a plane."""
        down, across, tiles = self.down, self.across, self.tiles
        row = k * tiles.rows
        rows = least(down.count - row, tiles.rows)
        start = (plane * down.count + row) * across.count
        end = start + rows * across.count
        self.b.require((start >= 0) & (end <= self.routine.operands[1].size), 1)
        x, y = self._elements(plane, row), self._at(self.y, start)
        room = accumulators() - 4
        for low in range(0, self.routine.taps, room):
            self._taps(x, y, rows, range(low, min(low + room, self.routine.taps)))

    def _elements(self, plane: LLValue, row: LLValue) -> LLValue:
        """The elements that the first window of a tile reads."""
        down, across, tiles = self.down, self.across, self.tiles
        top, size = row * down.stride - down.before, (down.size, across.size)
        if self.copy is None:
            return self._at(self.x, (plane * size[0] + top) * size[1] - across.before)
        planes = self.routine.images * self.routine.channels
        how = PlaneRows(
            *(0, self.element, planes, size, self.lanes),
            *(across.stride, tuple(across.residues), tiles.pitch),
        )
        lines, left = (top, down.span(tiles.rows)), self._word(-across.before)
        copy_rows(self.b, how, self.copy, tiles.area, (plane, self._word(1)), lines, left)
        return self.copy

    def _taps(self, x: LLValue, y: LLValue, rows: LLValue, taps: range) -> None:
        """Some taps at all positions of a tile."""
        code, size = self.code, self.item * self.lanes
        places = [self._at(self.sums, t * self.lanes) for t in taps]
        whole, rest = divmod(self.across.count, self.lanes)

        def vector(_: LLValue, values: list[LLValue]) -> list[LLValue]:
            x, y, *sums = values
            made = self._position(x, y, sums, taps, self.lanes)
            return [self._at(x, self.lanes), self._at(y, self.lanes), *made]

        def row(_: LLValue, values: list[LLValue]) -> list[LLValue]:
            x, y, *sums = values
            x_end, y_end = x, y
            if whole:
                x_end, y_end, *sums = loop_carrying(code, whole, [x, y, *sums], vector)
            if rest:
                sums = self._position(x_end, y_end, sums, taps, rest)
            x = self._at(x, self.down.stride * self.tiles.width)
            return [x, self._at(y, self.across.count), *sums]

        sums = [code.load(self.kind, p, size) for p in places]
        _, _, *sums = loop_carrying(code, rows, [x, y, *sums], row)
        for value, place in zip(sums, places, strict=True):
            code.store(value, place, size)

    def _position(
        self, x: LLValue, y: LLValue, sums: list, taps: range, count: int
    ) -> list[LLValue]:
        """A register of positions, of which `count` are valid."""
        code, made = self.code, []
        value = load(code, y, self.element, self.lanes, count)
        for t, total in zip(taps, sums, strict=True):
            i, j = divmod(t, self.across.taps)
            far = j * self.across.dilation
            phase = self.across.residues.index(far % self.across.stride)
            at = i * self.down.dilation * self.tiles.width + phase * self.tiles.pitch
            seen = self._at(x, at + far // self.across.stride)
            made.append(
                multiply_add(load(code, seen, self.element, self.lanes, count), value, total)
            )
        return made


def _add_lanes(value: LLValue) -> LLValue:
    """The sum of all lanes, by halves."""
    while value.type.lanes > 2:
        half = value.type.lanes // 2
        value = shuffle(value, value, range(half)) + shuffle(value, value, range(half, 2 * half))
    code, kind = value.code, value.type
    one, other = (
        code.emit(lanes_of(kind.element), f"extractelement {kind.text} {value.name}, i32 {k}")
        for k in (0, 1)
    )
    return one + other
