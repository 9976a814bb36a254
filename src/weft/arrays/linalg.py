"""Public linear algebra: `wf.linalg`, under the Array API's and NumPy's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Never

from .. import errors
from ..core.aval import integer_in
from ..core.box import BOXED
from ..ops import contract, determinant, factor, matrix_functions, spectral
from ..ops import linalg as _linalg
from .arguments import as_tensor, axes_of
from .elementwise import where as _where
from .keywords import checks_keywords, unexpected_keyword
from .manipulation import diagonal as _diagonal
from .manipulation import matrix_transpose as matrix_transpose
from .manipulation import moveaxis
from .reductions import norm as _norm
from .spellings import module_attribute as _module_attribute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .tensor import Tensor
    from .types import ArrayLike, Axes, DTypeLike

__all__ = """
    cholesky cond cross det diagonal dot eig eigh eigvals eigvalsh einsum expm inner inv kron logm
    lstsq lu matmul matrix_norm matrix_power matrix_rank matrix_transpose multi_dot norm outer pinv
    qr slogdet solve solve_triangular sqrtm svd svdvals tensordot trace triangular_solve vdot vecdot
    vector_norm
""".split()


class EighResult(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class EigResult(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    Q: Tensor
    R: Tensor


class LUResult(NamedTuple):
    P: Tensor
    L: Tensor
    U: Tensor


class SlogdetResult(NamedTuple):
    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    U: Tensor
    S: Tensor
    Vh: Tensor


class LstsqResult(NamedTuple):
    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def matmul(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The matrix product Σₖ aᵢₖ·bₖⱼ, batched over leading axes, which broadcast.

    a, b  matrices (…, n, k) and (…, k, m); a vector counts as a row on the left, a column on
          the right

    >>> import weft as wf
    >>> wf.matmul([[1.0, 2.0], [3.0, 4.0]], [1.0, 1.0]).tolist()
    [3.0, 7.0]
    """
    return contract.matmul(as_tensor(a), as_tensor(b))


def einsum(subscripts: str, /, *operands: ArrayLike) -> Tensor:
    """Sums of products by Einstein's notation, contracted in a cheap order.

    subscripts  one letter for each axis of each operand, and after -> those of the result;
                letters that are not there are summed over; `...` stands for further axes
    operands    an array for each group of letters

    >>> import weft as wf
    >>> wf.einsum("ij,j->i", wf.ones((2, 3)), wf.ones(3)).tolist()
    [3.0, 3.0]
    """
    if not isinstance(subscripts, str):
        got = type(subscripts).__name__
        raise errors.DTypeError(f"einsum: subscripts of type {got}, expected a string: 'ij,j->i'")
    return contract.einsum(subscripts, *map(as_tensor, operands))


@checks_keywords
def tensordot(
    a: ArrayLike,
    b: ArrayLike,
    /,
    *,
    axes: int | Sequence[int] | tuple[Sequence[int], Sequence[int]] = 2,
) -> Tensor:
    """The sum of products over pairs of axes.

    a, b  arrays
    axes  how many of the last axes of a are paired with the first of b; or two sequences, the
          axes of a and those of b

    >>> import weft as wf
    >>> wf.tensordot([[1.0, 2.0], [3.0, 4.0]], [1.0, 10.0], axes=1).tolist()
    [21.0, 43.0]
    """
    if not isinstance(axes, int):
        several = hasattr(axes, "__len__") and not isinstance(axes, str)
        if not several or len(axes) != 2:
            fault = errors.ArgumentError if several else errors.DTypeError
            raise fault(f"tensordot: axes {axes!r}, expected an integer or two sequences")
    return contract.tensordot(as_tensor(a), as_tensor(b), axes)


