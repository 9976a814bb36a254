"""Rows: triangular factors of matrices."""

from ..core import dtypes
from ..core.aval import Aval
from ..core.op import Caller
from ..core.types import Array
from .arrange import tril, triu
from .contract import adjoint, matmul
from .matrix import (
    columns,
    complete_basis_tangent,
    for_first,
    hermitian,
    lapack,
    matrices,
    rows,
    same_square,
    total,
)
from .samples import linalg as samples
from .samples import spectra
from .structural import concat, mT
from .systems import solve_triangle


def _cholesky_push(tangents, y, a, upper):
    e, factor = hermitian(tangents[0]), adjoint(y) if upper else y
    half = solve_triangle(factor, e, True, False)
    x = adjoint(solve_triangle(factor, adjoint(half), True, False))
    d = matmul(factor, _lower_half(x))
    return adjoint(d) if upper else d


def _lower_half(x):
    """The L of L + Lᴴ = x for Hermitian x."""
    return (tril(x, 0) + tril(x, -1)) * 0.5


def _cholesky_pull(g, y, a, upper):
    g, factor = (adjoint(g), adjoint(y)) if upper else (g, y)
    middle = _lower_half(matmul(adjoint(factor), g))
    half = solve_triangle(adjoint(factor), middle, False, False)
    return (hermitian(adjoint(solve_triangle(adjoint(factor), adjoint(half), False, False))),)


# Of a the Hermitian part is taken, so that every element of a has a derivative.
cholesky: Caller = lapack(
    "cholesky",
    shape=same_square("cholesky"),
    push=_cholesky_push,
    pull=_cholesky_pull,
    reads="y",
    static=True,
    sample=samples("cholesky"),
)


def _qr_shape(a: Aval, mode: str) -> tuple[Aval, Aval]:
    a = matrices("qr", a)
    *batch, m, n = a.shape
    k = m if mode == "complete" else min(m, n)
    return a.like((*batch, m, k)), a.like((*batch, k, n))


def _qr_push(tangents, y, a, _mode):
    """dQ = Q·Ω, Ω skew-Hermitian, and zero where Q is not determined."""
    (da,), (q, r) = tangents, y
    k = min(q.shape[-2], r.shape[-1])
    q1, r1 = columns(q, 0, k), columns(rows(r, 0, k), 0, k)
    right = mT(solve_triangle(mT(r1), mT(columns(da, 0, k)), True, False))
    x = matmul(adjoint(q1), right)
    low = tril(x, -1)
    turn = low - adjoint(low)
    if dtypes.is_complex(q.dtype):
        # R has a real diagonal.
        turn = turn + (diagonal_part(x) - adjoint(diagonal_part(x))) * 0.5
    dq = right - matmul(q1, x - turn)
    dq = complete_basis_tangent(q, dq)
    dr = triu(matmul(adjoint(q), da - matmul(dq, r)), 0)
    return dq, dr


def diagonal_part(x: Array) -> Array:
    """x with zeros beside the diagonal."""
    return tril(triu(x, 0), 0)


def _qr_pull(g, y, a, _mode):
    (gq, gr), (q, r) = g, y
    k, n = min(q.shape[-2], r.shape[-1]), r.shape[-1]
    q1, r1 = columns(q, 0, k), columns(rows(r, 0, k), 0, k)
    gq1 = [] if gq is None else [for_first(q, gq, k)]
    gr1, gr2 = None, None
    if gr is not None:
        gr = triu(rows(gr, 0, k), 0)
        gr1, gr2 = columns(gr, 0, k), columns(gr, k, n)
    if gr2 is not None and n > k:
        gq1.append(matmul(q1, matmul(columns(r, k, n), adjoint(gr2))))
    middle = [-matmul(adjoint(q1), x) for x in gq1]
    if gr1 is not None:
        middle.append(matmul(gr1, adjoint(r1)))
    middle = total(middle)
    turned = matmul(q1, hermitian(triu(middle, 0) + triu(middle, 1)))
    ga = adjoint(solve_triangle(r1, adjoint(total([turned, *gq1])), False, False))
    if n == k:
        return (ga,)
    rest = matmul(q1, gr2) if gr2 is not None else columns(matmul(q1, r), k, n) * 0.0
    return (concat([ga, rest], len(q.shape) - 1),)


# R must be invertible in its first columns. Columns of Q beyond those of a span a complement:
# functions of that space alone have the derivative given here.
qr: Caller = lapack(
    "qr",
    shape=_qr_shape,
    push=_qr_push,
    pull=_qr_pull,
    reads="y",
    outputs=2,
    tracked=(0, 1),
    static=True,
    sample=spectra("qr"),
)


def _lu_shape(a: Aval) -> tuple[Aval, Aval, Aval]:
    a = matrices("lu", a)
    *batch, m, n = a.shape
    k = min(m, n)
    return a.like((*batch, m, m)), a.like((*batch, m, k)), a.like((*batch, k, n))


def _lu_push(tangents, y, a):
    p, lower, upper = y
    k = lower.shape[-1]
    l1, u1 = rows(lower, 0, k), columns(upper, 0, k)
    e = matmul(mT(p), tangents[0])
    left = solve_triangle(l1, rows(e, 0, k), True, True)
    right = mT(solve_triangle(mT(u1), mT(columns(left, 0, k)), True, False))
    d_upper = triu(left - matmul(tril(right, -1), upper), 0)
    change = columns(e - matmul(lower, d_upper), 0, k)
    d_lower = tril(mT(solve_triangle(mT(u1), mT(change), True, False)), -1)
    return None, d_lower, d_upper


lu: Caller = lapack(
    "lu",
    shape=_lu_shape,
    push=_lu_push,
    reads="y",
    outputs=3,
    tracked=(1, 2),
    sample=samples("rectangles"),
)
