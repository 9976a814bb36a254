"""NumPy kernels of the convolution rows: products of matrices, for tiles that fit the cache.

Arrays are x (n, c, *size), weights w (o, c / groups, *kernel) and results y (n, o, *counts). The
three rows are the partial derivatives of one form, Σ y · convolution(x, w), by y, x and w.
"""

from math import prod
from typing import Any

import numpy as np

from ..shared import threads
from ..shared.window_sizes import counts_of, kernel_of, size_of
from . import depthwise as numpy_depthwise
from .columns import Bands, Columns, ImageTile, Results, bands_of, tiles_of
from .types import Array, Padding, Sizes
from .windows import TILE_BYTES, parts_of, plan_of, wide

# With fewer columns BLAS takes longer per column: images are joined.
_FEW = 256
# Up to this many lines, one product with all taps along the first axis is faster.
_SHORT = 40
# Weights are summed in a fixed number of parts, so that results do not depend on the threads.
_CHUNKS = 8


def _tiles(bands: Bands, apart: bool, x: Array, dtype: np.dtype, parts: int) -> list[ImageTile]:
    """How the work is cut up: `parts` tiles or more."""
    lines = x.shape[1] * prod(bands.kernel[1:])
    copied = lines * (len(bands.phases) + (0 if apart else bands.kernel[0]))
    size = TILE_BYTES // (dtype.itemsize * max(copied, 1))
    return tiles_of(bands, len(x), size, _FEW, parts)


def _work(images: int, w: Array, bands: Bands) -> int:
    """The work in multiplications; copies take half of the time."""
    return 2 * images * w.size * prod(bands.counts)


def _check(x: Array, w_channels: int, o: int, groups: int) -> None:
    if x.shape[1] != w_channels * groups or o % groups:
        raise ValueError("channels and groups do not fit")  # the row's shape rule says how


