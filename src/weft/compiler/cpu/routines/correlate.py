"""Convolution as a routine: results in registers, weights broadcast, elements in a tile's copy.

A unit is a tile of the results of one image and one group. Lanes go along the last axis of the
results. Where windows reach outside, or have strides, a unit first copies its elements to the
stack, padded with zeros and grouped by residue modulo the stride: then every tap of all windows in
a row is contiguous. A transposed convolution consists of such parts, too, one for each residue of
its results.
"""

from math import prod

import numpy as np

from ....core.record import record
from ...emit.code import LLValue, lanes_of
from ...emit.control import WORD, each, when
from ...emit.lanes_in_memory import read, write
from ...ir.routine import RoutineArray, array
from ..lanes import (
    ELEMENT,
    accumulators,
    broadcast,
    least,
    load,
    loop_carrying,
    multiply_add,
    widest,
)
from .blocking import Blocks, Tiles, blocks_of, tiles_of
from .packing import PlaneRows, copy_rows
from .routine import NativeRoutine, RoutineBody
from .windows import Side

Part = tuple[Side, Side]
# Flops of a core per nanosecond, by the size of elements.
_RATE = {4: 80.0, 8: 40.0}
# Taps along the last axis that are unrolled; of more, this many per iteration of a loop.
_TAPS, _TURN = 12, 8


@record
class Correlation(NativeRoutine):
    """out[n, g, m] = bias[g, m] + Σ over r and taps of w[g, m, r] · x[n, g, r].

    size     rows and columns of x; `made` of the results, `kernel` of the weights
    turned   whether the weights are (groups · ins, outs, …) and not (groups · outs, ins, …)
    parts    the results, by sides
    """

    dtype: np.dtype
    images: int
    groups: int
    outs: int
    ins: int
    size: tuple[int, int]
    made: tuple[int, int]
    kernel: tuple[int, int]
    turned: bool
    biased: bool
    parts: tuple[Part, ...]

    @property
    def operands(self) -> tuple[RoutineArray, ...]:
        g, m, r = self.groups, self.outs, self.ins
        lead = (g * r, m) if self.turned else (g * m, r)
        x = array(self.dtype, (self.images, g * r, *self.size))
        bias = (array(self.dtype, (g * m,)),) if self.biased else ()
        return x, array(self.dtype, (*lead, *self.kernel)), *bias

    @property
    def results(self) -> tuple[RoutineArray, ...]:
        return (array(self.dtype, (self.images, self.groups * self.outs, *self.made)),)

    @property
    def count(self) -> int:
        return sum(units_of(self, self.tiles(part)) for part in self.parts)

    @property
    def cost(self) -> float:
        return self.flops / _RATE[self.dtype.itemsize]

    @property
    def flops(self) -> int:
        terms = sum(prod(s.count * max(s.taps, 1) for s in part) for part in self.parts)
        return 2 * self.images * self.groups * self.outs * self.ins * terms

    def blocks(self, part: Part) -> Blocks:
        """What is in registers at once."""
        counts, lanes = [s.count for s in part], widest(self.dtype)
        return blocks_of(*counts, self.outs, lanes, accumulators())

    def tiles(self, part: Part) -> Tiles:
        """How a part is tiled."""
        tiles = self.try_tiles(part)
        assert tiles is not None, "`tried` was asked first"
        return tiles

    def try_tiles(self, part: Part) -> Tiles | None:
        """The same, or None if no tile fits the stack."""
        others, item = self.images * self.groups, self.dtype.itemsize
        return tiles_of(part, self.blocks(part), self.outs, self.ins, others, item)

    def body(self, b: RoutineBody) -> None:
        start, plans = 0, [self.tiles(part) for part in self.parts]
        room = max((t.channels * t.area for t in plans if t.copied), default=0)
        copy = b.code.local(lanes_of(ELEMENT[self.dtype]), room) if room else None
        for part in self.parts:
            writer = _CorrelationEmitter(b, self, part, copy)
            units = units_of(self, writer.tiles)
            low = (b.begin < start).choose(b.begin.same(start), b.begin)
            each(b.code, low - start, least(b.end, start + units) - start, writer.unit)
            start += units


