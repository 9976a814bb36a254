"""Rows: inverses and linear systems."""

from ..core import dtypes
from ..core.aval import Aval, broadcast
from ..core.value import TENSORS
from ..errors import ShapeError
from .arrange import tril, triu
from .contract import adjoint, matmul
from .matrix import fitted, lapack, matrices, same_square, square
from .rows import undifferentiated
from .samples import linalg as samples


def _inv_pull(g, y, _a):
    h = adjoint(y)
    return (-matmul(matmul(h, g), h),)


inv = lapack(
    "inv",
    shape=same_square("inv"),
    push=lambda tangents, y, _a: -matmul(matmul(y, tangents[0]), y),
    pull=_inv_pull,
    sample=samples.regular,
)


def _system(name: str):
    """The shape rule of AX = B."""

    def shape(a: Aval, b: Aval, *_static) -> Aval:
        a, b = square(name, a), matrices(name, b)
        shown = f"{name}: {a.shape} and right sides {b.shape}"
        if a.shape[-1] != b.shape[-2]:
            raise ShapeError(f"{shown}: {a.shape[-1]} ≠ {b.shape[-2]}")
        batch = broadcast(shown, a.shape[:-2], b.shape[:-2])
        return b.like((*batch, *b.shape[-2:]), dtypes.promote(a.dtype, b.dtype))

    return shape


def _change(tangents, x, part):
    """dB − dA·X, the right side that the tangent of a solution X has."""
    da, db = tangents
    if da is None:
        return db
    moved = matmul(part(da), x)
    return -moved if db is None else db - moved


def _whole(a):
    return a


def _solve_push(tangents, x, a, _b):
    return solve_matrix(a, _change(tangents, x, _whole))


def _solve_pull(g, x, a, _b):
    gb = solve_matrix(adjoint(a), g)
    return fitted(-matmul(gb, adjoint(x)), a), fitted(gb, _b)


solve_matrix = lapack(
    "solve",
    arity=2,
    shape=_system("solve"),
    push=_solve_push,
    pull=_solve_pull,
    sample=samples.systems,
)


def _triangle_of(lower: bool, unit: bool):
    """The part of a matrix that a triangular solver reads."""
    part, first = (tril, -1) if lower else (triu, 1)
    return lambda a: part(a, first if unit else 0)


def _triangular_push(tangents, x, a, _b, lower, unit):
    right = _change(tangents, x, _triangle_of(lower, unit))
    return solve_triangle(a, right, lower, unit)


def _triangular_pull(g, x, a, _b, lower, unit):
    gb = solve_triangle(adjoint(a), g, not lower, unit)
    return fitted(_triangle_of(lower, unit)(-matmul(gb, adjoint(x))), a), fitted(gb, _b)


solve_triangle = lapack(
    "triangular_solve",
    arity=2,
    shape=_system("triangular_solve"),
    push=_triangular_push,
    pull=_triangular_pull,
    static=True,
    sample=samples.triangles,
)


def _pinv_shape(a: Aval, rtol) -> Aval:
    a = matrices("pinv", a)
    return a.like((*a.shape[:-2], a.shape[-1], a.shape[-2]))


def _beside(p, a, e):
    """PPᴴE(1 − AP) + (1 − PA)EPᴴP, for A with no fewer rows than columns."""
    w = matmul(e, adjoint(p))
    first = matmul(matmul(p, adjoint(p)), e - matmul(matmul(e, a), p))
    return first + matmul(w - matmul(matmul(p, a), w), p)


def _pinv_change(p, a, e):
    if a.shape[-2] < a.shape[-1]:
        return adjoint(_beside(adjoint(p), adjoint(a), adjoint(e)))
    return _beside(p, a, e)


def _pinv_push(tangents, y, a, _rtol):
    e = tangents[0]
    return _pinv_change(y, a, adjoint(e)) - matmul(matmul(y, e), y)


def _pinv_pull(g, y, a, _rtol):
    h = adjoint(y)
    return (adjoint(_pinv_change(y, a, g)) - matmul(matmul(h, g), h),)


def _raw(rtol):
    """A tolerance for each matrix of a batch may come as a tensor."""
    return rtol._data if type(rtol) in TENSORS else rtol


# Right where the rank stays the same; elsewhere the inverse itself jumps.
pinv = lapack(
    "pinv",
    compute=lambda xp, a, rtol: xp.pinv(a, _raw(rtol)),
    shape=_pinv_shape,
    push=_pinv_push,
    pull=_pinv_pull,
    static=True,
    sample=samples.pinv,
)


def _rank_shape(a: Aval, rtol) -> Aval:
    return matrices("matrix_rank", a).like(a.shape[:-2], dtypes.int64)


def _rank(xp, a, rtol):
    half = xp.dtype_of(a) in dtypes.HALF
    return xp.matrix_rank(xp.cast(a, dtypes.float32) if half else a, _raw(rtol))


matrix_rank = undifferentiated(
    "matrix_rank",
    compute=_rank,
    shape=_rank_shape,
    promote=(0,),
    floating=True,
    static=True,
    sample=samples.ranks,
)
