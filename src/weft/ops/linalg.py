"""Rows: determinants, inverses, linear systems and triangular factors."""

from ..core import dtypes
from ..core.aval import Aval, broadcast
from ..errors import ShapeError
from .arrange import diagonal, tril, triu
from .contract import adjoint, matmul
from .rows import general
from .samples import linalg as samples
from .slicing import narrow
from .structural import concat, mT, reshape, sum_, unbroadcast


def matrices(name: str, a: Aval) -> Aval:
    """a as a stack of matrices of floating numbers, or an error."""
    if a.ndim < 2:
        raise ShapeError(f"{name}: {a.shape} is no matrix; its shape must be (…, m, n)")
    return a if dtypes.is_inexact(a.dtype) else a.like(dtype=dtypes.default_float())


def square(name: str, a: Aval) -> Aval:
    """a as a stack of square matrices of floating numbers, or an error."""
    a = matrices(name, a)
    if a.shape[-1] != a.shape[-2]:
        raise ShapeError(f"{name}: {a.shape} is not square: {a.shape[-2]} ≠ {a.shape[-1]}")
    return a


def same_square(name: str):
    """The shape rule of functions from square matrices to such."""
    return lambda a, *_static: square(name, a)


def lapack(name: str, *, arity: int = 1, compute=None, static: bool = False, **row):
    """A row that LAPACK computes: floating numbers, and float32 in place of half types."""

    def widened(xp, *args):
        f = getattr(xp, name) if compute is None else compute
        half = xp.dtype_of(args[0])
        if half not in dtypes.HALF:
            return f(*args) if compute is None else f(xp, *args)
        args = [xp.cast(a, dtypes.float32) for a in args[:arity]] + list(args[arity:])
        y = f(*args) if compute is None else f(xp, *args)
        ys = y if isinstance(y, tuple) else (y,)
        ys = [xp.cast(z, half) if xp.dtype_of(z) == dtypes.float32 else z for z in ys]
        return tuple(ys) if isinstance(y, tuple) else ys[0]

    row = {"promote": tuple(range(arity)), "floating": True, "precision": "single"} | row
    return general(name, arity=arity, compute=widened, static=static, **row)


def hermitian(x):
    """(x + xᴴ)/2."""
    return (x + adjoint(x)) * 0.5


def diagonal_of(x):
    """The diagonals of the matrices over the last two axes."""
    return diagonal(x, 0, len(x.shape) - 2, len(x.shape) - 1)


def trace(x, offset: int = 0):
    """The sums of the diagonals of the matrices over the last two axes."""
    d = diagonal(x, offset, len(x.shape) - 2, len(x.shape) - 1)
    return sum_(d, (len(d.shape) - 1,), False)


def trace_of_product(a, b):
    """tr(ab), without the product."""
    n = len(b.shape)
    return sum_(mT(a) * b, (n - 2, n - 1), False)


def as_factor(x):
    """Scalars that are to multiply matrices."""
    return reshape(x, (*x.shape, 1, 1))


def as_row(x):
    """Scalars that are to multiply the columns of matrices."""
    return reshape(x, (*x.shape[:-1], 1, x.shape[-1]))


def columns(x, start: int, stop: int):
    """Some columns of the matrices over the last two axes."""
    return narrow(x, len(x.shape) - 1, start, stop)


def rows(x, start: int, stop: int):
    """Some rows of the matrices over the last two axes."""
    return narrow(x, len(x.shape) - 2, start, stop)


def completed(q, dq):
    """The tangent of an orthonormal basis from that of its first vectors.

    The others, of which only the space counts, turn against those and not among themselves.
    """
    k, n = dq.shape[-1], q.shape[-1]
    if k == n:
        return dq
    against = matmul(columns(q, 0, k), matmul(adjoint(dq), columns(q, k, n)))
    return concat([dq, -against], len(q.shape) - 1)


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


def fitted(g, x):
    """A cotangent for x, which may have been broadcast, or need none."""
    return None if x is None else unbroadcast(g, x.shape)


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


def _of_vectors(solver, a, b, *static):
    """A solver of matrix equations, for one right side too."""
    if len(b.shape) != 1:
        return solver(a, b, *static)
    x = solver(a, reshape(b, (*b.shape, 1)), *static)
    return reshape(x, x.shape[:-1])


def solve(a, b):
    """The x of ax = b; b is one vector, or matrices (…, n, k) whose columns are right sides."""
    return _of_vectors(solve_matrix, a, b)


def triangular_solve(a, b, *, lower: bool = True, unit_diagonal: bool = False):
    """The x of ax = b for triangular a; the other triangle of a is not read."""
    return _of_vectors(solve_triangle, a, b, lower, unit_diagonal)
