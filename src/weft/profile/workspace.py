"""What NumPy's kernels allocate beside their results, by row.

Each entry states a kernel's temporaries at its own peak, by the shapes, dtypes and strides of its
operands; rows that are not listed have none to speak of. `tests/profile/test_workspace.py` compares
the entries with what kernels allocate. Threads have scratch memory each: where a thread comes late
to its work, a kernel takes less than is stated here.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from ..backend.numpy import activate, convolve, elementwise, namespace, products
from ..backend.numpy import random as numpy_
from ..backend.numpy.columns import bands_of
from ..backend.numpy.windows import BLOCK_BYTES, parts_of, plan_of, wide
from ..backend.shared import attention, crossentropy, threads
from ..backend.shared.window_sizes import kernel_of, size_of
from ..compiler.eager import kernels as native
from ..core.counter import WORDS_PER_BLOCK
from ..core.dtypes import HALF
from ..core.op import Op, Partials
from ..optim import walk

Arrays = Sequence[Any]
Work = Callable[[Arrays, Arrays, tuple[Any, ...]], int]

WORK: dict[str, Work] = {}
# Rows whose results NumPy lays out as their operands are, beside elementwise ones.
_AS_OPERANDS = frozenset(("cast", "copy", "scale_shift", "standardise", "projection"))
_BLOCKWISE = frozenset(native.ACTIVATIONS)


def of(op: Op, operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    """The bytes of a kernel's temporaries beside its results, at its own peak."""
    work = WORK.get(op.name)
    return 0 if work is None else max(0, work(operands, results, static))


def keeps_order(op: Op) -> bool:
    """Whether a row's results have the memory order of its operands."""
    elementwise = isinstance(op.rule, Partials) or op.compares
    return op.name in _AS_OPERANDS or (elementwise and op.name not in _BLOCKWISE)


# How many arrays of zeros kernels keep.
KEPT = 8


def kept_zeros(op: Op, operands: Arrays) -> list[tuple[tuple[int, ...], np.dtype]]:
    """The shapes and dtypes of zeros that a row's kernel keeps for arrays like this."""
    if op.name not in ("relu", "gelu", "softplus"):
        return []
    x = operands[0]
    if op.name != "relu":
        block = _block(x.size)
        sizes = set() if _is_native(x) or not block else {block, x.size % block}
        return [((n,), wide(x.dtype)) for n in sizes if n]
    if x.size < elementwise._LARGE or (x.size > elementwise._CACHED and not x.flags.c_contiguous):
        return []
    shape = tuple(x.shape) if x.size <= elementwise._CACHED else (elementwise._CACHED,)
    return [(shape, x.dtype)]


def _is_native(x: Any) -> bool:
    """Whether a compiled kernel computes an array like this."""
    return x.size >= native.LARGE and x.dtype in native._DTYPES


def _block(size: int) -> int:
    """The elements of a block of an activation."""
    return activate._BLOCK if size > activate._BLOCK else min(size, activate._SHORT)


