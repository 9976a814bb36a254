"""What NumPy's kernels that work tile by tile allocate: attention, convolutions, pooling."""

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

from ..backend.numpy import convolve, namespace
from ..backend.numpy.columns import bands_of
from ..backend.numpy.windows import BLOCK_BYTES, parts_of, plan_of, wide
from ..backend.shared import attention, threads
from ..backend.shared.window_sizes import kernel_of, size_of
from .workspace import WORK, Arrays, bytes_of, enter, is_half, wide_bytes, workers_of

# -- attention ---------------------------------------------------------------------------------


def _problem(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """The tiling of an attention."""
    it = object.__new__(attention.AttentionProblem)
    it.xp, it.device, it.causal = namespace, "cpu", causal
    it.heads, it.groups = q.shape[-3], k.shape[-3]
    it.size, it.queries, it.keys = prod(q.shape[:-3]), q.shape[-2], k.shape[-2]
    it._choose_tiles()
    return it


def _widened(operands: Arrays, results: Arrays) -> int:
    """Operands and results in float32, before the results are cast to a half type."""
    if not is_half(operands[0]):
        return 0
    return wide_bytes(*operands, *results) - bytes_of(*results)


@enter("attention")
def _attention(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    q, k, v = operands[:3]
    it, item = _problem(q, k, v, static[0]), wide(q.dtype).itemsize
    parts = it.parts()
    tiles = len(parts) * -(-it.queries // it.down)
    lines = min(it.some, it.size) * it.some_groups * (it.heads // it.groups) * it.down
    pairs = it.size * it.heads * it.queries * it.keys
    workers = workers_of(tiles, pairs * (q.shape[-1] + v.shape[-1]))
    each = lines * (it.across + q.shape[-1] + 2 * v.shape[-1] + 6) * item
    return _widened((q, k, v), results) + workers * each


@enter("attention_gradient")
def _attention_gradient(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    g, _, out, _, q, k, v = operands[:7]
    it, item = _problem(q, k, v, static[0]), wide(q.dtype).itemsize
    parts = it.parts()
    matrices = min(it.some, it.size) * it.some_groups
    per, d, e = it.heads // it.groups, q.shape[-1], v.shape[-1]
    queries, keys = matrices * per * it.queries, matrices * it.keys
    factors = queries * (d + e + 2) + keys * (d + e + 2)
    sums = 2 * d if it.down < it.queries else 0  # of several tiles
    tile = matrices * per * it.down * (2 * it.across + sums) + keys * per * max(d, e)
    pairs = it.size * it.heads * it.queries * it.keys
    workers = workers_of(len(parts), pairs * (d + e) * 3)
    each = (factors + keys * (d + e) + tile) * item
    return _widened((g, out, q, k, v), results) + workers * each


# -- convolutions and pooling ------------------------------------------------------------------


def _columns(
    x: Any, bands: Any, o: int, groups: int, apart: bool, dtype: Any, tiles: Sequence[Any]
) -> int:
    """Elements of a worker's scratch memory: copies by the shape of tiles, and the largest rest."""
    lines, taps = x.shape[1] * prod(bands.kernel[1:]), bands.kernel[0]
    laid = bands.bare and x.dtype == dtype and x.flags.c_contiguous
    copied = rest = 0
    for count, rows, images in {t.shape for t in tiles}:
        run = rows * images * bands.row
        if not (laid and images == 1):
            width = (rows + bands.reach) * images * bands.row
            copied += len(bands.phases) * count * lines * width
        joined = 0 if apart or taps == 1 else count * taps * lines * run
        rest = max(rest, joined + 2 * count * o * run)
    return copied + rest


def _convolve(x: Any, w_shape: Any, dtype: Any, geometry: tuple, groups: int) -> int:
    """Of one convolution with weights of this shape."""
    o, kernel = w_shape[0], w_shape[2:]
    if groups > 1 and tuple(w_shape[:2]) == (groups, 1):
        return 2 * BLOCK_BYTES  # depthwise, a block at a time
    bands, dtype = bands_of(x.shape[2:], tuple(kernel), *geometry), wide(dtype)
    lines = x.shape[1] * prod(bands.kernel[1:])
    apart = lines // groups > max(convolve._SHORT, o // groups)
    work = 2 * len(x) * prod(w_shape) * prod(bands.counts)
    tiles = convolve._tiles(bands, apart, x, dtype, threads.parts(work))
    if not tiles:
        return 0
    each = _columns(x, bands, o, groups, apart, dtype, tiles)
    return (prod(w_shape) + workers_of(len(tiles), work) * each) * dtype.itemsize


@enter("convolution", "convolution_biased")
def _convolution(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x, w = operands[:2]
    *geometry, groups = static
    return _convolve(x, w.shape, results[0].dtype, tuple(geometry), groups)


@enter("convolution_transposed")
def _transposed(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    y, w = operands
    stride, padding, dilation, groups = static
    kernel = tuple(w.shape[2:])
    parts, _ = parts_of(tuple(y.shape[2:]), kernel, stride, padding, dilation)
    turned, ones = (w.shape[1] * groups, w.shape[0] // groups), (1,) * len(stride)
    most = 0
    for part in parts:
        taps = [len(range(*s.indices(k))) for s, k in zip(part.taps, kernel, strict=True)]
        geometry = ones, part.padding, part.dilation
        shape = (*turned, *taps)
        most = max(most, _convolve(y, shape, results[0].dtype, geometry, groups))
    return w.nbytes + most


@enter("convolution_weight")
def _convolution_weight(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x, y = operands
    *geometry, groups = static
    kernel = kernel_of(x.shape[2:], y.shape[2:], *geometry)
    w, dtype, o = results[0], wide(results[0].dtype), y.shape[1]
    if groups > 1 and x.shape[1] == groups == o:
        return 2 * BLOCK_BYTES
    bands = bands_of(x.shape[2:], kernel, *geometry)
    apart = x.shape[1] * prod(bands.kernel[1:]) // groups > convolve._SHORT
    work = 2 * len(x) * w.size * prod(bands.counts)
    chunks = convolve._CHUNKS if work >= threads.ENOUGH else 1
    tiles = convolve._tiles(bands, apart, x, dtype, chunks)
    if not tiles:
        return 0
    count = min(convolve._CHUNKS, len(tiles))
    each = _columns(x, bands, o, groups, apart, dtype, tiles) + tiles[0].shape[0] * w.size
    scratch = count * w.size + workers_of(count, work) * each
    return scratch * dtype.itemsize + (wide_bytes(w) if is_half(w) else 0)


def _pool(held: float, transposed: bool, operands: Arrays, results: Arrays, static: Any) -> int:
    """Planes, and `held` runs of windows beside them, for the lines that a thread takes."""
    x = operands[0]
    kernel, stride, padding = static[:3]
    dilation = static[3] if len(static) > 3 else (1,) * len(kernel)
    axes = len(kernel)
    size = x.shape[x.ndim - axes :]
    if transposed:
        size = size_of(size, kernel, stride, padding, dilation)
        held += 0 if x.flags.c_contiguous and not is_half(x) else 1
    plan, dtype = plan_of(tuple(size), kernel, stride, padding, dilation), wide(x.dtype)
    lines = prod(x.shape[: x.ndim - axes])
    operations = 4 * threads.PASS * lines * plan.run * len(plan.taps)
    fit = BLOCK_BYTES // (dtype.itemsize * (len(plan.phases) * plan.area + 3 * plan.run))
    each = max(1, min(fit, -(-lines // threads.parts(operations))))
    workers = workers_of(-(-lines // each), operations)
    block = min(each, lines) * (len(plan.phases) * plan.area + held * plan.run)
    return int(workers * block * dtype.itemsize)


WORK |= {
    "max_pool": partial(_pool, 1.75, False),
    "pool_pick": partial(_pool, 0.25, False),
    "pool_put": partial(_pool, 2.25, True),
    "sum_pool": partial(_pool, 1, False),
    "spread_pool": partial(_pool, 0, True),
}