def outer(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The products aᵢ·bⱼ of all pairs of elements of two vectors.

    a, b  vectors

    >>> import weft as wf
    >>> wf.outer([1.0, 2.0], [3.0, 4.0]).tolist()
    [[3.0, 4.0], [6.0, 8.0]]
    """
    return contract.outer(as_tensor(a), as_tensor(b))


def inner(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """Σₖ a…ₖ·b…ₖ over the last axes, for all pairs of what is before them.

    a, b  arrays whose last axes have one length, or numbers

    >>> import weft as wf
    >>> wf.inner([1.0, 2.0], [[3.0, 4.0], [5.0, 6.0]]).tolist()
    [11.0, 17.0]
    """
    return contract.inner(as_tensor(a), as_tensor(b))


def dot(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """NumPy's dot: Σ aᵢ·bᵢ of vectors, the product of matrices, or a product with a number.

    a, b  arrays; the last axis of a is summed with the second last of b

    >>> import weft as wf
    >>> wf.dot([1.0, 2.0], [3.0, 4.0]).item()
    11.0
    """
    return contract.dot(as_tensor(a), as_tensor(b))


def vdot(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """Σ conj(aᵢ)·bᵢ over all elements.

    a, b  arrays of one size, which are flattened

    >>> import weft as wf
    >>> wf.vdot([1j, 2.0], [1j, 3.0]).item()
    (7+0j)
    """
    return contract.vdot(as_tensor(a), as_tensor(b))


@checks_keywords
def vecdot(a: ArrayLike, b: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """Σ conj(aᵢ)·bᵢ along an axis.

    a, b  arrays, which broadcast
    axis  the axis of the vectors

    >>> import weft as wf
    >>> wf.vecdot([[1.0, 2.0], [3.0, 4.0]], [1.0, 10.0]).tolist()
    [21.0, 43.0]
    """
    return contract.vecdot(as_tensor(a), as_tensor(b), axis)


def kron(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The Kronecker product: b multiplied by each element of a, as blocks of one matrix.

    a, b  arrays

    >>> import weft as wf
    >>> wf.kron([1.0, 10.0], [1.0, 2.0]).tolist()
    [1.0, 2.0, 10.0, 20.0]
    """
    return contract.kron(as_tensor(a), as_tensor(b))


@checks_keywords
def cross(a: ArrayLike, b: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """The cross product a × b of vectors in three dimensions.

    a, b  arrays, which broadcast
    axis  the axis of the vectors, of length 3

    >>> import weft as wf
    >>> wf.cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]).tolist()
    [0.0, 0.0, 1.0]
    """
    return contract.cross(as_tensor(a), as_tensor(b), axis)


def multi_dot(arrays: Sequence[ArrayLike] | Tensor, /) -> Tensor:
    """The product a₁·a₂·…·aₙ of several matrices, in a cheap order.

    arrays  matrices whose sizes fit

    >>> import weft as wf
    >>> wf.linalg.multi_dot([[[1.0, 2.0]], [[3.0], [4.0]], [[5.0]]]).tolist()
    [[55.0]]
    """
    n = len(arrays)
    letters = "abcdefghijklmnopqrstuvwxyz"
    terms = ",".join(letters[i : i + 2] for i in range(n))
    return einsum(f"{terms}->{letters[0]}{letters[n]}", *arrays)


def trace(
    x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None, **unknown: Never
) -> Tensor:
    """The sum Σ xᵢᵢ of a diagonal over the last two axes.

    x       an array whose last two axes are matrices
    offset  0 is the main diagonal, above it are positive numbers, below it negative ones
    dtype   what the sum is made in and returned as; None: that of x, 64 bits for integers

    >>> import weft as wf
    >>> wf.trace([[1.0, 2.0], [3.0, 4.0]]).item()
    5.0
    """
    if unknown:
        raise unexpected_keyword(trace, unknown)
    return _diagonal(x, offset=offset, axis1=-2, axis2=-1).sum(axis=-1, dtype=dtype)


def diagonal(x: ArrayLike, /, *, offset: int = 0, **unknown: Never) -> Tensor:
    """The diagonals xᵢᵢ of the matrices in the last two axes.

    x       an array whose last two axes are matrices
    offset  0 is the main diagonal, above it are positive numbers, below it negative ones

    >>> import weft as wf
    >>> wf.linalg.diagonal([[1.0, 2.0], [3.0, 4.0]]).tolist()
    [1.0, 4.0]
    """
    if unknown:
        raise unexpected_keyword(diagonal, unknown)
    return _diagonal(x, offset=offset, axis1=-2, axis2=-1)


def det(x: ArrayLike, /) -> Tensor:
    """The determinant; its derivative, the cofactors, is right for singular matrices too.

    x  square matrices (…, n, n)

    >>> import weft as wf
    >>> round(wf.linalg.det([[1.0, 2.0], [3.0, 4.0]]).item(), 4)
    -2.0
    """
    return determinant.det(as_tensor(x))


def slogdet(x: ArrayLike, /) -> SlogdetResult:
    """The determinant's sign (its phase, if complex) and the logarithm of its size.

    x  square matrices (…, n, n)

    The result is a named tuple (sign, logabsdet) with det(x) = sign·exp(logabsdet).

    >>> import weft as wf
    >>> sign, size = wf.linalg.slogdet([[2.0, 0.0], [0.0, -3.0]])
    >>> sign.item(), round(size.item(), 4)
    (-1.0, 1.7918)
    """
    return SlogdetResult(*determinant.slogdet(as_tensor(x)))


def inv(x: ArrayLike, /) -> Tensor:
    """The inverse x⁻¹, with x·x⁻¹ the identity.

    x  square matrices (…, n, n); a singular one is an error

    >>> import weft as wf
    >>> wf.linalg.inv([[2.0, 0.0], [0.0, 4.0]]).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return _linalg.inv(as_tensor(x))


def pinv(x: ArrayLike, /, *, rtol: ArrayLike | None = None) -> Tensor:
    """The Moore-Penrose inverse V·S⁺·Uᴴ of x = U·S·Vᴴ.

    x     matrices (…, m, n)
    rtol  singular values below rtol·largest count as zero; None: max(m, n)·eps

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.linalg.pinv([[1.0], [2.0]])[0].tolist()]
    [0.2, 0.4]
    """
    return _inverse(as_tensor(x), rtol)


def _inverse(x, rtol):
    if rtol is not None and (x.requires_grad or x.__class__ in BOXED):
        return _truncated_inverse(x, rtol)
    return _linalg.pinv(x, rtol)


def _truncated_inverse(x, rtol):
    """V·S⁺·Uᴴ: with singular values that are dropped and not zero, the row's rule does not hold."""
    u, s, vh = svd(x, full_matrices=False)
    rtol = rtol.reshape((*rtol.shape, 1)) if hasattr(rtol, "reshape") else rtol
    kept = s > rtol * s.max(axis=-1, keepdims=True) if s.shape[-1] else s > 0
    inverse = _where(kept, 1 / _where(kept, s, 1.0), 0.0)
    return (vh.mH * inverse[..., None, :].to(vh.dtype)) @ u.mH


def solve(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The x of a·x = b.

    a  square matrices (…, n, n)
    b  one vector (n,), or matrices (…, n, k) whose columns are right sides

    >>> import weft as wf
    >>> wf.linalg.solve([[2.0, 0.0], [0.0, 4.0]], [2.0, 2.0]).tolist()
    [1.0, 0.5]
    """
    return _linalg.solve(as_tensor(a), as_tensor(b))


def solve_triangular(
    a: ArrayLike, b: ArrayLike, /, *, lower: bool = False, unit_diagonal: bool = False
) -> Tensor:
    """The x of a·x = b for a triangular matrix; the other triangle is not looked at.

    a              square matrices (…, n, n)
    b              one vector (n,), or matrices (…, n, k) whose columns are right sides
    lower          whether a is the lower triangle; SciPy's default is the upper one
    unit_diagonal  whether the diagonal counts as ones, and is not looked at

    >>> import weft as wf
    >>> wf.linalg.solve_triangular([[1.0, 2.0], [0.0, 4.0]], [4.0, 4.0]).tolist()
    [2.0, 1.0]
    """
    return _linalg.triangular_solve(
        as_tensor(a), as_tensor(b), lower=lower, unit_diagonal=unit_diagonal
    )


def triangular_solve(
    a: ArrayLike, b: ArrayLike, /, *, lower: bool = True, unit_diagonal: bool = False
) -> Tensor:
    """The x of a·x = b for a triangular matrix: `solve_triangular`, lower by default.

    a              square matrices (…, n, n)
    b              one vector (n,), or matrices (…, n, k) whose columns are right sides
    lower          whether a is the lower triangle
    unit_diagonal  whether the diagonal counts as ones, and is not looked at

    >>> import weft as wf
    >>> wf.linalg.triangular_solve([[1.0, 0.0], [2.0, 4.0]], [1.0, 6.0]).tolist()
    [1.0, 1.0]
    """
    return solve_triangular(a, b, lower=lower, unit_diagonal=unit_diagonal)


def lstsq(a: ArrayLike, b: ArrayLike, /, *, rcond: float | None = None) -> LstsqResult:
    """The x that minimises ‖a·x − b‖, of least norm if there are several.

    a      matrices (…, m, n)
    b      one vector (m,), or matrices (…, m, k) whose columns are right sides
    rcond  singular values below rcond·largest count as zero; None: max(m, n)·eps

    The result is a named tuple (solution, residuals, rank, singular_values).

    >>> import weft as wf
    >>> fit = wf.linalg.lstsq([[1.0], [1.0]], [1.0, 3.0])
    >>> [round(v, 4) for v in fit.solution.tolist()], fit.rank.item()
    ([2.0], 1)
    """
    a, b = as_tensor(a), as_tensor(b)
    rows = b.shape[0] if b.ndim == 1 else b.shape[-2] if b.ndim else None
    if a.ndim < 2 or a.shape[-2] != rows:
        raise errors.ShapeError(
            f"lstsq: {a.shape} and right sides {b.shape}; expected as many rows in both"
        )
    return LstsqResult(*_linalg.lstsq(a, b, rcond, _inverse))


def cholesky(x: ArrayLike, /, *, upper: bool = False) -> Tensor:
    """The lower triangle L with L·Lᴴ = (x + xᴴ)/2.

    x      positive definite matrices (…, n, n); others are an error
    upper  whether the result is Lᴴ

    >>> import weft as wf
    >>> wf.linalg.cholesky([[4.0, 2.0], [2.0, 5.0]]).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    return factor.cholesky(as_tensor(x), upper)


def qr(x: ArrayLike, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """x = Q·R with orthonormal columns Q and an upper triangle R.

    x     matrices (…, m, n)
    mode  "reduced": Q is (m, min(m, n)); "complete": Q is (m, m)

    The result is a named tuple (Q, R).

    >>> import weft as wf
    >>> q, r = wf.linalg.qr([[3.0], [4.0]])
    >>> q.shape, round(abs(r.item()), 4)
    ((2, 1), 5.0)
    """
    if mode not in ("reduced", "complete"):
        raise errors.ArgumentError(f"qr: mode={mode!r}, expected 'reduced' or 'complete'")
    return QRResult(*factor.qr(as_tensor(x), mode))


def lu(x: ArrayLike, /) -> LUResult:
    """x = P·L·U with a permutation P, a unit lower triangle L and an upper triangle U.

    x  matrices (…, m, n)

    The result is a named tuple (P, L, U).

    >>> import weft as wf
    >>> p, l, u = wf.linalg.lu([[0.0, 2.0], [1.0, 3.0]])
    >>> p.tolist(), u.tolist()
    ([[0.0, 1.0], [1.0, 0.0]], [[1.0, 3.0], [0.0, 2.0]])
    """
    return LUResult(*factor.lu(as_tensor(x)))


def eigh(x: ArrayLike, /) -> EighResult:
    """Eigenvalues w, ascending, and orthonormal eigenvectors V of h = (x + xᴴ)/2: h·V = V·diag(w).

    x  Hermitian matrices (…, n, n)

    The result is a named tuple (eigenvalues, eigenvectors). Functions that are symmetric in
    repeated eigenvalues have finite, right gradients.

    >>> import weft as wf
    >>> w, v = wf.linalg.eigh([[2.0, 0.0], [0.0, 1.0]])
    >>> w.tolist()
    [1.0, 2.0]
    """
    return EighResult(*spectral.eigh(as_tensor(x)))


def eigvalsh(x: ArrayLike, /) -> Tensor:
    """The eigenvalues of (x + xᴴ)/2, ascending.

    x  Hermitian matrices (…, n, n)

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.linalg.eigvalsh([[0.0, 1.0], [1.0, 0.0]]).tolist()]
    [-1.0, 1.0]
    """
    return spectral.eigvalsh(as_tensor(x))


def eig(x: ArrayLike, /) -> EigResult:
    """Eigenvalues w and eigenvectors V, complex: x·V = V·diag(w).

    x  square matrices (…, n, n)

    The result is a named tuple (eigenvalues, eigenvectors), in no particular order.

    >>> import weft as wf
    >>> w, v = wf.linalg.eig([[2.0, 0.0], [0.0, 1.0]])
    >>> sorted(w.real.tolist())
    [1.0, 2.0]
    """
    return EigResult(*spectral.eig(as_tensor(x)))


def eigvals(x: ArrayLike, /) -> Tensor:
    """The eigenvalues of a square matrix, complex, in no particular order.

    x  square matrices (…, n, n)

    >>> import weft as wf
    >>> sorted(wf.linalg.eigvals([[2.0, 0.0], [0.0, 1.0]]).real.tolist())
    [1.0, 2.0]
    """
    return spectral.eigvals(as_tensor(x))


def svd(x: ArrayLike, /, *, full_matrices: bool = True) -> SVDResult:
    """x = U·diag(S)·Vh with orthonormal U and Vhᴴ and descending singular values S ≥ 0.

    x              matrices (…, m, n)
    full_matrices  whether U is (m, m) and Vh (n, n); else they have min(m, n) columns and rows

    The result is a named tuple (U, S, Vh).

    >>> import weft as wf
    >>> u, s, vh = wf.linalg.svd([[3.0, 0.0], [0.0, -4.0]])
    >>> [round(v, 4) for v in s.tolist()]
    [4.0, 3.0]
    """
    return SVDResult(*spectral.svd(as_tensor(x), full_matrices))


def svdvals(x: ArrayLike, /) -> Tensor:
    """The singular values of x, descending.

    x  matrices (…, m, n)

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.linalg.svdvals([[3.0, 0.0], [0.0, -4.0]]).tolist()]
    [4.0, 3.0]
    """
    return spectral.svdvals(as_tensor(x))


def expm(x: ArrayLike, /) -> Tensor:
    """The matrix exponential Σ xᵏ/k!.

    x  square matrices (…, n, n)

    >>> import weft as wf
    >>> wf.linalg.expm([[0.0, 1.0], [0.0, 0.0]]).tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """
    return matrix_functions.expm(as_tensor(x))


def logm(x: ArrayLike, /) -> Tensor:
    """The principal matrix logarithm: the y with expm(y) = x and eigenvalues of |Im| < π.

    x  square matrices (…, n, n) without eigenvalues in (−∞, 0]

    >>> import weft as wf
    >>> wf.linalg.logm(wf.eye(2)).real.tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    return matrix_functions.logm(as_tensor(x))


def sqrtm(x: ArrayLike, /) -> Tensor:
    """The principal matrix square root: the y with y·y = x and eigenvalues of Re ≥ 0.

    x  square matrices (…, n, n)

    >>> import weft as wf
    >>> wf.linalg.sqrtm([[4.0, 0.0], [0.0, 9.0]]).real.tolist()
    [[2.0, 0.0], [0.0, 3.0]]
    """
    return matrix_functions.sqrtm(as_tensor(x))


def matrix_power(x: ArrayLike, n: int, /) -> Tensor:
    """x·x·…·x, n times; for negative n the product of inverses.

    x  square matrices (…, k, k)
    n  an integer; 0 gives the identity

    >>> import weft as wf
    >>> wf.linalg.matrix_power([[1.0, 1.0], [0.0, 1.0]], 3).tolist()
    [[1.0, 3.0], [0.0, 1.0]]
    """
    return _linalg.matrix_power(as_tensor(x), integer_in("matrix_power", "n", n))


def matrix_norm(
    x: ArrayLike,
    /,
    *,
    keepdims: bool = False,
    ord: float | Literal["fro", "nuc"] = "fro",
    **unknown: Never,
) -> Tensor:
    """A norm of the matrices in the last two axes.

    x         matrices (…, m, n)
    keepdims  whether reduced axes stay, with length 1
    ord       "fro": √Σ|xᵢⱼ|²; "nuc": the sum of the singular values; 2 and −2: the largest and
              the smallest of them; 1 and −1: the largest and the smallest sum |x₁ⱼ| + … of a
              column; inf and −inf: of a row

    >>> import weft as wf
    >>> wf.linalg.matrix_norm([[3.0, 0.0], [0.0, 4.0]]).item()
    5.0
    """
    if unknown:
        raise unexpected_keyword(matrix_norm, unknown)
    return _linalg.matrix_norm(as_tensor(x), ord, keepdims)


def matrix_rank(x: ArrayLike, /, *, rtol: ArrayLike | None = None) -> Tensor:
    """How many singular values of x exceed rtol·largest.

    x     matrices (…, m, n)
    rtol  None: max(m, n)·eps

    >>> import weft as wf
    >>> wf.linalg.matrix_rank([[1.0, 2.0], [2.0, 4.0]]).item()
    1
    """
    return _linalg.matrix_rank(as_tensor(x), rtol)


def cond(x: ArrayLike, /, *, ord: float | Literal["fro", "nuc"] | None = None) -> Tensor:
    """The condition number ‖x‖·‖x⁻¹‖.

    x    matrices (…, m, n), square unless the norm is 2
    ord  the norm, as of `matrix_norm`; None: 2, the ratio of the extreme singular values

    >>> import weft as wf
    >>> wf.linalg.cond([[4.0, 0.0], [0.0, 2.0]]).item()
    2.0
    """
    return _linalg.cond(as_tensor(x), ord)


def vector_norm(
    x: ArrayLike,
    /,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    ord: float = 2,
    **unknown: Never,
) -> Tensor:
    """The norm (Σ |xᵢ|^ord)^(1/ord) over axes; at 0 its gradient is 0.

    x         an array, or anything `wf.asarray` accepts
    axis      the axis or axes whose elements are one vector; None: all
    keepdims  whether reduced axes stay, with length 1
    ord       the exponent; inf is the largest |xᵢ|, -inf the smallest, 0 counts those that are
              not 0

    >>> import weft as wf
    >>> wf.linalg.vector_norm([3.0, -4.0]).item()
    5.0
    """
    if unknown:
        raise unexpected_keyword(vector_norm, unknown)
    x = as_tensor(x)
    return _norm(x, ord, axes_of("vector_norm", x, axis), keepdims=keepdims)


def norm(
    x: ArrayLike,
    /,
    ord: float | Literal["fro", "nuc"] | None = None,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    **unknown: Never,
) -> Tensor:
    """NumPy's norm: of a vector, or of a matrix over a pair of axes.

    x         an array, or anything `wf.asarray` accepts
    ord       as of `vector_norm` or `matrix_norm`; None: √Σ|xᵢ|²
    axis      one axis for vectors, two for matrices; None: all of x
    keepdims  whether reduced axes stay, with length 1

    >>> import weft as wf
    >>> wf.linalg.norm([[3.0, 0.0], [0.0, 4.0]]).item()
    5.0
    >>> wf.linalg.norm([[3.0, 0.0], [0.0, 4.0]], ord=2).item()
    4.0
    """
    if unknown:
        raise unexpected_keyword(norm, unknown)
    x = as_tensor(x)
    of_vector: Any = 2 if ord is None else ord  # a name is refused there
    if axis is None and (ord is None or x.ndim == 1):
        return vector_norm(x, keepdims=keepdims, ord=of_vector)
    axes = axes_of("norm", x, axis)
    if len(axes) == 1:
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=of_vector)
    if len(axes) != 2:
        raise errors.AxisError(f"norm: axis {axis} names {len(axes)} axes, expected one or two")
    out = matrix_norm(moveaxis(x, axes, (-2, -1)), keepdims=keepdims, ord=ord or "fro")
    return moveaxis(out, (-2, -1), axes) if keepdims else out


def __dir__() -> list[str]:
    return list(__all__)


if not TYPE_CHECKING:  # checkers know the names
    __getattr__ = _module_attribute("weft.linalg", __all__)
