"""Blocking of the gradient of weights: rows and columns of images, channels of the results."""

from functools import lru_cache

import numpy as np

from ....core.record import record
from ..lanes import lanes_along
from .windows import Side

# Bytes of an item's copy of the array, and of its transposed results.
_COPY, _TURNED = 224 << 10, 160 << 10
# The most parts; more would take longer to sum. To reach that many, items are
# made smaller, but not smaller than this many positions.
PARTS, _POSITIONS = 16, 64


@record
class WorkCut:
    """How the work is divided: rows and columns of an item, channels of its results.

    lanes   of a register, and `vectors` registers of sums for each tap
    width   the elements of a copied row, and `area` of a copied plane; 0: nothing is copied
    """

    lanes: int
    vectors: int
    rows: int
    columns: int
    outs: int
    width: int
    area: int

    @property
    def padded(self) -> int:
        """Columns of a transposed row: whole squares of lanes."""
        return -(-self.columns // self.lanes) * self.lanes


def pad_channels(outs: int, dtype: np.dtype) -> int:
    """Channels rounded up to whole registers."""
    lanes = lanes_along(outs, dtype)
    return -(-outs // lanes) * lanes


@lru_cache(maxsize=512)
def cut_of(
    sides: tuple[Side, Side], outs: int, ins: int, images: int, dtype: np.dtype
) -> WorkCut | None:
    """How the work is divided; None if not even one row fits the stack."""
    down, across = sides
    item, lanes = dtype.itemsize, lanes_along(outs, dtype)
    whole, copied = pad_channels(outs, dtype), not all(s.inside for s in sides)
    columns, block = across.count, whole

    def turned_bytes(rows: int) -> int:
        return rows * -(-columns // lanes) * lanes * block * item

    def copied_bytes(rows: int) -> int:
        return ins * _plane(down, across, rows, columns, lanes)[1] * item if copied else 0

    while columns > 4 * lanes and copied_bytes(1) > _COPY:
        columns = -(-columns // (2 * lanes)) * lanes
    while turned_bytes(1) > _TURNED and (columns > 4 * lanes or block > 4 * lanes):
        if columns > 4 * lanes:
            columns = -(-columns // (2 * lanes)) * lanes
        else:
            block = -(-block // (2 * lanes)) * lanes
    rows = down.count
    while rows > 1 and (copied_bytes(rows) > _COPY or turned_bytes(rows) > _TURNED):
        rows = -(-rows // 2)
    if copied_bytes(rows) > _COPY or turned_bytes(rows) > _TURNED:
        return None
    while rows * columns >= 2 * _POSITIONS and _few(images, down, across, rows, columns):
        if rows > 1:
            rows = -(-rows // 2)
        else:
            columns = -(-columns // (2 * lanes)) * lanes
    size = _plane(down, across, rows, columns, lanes) if copied else (0, 0)
    vectors = 2 if block // lanes % 2 == 0 else min(block // lanes, 3)
    return WorkCut(lanes, vectors, rows, columns, block, *size)


def _few(images: int, down: Side, across: Side, rows: int, columns: int) -> bool:
    """Whether there are fewer items than there could be parts."""
    return images * -(-down.count // rows) * -(-across.count // columns) < PARTS


def _plane(down: Side, across: Side, rows: int, columns: int, lanes: int) -> tuple[int, int]:
    """The elements of a copied row and plane."""
    width = -(-across.span(columns) // lanes) * lanes
    return width, width * down.span(rows)
