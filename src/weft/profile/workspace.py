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

from ..backend.numpy import activate, elementwise, products
from ..backend.numpy import random as numpy_
from ..backend.numpy.windows import wide
from ..backend.shared import crossentropy, threads
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
    block = min(walk._HOST, total if is_half(p) else small)
    workers = workers_of(-(-total // walk._HOST), threads.PASS * walk._PASSES * total)
    by_numpy = 0 if jobs[0].traced and total > walk._FOR_A_PROGRAM else 4 * min(total, walk._HOST)
    return (workers * block * columns + by_numpy) * item


def enter(*rows: str) -> Callable[[Work], Work]:
    """A decorator that states the temporaries of these rows."""

    def enter(work: Work) -> Work:
        WORK.update(dict.fromkeys(rows, work))
        return work

    return enter


def _arrays(values: Arrays) -> list[Any]:
    return [x for x in values if isinstance(x, np.ndarray)]


def bytes_of(*arrays: Any) -> int:
    """The bytes of arrays."""
    return sum([x.nbytes for x in arrays])


def is_half(x: Any) -> bool:
    """Whether it is of a half type."""
    return x.dtype in HALF


def wide_bytes(*arrays: Any) -> int:
    """The bytes of these in the dtype that half types are computed in."""
    return sum([x.size * wide(x.dtype).itemsize for x in arrays])


def _copied(*arrays: Any) -> int:
    """The bytes of those that are not contiguous."""
    return sum([x.nbytes for x in arrays if not x.flags.c_contiguous])


def workers_of(pieces: int, operations: int) -> int:
    """How many threads share so many pieces of work."""
    return min(threads.cores(), pieces) if operations >= threads.ENOUGH and pieces > 1 else 1


def _in_single(work: Work) -> Work:
    """The work of a kernel that computes half types in float32, and casts its results."""

    def widened(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
        arrays = _arrays(operands)
        if not arrays or not is_half(arrays[0]):
            return work(operands, results, static)
        inside = wide_bytes(*arrays, *results) + work(operands, results, static)
        return max(inside - bytes_of(*results), wide_bytes(*results))

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


@enter("matmul")
@_in_single
def _matmul(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    a, b = operands
    return _product(a, b, results[0]) if a.ndim == 2 == b.ndim else 0


@enter("linear")
def _linear(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x, w, b = operands
    if is_half(x):
        return wide_bytes(x, w, b, *results)
    return 0 if x.ndim != 2 or _uncopied(x) else x.nbytes


@enter("linear_gradient")
@_in_single
def _linear_gradient(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    g, x, w = operands
    lines = prod(g.shape[:-1])
    work = 2 * lines * w.size
    copied = wide_bytes(*[a for a in (g, x) if a.ndim > 2 and not a.flags.c_contiguous])
    if work < products.LARGE:
        return copied + sum([a.nbytes for a in (g, x, w) if a.ndim == 2 and not _uncopied(a)])
    return copied + (len(products._pieces(lines, work)) - 1) * wide_bytes(*results[1:])


# -- reductions and normalisations -------------------------------------------------------------


@enter("mean")
def _mean(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x = operands[0]
    return wide_bytes(*results) + (wide_bytes(x) if is_half(x) else 0)


@enter("var", "std")
def _var(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x = operands[0]
    return (3 if is_half(x) else 2) * wide_bytes(x)


@enter("softmax", "shares", "log_softmax", "logsumexp")
def _exponentials(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x, y = operands[0], results[0]
    half = wide_bytes(x, y) - y.nbytes if is_half(x) else 0
    return half + wide_bytes(x) + (wide_bytes(x) if y.size < x.size else 0)


@enter("softmax_product", "log_softmax_product", "projection")
@_in_single
def _no_work(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    return 0


@enter("standardise")
def _standardise(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x, axes = operands[0], static[0]
    last = axes == tuple(range(x.ndim - len(axes), x.ndim))
    # The products of deviations, or copies of these for one product a line.
    work = wide_bytes(x) if not last else 0 if x.flags.c_contiguous else 2 * wide_bytes(x)
    return work + (2 * wide_bytes(x) - bytes_of(*results) if is_half(x) else 0)


@enter("root_mean_square")
def _root_mean_square(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x = operands[0]
    return 2 * wide_bytes(x) if is_half(x) else _copied(x)


@enter("layer_norm")
def _layer_norm(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x, w, b = operands
    return wide_bytes(x, *results) - bytes_of(*results) if is_half(x) else _copied(x, w, b)


@enter("layer_norm_gradient")
@_in_single
def _layer_norm_gradient(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    g, y, variance, w = operands
    if w.size >= native.LINE and _is_native(y):
        return _copied(g, y, variance, w) + y.nbytes
    block = min(y.size, 1 << 17) * wide(y.dtype).itemsize
    pieces = -(-y.size // (1 << 17))
    return _copied(g, y) + block * workers_of(pieces, y.size * 10 * threads.PASS)


# -- elementwise -------------------------------------------------------------------------------


@enter("where")
def _where(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    c, a, b = operands
    y = results[0]
    zero = any([not isinstance(x, np.ndarray) and x == 0 for x in (a, b)])
    if y.size < 4096 or y.dtype.kind not in "fV" or (zero and c.shape == y.shape):
        return 0
    return c.size * y.dtype.itemsize


@enter("power_scalar")
def _power_scalar(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x = operands[0]
    twice = bool(static) and static[0] in (4, -2)
    if is_half(x):
        return (3 if twice else 2) * wide_bytes(x) - x.nbytes
    return x.nbytes if twice else 0


# Arrays of a block that the passes of an activation hold at once.
_HELD = {"gelu": 6, "gelu_slope": 8, "gelu_tanh": 4, "gelu_tanh_slope": 5, "silu": 2}
_HELD |= {"silu_slope": 2, "softplus": 3}


def _activation(held: int, operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x = operands[0]
    if _is_native(x):
        return _copied(x)
    block = _block(x.size)
    workers = workers_of(-(-x.size // block), x.size * 2 * held * threads.PASS)
    each = held + 1 if is_half(x) else held
    return _copied(x) + workers * block * each * wide(x.dtype).itemsize


for _row, _held in _HELD.items():
    WORK[_row] = partial(_activation, _held)


@enter("lstm_cell")
@_in_single
def _lstm_cell(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    return wide_bytes(operands[1])


@enter("gru_cell")
@_in_single
def _gru_cell(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    return 2 * wide_bytes(operands[2])


@enter("sign_product")
def _sign_product(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    return results[0].nbytes if is_half(results[0]) else 0


@enter("tie_share")
def _by_mask(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    y = results[0]
    return y.size + (y.nbytes if is_half(y) else 0)


@enter("strong_product")
def _strong_product(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    return results[0].size if is_half(results[0]) else 0


@enter("cumsum")
def _cumsum(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x, y = operands[0], results[0]
    return wide_bytes(x, y) - y.nbytes if is_half(x) else 0


@enter("segment_sum")
def _segment_sum(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    return wide_bytes(operands[0], *results) if is_half(operands[0]) else 0


@enter("scatter_sum")
def _scatter_sum(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    indices = [x.nbytes for x in _arrays(operands) if x.dtype.kind in "iu"]
    y = results[0]
    return 2 * sum(indices) + (wide_bytes(y) - y.nbytes if is_half(y) else 0)


@enter("sort", "argsort")
def _sort(operands: Arrays, results: Arrays, static: tuple[Any, ...]) -> int:
    x, y = operands[0], results[0]
    if not is_half(x):
        return 0
    return wide_bytes(x) + (0 if y.dtype.kind == "i" else x.nbytes)


@enter("rotate")
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
    workers = workers_of(-(-count // rows), x.size * passes * threads.PASS)
    parts = 2 if is_half(x) else 1
    return _copied(x) + workers * rows * (parts * n + lines) * wide(x.dtype).itemsize


WORK |= {
    "cross_entropy": partial(_cross_entropy, 3, 4),
    "cross_entropy_gradient": partial(_cross_entropy, 5, 5),
    "soft_cross_entropy": partial(_cross_entropy, 3, 8),
    "soft_cross_entropy_gradient": partial(_cross_entropy, 5, 6),
}