def units_of(routine: Correlation, tiles: Tiles) -> int:
    """How many tiles a part has in all."""
    return routine.images * routine.groups * tiles.down * tiles.across


@record
class _OutputTile:
    """The tile that is computed: its start, and its elements.

    plane    its image and group, counted together
    x        the first element that its first window reads, of its first channel
    first    the first of the channels that are summed, and `channels` their number
    """

    plane: LLValue
    group: LLValue
    row: LLValue
    rows: LLValue
    column: LLValue
    last_row: LLValue
    last_column: LLValue
    x: LLValue | None = None
    first: LLValue | None = None
    channels: LLValue | None = None


@record
class _RegisterBlock:
    """Results in registers: channels from `out` on, and (row, register, lanes) from a corner on."""

    out: LLValue
    outs: int
    row: LLValue
    column: LLValue
    cells: tuple[tuple[int, int, int], ...]


class _CorrelationEmitter:
    """Emits one part of a correlation."""

    def __init__(self, b: RoutineBody, routine: Correlation, part: Part, copy: LLValue | None):
        self.b, self.code, self.routine = b, b.code, routine
        self.down, self.across = part
        self.blocks, self.tiles = routine.blocks(part), routine.tiles(part)
        self.x, self.w, self.out = b.arrays[0], b.arrays[1], b.arrays[-1]
        self.element = ELEMENT[routine.dtype]
        self.taps = self.down.taps * self.across.taps
        each = prod(routine.kernel)
        steps = (each, each * routine.outs) if routine.turned else (each * routine.ins, each)
        self.out_step, self.in_step = steps
        self.copy = copy if self.tiles.copied else None

    def _word(self, n: int) -> LLValue:
        return self.code.constant(WORD, n)

    # -- a tile --------------------------------------------------------------------------------

    def unit(self, u: LLValue) -> None:
        tiles, routine = self.tiles, self.routine
        across, u = u.modulo(tiles.across, False), u.divide(tiles.across, False)
        down, plane = u.modulo(tiles.down, False), u.divide(tiles.down, False)
        row = down * tiles.rows
        tile = _OutputTile(
            *(plane, plane.modulo(routine.groups, False)),
            *(row, least(self.down.count - row, tiles.rows)),
            across * (tiles.vectors * self.blocks.lanes),
            *(down.equals(tiles.down - 1), across.equals(tiles.across - 1)),
        )
        several = -(-routine.ins // tiles.channels)
        if not self.taps or several > 1:  # meanwhile the sums are kept in the results
            self._results(tile, True)

        def channels(k: LLValue) -> None:
            first = k * tiles.channels
            count = least(routine.ins - first, tiles.channels)
            self._results(self._lay_tile(tile, first, count), several == 1)

        if self.taps:
            each(self.code, 0, self._word(several), channels)

    def _lay_tile(self, tile: _OutputTile, first: LLValue, count: LLValue) -> _OutputTile:
        """The tile with the elements of some channels, copied or in place."""
        down, across, (height, width) = self.down, self.across, self.routine.size
        plane = tile.plane * self.routine.ins + first
        row, column = tile.row * down.stride - down.before, tile.column * across.stride
        column = column - across.before
        if self.copy is None:
            x = self.code.address(self.x, (plane * height + row) * width + column, self.element)
        else:
            x, planes = self.copy, self.routine.images * self.routine.groups * self.routine.ins
            rows = PlaneRows(
                *(0, self.element, planes, self.routine.size, self.blocks.lanes),
                *(across.stride, tuple(across.residues), self.tiles.pitch),
            )
            span = down.span(self.tiles.rows)
            copy_rows(self.b, rows, x, self.tiles.area, (plane, count), (row, span), column)
        places = (tile.plane, tile.group, tile.row, tile.rows, tile.column)
        return _OutputTile(*places, tile.last_row, tile.last_column, x, first, count)

    # -- from a tile to blocks -----------------------------------------------------------------

    def _results(self, tile: _OutputTile, fresh: bool) -> None:
        """All blocks of a tile, by rows; `fresh`: nothing has been accumulated before."""
        block, rest = self.blocks.rows, self.down.count % self.blocks.rows

        def rows(i: LLValue) -> None:
            self._columns(tile, i * block, block, fresh)

        each(self.code, 0, tile.rows.divide(block, False), rows)
        if rest:
            last = tile.rows - rest
            when(tile.last_row, lambda: self._columns(tile, last, rest, fresh))

    def _columns(self, tile: _OutputTile, row: LLValue, rows: int, fresh: bool) -> None:
        """The blocks of some rows: whole registers, and in the last tile the remainder."""
        lanes, block = self.blocks.lanes, self.blocks.across
        vectors, partial = -(-self.across.count // lanes), self.across.count % lanes
        rest = vectors % block or (block if partial else 0)
        whole = vectors - rest  # registers before the remainder
        here = least(whole - tile.column.divide(lanes, False), self.tiles.vectors)

        def columns(j: LLValue) -> None:
            cells = [(r, v, lanes) for r in range(rows) for v in range(block)]
            self._channels(tile, row, j * (block * lanes), tuple(cells), fresh)

        def last() -> None:
            start = self._word(whole * lanes) - tile.column
            sizes = [lanes] * (rest - 1) + [partial or lanes]
            cells = [(r, v, n) for r in range(rows) for v, n in enumerate(sizes)]
            self._channels(tile, row, start, tuple(cells), fresh)

        if whole:
            each(self.code, 0, here.divide(block, True), columns)
        if rest:
            when(tile.last_column, last)

    def _channels(
        self, tile: _OutputTile, row: LLValue, column: LLValue, cells: tuple, fresh: bool
    ) -> None:
        block = self.blocks.outs
        whole, rest = divmod(self.routine.outs, block)

        def outs(k: LLValue) -> None:
            self._block(tile, _RegisterBlock(k * block, block, row, column, cells), fresh)

        if whole:
            each(self.code, 0, self._word(whole), outs)
        if rest:
            self._block(
                tile, _RegisterBlock(self._word(whole * block), rest, row, column, cells), fresh
            )

    # -- a block -------------------------------------------------------------------------------

    def _block(self, tile: _OutputTile, block: _RegisterBlock, fresh: bool) -> None:
        places = self._places(tile, block)
        sums = self._initial_sums(tile, block, places, fresh)
        if tile.x is not None:
            sums = self._sum_taps(tile, block, sums)
        pairs = zip(sums, places, block.cells * block.outs, strict=True)
        for value, place, (_, _, count) in pairs:
            write(self.code, value, place, self.routine.dtype, self.across.step, count)

    def _places(self, tile: _OutputTile, block: _RegisterBlock) -> list[LLValue]:
        """The addresses of results: by channels, and by cells in each."""
        down, across, (height, width) = self.down, self.across, self.routine.made
        plane = tile.plane * self.routine.outs + block.out
        row = (tile.row + block.row) * down.step + down.first
        column = (tile.column + block.column) * across.step + across.first
        start = (plane * height + row) * width + column
        far = []
        for m in range(block.outs):
            for r, v, _ in block.cells:
                step = v * self.blocks.lanes * across.step
                far.append((m * height + r * down.step) * width + step)
        reach = max(
            o + (n - 1) * across.step
            for o, (_, _, n) in zip(far, block.cells * block.outs, strict=True)
        )
        size = self.routine.results[0].size
        self.b.require((start >= 0) & (start + reach < size), len(self.b.arrays) - 1)
        base = self.code.address(self.out, start, self.element)
        return [self.code.address(base, o, self.element) for o in far]

    def _initial_sums(
        self, tile: _OutputTile, block: _RegisterBlock, places: list[LLValue], fresh: bool
    ) -> list[LLValue]:
        """The initial sums: the results so far, the bias or zeros."""
        code, lanes, across = self.code, self.blocks.lanes, self.across
        if not fresh:
            pairs, dtype = zip(places, block.cells * block.outs, strict=True), self.routine.dtype
            return [read(code, p, dtype, lanes, across.step, n) for p, (_, _, n) in pairs]
        kind = lanes_of(self.element, lanes)
        if not self.routine.biased:
            return [code.constant(kind, 0.0)] * len(places)
        start = tile.group * self.routine.outs + block.out
        bias = code.address(self.b.arrays[2], start, self.element)
        found = []
        for m in range(block.outs):
            one = broadcast(code, code.address(bias, m, self.element), self.element, lanes)
            found += [one] * len(block.cells)
        return found

    def _sum_taps(
        self, tile: _OutputTile, block: _RegisterBlock, sums: list[LLValue]
    ) -> list[LLValue]:
        """Accumulate over channels and taps."""
        code, down, tiles = self.code, self.down, self.tiles
        assert tile.x is not None and tile.first is not None and tile.channels is not None
        x = block.row * (down.stride * tiles.width) + block.column
        x = code.address(tile.x, x, self.element)
        w = self._weights(tile, block)
        kernel = self.routine.kernel[1]

        def channel(_: LLValue, values: list[LLValue]) -> list[LLValue]:
            x, w, *sums = values

            def row(_: LLValue, values: list[LLValue]) -> list[LLValue]:
                x, w, *sums = values
                made = self._taps(block, x, w, sums)
                x = code.address(x, down.dilation * tiles.width, self.element)
                return [x, code.address(w, down.tap_step * kernel, self.element), *made]

            _, _, *made = loop_carrying(code, down.taps, [x, w, *sums], row)
            x = code.address(x, tiles.area, self.element)
            return [x, code.address(w, self.in_step, self.element), *made]

        return loop_carrying(code, tile.channels, [x, w, *sums], channel)[2:]

    def _weights(self, tile: _OutputTile, block: _RegisterBlock) -> LLValue:
        """The weight of a block's first channel and tap, of the first channel that is summed."""
        routine, sides = self.routine, (self.down, self.across)
        assert tile.first is not None and tile.channels is not None
        each = routine.outs * routine.ins * prod(routine.kernel)
        taps = [s.first_tap for s in sides]
        start = tile.group * each + block.out * self.out_step + tile.first * self.in_step
        start = start + (taps[0] * routine.kernel[1] + taps[1])
        ends = [(s.taps - 1) * s.tap_step for s in sides]
        far = ends[0] * routine.kernel[1] + ends[1]
        low, high = min(far, 0), max(far, 0) + (block.outs - 1) * self.out_step
        top = start + (tile.channels - 1) * self.in_step + high
        self.b.require((start + low >= 0) & (top < routine.operands[1].size), 1)
        return self.code.address(self.w, start, self.element)

    def _taps(
        self, block: _RegisterBlock, x: LLValue, w: LLValue, sums: list[LLValue]
    ) -> list[LLValue]:
        """The taps of one row: unrolled, or some of them per iteration of a loop."""
        code, across, taps = self.code, self.across, self.across.taps
        if taps <= _TAPS:
            return self._some(block, x, w, sums, taps)
        turn = -(-_TURN // across.period) * across.period

        def several(_: LLValue, values: list[LLValue]) -> list[LLValue]:
            x, w, *sums = values
            made = self._some(block, x, w, sums, turn)
            x = code.address(x, turn * across.dilation // across.stride, self.element)
            return [x, code.address(w, turn * across.tap_step, self.element), *made]

        if taps >= turn:
            x, w, *sums = loop_carrying(code, taps // turn, [x, w, *sums], several)
        return self._some(block, x, w, sums, taps % turn)

    def _some(
        self, block: _RegisterBlock, x: LLValue, w: LLValue, sums: list, taps: int
    ) -> list[LLValue]:
        """Unrolled taps; the first one reads x."""
        code, lanes, across, made = self.code, self.blocks.lanes, self.across, list(sums)
        for t in range(taps):
            phase = across.residues.index(t * across.dilation % across.stride)
            start = phase * self.tiles.pitch + t * across.dilation // across.stride
            seen = []
            for r, v, n in block.cells:
                at = r * self.down.stride * self.tiles.width + v * lanes + start
                count = lanes if self.copy is not None else n
                seen.append(
                    load(code, code.address(x, at, self.element), self.element, lanes, count)
                )
            for m in range(block.outs):
                at = m * self.out_step + t * across.tap_step
                weight = broadcast(code, code.address(w, at, self.element), self.element, lanes)
                for k, value in enumerate(seen):
                    i = m * len(seen) + k
                    made[i] = multiply_add(weight, value, made[i])
        return made
