"""Windows over NumPy arrays as the columns of matrices, with few copies.

For each tap along the axes after the first one, the elements it reads are copied side by side. A
tap along the first axis is then the same matrix at a column offset, which BLAS reads in place.
Columns are in the order (windows along the first axis, images, other windows), so that this holds
for several images at once, and windows are contiguous.
"""

from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

import numpy as np

from ...core.record import record
from ..shared.window_sizes import counts_of
from .types import Padding, Sizes
from .windows import dealt, place_taps, residues

# The number of tiles that a few large images are cut into.
_PIECES = 8


class ImageTile(NamedTuple):
    """A range of images, `joined` of them per matrix, and a range of rows of windows."""

    image: int
    last_image: int
    joined: int
    row: int
    last_row: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Matrices, and rows and images in each."""
        images = self.last_image - self.image
        return images // self.joined, self.last_row - self.row, self.joined


def tiles_of(bands: "Bands", images: int, size: int, few: int, parts: int) -> list[ImageTile]:
    """At least `parts` tiles, each with at most `size` windows over all its images.

    Images with fewer windows than `few` are joined.
    """
    count, row = bands.counts[0], max(bands.row, 1)
    rows = size // row
    if parts > 1:
        # Independent of the thread count: results may depend on where rows of windows are cut.
        rows = min(rows, max(-(-count * images // _PIECES), -(-few // row)))
    rows = max(1, rows)
    if rows < count:
        each = -(-count // -(-count // rows))
        starts = range(0, count, each)
        ends = [(r, min(r + each, count)) for r in starts]
        return [ImageTile(i, i + 1, 1, *end) for i in range(images) for end in ends]
    most = max(1, size // (count * row))
    joined = min(most, -(-few // (count * row)), max(images, 1))
    each = max(1, min(most // joined, -(-images // (parts * joined)))) * joined
    whole = images // joined * joined
    tiles = [ImageTile(i, min(i + each, whole), joined, 0, count) for i in range(0, whole, each)]
    return (
        tiles if whole == images else [*tiles, ImageTile(whole, images, images - whole, 0, count)]
    )


@record
class Bands:
    """How windows of one geometry lie in a matrix.

    counts    windows along each axis
    kernel    taps along each axis
    reach     how many rows further than its own a window sees
    taps      for each tap along the first axis, its phase and how many rows further on it is
    phases    the rows of the array in each phase, as source and target
    seen      for each tap along the other axes, its place in the kernel, source and target
    bare      whether the array is that matrix already
    """

    counts: tuple[int, ...]
    kernel: tuple[int, ...]
    reach: int
    taps: tuple[tuple[int, int], ...]
    phases: tuple[tuple[slice, slice], ...]
    seen: tuple[tuple[tuple[int, ...], tuple[slice, ...], tuple[slice, ...]], ...]
    bare: bool

    @property
    def row(self) -> int:
        """The windows of one row of one image."""
        return prod(self.counts[1:])


@lru_cache(maxsize=512)
def bands_of(size: Sizes, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes) -> Bands:
    """The layout for windows of `kernel` elements over axes of this size."""
    counts = counts_of(size, kernel, stride, padding, dilation)
    k, s, d = kernel[0], stride[0], dilation[0]
    reach, phases = d * (k - 1) // s, residues(k, s, d)
    rows = dealt(size[0], k, s, padding[0], d, counts[0] + reach)
    taps = tuple([(phases.index(t * d % s), t * d // s) for t in range(k)])
    seen = []
    for place in product(*map(range, kernel[1:])):
        ends = zip(size[1:], place, stride[1:], padding[1:], dilation[1:], counts[1:], strict=True)
        pairs = [place_taps(n, t * e, u, pad[0], p) for n, t, u, pad, e, p in ends]
        seen.append((place, tuple([a for a, _ in pairs]), tuple([b for _, b in pairs])))
    bare = counts[1:] == size[1:] and prod(kernel[1:]) == prod(stride) == 1
    bare = bare and size[0] == counts[0] + reach and not any([a or b for a, b in padding])
    return Bands(counts, kernel, reach, taps, tuple(rows), tuple(seen), bare)


class Columns:
    """The matrices of an array (n, channels, *size), one tile at a time.

    apart  whether taps along the first axis have a matrix each, or one together
    """

    x: np.ndarray
    bands: Bands
    apart: bool
    dtype: np.dtype
    channels: tuple[int, int]
    is_laid: bool
    memory: dict[tuple[int, int, int], np.ndarray]
    all_taps: np.ndarray

    def __init__(self, x: np.ndarray, bands: Bands, groups: int, apart: bool, dtype: np.dtype):
        self.x, self.bands, self.apart, self.dtype = x, bands, apart, dtype
        self.channels = groups, x.shape[1] // groups * prod(bands.kernel[1:])
        self.is_laid = bands.bare and x.dtype == dtype and x.flags.c_contiguous
        self.memory = {}
        self.all_taps = np.empty(0, dtype)

    def lay(self, tile: ImageTile) -> list[np.ndarray]:
        """The elements under a tile's windows: matrices (images, groups, lines, run) by taps."""
        bands, (count, rows, images) = self.bands, tile.shape
        step = images * bands.row
        run, width = rows * step, (rows + bands.reach) * step
        shape = len(bands.phases), count, *self.channels
        if self.is_laid and images == 1:
            start = tile.row * bands.row
            x = self.x[tile.image : tile.last_image].reshape(*shape, prod(self.x.shape[2:]))
            planes = x[..., start : start + width]
        else:
            planes = self._copy_tile(tile).reshape(*shape, width)
        seen = [planes[p, ..., far * step : far * step + run] for p, far in bands.taps]
        return seen if self.apart or len(seen) == 1 else [self._join_taps(seen)]

    def _copy_tile(self, tile: ImageTile) -> np.ndarray:
        bands, (count, rows, images) = self.bands, tile.shape
        rows, whole, kernel = rows + bands.reach, rows == bands.counts[0], bands.kernel[1:]
        if tile.shape not in self.memory:
            sizes = count, self.x.shape[1], *kernel, rows, images, *bands.counts[1:]
            self.memory[tile.shape] = np.zeros((len(bands.phases), *sizes), self.dtype)
        planes = self.memory[tile.shape]
        x = in_order(self.x[tile.image : tile.last_image], images)
        for plane, (source, target) in zip(planes, bands.phases, strict=True):
            first = max(target.start, tile.row)
            last = max(first, min(target.stop, tile.row + rows))
            start = source.start + (first - target.start) * source.step
            lines = slice(start, start + (last - first) * source.step, source.step)
            inside = slice(first - tile.row, last - tile.row)
            if not whole:  # the padding differs from tile to tile
                by_row = np.moveaxis(plane, 2 + len(kernel), 0)
                by_row[: inside.start] = 0
                by_row[inside.stop :] = 0
            for place, others, targets in bands.seen:
                plane[:, :, *place, inside, :, *targets] = x[:, :, lines, :, *others]
        return planes

    def _join_taps(self, seen: list[np.ndarray]) -> np.ndarray:
        count, groups, lines, run = seen[0].shape
        shape = count, groups, len(seen), lines, run
        if self.all_taps.size < prod(shape):
            self.all_taps = np.empty(prod(shape), self.dtype)
        columns = self.all_taps[: prod(shape)].reshape(shape)
        for k, matrices in enumerate(seen):
            columns[:, :, k] = matrices
        return columns.reshape(count, groups, len(seen) * lines, run)


