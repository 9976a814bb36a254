"""Public linear algebra: `wf.linalg`, under the Array API's and NumPy's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Never

from .. import errors
from ..core.aval import integer_in
from ..core.box import BOXED
from ..ops import contract, determinant, factor, matrix_functions, spectral
from ..ops import linalg as _linalg
from .arguments import axes_of, boxed
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
    """The matrix product, batched over leading axes."""
    return contract.matmul(boxed(a), boxed(b))


def einsum(subscripts: str, /, *operands: ArrayLike) -> Tensor:
    """Sums of products by Einstein's notation.

    >>> import weft as wf
    >>> wf.einsum("ij,j->i", wf.ones((2, 3)), wf.ones(3)).tolist()
    [3.0, 3.0]
    """
    if not isinstance(subscripts, str):
        got = type(subscripts).__name__
        raise errors.DTypeError(f"einsum: subscripts of type {got}, expected a string: 'ij,j->i'")
    return contract.einsum(subscripts, *map(boxed, operands))


@checks_keywords
def tensordot(
    a: ArrayLike,
    b: ArrayLike,
    /,
    *,
    axes: int | Sequence[int] | tuple[Sequence[int], Sequence[int]] = 2,
) -> Tensor:
    """The sum over paired axes: a number of them, or one sequence for each tensor."""
    if isinstance(axes, str) or axes is None:
        raise errors.DTypeError(f"tensordot: axes {axes!r}, expected an integer or two sequences")
    return contract.tensordot(boxed(a), boxed(b), axes)


def outer(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The products of all pairs of elements of two vectors."""
    return contract.outer(boxed(a), boxed(b))


