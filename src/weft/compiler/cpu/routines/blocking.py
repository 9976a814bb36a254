"""Blocking of a correlation: blocks of results in registers, tiles of them in the cache."""

from functools import lru_cache
from math import inf

from ....core.record import record
from .windows import Side

# Bytes of a tile's copy of the array: half of a second-level cache, or less.
TILE = 256 << 10
# The least number of tiles, if halving them is enough for that.
ENOUGH = 16
# What only this many blocks of channels read is not worth a copy.
_FEW = 2
# Each residue of a row is copied by instructions of its own.
_RESIDUES = 64
# Latency of an addition in cycles; and the cost of a load beside additions.
_LATENCY, _LOAD = 4.0, 0.1
# Bytes of a cache line: planes are an odd number of them apart, to map to different sets.
_LINE = 64


@record
class Blocks:
    """Results that are accumulated at once: `outs` channels, `rows` rows, `across` registers."""

    lanes: int
    outs: int
    rows: int
    across: int


@lru_cache(maxsize=512)
def blocks_of(rows: int, columns: int, outs: int, lanes: int, registers: int) -> Blocks:
    """The fastest blocks, by a rough count of cycles.

    lanes      of a full register
    registers  that may hold sums
    """
    best, found = inf, Blocks(lanes, 1, 1, 1)
    for width in (lanes, lanes // 2, lanes // 4):
        vectors = -(-columns // width) if width > 1 else 0
        for across in range(1, min(vectors, 8) + 1):
            for down in range(1, min(rows, 8 // across) + 1):
                for deep in range(1, min(outs, registers // (across * down)) + 1):
                    cut = [(rows, down), (vectors, across), (outs, deep)]
                    taken = _cycles([_pieces(*c) for c in cut], 1.0 if width == lanes else 0.5)
                    if taken < best:
                        best, found = taken, Blocks(width, deep, down, across)
    return found


def _pieces(total: int, each: int) -> list[tuple[int, int]]:
    """(count, size) of the pieces."""
    rest = [(1, total % each)] if total % each else []
    return [(total // each, each), *rest]


def _cycles(pieces: list[list[tuple[int, int]]], each: float) -> float:
    """Cycles for one tap of all results, plus a little for every kind of block."""
    total = 0.0
    for many, down in pieces[0]:
        for more, across in pieces[1]:
            for most, deep in pieces[2]:
                sums = deep * down * across
                loads = 0.5 * deep + 1.0 * down * across
                taken = max(each * sums, loads, _LATENCY) + _LOAD * loads
                total += many * more * most * taken
    kinds = len(pieces[0]) * len(pieces[1]) * len(pieces[2])
    return total * (1 + 0.01 * kinds)


@record
class Tiles:
    """The tiles of one part: results by rows and registers, channels that are summed at once.

    copied  whether a tile's elements are copied, padded with zeros; else they are read in place
    pitch   the elements of one residue of a copied row; `width` of a row, `area` of a channel
    """

    rows: int
    vectors: int
    channels: int
    copied: bool
    pitch: int
    width: int
    area: int
    down: int
    across: int


def tiles_of(
    part: tuple[Side, Side], blocks: Blocks, outs: int, channels: int, others: int, item: int
) -> Tiles | None:
    """Tiles for a part of a correlation; `others` parts have other channels or images.

    None if not even the smallest tile fits, or windows are too far apart.
    """
    down, across = part
    vectors = -(-across.count // blocks.lanes)
    if not down.taps * across.taps or (_in_place(part) and outs <= _FEW * blocks.outs):
        rows = _rows(down, blocks, others, lambda rows: True)
        size = (0, across.size, down.size * across.size)
        return _tiles(rows, vectors, channels, False, size, part, vectors)
    if len(across.residues) > _RESIDUES:
        return None
    wide = vectors
    least = down.span(min(blocks.rows, down.count)) * item
    while wide > blocks.across and _width(across, blocks, wide) * least * min(channels, 16) > TILE:
        wide = max(-(-wide // (2 * blocks.across)) * blocks.across, blocks.across)
    width = _width(across, blocks, wide)
    rows = _rows(
        *(down, blocks, others * -(-vectors // wide)),
        lambda rows: width * down.span(rows) * item * channels <= TILE,
    )
    area = _area(width * down.span(rows), item)
    deep = min(channels, TILE // (area * item))
    if deep < 1:
        return None
    pitch = width // len(across.residues)
    return _tiles(rows, wide, deep, True, (pitch, width, area), part, vectors)


def _in_place(part: tuple[Side, Side]) -> bool:
    """Whether elements could be read in place."""
    return all(side.inside for side in part) and part[1].stride == 1


def _area(size: int, item: int) -> int:
    """The elements of a plane: an odd number of cache lines."""
    line = _LINE // item
    return (-(-size // line) | 1) * line


def _tiles(rows, wide, channels, copied, size: tuple[int, int, int], part, vectors) -> Tiles:
    down, across = -(-part[0].count // rows), -(-vectors // wide)
    return Tiles(rows, wide, channels, copied, *size, down, across)


def _width(across: Side, blocks: Blocks, vectors: int) -> int:
    """The elements of a copied row: whole registers for every residue."""
    reach = (across.taps - 1) * across.dilation // across.stride
    pitch = vectors + -(-reach // blocks.lanes)
    return pitch * blocks.lanes * len(across.residues)


def _rows(down: Side, blocks: Blocks, others: int, fits) -> int:
    """The rows of a tile: as many as fit, without too few tiles."""
    block = min(blocks.rows, down.count)
    rows = -(-down.count // block) * block
    while rows > block and not fits(rows):
        rows = max(-(-rows // (2 * block)) * block, block)
    while rows > 2 * block and rows > down.taps and others * -(-down.count // rows) < ENOUGH:
        rows = -(-rows // (2 * block)) * block
    return rows
