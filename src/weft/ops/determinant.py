"""Rows: determinants."""

import numpy as np
from numpy.linalg import LinAlgError

from ..core import dtypes
from ..core.aval import Aval, broadcast
from ..core.op import Caller
from .arrange import diag_embed, tril, triu
from .complex_ import conj, imag, real
from .contract import adjoint, matmul
from .elementwise import multiply
from .matrix import (
    as_factor,
    diagonal_of,
    fit_cotangent,
    lapack,
    same_square,
    square,
    total,
    trace,
    trace_of_product,
)
from .samples import linalg as samples
from .structural import cast, sum_
from .systems import inv

# The derivative of det is the adjugate, and a polynomial: det, its gradient and its Hessian are
# right for matrices of any rank. Third derivatives are written with the inverse, and refuse
# singular matrices.


def _det_shape(a: Aval) -> Aval:
    a = square("det", a)
    return a.like(a.shape[:-2])


det: Caller = lapack(
    "det",
    reads="a",
    shape=_det_shape,
    push=lambda tangents, y, a: trace_of_product(adjugate(a), tangents[0]),
    pull=lambda g, y, a: (as_factor(g) * adjoint(adjugate(a)),),
    sample=samples("determinants"),
)


def _nonzero(xp, s):
    """log σ (0 for σ = 0), and which σ are zero."""
    zero = s <= s[..., :1] * float(np.finfo(xp.dtype_of(s)).eps) ** 2
    return xp.log(xp.where(zero, 1.0, s)), cast(zero, s.dtype)


def _product(xp, logs, zeros):
    """∏σ from the sum of the logarithms (which does not overflow) and the number of zeros."""
    return xp.where(zeros == 0, xp.exp(logs), 0.0)


def _products_without_one(xp, s):
    """∏ σₖ over k ≠ i."""
    last = (len(s.shape) - 1,)
    return _product(xp, *(sum_(x, last, True) - x for x in _nonzero(xp, s)))


def _products_without_two(xp, s):
    """∏ σₖ over k ≠ i, j; zero for i = j."""
    last = (len(s.shape) - 1,)
    left = (
        sum_(x, last, True)[..., None] - x[..., None, :] - x[..., :, None] for x in _nonzero(xp, s)
    )
    w = _product(xp, *left)
    return triu(w, 1) + tril(w, -1)


def _adjugate(xp, a):
    # From the same triangular factors, det·inv is the adjugate of a matrix that differs from a
    # by a rounding error, near singular ones too; it fails only for a pivot that is exactly 0.
    found = xp.det_and_inv(a)
    if found is not None:
        return as_factor(found[0]) * found[1]
    u, s, vh = xp.svd(a, True)
    middle = _products_without_one(xp, s)[..., None] * adjoint(u)
    return as_factor(xp.det(matmul(u, vh))) * matmul(adjoint(vh), middle)


def _adjugate_pull(g, y, a):
    return (adjoint(adjugate_tangent(a, adjoint(g))),)


adjugate: Caller = lapack(
    "adjugate",
    reads="a",
    compute=_adjugate,
    shape=same_square("adjugate"),
    push=lambda tangents, y, a: adjugate_tangent(a, tangents[0]),
    pull=_adjugate_pull,
    sample=samples("regular"),
)


def _adjugate_tangent(xp, a, e):
    """With a = UΣVᴴ and ẽ = UᴴeV: products of all but two σ times ẽ, or times its diagonal."""
    u, s, vh = xp.svd(a, True)
    w = _products_without_two(xp, s)
    e = matmul(matmul(adjoint(u), e), adjoint(vh))
    d = diagonal_of(e)
    middle = diag_embed(sum_(w * d[..., None, :], (len(e.shape) - 1,), False)) - w * e
    return as_factor(xp.det(matmul(u, vh))) * matmul(matmul(adjoint(vh), middle), adjoint(u))


def _invertible(xp, a):
    s = xp.svdvals(a)
    floor = s[..., :1] * (float(np.finfo(xp.dtype_of(s)).eps) * a.shape[-1])
    if not (s > floor).all():
        raise LinAlgError("det: a singular matrix has no third derivative here, only two")
    return a


invertible: Caller = lapack(
    "invertible",
    reads="",
    compute=_invertible,
    shape=same_square("invertible"),
    push=lambda tangents, y, a: tangents[0],
    pull=lambda g, y, a: (g,),
    views="unseen",
    sample=samples("regular"),
)


def _second_tangent(a, e, f):
    """The second derivative of the adjugate: symmetric in e and f, and tr(g·it) in all three."""
    y = inv(invertible(a))
    x, z = matmul(y, e), matmul(y, f)
    first, second, both = map(as_factor, (trace(x), trace(z), trace_of_product(x, z)))
    mixed = matmul(matmul(z, x) + matmul(x, z) - first * z - second * x, y)
    return as_factor(det(a)) * (mixed + (first * second - both) * y)


def _adjugate_tangent_push(tangents, y, a, e):
    da, de = tangents
    parts = [] if de is None else [adjugate_tangent(a, de)]
    if da is not None:
        parts.append(_second_tangent(a, e, da))
    return total(parts)


def _adjugate_tangent_pull(g, y, a, e):
    g = adjoint(g)
    by_a, by_e = adjoint(_second_tangent(a, e, g)), adjoint(adjugate_tangent(a, g))
    return fit_cotangent(by_a, a), fit_cotangent(by_e, e)


adjugate_tangent: Caller = lapack(
    "adjugate_tangent",
    reads="a e",
    arity=2,
    compute=_adjugate_tangent,
    shape=lambda a, e: square("adjugate_tangent", a).like(broadcast("det", a.shape, e.shape)),
    push=_adjugate_tangent_push,
    pull=_adjugate_tangent_pull,
    sample=samples("matrix_directions"),
)


def _slogdet_shape(a: Aval) -> tuple[Aval, Aval]:
    a = square("slogdet", a)
    sign = a.like(a.shape[:-2])
    return sign, sign.like(dtype=dtypes.to_real(a.dtype))


def _slogdet_push(tangents, y, a):
    sign, _ = y
    z = trace_of_product(inv(a), tangents[0])
    if not dtypes.is_complex(sign.dtype):
        return multiply(sign, 0.0), z
    return sign * cast(imag(z), sign.dtype) * 1j, real(z)


def _slogdet_pull(g, y, a):
    (g_sign, g_log), (sign, _) = g, y
    parts = [] if g_log is None else [cast(g_log, sign.dtype)]
    if g_sign is not None and dtypes.is_complex(sign.dtype):
        parts.append(cast(imag(g_sign * conj(sign)), sign.dtype) * 1j)
    return (as_factor(total(parts)) * adjoint(inv(a)) if parts else None,)


slogdet: Caller = lapack(
    "slogdet",
    shape=_slogdet_shape,
    push=_slogdet_push,
    pull=_slogdet_pull,
    outputs=2,
    tracked=(0, 1),
    sample=samples("slogdet"),
)
