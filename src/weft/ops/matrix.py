"""What the rows of linear algebra share: shape rules, and matrices over the last two axes."""

from collections.abc import Callable, Sequence
from typing import Any

from ..core import dtypes
from ..core.aval import Aval, broadcast
from ..core.op import Caller
from ..core.types import Array
from ..errors import ShapeError
from .arrange import diagonal
from .batching import Stacked
from .contract import adjoint, matmul
from .rows import Formula, general
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


def same_square(name: str) -> Callable[..., Aval]:
    """The shape rule of functions from square matrices to such."""
    return lambda a, *static: square(name, a)


def stacks(name: str, *avals: Aval) -> tuple[int, ...]:
    """The axes that several stacks of matrices have in common, by broadcasting."""
    shown = f"{name}: stacks {', '.join(str(a.shape) for a in avals)}"
    return broadcast(shown, *(a.shape[:-2] for a in avals))


def lapack(
    name: str, *, arity: int = 1, compute: Formula | None = None, static: bool = False, **row: Any
) -> Caller:
    """A row that LAPACK computes: floating numbers, and float32 in place of half types."""

    def widened(xp, *args):
        f = getattr(xp, name) if compute is None else compute
        half = xp.dtype_of(args[0])
        if half not in dtypes.HALF:
            return f(*args) if compute is None else f(xp, *args)
        args = [xp.cast(a, dtypes.float32) if k in promoted else a for k, a in enumerate(args)]
        y = f(*args) if compute is None else f(xp, *args)
        ys = y if isinstance(y, tuple) else (y,)
        ys = [xp.cast(z, half) if xp.dtype_of(z) == dtypes.float32 else z for z in ys]
        return tuple(ys) if isinstance(y, tuple) else ys[0]

    promoted = row.setdefault("promote", tuple(range(arity)))
    usual: dict[str, Any] = {
        "floating": True,
        "precision": "single",
        "batch": Stacked((2,) * arity),
    }
    return general(name, arity=arity, compute=widened, static=static, **usual | row)


def total(parts: Sequence[Array]) -> Array:
    """The sum of some arrays, of which there is at least one."""
    return sum(parts[1:], parts[0])


def hermitian(x: Array) -> Array:
    """(x + xᴴ)/2."""
    return (x + adjoint(x)) * 0.5


def diagonal_of(x: Array) -> Array:
    """The diagonals of the matrices over the last two axes."""
    return diagonal(x, 0, len(x.shape) - 2, len(x.shape) - 1)


def trace(x: Array, offset: int = 0) -> Array:
    """The sums of the diagonals of the matrices over the last two axes."""
    d = diagonal(x, offset, len(x.shape) - 2, len(x.shape) - 1)
    return sum_(d, (len(d.shape) - 1,), False)


def trace_of_product(a: Array, b: Array) -> Array:
    """tr(ab), without the product."""
    products = mT(a) * b
    n = len(products.shape)
    return sum_(products, (n - 2, n - 1), False)


def as_factor(x: Array) -> Array:
    """Scalars with two axes appended, to multiply matrices."""
    return reshape(x, (*x.shape, 1, 1))


def as_row(x: Array) -> Array:
    """Scalars with a row axis inserted, to multiply the columns of matrices."""
    return reshape(x, (*x.shape[:-1], 1, x.shape[-1]))


def columns(x: Array, start: int, stop: int) -> Array:
    """Some columns of the matrices over the last two axes."""
    return narrow(x, len(x.shape) - 1, start, stop)


def rows(x: Array, start: int, stop: int) -> Array:
    """Some rows of the matrices over the last two axes."""
    return narrow(x, len(x.shape) - 2, start, stop)


def complete_basis_tangent(q: Array, dq: Array) -> Array:
    """The tangent of an orthonormal basis from that of its first vectors.

    Of the others only the span matters: they rotate against the first ones, not among themselves.
    """
    k, n = dq.shape[-1], q.shape[-1]
    if k == n:
        return dq
    against = matmul(columns(q, 0, k), matmul(adjoint(dq), columns(q, k, n)))
    return concat([dq, -against], len(q.shape) - 1)


def for_first(q: Array, g: Array, k: int) -> Array:
    """The transpose of `complete_basis_tangent`: from the whole basis to its first vectors."""
    n = q.shape[-1]
    if n == k:
        return g
    against = matmul(adjoint(columns(g, k, n)), columns(q, 0, k))
    return columns(g, 0, k) - matmul(columns(q, k, n), against)


def fit_cotangent(g: Array, x: Array | None) -> Array | None:
    """A cotangent summed to the shape of x; None where x needs none."""
    return None if x is None else unbroadcast(g, x.shape)


identity_like: Caller = general(
    "identity_like",
    reads="",
    arity=1,
    shape=same_square("identity_like"),
    push=lambda tangents, y, a: tangents[0] * 0,
    pull=lambda g, y, a: (None,),
    moves="values",
    batch=Stacked((2,)),
    sample=samples("regular"),
)
