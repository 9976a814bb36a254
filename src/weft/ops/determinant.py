"""Rows: determinants."""

import numpy as np
from numpy.linalg import LinAlgError

from ..core import dtypes
from ..core.aval import Aval, broadcast
from .arrange import diag_embed, tril, triu
from .complex_ import conj, imag, real
from .contract import adjoint, matmul
from .elementwise import multiply
from .linalg import as_factor, diagonal_of, inv, lapack, same_square, square, trace, trace_of_product
from .rows import linear
from .samples import linalg as samples
from .structural import cast, mT, sum_

# The derivative of det is the adjugate, and a polynomial: det, its gradient and its Hessian are
# right for matrices of any rank. Third derivatives are written with the inverse, and refuse
# singular matrices.


def _det_shape(a: Aval) -> Aval:
    a = square("det", a)
    return a.like(a.shape[:-2])


det = lapack(
    "det",
    shape=_det_shape,
    push=lambda tangents, _y, a: trace_of_product(adjugate(a), tangents[0]),
    pull=lambda g, _y, a: (as_factor(g) * adjoint(adjugate(a)),),
    sample=samples.determinants,
)


def _scaled_logs(xp, s):
    """log σ, with a number below every rounding error in place of a zero."""
    kind = np.finfo(xp.dtype_of(s))
    return xp.log(xp.maximum(s, s[..., :1] * float(kind.eps) ** 2 + float(kind.tiny)))


def _products_without_one(xp, s):
    """∏ σₖ over k ≠ i."""
    logs = _scaled_logs(xp, s)
    return xp.exp(sum_(logs, (len(s.shape) - 1,), True) - logs)


def _products_without_two(xp, s):
    """∏ σₖ over k ≠ i, j; zero for i = j."""
    logs = _scaled_logs(xp, s)
    total = sum_(logs, (len(s.shape) - 1,), True)[..., None]
    w = xp.exp(total - logs[..., None, :] - logs[..., :, None])
    return triu(w, 1) + tril(w, -1)


def _adjugate(xp, a):
    # det·inv is the adjugate of a matrix that differs by a rounding error, also near singular
    # ones: both come from the same triangular factors.
    sign, log = xp.slogdet(a)
    if not (sign == 0).any():
        return as_factor(sign * xp.exp(log)) * xp.inv(a)
    u, s, vh = xp.svd(a, True)
    middle = _products_without_one(xp, s)[..., None] * adjoint(u)
    return as_factor(xp.det(matmul(u, vh))) * matmul(adjoint(vh), middle)


def _adjugate_pull(g, _y, a):
    return (adjoint(adjugate_tangent(a, adjoint(g))),)


adjugate = lapack(
    "adjugate",
    compute=_adjugate,
    shape=same_square("adjugate"),
    push=lambda tangents, _y, a: adjugate_tangent(a, tangents[0]),
    pull=_adjugate_pull,
    sample=samples.determinants,
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


invertible = linear(
    "invertible",
    compute=_invertible,
    shape=same_square("invertible"),
    transpose=[lambda g, _a: g],
    sample=samples.regular,
)


def _adjugate_tangent_push(tangents, _y, a, e):
    da, de = tangents
    parts = [] if de is None else [adjugate_tangent(a, de)]
    if da is not None:
        y = inv(invertible(a))
        x, z, d = matmul(y, e), matmul(y, da), as_factor(det(a))
        first, second = as_factor(trace(x)), as_factor(trace(z))
        both = as_factor(trace_of_product(z, x))
        mixed = matmul(matmul(z, x) + matmul(x, z) - first * z - second * x, y)
        parts.append(d * (mixed + (first * second - both) * y))
    return sum(parts[1:], parts[0])


adjugate_tangent = lapack(
    "adjugate_tangent",
    arity=2,
    compute=_adjugate_tangent,
    shape=lambda a, e: square("adjugate_tangent", a).like(broadcast("det", a.shape, e.shape)),
    push=_adjugate_tangent_push,
    sample=samples.directed,
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
    return (as_factor(sum(parts[1:], parts[0])) * adjoint(inv(a)) if parts else None,)


slogdet = lapack(
    "slogdet",
    shape=_slogdet_shape,
    push=_slogdet_push,
    pull=_slogdet_pull,
    outputs=2,
    tracked=(0, 1),
    sample=samples.slogdet,
)


