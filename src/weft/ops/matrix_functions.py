"""Rows: functions of square matrices."""

from ..core.aval import Aval
from ..core.op import Caller
from ..errors import ShapeError
from .batching import Stacked
from .contract import adjoint, matmul
from .matrix import (
    columns,
    fit_cotangent,
    lapack,
    matrices,
    rows,
    same_square,
    square,
    stacks,
    total,
)
from .rows import general
from .samples import linalg as samples
from .structural import concat

# For analytic f, f([[A, E], [0, A]]) = [[f(A), Df(A)·E], [0, f(A)]]. This holds for every A,
# defective ones too, and its own derivative is found in the same way.


# A power of two near the largest element of each matrix: piecewise constant.
binade: Caller = general(
    "binade",
    arity=1,
    shape=lambda e: e.like((*e.shape[:-2], 1, 1)),
    push=lambda _tangents, y, e: y * 0.0,
    pull=lambda _g, y, e: (None,),
    reads="",
    batch=Stacked((2,)),
    sample=samples("rectangles"),
)


def _derivative_block(f, a, e):
    # The algorithms scale by the norm of the whole matrix: a large e must not drown a.
    size = binade(e)
    last, n = len(a.shape) - 1, a.shape[-1]
    upper, lower = concat([a, e / size], last), concat([a * 0.0, a], last)
    return columns(rows(f(concat([upper, lower], last - 1)), 0, n), n, 2 * n) * size


def _analytic(name: str, sample):
    """The row of an analytic matrix function; f(Aᴴ) = f(A)ᴴ."""
    row = lapack(
        name,
        shape=same_square(name),
        push=lambda tangents, y, a: _derivative_block(row, a, tangents[0]),
        pull=lambda g, y, a: (_derivative_block(row, adjoint(a), g),),
        reads="a",
        sample=sample,
    )
    return row


expm: Caller = _analytic("expm", samples("exponents"))
logm: Caller = _analytic("logm", samples("powers"))


def _sylvester_shape(a: Aval, b: Aval, q: Aval) -> Aval:
    a, b, q = square("sylvester", a), square("sylvester", b), matrices("sylvester", q)
    if (a.shape[-1], b.shape[-1]) != q.shape[-2:]:
        raise ShapeError(f"sylvester: {a.shape}, {b.shape} and {q.shape} do not fit AX + XB = Q")
    return q.like((*stacks("sylvester", a, b, q), *q.shape[-2:]))


def _sylvester_push(tangents, x, a, b, q):
    da, db, dq = tangents
    parts = [] if dq is None else [dq]
    if da is not None:
        parts.append(-matmul(da, x))
    if db is not None:
        parts.append(-matmul(x, db))
    return sylvester(a, b, total(parts))


def _sylvester_pull(g, x, a, b, q):
    g, x = sylvester(adjoint(a), adjoint(b), g), adjoint(x)
    return fit_cotangent(-matmul(g, x), a), fit_cotangent(-matmul(x, g), b), fit_cotangent(g, q)


# The X of AX + XB = Q.
sylvester: Caller = lapack(
    "sylvester",
    arity=3,
    shape=_sylvester_shape,
    push=_sylvester_push,
    pull=_sylvester_pull,
    reads="x a b",
    sample=samples("sylvester"),
)


def _sqrtm_pull(g, y, a):
    h = adjoint(y)
    return (sylvester(h, h, g),)


# The principal root Y of Y·Y = A; dY·Y + Y·dY = dA.
sqrtm: Caller = lapack(
    "sqrtm",
    shape=same_square("sqrtm"),
    push=lambda tangents, y, a: sylvester(y, y, tangents[0]),
    pull=_sqrtm_pull,
    reads="y",
    sample=samples("powers"),
)