class Results:
    """The matrices (groups, o / groups, run) of results (n, o, *counts), a tile's at a time."""

    y: np.ndarray
    bands: Bands
    dtype: np.dtype
    channels: tuple[int, int]
    is_laid: bool
    memory: np.ndarray

    def __init__(self, y: np.ndarray, bands: Bands, groups: int, dtype: np.dtype):
        self.y, self.bands, self.dtype = y, bands, dtype
        self.channels = groups, y.shape[1] // groups
        self.is_laid = y.dtype == dtype and y.flags.c_contiguous
        self.memory = np.empty((2, 0), dtype)

    def matrices(self, tile: ImageTile) -> tuple[np.ndarray, np.ndarray]:
        """A tile's matrices, in the results' own memory where they can be, and spare ones."""
        count, rows, images = tile.shape
        shape = count, *self.channels, rows * images * self.bands.row
        if self.memory.shape[1] < prod(shape):
            self.memory = np.empty((2, prod(shape)), self.dtype)
        made, spare = self.memory[:, : prod(shape)].reshape(2, *shape)
        if self.is_laid and images == 1:
            y, start = self.y[tile.image : tile.last_image], tile.row * self.bands.row
            whole = y.reshape(*shape[:-1], prod(self.bands.counts))
            made = whole[..., start : start + shape[-1]]
        return made, spare

    def collect(self, tile: ImageTile) -> np.ndarray:
        """A tile's matrices, filled from the results."""
        made, _ = self.matrices(tile)
        if not self.is_laid or tile.joined > 1:
            place = self._place(tile)
            made.reshape(place.shape)[...] = place
        return made

    def give(self, made: np.ndarray, tile: ImageTile) -> None:
        """Write a tile's matrices into the results."""
        if not self.is_laid or tile.joined > 1:
            place = self._place(tile)
            place[...] = made.reshape(place.shape)

    def _place(self, tile: ImageTile) -> np.ndarray:
        part = self.y[tile.image : tile.last_image, :, tile.row : tile.last_row]
        return in_order(part, tile.joined)


def in_order(x: np.ndarray, joined: int) -> np.ndarray:
    """(n, c, rows, ...) as (n / joined, c, rows, joined, ...)."""
    parted = x.reshape(len(x) // joined, joined, *x.shape[1:])
    return parted.transpose(0, 2, 3, 1, *range(4, parted.ndim))