def of_update(jobs: Sequence[walk.Job]) -> int:
    """The bytes that a step of an optimizer takes: a block of parameters, joined or cast."""
    p, columns = jobs[0].columns[0], len(jobs[0].columns)
    sizes = [prod(job.columns[0].shape) for job in jobs]
    small = sum([n for n in sizes if n < walk._SMALL_ON_HOST])
    total, item = sum(sizes), walk.working_dtype(p.dtype).itemsize
    block = min(walk._HOST, total if _is_half(p) else small)
    workers = _workers(-(-total // walk._HOST), threads.PASS * walk._PASSES * total)
    by_numpy = 0 if jobs[0].traced and total > walk._FOR_A_PROGRAM else 4 * min(total, walk._HOST)
    return (workers * block * columns + by_numpy) * item


def _enter(*rows: str) -> Callable[[Work], Work]:
    def enter(work: Work) -> Work:
        WORK.update(dict.fromkeys(rows, work))
        return work

    return enter


def _arrays(values: Arrays) -> list[Any]:
    return [x for x in values if isinstance(x, np.ndarray)]


def _bytes(*arrays: Any) -> int:
    return sum([x.nbytes for x in arrays])


def _is_half(x: Any) -> bool:
    return x.dtype in HALF


def _wide(*arrays: Any) -> int:
    """The bytes of these in the dtype that half types are computed in."""
    return sum([x.size * wide(x.dtype).itemsize for x in arrays])


def _copied(*arrays: Any) -> int:
    """The bytes of those that are not contiguous."""
    return sum([x.nbytes for x in arrays if not x.flags.c_contiguous])


def _workers(pieces: int, operations: int) -> int:
    return min(threads.cores(), pieces) if operations >= threads.ENOUGH and pieces > 1 else 1


def _in_single(work: Work) -> Work:
    """The work of a kernel that computes half types in float32, and casts its results."""

    def widened(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
        arrays = _arrays(operands)
        if not arrays or not _is_half(arrays[0]):
            return work(operands, results, static)
        inside = _wide(*arrays, *results) + work(operands, results, static)
        return max(inside - _bytes(*results), _wide(*results))

    return widened


# -- products ----------------------------------------------------------------------------------


def _uncopied(x: Any) -> bool:
    return x.flags.c_contiguous or x.flags.f_contiguous


def _product(a: Any, b: Any, y: Any) -> int:
    """Of a product of two matrices: copies for BLAS, and the sums of its pieces."""
    work = a.size * b.shape[-1]
    copied = sum([x.nbytes for x in (a, b) if not _uncopied(x)])
    inner = a.flags.f_contiguous and not a.flags.c_contiguous and min(a.shape) > 1
    if work < products.LARGE or not inner:
        return copied
    pieces = products._pieces(a.shape[1], work)
    return copied + (len(pieces) - 1) * y.size * wide(y.dtype).itemsize


@_enter("matmul")
@_in_single
def _matmul(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    a, b = operands
    return _product(a, b, results[0]) if a.ndim == 2 == b.ndim else 0


@_enter("linear")
def _linear(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x, w, b = operands
    if _is_half(x):
        return _wide(x, w, b, *results)
    return 0 if x.ndim != 2 or _uncopied(x) else x.nbytes


@_enter("linear_gradient")
@_in_single
def _linear_gradient(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    g, x, w = operands
    lines = prod(g.shape[:-1])
    work = 2 * lines * w.size
    copied = _wide(*[a for a in (g, x) if a.ndim > 2 and not a.flags.c_contiguous])
    if work < products.LARGE:
        return copied + sum([a.nbytes for a in (g, x, w) if a.ndim == 2 and not _uncopied(a)])
    return copied + (len(products._pieces(lines, work)) - 1) * _wide(*results[1:])


# -- reductions and normalisations -------------------------------------------------------------


@_enter("mean")
def _mean(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x = operands[0]
    return _wide(*results) + (_wide(x) if _is_half(x) else 0)


@_enter("var", "std")
def _var(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x = operands[0]
    return (3 if _is_half(x) else 2) * _wide(x)


@_enter("softmax", "shares", "log_softmax", "logsumexp")
def _exponentials(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x, y = operands[0], results[0]
    half = _wide(x, y) - y.nbytes if _is_half(x) else 0
    return half + _wide(x) + (_wide(x) if y.size < x.size else 0)


@_enter("softmax_product", "log_softmax_product", "projection")
@_in_single
def _no_work(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    return 0


@_enter("standardise")
def _standardise(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x, axes = operands[0], static[0]
    last = axes == tuple(range(x.ndim - len(axes), x.ndim))
    # The products of deviations, or copies of these for one product a line.
    work = _wide(x) if not last else 0 if x.flags.c_contiguous else 2 * _wide(x)
    return work + (2 * _wide(x) - _bytes(*results) if _is_half(x) else 0)


@_enter("root_mean_square")
def _root_mean_square(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x = operands[0]
    return 2 * _wide(x) if _is_half(x) else _copied(x)


@_enter("layer_norm")
def _layer_norm(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x, w, b = operands
    return _wide(x, *results) - _bytes(*results) if _is_half(x) else _copied(x, w, b)


@_enter("layer_norm_gradient")
@_in_single
def _layer_norm_gradient(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    g, y, variance, w = operands
    if w.size >= native.LINE and _is_native(y):
        return _copied(g, y, variance, w) + y.nbytes
    block = min(y.size, 1 << 17) * wide(y.dtype).itemsize
    pieces = -(-y.size // (1 << 17))
    return _copied(g, y) + block * _workers(pieces, y.size * 10 * threads.PASS)


# -- elementwise -------------------------------------------------------------------------------


@_enter("where")
def _where(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    c, a, b = operands
    y = results[0]
    zero = any([not isinstance(x, np.ndarray) and x == 0 for x in (a, b)])
    if y.size < 4096 or y.dtype.kind not in "fV" or (zero and c.shape == y.shape):
        return 0
    return c.size * y.dtype.itemsize


@_enter("power_scalar")
def _power_scalar(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x = operands[0]
    twice = bool(static) and static[0] in (4, -2)
    if _is_half(x):
        return (3 if twice else 2) * _wide(x) - x.nbytes
    return x.nbytes if twice else 0


# Arrays of a block that the passes of an activation hold at once.
_HELD = {"gelu": 6, "gelu_slope": 8, "gelu_tanh": 4, "gelu_tanh_slope": 5, "silu": 2}
_HELD |= {"silu_slope": 2, "softplus": 3}


def _activation(held: int, operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x = operands[0]
    if _is_native(x):
        return _copied(x)
    block = _block(x.size)
    workers = _workers(-(-x.size // block), x.size * 2 * held * threads.PASS)
    each = held + 1 if _is_half(x) else held
    return _copied(x) + workers * block * each * wide(x.dtype).itemsize


for _row, _held in _HELD.items():
    WORK[_row] = partial(_activation, _held)


@_enter("lstm_cell")
@_in_single
def _lstm_cell(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    return _wide(operands[1])


@_enter("gru_cell")
@_in_single
def _gru_cell(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    return 2 * _wide(operands[2])


@_enter("sign_product")
def _sign_product(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    return results[0].nbytes if _is_half(results[0]) else 0


@_enter("tie_share")
def _by_mask(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    y = results[0]
    return y.size + (y.nbytes if _is_half(y) else 0)


@_enter("strong_product")
def _strong_product(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    return results[0].size if _is_half(results[0]) else 0


@_enter("cumsum", "segment_sum")
def _widened_sum(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x, y = operands[0], results[0]
    return _wide(x, y) - y.nbytes if _is_half(x) else 0


@_enter("scatter_sum")
def _scatter_sum(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    indices = [x.nbytes for x in _arrays(operands) if x.dtype.kind in "iu"]
    y = results[0]
    return 2 * sum(indices) + (_wide(y) - y.nbytes if _is_half(y) else 0)


@_enter("sort", "argsort")
def _sort(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x, y = operands[0], results[0]
    if not _is_half(x):
        return 0
    return _wide(x) + (0 if y.dtype.kind == "i" else x.nbytes)


@_enter("rotate")
def _rotate(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    return results[0].nbytes // 2


# -- random numbers ----------------------------------------------------------------------------


def _draw(held: int, operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    """Arrays of one integer for each block of words, for a chunk of blocks."""
    y = results[0]
    words = y.size * (2 if y.itemsize == 8 else 1)
    chunk = numpy_.random_target("cpu").chunk
    return 8 * held * min(-(-words // WORDS_PER_BLOCK), chunk)


WORK |= {
    "draw_below": partial(_draw, 10),
    "draw_below_each": partial(_draw, 10),
    "draw_uniform": partial(_draw, 12),
    "draw_normal": partial(_draw, 14),
    "draw_integers": partial(_draw, 14),
    "draw_order": partial(_draw, 14),
}


# -- losses ------------------------------------------------------------------------------------


def _cross_entropy(
    lines: int, passes: int, operands: Arrays, results: Arrays, static: tuple[Any, ...]
) -> int:
    x = max(_arrays(operands), key=lambda a: a.size)
    n = x.shape[-1]
    count = x.size // n
    rows = min(count, max(1, crossentropy.CHUNK["numpy"] // n))
    workers = _workers(-(-count // rows), x.size * passes * threads.PASS)
    parts = 2 if _is_half(x) else 1
    return _copied(x) + workers * rows * (parts * n + lines) * wide(x.dtype).itemsize


WORK |= {
    "cross_entropy": partial(_cross_entropy, 3, 4),
    "cross_entropy_gradient": partial(_cross_entropy, 5, 5),
    "soft_cross_entropy": partial(_cross_entropy, 3, 8),
    "soft_cross_entropy_gradient": partial(_cross_entropy, 5, 6),
}


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
    if not _is_half(operands[0]):
        return 0
    return _wide(*operands, *results) - _bytes(*results)


@_enter("attention")
def _attention(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    q, k, v = operands[:3]
    it, item = _problem(q, k, v, static[0]), wide(q.dtype).itemsize
    parts = it.parts()
    tiles = len(parts) * -(-it.queries // it.down)
    lines = min(it.some, it.size) * it.some_groups * (it.heads // it.groups) * it.down
    pairs = it.size * it.heads * it.queries * it.keys
    workers = _workers(tiles, pairs * (q.shape[-1] + v.shape[-1]))
    each = lines * (it.across + q.shape[-1] + 2 * v.shape[-1] + 6) * item
    return _widened((q, k, v), results) + workers * each


@_enter("attention_gradient")
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
    workers = _workers(len(parts), pairs * (d + e) * 3)
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
    return (prod(w_shape) + _workers(len(tiles), work) * each) * dtype.itemsize


@_enter("convolution", "convolution_biased")
def _convolution(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x, w = operands[:2]
    *geometry, groups = static
    return _convolve(x, w.shape, results[0].dtype, tuple(geometry), groups)


@_enter("convolution_transposed")
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


@_enter("convolution_weight")
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
    scratch = count * w.size + _workers(count, work) * each
    return scratch * dtype.itemsize + (_wide(w) if _is_half(w) else 0)


def _pool(held: float, transposed: bool, operands: Arrays, results: Arrays, static: Any) -> int:
    """Planes, and `held` runs of windows beside them, for the lines that a thread takes."""
    x = operands[0]
    kernel, stride, padding = static[:3]
    dilation = static[3] if len(static) > 3 else (1,) * len(kernel)
    axes = len(kernel)
    size = x.shape[x.ndim - axes :]
    if transposed:
        size = size_of(size, kernel, stride, padding, dilation)
        held += 0 if x.flags.c_contiguous and not _is_half(x) else 1
    plan, dtype = plan_of(tuple(size), kernel, stride, padding, dilation), wide(x.dtype)
    lines = prod(x.shape[: x.ndim - axes])
    operations = 4 * threads.PASS * lines * plan.run * len(plan.taps)
    fit = BLOCK_BYTES // (dtype.itemsize * (len(plan.phases) * plan.area + 3 * plan.run))
    each = max(1, min(fit, -(-lines // threads.parts(operations))))
    workers = _workers(-(-lines // each), operations)
    block = min(each, lines) * (len(plan.phases) * plan.area + held * plan.run)
    return int(workers * block * dtype.itemsize)


WORK |= {
    "max_pool": partial(_pool, 1.75, False),
    "pool_pick": partial(_pool, 0.25, False),
    "pool_put": partial(_pool, 2.25, True),
    "sum_pool": partial(_pool, 1, False),
    "spread_pool": partial(_pool, 0, True),
}
