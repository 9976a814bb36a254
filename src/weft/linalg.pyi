"""Public linear algebra: `wf.linalg`, under the Array API's and NumPy's names."""

# Written by tools/stubs.py; do not edit.

from collections.abc import Sequence
from typing import Literal

from .arrays.linalg import (
    EighResult,
    EigResult,
    LstsqResult,
    LUResult,
    QRResult,
    SlogdetResult,
    SVDResult,
)
from .arrays.tensor import Tensor
from .arrays.types import ArrayLike, Axes, DTypeLike

def cholesky(x: ArrayLike, /, *, upper: bool = False) -> Tensor:
    """The triangular L with L·Lᴴ = (x + xᴴ)/2."""

def cond(x: ArrayLike, /, *, ord: float | Literal["fro", "nuc"] | None = None) -> Tensor:
    """The condition number ‖x‖·‖x⁻¹‖; by default of the 2-norm, from the singular values."""

def cross(a: ArrayLike, b: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors in three dimensions."""

def det(x: ArrayLike, /) -> Tensor:
    """The determinant; its derivative is right for singular matrices too."""

def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Tensor:
    """The diagonals of the last two axes."""

def dot(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """NumPy's dot."""

def eig(x: ArrayLike, /) -> EigResult:
    """Eigenvalues and eigenvectors of a square matrix, complex."""

def eigh(x: ArrayLike, /) -> EighResult:
    """Eigenvalues (ascending) and eigenvectors of (x + xᴴ)/2."""

def eigvals(x: ArrayLike, /) -> Tensor:
    """The eigenvalues of a square matrix, complex."""

def eigvalsh(x: ArrayLike, /) -> Tensor:
    """The eigenvalues of (x + xᴴ)/2, ascending."""

def einsum(subscripts: str, /, *operands: ArrayLike) -> Tensor:
    """Sums of products by Einstein's notation."""

def expm(x: ArrayLike, /) -> Tensor:
    """The matrix exponential."""

def inner(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The sum of products over the last axes."""

def inv(x: ArrayLike, /) -> Tensor:
    """The inverse matrix."""

def kron(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The Kronecker product."""

def logm(x: ArrayLike, /) -> Tensor:
    """The principal matrix logarithm."""

def lstsq(a: ArrayLike, b: ArrayLike, /, *, rcond: float | None = None) -> LstsqResult:
    """x that minimises ‖a·x − b‖, of least norm; residuals, rank and singular values."""

def lu(x: ArrayLike, /) -> LUResult:
    """x = P·L·U with a permutation P, a unit lower triangle L and an upper triangle U."""

def matmul(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The matrix product, batched over leading axes."""

def matrix_norm(
    x: ArrayLike, /, *, keepdims: bool = False, ord: float | Literal["fro", "nuc"] = "fro"
) -> Tensor:
    """A norm of the matrices in the last two axes: fro, nuc, ±1, ±2, ±inf."""

def matrix_power(x: ArrayLike, n: int, /) -> Tensor:
    """x multiplied with itself n times; the inverse for negative n."""

def matrix_rank(x: ArrayLike, /, *, rtol: ArrayLike | None = None) -> Tensor:
    """How many singular values exceed rtol·largest."""

def matrix_transpose(x: ArrayLike, /) -> Tensor:
    """x with its last two axes exchanged."""

def multi_dot(arrays: Sequence[ArrayLike] | Tensor, /) -> Tensor:
    """The product of several matrices, in the cheapest order."""

def norm(
    x: ArrayLike,
    /,
    ord: float | Literal["fro", "nuc"] | None = None,
    axis: Axes = None,
    *,
    keepdims: bool = False,
) -> Tensor:
    """NumPy's norm: of a vector, or of a matrix over a pair of axes."""

def outer(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The products of all pairs of elements of two vectors."""

def pinv(x: ArrayLike, /, *, rtol: ArrayLike | None = None) -> Tensor:
    """The Moore-Penrose inverse; singular values below rtol·largest count as zero."""

def qr(x: ArrayLike, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """x = Q·R with orthonormal columns Q and a triangle R."""

def slogdet(x: ArrayLike, /) -> SlogdetResult:
    """The determinant's sign (or phase) and the logarithm of its size."""

def solve(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """x with a·x = b."""

def solve_triangular(
    a: ArrayLike, b: ArrayLike, /, *, lower: bool = False, unit_diagonal: bool = False
) -> Tensor:
    """x with a·x = b for a triangular matrix; the other triangle is not looked at."""

def sqrtm(x: ArrayLike, /) -> Tensor:
    """The principal matrix square root."""

def svd(x: ArrayLike, /, *, full_matrices: bool = True) -> SVDResult:
    """x = U·diag(S)·Vh with descending singular values."""

def svdvals(x: ArrayLike, /) -> Tensor:
    """The singular values, descending."""

def tensordot(
    a: ArrayLike,
    b: ArrayLike,
    /,
    *,
    axes: int | Sequence[int] | tuple[Sequence[int], Sequence[int]] = 2,
) -> Tensor:
    """The sum over paired axes: a number of them, or one sequence for each tensor."""

def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """The sum of a diagonal over the last two axes."""

def triangular_solve(
    a: ArrayLike, b: ArrayLike, /, *, lower: bool = True, unit_diagonal: bool = False
) -> Tensor:
    """`solve_triangular`, lower by default."""

def vdot(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """Σ conj(aᵢ)·bᵢ over all elements."""

def vecdot(a: ArrayLike, b: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """Σ conj(aᵢ)·bᵢ along an axis."""

def vector_norm(
    x: ArrayLike, /, *, axis: Axes = None, keepdims: bool = False, ord: float = 2
) -> Tensor:
    """The norm (Σ|x|^ord)^(1/ord) over axes; at 0 its gradient is 0."""

__all__ = [
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "dot",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "einsum",
    "expm",
    "inner",
    "inv",
    "kron",
    "logm",
    "lstsq",
    "lu",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "sqrtm",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "triangular_solve",
    "vdot",
    "vecdot",
    "vector_norm",
]