def inner(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The sum of products over the last axes."""
    return contract.inner(boxed(a), boxed(b))


def dot(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """NumPy's dot."""
    return contract.dot(boxed(a), boxed(b))


def vdot(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """Σ conj(aᵢ)·bᵢ over all elements."""
    return contract.vdot(boxed(a), boxed(b))


@checks_keywords
def vecdot(a: ArrayLike, b: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """Σ conj(aᵢ)·bᵢ along an axis."""
    return contract.vecdot(boxed(a), boxed(b), axis)


def kron(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The Kronecker product."""
    return contract.kron(boxed(a), boxed(b))


@checks_keywords
def cross(a: ArrayLike, b: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors in three dimensions."""
    return contract.cross(boxed(a), boxed(b), axis)


def multi_dot(arrays: Sequence[ArrayLike] | Tensor, /) -> Tensor:
    """The product of several matrices, in the cheapest order."""
    n = len(arrays)
    letters = "abcdefghijklmnopqrstuvwxyz"
    terms = ",".join(letters[i : i + 2] for i in range(n))
    return einsum(f"{terms}->{letters[0]}{letters[n]}", *arrays)


def trace(
    x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None, **unknown: Never
) -> Tensor:
    """The sum of a diagonal over the last two axes."""
    if unknown:
        raise unexpected_keyword(trace, unknown)
    return _diagonal(x, offset=offset, axis1=-2, axis2=-1).sum(axis=-1, dtype=dtype)


def diagonal(x: ArrayLike, /, *, offset: int = 0, **unknown: Never) -> Tensor:
    """The diagonals of the last two axes."""
    if unknown:
        raise unexpected_keyword(diagonal, unknown)
    return _diagonal(x, offset=offset, axis1=-2, axis2=-1)


def det(x: ArrayLike, /) -> Tensor:
    """The determinant; its derivative is right for singular matrices too."""
    return determinant.det(boxed(x))


def slogdet(x: ArrayLike, /) -> SlogdetResult:
    """The determinant's sign (or phase) and the logarithm of its size."""
    return SlogdetResult(*determinant.slogdet(boxed(x)))


def inv(x: ArrayLike, /) -> Tensor:
    """The inverse matrix."""
    return _linalg.inv(boxed(x))


def pinv(x: ArrayLike, /, *, rtol: ArrayLike | None = None) -> Tensor:
    """The Moore-Penrose inverse; singular values below rtol·largest count as zero."""
    return _inverse(boxed(x), rtol)


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
    """x with a·x = b."""
    return _linalg.solve(boxed(a), boxed(b))


def solve_triangular(
    a: ArrayLike, b: ArrayLike, /, *, lower: bool = False, unit_diagonal: bool = False
) -> Tensor:
    """x with a·x = b for a triangular matrix; the other triangle is not looked at."""
    return _linalg.triangular_solve(boxed(a), boxed(b), lower=lower, unit_diagonal=unit_diagonal)


def triangular_solve(
    a: ArrayLike, b: ArrayLike, /, *, lower: bool = True, unit_diagonal: bool = False
) -> Tensor:
    """`solve_triangular`, lower by default."""
    return solve_triangular(a, b, lower=lower, unit_diagonal=unit_diagonal)


def lstsq(a: ArrayLike, b: ArrayLike, /, *, rcond: float | None = None) -> LstsqResult:
    """x that minimises ‖a·x − b‖, of least norm; residuals, rank and singular values."""
    a, b = boxed(a), boxed(b)
    rows = b.shape[0] if b.ndim == 1 else b.shape[-2] if b.ndim else None
    if a.ndim < 2 or a.shape[-2] != rows:
        raise errors.ShapeError(f"lstsq: {a.shape} and right sides {b.shape}, one row for each")
    return LstsqResult(*_linalg.lstsq(a, b, rcond, _inverse))


def cholesky(x: ArrayLike, /, *, upper: bool = False) -> Tensor:
    """The triangular L with L·Lᴴ = (x + xᴴ)/2."""
    return factor.cholesky(boxed(x), upper)


def qr(x: ArrayLike, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """x = Q·R with orthonormal columns Q and a triangle R."""
    if mode not in ("reduced", "complete"):
        raise errors.ArgumentError(f"qr: mode={mode!r}, expected 'reduced' or 'complete'")
    return QRResult(*factor.qr(boxed(x), mode))


def lu(x: ArrayLike, /) -> LUResult:
    """x = P·L·U with a permutation P, a unit lower triangle L and an upper triangle U."""
    return LUResult(*factor.lu(boxed(x)))


def eigh(x: ArrayLike, /) -> EighResult:
    """Eigenvalues (ascending) and eigenvectors of (x + xᴴ)/2."""
    return EighResult(*spectral.eigh(boxed(x)))


def eigvalsh(x: ArrayLike, /) -> Tensor:
    """The eigenvalues of (x + xᴴ)/2, ascending."""
    return spectral.eigvalsh(boxed(x))


def eig(x: ArrayLike, /) -> EigResult:
    """Eigenvalues and eigenvectors of a square matrix, complex."""
    return EigResult(*spectral.eig(boxed(x)))


def eigvals(x: ArrayLike, /) -> Tensor:
    """The eigenvalues of a square matrix, complex."""
    return spectral.eigvals(boxed(x))


def svd(x: ArrayLike, /, *, full_matrices: bool = True) -> SVDResult:
    """x = U·diag(S)·Vh with descending singular values."""
    return SVDResult(*spectral.svd(boxed(x), full_matrices))


def svdvals(x: ArrayLike, /) -> Tensor:
    """The singular values, descending."""
    return spectral.svdvals(boxed(x))


def expm(x: ArrayLike, /) -> Tensor:
    """The matrix exponential."""
    return matrix_functions.expm(boxed(x))


def logm(x: ArrayLike, /) -> Tensor:
    """The principal matrix logarithm."""
    return matrix_functions.logm(boxed(x))


def sqrtm(x: ArrayLike, /) -> Tensor:
    """The principal matrix square root."""
    return matrix_functions.sqrtm(boxed(x))


def matrix_power(x: ArrayLike, n: int, /) -> Tensor:
    """x multiplied with itself n times; the inverse for negative n."""
    return _linalg.matrix_power(boxed(x), integer_in("matrix_power", "n", n))


def matrix_norm(
    x: ArrayLike,
    /,
    *,
    keepdims: bool = False,
    ord: float | Literal["fro", "nuc"] = "fro",
    **unknown: Never,
) -> Tensor:
    """A norm of the matrices in the last two axes: fro, nuc, ±1, ±2, ±inf."""
    if unknown:
        raise unexpected_keyword(matrix_norm, unknown)
    return _linalg.matrix_norm(boxed(x), ord, keepdims)


def matrix_rank(x: ArrayLike, /, *, rtol: ArrayLike | None = None) -> Tensor:
    """How many singular values exceed rtol·largest."""
    return _linalg.matrix_rank(boxed(x), rtol)


def cond(x: ArrayLike, /, *, ord: float | Literal["fro", "nuc"] | None = None) -> Tensor:
    """The condition number ‖x‖·‖x⁻¹‖; by default of the 2-norm, from the singular values."""
    return _linalg.cond(boxed(x), ord)


def vector_norm(
    x: ArrayLike,
    /,
    *,
    axis: Axes = None,
    keepdims: bool = False,
    ord: float = 2,
    **unknown: Never,
) -> Tensor:
    """The norm (Σ|x|^ord)^(1/ord) over axes; at 0 its gradient is 0."""
    if unknown:
        raise unexpected_keyword(vector_norm, unknown)
    return _norm(x, ord, axis, keepdims=keepdims)


def norm(
    x: ArrayLike,
    /,
    ord: float | Literal["fro", "nuc"] | None = None,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    **unknown: Never,
) -> Tensor:
    """NumPy's norm: of a vector, or of a matrix over a pair of axes."""
    if unknown:
        raise unexpected_keyword(norm, unknown)
    x = boxed(x)
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


if not TYPE_CHECKING:  # checkers know the names
    __getattr__ = _module_attribute("weft.linalg", __all__)
