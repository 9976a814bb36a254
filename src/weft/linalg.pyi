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
    """The lower triangle L with L·Lᴴ = (x + xᴴ)/2."""

def cond(x: ArrayLike, /, *, ord: float | Literal["fro", "nuc"] | None = None) -> Tensor:
    """The condition number ‖x‖·‖x⁻¹‖."""

def cross(a: ArrayLike, b: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """The cross product a × b of vectors in three dimensions."""

def det(x: ArrayLike, /) -> Tensor:
    """The determinant; its derivative, the cofactors, is right for singular matrices too."""

def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Tensor:
    """The diagonals xᵢᵢ of the matrices in the last two axes."""

def dot(a: ArrayLike, b: ArrayLike, /) -> Tensor: ...
def eig(x: ArrayLike, /) -> EigResult:
    """Eigenvalues w and eigenvectors V, complex: x·V = V·diag(w)."""

def eigh(x: ArrayLike, /) -> EighResult: ...
def eigvals(x: ArrayLike, /) -> Tensor:
    """The eigenvalues of a square matrix, complex, in no particular order."""

def eigvalsh(x: ArrayLike, /) -> Tensor:
    """The eigenvalues of (x + xᴴ)/2, ascending."""

def einsum(subscripts: str, /, *operands: ArrayLike) -> Tensor:
    """Sums of products by Einstein's notation, contracted in a cheap order."""

def expm(x: ArrayLike, /) -> Tensor:
    """The matrix exponential Σ xᵏ/k!."""

def inner(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """Σₖ a…ₖ·b…ₖ over the last axes, for all pairs of what is before them."""

def inv(x: ArrayLike, /) -> Tensor:
    """The inverse x⁻¹, with x·x⁻¹ the identity."""

def kron(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The Kronecker product: b multiplied by each element of a, as blocks of one matrix."""

def logm(x: ArrayLike, /) -> Tensor:
    """The principal matrix logarithm: the y with expm(y) = x and eigenvalues of |Im| < π."""

def lstsq(a: ArrayLike, b: ArrayLike, /, *, rcond: float | None = None) -> LstsqResult:
    """The x that minimises ‖a·x − b‖, of least norm if there are several."""

def lu(x: ArrayLike, /) -> LUResult:
    """x = P·L·U with a permutation P, a unit lower triangle L and an upper triangle U."""

def matmul(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The matrix product Σₖ aᵢₖ·bₖⱼ, batched over leading axes, which broadcast."""

def matrix_norm(
    x: ArrayLike, /, *, keepdims: bool = False, ord: float | Literal["fro", "nuc"] = "fro"
) -> Tensor:
    """A norm of the matrices in the last two axes."""

def matrix_power(x: ArrayLike, n: int, /) -> Tensor:
    """x·x·…·x, n times; for negative n the product of inverses."""

def matrix_rank(x: ArrayLike, /, *, rtol: ArrayLike | None = None) -> Tensor:
    """How many singular values of x exceed rtol·largest."""

def matrix_transpose(x: ArrayLike, /) -> Tensor:
    """x with its last two axes exchanged: xᵀ for each matrix."""

def multi_dot(arrays: Sequence[ArrayLike] | Tensor, /) -> Tensor:
    """The product a₁·a₂·…·aₙ of several matrices, in a cheap order."""

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
    """The products aᵢ·bⱼ of all pairs of elements of two vectors."""

def pinv(x: ArrayLike, /, *, rtol: ArrayLike | None = None) -> Tensor:
    """The Moore-Penrose inverse V·S⁺·Uᴴ of x = U·S·Vᴴ."""

def qr(x: ArrayLike, /, *, mode: Literal["reduced", "complete"] = "reduced") -> QRResult:
    """x = Q·R with orthonormal columns Q and an upper triangle R."""

def slogdet(x: ArrayLike, /) -> SlogdetResult:
    """The determinant's sign (its phase, if complex) and the logarithm of its size."""

def solve(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """The x of a·x = b."""

def solve_triangular(
    a: ArrayLike, b: ArrayLike, /, *, lower: bool = False, unit_diagonal: bool = False
) -> Tensor:
    """The x of a·x = b for a triangular matrix; the other triangle is not looked at."""

def sqrtm(x: ArrayLike, /) -> Tensor:
    """The principal matrix square root: the y with y·y = x and eigenvalues of Re ≥ 0."""

def svd(x: ArrayLike, /, *, full_matrices: bool = True) -> SVDResult:
    """x = U·diag(S)·Vh with orthonormal U and Vhᴴ and descending singular values S ≥ 0."""

def svdvals(x: ArrayLike, /) -> Tensor:
    """The singular values of x, descending."""

def tensordot(
    a: ArrayLike,
    b: ArrayLike,
    /,
    *,
    axes: int | Sequence[int] | tuple[Sequence[int], Sequence[int]] = 2,
) -> Tensor:
    """The sum of products over pairs of axes."""

def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
    """The sum Σ xᵢᵢ of a diagonal over the last two axes."""

def triangular_solve(
    a: ArrayLike, b: ArrayLike, /, *, lower: bool = True, unit_diagonal: bool = False
) -> Tensor:
    """The x of a·x = b for a triangular matrix: `solve_triangular`, lower by default."""

def vdot(a: ArrayLike, b: ArrayLike, /) -> Tensor:
    """Σ conj(aᵢ)·bᵢ over all elements."""

def vecdot(a: ArrayLike, b: ArrayLike, /, *, axis: int = -1) -> Tensor:
    """Σ conj(aᵢ)·bᵢ along an axis."""

def vector_norm(
    x: ArrayLike, /, *, axis: Axes = None, keepdims: bool = False, ord: float = 2
) -> Tensor:
    """The norm (Σ |xᵢ|^ord)^(1/ord) over axes; at 0 its gradient is 0."""

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