def convolution(
    x: Array, w: Array, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> Array:
    return convolution_biased(x, w, None, stride, padding, dilation, groups)


def convolution_biased(
    x: Array,
    w: Array,
    b: Array | None,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    groups: int,
) -> Array:
    _check(x, w.shape[1], w.shape[0], groups)
    geometry = stride, padding, dilation
    counts = counts_of(x.shape[2:], w.shape[2:], *geometry)
    out = np.empty((x.shape[0], w.shape[0], *counts), np.result_type(x, w))
    b = None if b is None else b.astype(wide(b.dtype), copy=False).reshape(w.shape[0], 1)
    _convolve(x, w, b, out, geometry, groups)
    return out


def _convolve(
    x: Array,
    w: Array,
    b: Array | None,
    out: Array,
    geometry: tuple[Sizes, Padding, Sizes],
    groups: int,
) -> None:
    """Write a convolution into `out`; b is None, or a column to be added."""
    if _is_depthwise(w, groups):
        plan = plan_of(x.shape[2:], w.shape[2:], *geometry)
        numpy_depthwise.convolve(x, w, b, out, plan)
    else:
        _convolve_tiles(x, w, b, out, bands_of(x.shape[2:], w.shape[2:], *geometry), groups)


def _is_depthwise(w: Array, groups: int) -> bool:
    return groups > 1 and w.shape[:2] == (groups, 1)


def _convolve_tiles(
    x: Array, w: Array, b: Array | None, out: Array, bands: Bands, groups: int
) -> None:
    (n, c), o, dtype = x.shape[:2], w.shape[0], wide(out.dtype)
    lines = c * prod(bands.kernel[1:])
    # Adding up products of matrices takes about as long as copying lines.
    apart = lines // groups > max(_SHORT, o // groups)
    weights = np.ascontiguousarray(_by_taps(w, groups, apart), dtype)
    b = None if b is None else b.reshape(groups, o // groups, 1)

    def worker():
        columns = Columns(x, bands, groups, apart, dtype)
        results = Results(out, bands, groups, dtype)

        def convolve(tile):
            y, term = results.matrices(tile)
            seen = columns.lay(tile)
            np.matmul(weights[0], seen[0], out=y)
            for k in range(1, len(seen)):
                np.matmul(weights[k], seen[k], out=term)
                np.add(y, term, out=y)
            if b is not None:
                np.add(y, b, out=y)
            results.give(y, tile)

        return convolve

    work = _work(n, w, bands)
    # An image's results do not depend on the tile it is in.
    tiles = _tiles(bands, apart, x, dtype, threads.parts(work))
    threads.share(tiles, worker, work)


def _by_taps(w: Array, groups: int, apart: bool) -> np.ndarray:
    """The weights as matrices by taps along the first axis, or as one with all taps together."""
    o, each, taps = w.shape[:3]
    parts = w.reshape(groups, o // groups, each, taps, prod(w.shape[3:]))
    if apart:
        lines = each * prod(w.shape[3:])
        return parts.transpose(3, 0, 1, 2, 4).reshape(taps, groups, o // groups, lines)
    return parts.swapaxes(2, 3).reshape(1, groups, o // groups, prod(w.shape[1:]))


def convolution_transposed(
    y: Array, w: Array, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> Array:
    """Σ over windows of their result times the weights, added at the windows' elements.

    The elements of one phase depend on the taps of that phase only: for them it is a convolution
    with stride 1 and these taps reversed.
    """
    _check(y, w.shape[0] // groups, w.shape[0], groups)
    geometry = tuple(y.shape[2:]), tuple(w.shape[2:]), stride, padding, dilation
    parts, complete = parts_of(*geometry)
    turned = _exchange_channels(w, groups)
    shape = y.shape[0], turned.shape[0], *size_of(*geometry)
    out = (np.empty if complete else np.zeros)(shape, np.result_type(y, w))
    ones = (1,) * len(stride)
    for part in parts:
        taps, place = turned[:, :, *part.taps], out[:, :, *part.source]
        _convolve(y, taps, None, place, (ones, part.padding, part.dilation), groups)
    return out


def _exchange_channels(w: Array, groups: int) -> np.ndarray:
    """The weights with their two kinds of channels exchanged in each group."""
    (o, c), kernel = w.shape[:2], w.shape[2:]
    apart = w.reshape(groups, o // groups, c, *kernel)
    return apart.swapaxes(1, 2).reshape(groups * c, o // groups, *kernel)


def convolution_weight(
    x: Array, y: Array, stride: Sizes, padding: Padding, dilation: Sizes, groups: int
) -> Array:
    _check(x, x.shape[1] // groups, y.shape[1], groups)
    if x.shape[0] != y.shape[0]:
        raise ValueError("images do not fit")  # the row's shape rule says how
    geometry = stride, padding, dilation
    kernel = kernel_of(x.shape[2:], y.shape[2:], *geometry)
    dtype = np.result_type(x, y)
    w = np.zeros((y.shape[1], x.shape[1] // groups, *kernel), wide(dtype))
    if _is_depthwise(w, groups):
        numpy_depthwise.weigh(x, y, w, plan_of(x.shape[2:], kernel, *geometry))
    else:
        _weigh_tiles(x, y, w, bands_of(x.shape[2:], kernel, *geometry), groups)
    return w.astype(dtype, copy=False)


def _weigh_tiles(x: Array, y: Array, w: Array, bands: Bands, groups: int) -> None:
    (n, c), o, dtype = x.shape[:2], w.shape[0], w.dtype
    lines, taps = c * prod(bands.kernel[1:]), bands.kernel[0]
    apart = lines // groups > _SHORT
    parts = taps if apart else 1
    work = _work(n, w, bands)
    tiles = _tiles(bands, apart, x, dtype, _CHUNKS if work >= threads.ENOUGH else 1)
    chunks = [tiles[k::_CHUNKS] for k in range(min(_CHUNKS, len(tiles)))]
    each = groups, parts, taps // parts * (lines // groups), o // groups
    totals = np.zeros((len(chunks), *each), dtype)

    def worker():
        columns = Columns(x, bands, groups, apart, dtype)
        results = Results(y, bands, groups, dtype)
        memory = np.empty((tiles[0].shape[0] if tiles else 0, *each), dtype)

        def weigh(chunk):
            for tile in chunks[chunk]:
                seen, rows = columns.lay(tile), results.collect(tile).swapaxes(2, 3)
                terms = memory[: len(rows)]
                for k, matrices in enumerate(seen):
                    np.matmul(matrices, rows, out=terms[:, :, k])
                totals[chunk] += np.add.reduce(terms)

        return weigh

    threads.share(range(len(chunks)), worker, work)
    by_taps = totals.sum(0).reshape(groups, taps, c // groups, prod(w.shape[3:]), o // groups)
    w[...] = by_taps.transpose(0, 4, 2, 1, 3).reshape(w.shape)


def convolution_gradient(g: Array, x: Array, w: Array, *how: Any) -> tuple[Array, Array]:
    return convolution_transposed(g, w, *how), convolution_weight(x, g, *how)
