"""Linear algebra that is made of other operations."""

from collections.abc import Callable
from math import inf
from typing import Any, NamedTuple

from ..core.autocast import SINGLE, computed_in
from ..core.types import Array
from ..errors import ArgumentError, ShapeError
from .complex_ import abs_, conj, real
from .contract import matmul
from .matrix import identity_like
from .reduce import amax, amin, norm
from .slicing import narrow
from .spectral import svdvals
from .structural import reshape, sum_
from .systems import inv, matrix_rank, pinv, solve_matrix, solve_triangle


def _of_vectors(solver, a, b, *static):
    """A solver of matrix equations, extended to a vector as the right side."""
    if len(b.shape) != 1:
        return solver(a, b, *static)
    x = solver(a, reshape(b, (*b.shape, 1)), *static)
    return reshape(x, x.shape[:-1])


def solve(a: Array, b: Array) -> Array:
    """The x of ax = b; b is one vector, or matrices (…, n, k) whose columns are right sides."""
    return _of_vectors(solve_matrix, a, b)


def triangular_solve(
    a: Array, b: Array, *, lower: bool = True, unit_diagonal: bool = False
) -> Array:
    """The x of ax = b for triangular a; the other triangle of a is not read."""
    return _of_vectors(solve_triangle, a, b, lower, unit_diagonal)


class LeastSquares(NamedTuple):
    """The solution, the sums of squared residuals, and the rank and singular values of a."""

    solution: Any
    residuals: Any
    rank: Any
    singular_values: Any


@computed_in(SINGLE)
def lstsq(
    a: Array, b: Array, rtol: float | None = None, inverse: Callable[..., Array] = pinv
) -> LeastSquares:
    """The x of least norm that minimises ‖ax − b‖; b is one vector, or matrices (…, m, k).

    As in NumPy there is one residual for each right side, and none where a has no more rows
    than columns.
    """
    x = _of_vectors(lambda a, b: matmul(inverse(a, rtol), b), a, b)
    r = b - matmul(a, x)
    squares = real(r * conj(r))
    one = len(b.shape) == 1
    squares = sum_(squares, (len(r.shape) - (1 if one else 2),), one)
    if a.shape[-2] <= a.shape[-1]:
        squares = narrow(squares, len(squares.shape) - 1, 0, 0)
    return LeastSquares(x, squares, matrix_rank(a, rtol), svdvals(a))


@computed_in(SINGLE)
def matrix_power(a: Array, n: int) -> Array:
    """a·a·…·a, n times; of the inverse for negative n."""
    if len(a.shape) < 2 or a.shape[-1] != a.shape[-2]:
        raise ShapeError(f"matrix_power: {tuple(a.shape)} is not square")
    if n == 0:
        return identity_like(a)
    square, power = inv(a) if n < 0 else a, None
    n = abs(n)
    while n:
        if n % 2:
            power = square if power is None else matmul(power, square)
        n //= 2
        if n:
            square = matmul(square, square)
    return power


def matrix_norm(x: Array, ord: str | float | None = "fro", keepdims: bool = False) -> Array:
    """A norm of the matrices over the last two axes: fro, nuc, 1, 2, inf, -1, -2 or -inf.

    At 0, and at singular values that are 0, its derivative is 0.
    """
    if len(x.shape) < 2:
        raise ShapeError(f"matrix_norm: {tuple(x.shape)} is no matrix (…, m, n)")
    n = len(x.shape)
    if ord in (None, "fro"):
        return norm(x, (n - 2, n - 1), keepdims)
    if ord in ("nuc", 2, -2):
        y = _singular_value_norm(x, ord)
    elif ord in (1, -1, inf, -inf):
        sums = sum_(abs_(x), (n - 2 if abs(ord) == 1 else n - 1,), False)
        y = (amax if ord > 0 else amin)(sums, (n - 2,), False)
    else:
        raise ArgumentError(
            f"matrix_norm: ord {ord!r}, expected 'fro', 'nuc', 1, 2, inf, -1, -2 or -inf"
        )
    return reshape(y, (*y.shape, 1, 1)) if keepdims else y


def _singular_value_norm(x, ord) -> Any:
    # The derivative of a singular value jumps at 0, as that of abs does.
    s = abs_(svdvals(x))
    last = (len(s.shape) - 1,)
    if ord == "nuc":
        return sum_(s, last, False)
    return (amax if ord > 0 else amin)(s, last, False)


def cond(x: Array, p: str | float | None = None) -> Array:
    """‖x‖·‖x⁻¹‖; without p the ratio of the largest and the smallest singular value."""
    if p in (None, 2):
        return matrix_norm(x, 2) / matrix_norm(x, -2)
    if p == -2:
        return matrix_norm(x, -2) / matrix_norm(x, 2)
    return matrix_norm(x, p) * matrix_norm(inv(x), p)
