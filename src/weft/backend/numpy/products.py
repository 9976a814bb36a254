"""Matrix products, large ones in pieces that the thread pool shares.

The threads of NumPy's BLAS spin for some time after a product, on the cores that other kernels'
threads need; under load a product even waits for a thread that was descheduled.
Pieces are cut by the matrices' sizes alone, so that results do not depend on the number of threads.
"""

import numpy as np

from ..shared import blas, threads
from .index import sum as _sum
from .types import Array

# The least multiplications of a product that threads share, and of one piece of it.
LARGE, PIECE = 1 << 23, 1 << 25
# BLAS packs b for each piece: with this many rows that is cheap beside the product.
ROWS = 256
# Multiplications done in the time it takes to wake a second thread.
AHEAD = 1 << 21
# Multiplications up to which BLAS uses one thread.
QUIET = 1 << 19


def product(a: np.ndarray, b: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """a·b of two matrices, and a bias that is added to each row."""
    (m, k), n = a.shape, b.shape[1]
    work = m * k * n
    if work < LARGE or a.dtype.kind not in "fc":
        y = _by_one(a, b, work)
    elif a.flags.f_contiguous and k > 1 < m:
        y = _by_inner(a, b, _pieces(k, work), work)
    elif m > 1:
        return _by_rows(a, b, bias, _pieces(m, work), work)
    else:
        y = _by_one(a, b, work)
    if bias is not None:
        y += bias
    return y


def _by_one(a: Array, b: Array, work: int) -> np.ndarray:
    """a·b by the calling thread."""
    if work < QUIET:
        return a.dot(b)
    with blas.alone():
        return a.dot(b)


def gradients(g: np.ndarray, x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, ...]:
    """g·w, gᵀ·x and the sum of g's rows: the cotangents of x, w and b in x·wᵀ + b."""
    work = 2 * len(g) * w.size
    if work < LARGE or g.dtype.kind not in "fc":
        return product(g, w), product(g.T, x), _sum(g, (0,), False)
    pieces = _pieces(len(g), work)
    dx = np.empty(x.shape, g.dtype)
    to_w = [np.empty(w.shape, g.dtype) for _ in pieces]
    to_b = [np.empty(len(w), g.dtype) for _ in pieces]

    def do(at: int) -> None:
        part = g[pieces[at]]
        np.dot(part, w, dx[pieces[at]])
        np.dot(part.T, x[pieces[at]], to_w[at])
        np.add.reduce(part, 0, out=to_b[at])

    threads.share(range(len(pieces)), lambda: do, max(work, threads.ENOUGH))
    return dx, _add_parts(to_w), _add_parts(to_b)


def _add_parts(parts: list[np.ndarray]) -> np.ndarray:
    """The sum of the parts, in order and in the memory of the first."""
    for part in parts[1:]:
        parts[0] += part
    return parts[0]


def _pieces(length: int, work: int) -> list[slice]:
    """An axis in two pieces, or more where they are long.

    The first is for the calling thread, which starts before the others are awake.
    """
    most = min(work // PIECE, length // ROWS, 2 * threads.LIMIT)
    count = max(2, 1 << most.bit_length() - 1 if most else 0)
    lead = AHEAD * length // work
    step = max(1, (length - lead) // count)
    starts = [0, *range(length - step * (count - 1), length, step)] if length > count else [0]
    return [slice(i, j) for i, j in zip(starts, [*starts[1:], length], strict=True)]


def _by_rows(a: Array, b: Array, bias: Array | None, pieces: list[slice], work: int) -> Array:
    y = np.empty((len(a), b.shape[1]), a.dtype)

    def do(rows: slice) -> None:
        part = y[rows]
        np.dot(a[rows], b, part)
        if bias is not None:
            part += bias

    threads.share(pieces, lambda: do, max(work, threads.ENOUGH))
    return y


def _by_inner(a: Array, b: Array, pieces: list[slice], work: int) -> Array:
    """The sum of products over pieces of the inner axis, in order: rows of aᵀ and of b."""
    parts = [np.empty((len(a), b.shape[1]), a.dtype) for _ in pieces]

    def do(at: int) -> None:
        np.dot(a[:, pieces[at]], b[pieces[at]], parts[at])

    threads.share(range(len(pieces)), lambda: do, max(work, threads.ENOUGH))
    return _add_parts(parts)
