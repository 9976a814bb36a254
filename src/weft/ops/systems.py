"""Rows: inverses and linear systems."""

from ..core import dtypes
from ..core.aval import Aval, broadcast
from ..core.op import Caller
from ..core.types import Array
from ..errors import ShapeError
from .arrange import tril, triu
from .axes import real_floating
from .batching import Stacked, all_spread
from .batching_linalg import RightSides
from .contract import adjoint, matmul
from .matrix import fit_cotangent, lapack, matrices, same_square, square, stacks
from .rows import row_without_derivative
from .samples import linalg as samples


def _inv_pull(g, y, a):
    h = adjoint(y)
    return (-matmul(matmul(h, g), h),)


inv: Caller = lapack(
    "inv",
    shape=same_square("inv"),
    push=lambda tangents, y, a: -matmul(matmul(y, tangents[0]), y),
    pull=_inv_pull,
    reads="y",
    sample=samples("regular"),
)


def _system(name: str):
    """The shape rule of AX = B."""

    def shape(a: Aval, b: Aval, *_static) -> Aval:
        a, b = square(name, a), matrices(name, b)
        if a.shape[-1] != b.shape[-2]:
            shown = f"{name}: {a.shape} and right sides {b.shape}"
            raise ShapeError(f"{shown}: {a.shape[-1]} ≠ {b.shape[-2]}")
        return b.like((*stacks(name, a, b), *b.shape[-2:]), dtypes.promote(a.dtype, b.dtype))

    return shape


def _change(tangents, x, part):
    """dB − dA·X, the right side of the system for the tangent of a solution X."""
    da, db = tangents
    if da is None:
        return db
    moved = matmul(part(da), x)
    return -moved if db is None else db - moved


def _whole(a):
    return a


def _solve_push(tangents, x, a, b):
    return solve_matrix(a, _change(tangents, x, _whole))


def _solve_pull(g, x, a, b):
    gb = solve_matrix(adjoint(a), g)
    return fit_cotangent(-matmul(gb, adjoint(x)), a), fit_cotangent(gb, b)


solve_matrix: Caller = lapack(
    "solve",
    arity=2,
    shape=_system("solve"),
    push=_solve_push,
    pull=_solve_pull,
    reads="x a",
    batch=RightSides(),
    sample=samples("systems"),
)


def _triangle_of(lower: bool, unit: bool):
    """The part of a matrix that a triangular solver reads."""
    part, first = (tril, -1) if lower else (triu, 1)
    return lambda a: part(a, first if unit else 0)


def _triangular_push(tangents, x, a, b, lower, unit):
    right = _change(tangents, x, _triangle_of(lower, unit))
    return solve_triangle(a, right, lower, unit)


def _triangular_pull(g, x, a, b, lower, unit):
    gb = solve_triangle(adjoint(a), g, not lower, unit)
    return fit_cotangent(_triangle_of(lower, unit)(-matmul(gb, adjoint(x))), a), fit_cotangent(
        gb, b
    )


solve_triangle: Caller = lapack(
    "triangular_solve",
    arity=2,
    shape=_system("triangular_solve"),
    push=_triangular_push,
    pull=_triangular_pull,
    reads="x a",
    batch=RightSides(),
    static=True,
    sample=samples("triangles"),
)


def _of_each(name: str, a: Aval, rtol: Aval) -> Aval:
    """a as a stack of matrices that have a tolerance each, or all the same one."""
    a = matrices(name, a)
    stack = a.shape[:-2]
    if broadcast(f"{name}: tolerances", stack, rtol.shape) != stack:
        raise ShapeError(f"{name}: {a.shape} with tolerances {rtol.shape}, one for each matrix")
    return a


def _of_each_batch(call, size, mapped, args, static):
    a, rtol = all_spread(size, mapped, args) if mapped[1] else args
    return Stacked((2, 0))(call, size, (True, mapped[1]), (a, rtol), static)


def _tolerance(a, rtol):
    """What counts as zero beside the largest singular value: by default its rounding error."""
    if rtol is not None:
        return rtol
    double = real_floating(dtypes.canonical(a.dtype)) == dtypes.float64
    return max(a.shape[-2:], default=1) * 2.0 ** (-52 if double else -23)


def _pinv_shape(a: Aval, rtol: Aval) -> Aval:
    a = _of_each("pinv", a, rtol)
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


def _pinv_push(tangents, y, a, rtol):
    e = tangents[0]
    if e is None:
        return y * 0.0
    return _pinv_change(y, a, adjoint(e)) - matmul(matmul(y, e), y)


def _pinv_pull(g, y, a, rtol):
    h = adjoint(y)
    return adjoint(_pinv_change(y, a, g)) - matmul(matmul(h, g), h), None


# Right where the rank stays the same; elsewhere the inverse itself jumps.
pinv_within: Caller = lapack(
    "pinv",
    arity=2,
    shape=_pinv_shape,
    push=_pinv_push,
    pull=_pinv_pull,
    reads="y a",
    promote=(0,),
    static=True,
    batch=_of_each_batch,
    sample=samples("pinv"),
)


def pinv(a: Array, rtol: Array | None = None) -> Array:
    """The Moore-Penrose inverse; rtol is a number, or a tensor with one for each matrix."""
    return pinv_within(a, _tolerance(a, rtol))


def _rank_shape(a: Aval, rtol: Aval) -> Aval:
    return _of_each("matrix_rank", a, rtol).like(a.shape[:-2], dtypes.int64)


def _rank(xp, a, rtol):
    half = xp.dtype_of(a) in dtypes.HALF
    return xp.matrix_rank(xp.cast(a, dtypes.float32) if half else a, rtol)


rank_within: Caller = row_without_derivative(
    "matrix_rank",
    arity=2,
    compute=_rank,
    shape=_rank_shape,
    promote=(0,),
    floating=True,
    static=True,
    batch=_of_each_batch,
    sample=samples("ranks"),
)


def matrix_rank(a: Array, rtol: Array | None = None) -> Array:
    """How many singular values exceed rtol times the largest one."""
    return rank_within(a, _tolerance(a, rtol))
