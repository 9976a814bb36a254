"""Tensor with the methods it is given at run time."""

# Written by tools/stubs.py; do not edit.

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np

from ..arrays.indexing import At
from ..arrays.selection import Ordered
from ..arrays.types import ArrayLike, Axes, Device, DTypeLike, Index, Shape
from ..core.counter import Generator
from ..core.node import Leaf
from ..core.value import Value
from ..transform.modes.backward import HookHandle
from ..transform.modes.gradient_map import GradientMap

class Tensor(Value):
    """An array with a memory of how it was made."""
    def __hash__(self) -> int: ...
    def __new__(cls, data: Any = None, **options: Any) -> Self: ...
    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes."""
    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the elements, as NumPy names it."""
    @property
    def device(self) -> str:
        """`cpu` (NumPy), `torch` (PyTorch on the CPU) or `cuda:0`, `cuda:1`, …"""
    @property
    def ndim(self) -> int:
        """How many axes there are."""
    @property
    def size(self) -> int:
        """How many elements there are."""
    @property
    def itemsize(self) -> int:
        """How many bytes an element has."""
    @property
    def nbytes(self) -> int:
        """How many bytes the elements have together."""
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Tensor]: ...
    def __contains__(self, value: ArrayLike) -> bool: ...
    @property
    def requires_grad(self) -> bool:
        """Whether operations on this tensor are recorded."""
    @requires_grad.setter
    def requires_grad(self, value: bool) -> None: ...
    @property
    def is_leaf(self) -> bool:
        """Whether differentiation ends here: nothing recorded made this tensor."""
    @property
    def id(self) -> int:
        """What gradient maps call this tensor."""
    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Make this tensor a leaf whose gradient is wanted (or not); returns it."""
    def _new_leaf(self, requested: bool) -> Leaf: ...
    @property
    def grad(self) -> Tensor | Any:
        """The gradient accumulated by `backward()`, or None."""
    @grad.setter
    def grad(self, value: ArrayLike | None) -> None: ...
    def _as_gradient(self, value: Any) -> Tensor: ...
    def detach(self) -> Tensor:
        """The same values, unconnected: no gradient flows through the result."""
    def numpy(self) -> np.ndarray[Any, Any]:
        """A read-only NumPy view of the values (a copy from another device is an error)."""
    def item(self) -> Any:
        """The value of a one-element tensor as a Python number."""
    def to_scalar(self) -> Any:
        """The value of a one-element tensor as a Python number."""
    def tolist(self) -> Any:
        """The values as nested Python lists."""
    def to_vec(self) -> list[Any]:
        """The values as one flat list."""
    def tensor(self) -> Tensor:
        """The detached value."""
    def to(self, target: DTypeLike | Device, /) -> Tensor:
        """This tensor in another dtype or on another device; differentiable."""
    def to_device(self, device: Device, /, *, stream: Any = None) -> Tensor:
        """Array API spelling of `to(device)`."""
    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...
    def __complex__(self) -> complex: ...
    def __index__(self) -> int: ...
    def _scalar(self, what: str) -> Any: ...
    def _refuse_hidden_use(self, what: str) -> None:
        """Refuse conversion to a number by `array[i] = x` and in NumPy, SciPy or scikit-learn."""
    def __repr__(self) -> str: ...
    def __format__(self, spec: str) -> str:
        """`f"{x:.3f}"` of one element is that of its number."""
    def _repr_html_(self) -> str:
        """A notebook's view: the facts in one line, then the numbers."""
    def __add__(self, other: ArrayLike, /) -> Tensor: ...
    def __radd__(self, other: ArrayLike, /) -> Tensor: ...
    def __sub__(self, other: ArrayLike, /) -> Tensor: ...
    def __rsub__(self, other: ArrayLike, /) -> Tensor: ...
    def __mul__(self, other: ArrayLike, /) -> Tensor: ...
    def __rmul__(self, other: ArrayLike, /) -> Tensor: ...
    def __truediv__(self, other: ArrayLike, /) -> Tensor: ...
    def __rtruediv__(self, other: ArrayLike, /) -> Tensor: ...
    def __floordiv__(self, other: ArrayLike, /) -> Tensor: ...
    def __rfloordiv__(self, other: ArrayLike, /) -> Tensor: ...
    def __mod__(self, other: ArrayLike, /) -> Tensor: ...
    def __rmod__(self, other: ArrayLike, /) -> Tensor: ...
    def __rpow__(self, other: ArrayLike, /) -> Tensor: ...
    def __matmul__(self, other: ArrayLike, /) -> Tensor: ...
    def __rmatmul__(self, other: ArrayLike, /) -> Tensor: ...
    def __neg__(self, /) -> Tensor: ...
    def __pos__(self, /) -> Tensor: ...
    def __abs__(self, /) -> Tensor: ...
    def __invert__(self, /) -> Tensor: ...
    def __and__(self, other: ArrayLike, /) -> Tensor: ...
    def __rand__(self, other: ArrayLike, /) -> Tensor: ...
    def __or__(self, other: ArrayLike, /) -> Tensor: ...
    def __ror__(self, other: ArrayLike, /) -> Tensor: ...
    def __xor__(self, other: ArrayLike, /) -> Tensor: ...
    def __rxor__(self, other: ArrayLike, /) -> Tensor: ...
    def __lshift__(self, other: ArrayLike, /) -> Tensor: ...
    def __rlshift__(self, other: ArrayLike, /) -> Tensor: ...
    def __rshift__(self, other: ArrayLike, /) -> Tensor: ...
    def __rrshift__(self, other: ArrayLike, /) -> Tensor: ...
    def __lt__(self, other: ArrayLike, /) -> Tensor: ...
    def __le__(self, other: ArrayLike, /) -> Tensor: ...
    def __gt__(self, other: ArrayLike, /) -> Tensor: ...
    def __ge__(self, other: ArrayLike, /) -> Tensor: ...
    def __pow__(self, other: ArrayLike, /) -> Tensor: ...
    def __eq__(self, other: object) -> Tensor: ...  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
    def __ne__(self, other: object) -> Tensor: ...  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
    def abs(self, /, *, out: Tensor | None = None) -> Tensor:
        """|x|; its derivative at 0 is 0."""
    def acos(self, /, *, out: Tensor | None = None) -> Tensor:
        """The angle in [0, π] whose cosine is x; NaN where |x| > 1."""
    def acosh(self, /, *, out: Tensor | None = None) -> Tensor:
        """The inverse hyperbolic cosine log(x + √(x² − 1)); NaN for x < 1."""
    def all(self, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """Whether every element over `axis` is not zero; True over none."""
    def amax(self, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """The largest element over `axis`; NaN if there is one. Also spelled amax."""
    def amin(self, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """The smallest element over `axis`; NaN if there is one. Also spelled amin."""
    def any(self, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """Whether some element over `axis` is not zero; False over none."""
    def argmax(self, /, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
        """The index of the largest element, the first of equal ones; it has no gradient."""
    def argmin(self, /, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
        """The index of the smallest element, the first of equal ones; it has no gradient."""
    def argsort(
        self, /, *, axis: int = -1, descending: bool = False, stable: bool = True
    ) -> Tensor:
        """The indices that put x in ascending order along `axis`; NaN counts as the largest."""
    def asin(self, /, *, out: Tensor | None = None) -> Tensor:
        """The angle in [−π/2, π/2] whose sine is x; NaN where |x| > 1."""
    def asinh(self, /, *, out: Tensor | None = None) -> Tensor:
        """The inverse hyperbolic sine log(x + √(x² + 1))."""
    def atan(self, /, *, out: Tensor | None = None) -> Tensor:
        """The angle in (−π/2, π/2) whose tangent is x."""
    def atan2(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """The angle in [−π, π] of the point with ordinate x and abscissa y."""
    def atanh(self, /, *, out: Tensor | None = None) -> Tensor:
        """The inverse hyperbolic tangent ½ log((1 + x)/(1 − x)); NaN where |x| > 1."""
    def broadcast_to(self, /, shape: Shape) -> Tensor: ...
    def ceil(self, /, *, out: Tensor | None = None) -> Tensor:
        """⌈x⌉, the smallest integer not below x; its derivative is 0."""
    def chunk(self, /, chunks: int, axis: int = 0) -> tuple[Tensor, ...]:
        """x in at most `chunks` parts of length ⌈n/chunks⌉, of which the last may be shorter."""
    def clamp(
        self,
        /,
        min: ArrayLike | None = None,
        max: ArrayLike | None = None,
        *,
        out: Tensor | None = None,
    ) -> Tensor:
        """min(max(x, min), max): x limited to [min, max]. Also spelled clamp."""
    def clip(
        self,
        /,
        min: ArrayLike | None = None,
        max: ArrayLike | None = None,
        *,
        out: Tensor | None = None,
    ) -> Tensor:
        """min(max(x, min), max): x limited to [min, max]. Also spelled clamp."""
    def clone(self, /) -> Tensor:
        """A copy of x with memory of its own, through which gradients flow."""
    def conj(self, /, *, out: Tensor | None = None) -> Tensor:
        """The complex conjugate x̄; of real numbers x itself."""
    def cos(self, /, *, out: Tensor | None = None) -> Tensor:
        """The cosine of x, in radians."""
    def cosh(self, /, *, out: Tensor | None = None) -> Tensor:
        """The hyperbolic cosine (eˣ + e⁻ˣ)/2."""
    def count_nonzero(self, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """How many elements over `axis` are not zero."""
    def cross(self, b: ArrayLike, /, *, axis: int = -1) -> Tensor:
        """The cross product a × b of vectors in three dimensions."""
    def cummax(self, axis: int = 0) -> Tensor: ...
    def cummin(self, axis: int = 0) -> Tensor: ...
    def cumprod(self, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor: ...
    def cumsum(self, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
        """Running sums x₀ + … + xᵢ along `axis`."""
    def diag(self, /, offset: int = 0) -> Tensor:
        """A matrix's diagonal, or the matrix that has a vector as its diagonal."""
    def diagonal(self, /, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
        """The diagonals xᵢᵢ over two axes, along a new last axis."""
    def diff(
        self,
        /,
        *,
        axis: int = -1,
        n: int = 1,
        prepend: ArrayLike | None = None,
        append: ArrayLike | None = None,
    ) -> Tensor:
        """Differences xᵢ₊₁ − xᵢ of neighbours along `axis`, n times."""
    def digamma(self, /, *, out: Tensor | None = None) -> Tensor:
        """ψ(x) = Γ′(x)/Γ(x), the derivative of `gammaln`."""
    def div(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """The quotient x/y; of integers too it is a float."""
    def divide(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """The quotient x/y; of integers too it is a float."""
    def dot(self, b: ArrayLike, /) -> Tensor: ...
    def equal(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """Whether x = y."""
    def erf(self, /, *, out: Tensor | None = None) -> Tensor:
        """The error function 2/√π ∫₀ˣ exp(−t²) dt."""
    def erfc(self, /, *, out: Tensor | None = None) -> Tensor:
        """1 − erf(x), accurate where that is small."""
    def erfinv(self, /, *, out: Tensor | None = None) -> Tensor:
        """The y with erf(y) = x; ±∞ at ±1, NaN beyond."""
    def exp(self, /, *, out: Tensor | None = None) -> Tensor:
        """eˣ."""
    def exp2(self, /, *, out: Tensor | None = None) -> Tensor:
        """2ˣ."""
    def expand_dims(self, /, axis: int | tuple[int, ...] | list[int] = 0) -> Tensor:
        """x with new axes of length 1."""
    def expm1(self, /, *, out: Tensor | None = None) -> Tensor:
        """eˣ − 1, accurate near 0."""
    def flatten(self, /) -> Tensor:
        """x along one axis, row by row."""
    def flip(self, /, *, axis: Axes = None) -> Tensor:
        """x with the order along `axis` reversed."""
    def floor(self, /, *, out: Tensor | None = None) -> Tensor:
        """⌊x⌋, the largest integer not above x; its derivative is 0."""
    def floor_divide(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """⌊x/y⌋, rounded towards −∞; its derivative is 0."""
    def gather(self, /, axis: int, indices: ArrayLike) -> Tensor:
        """PyTorch's gather: out[i, j] = x[indices[i, j], j] for axis 0."""
    def gelu(self, /, approximate: str = "none") -> Tensor:
        """x·Φ(x) with the normal distribution function Φ."""
    def greater(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """Whether x > y."""
    def greater_equal(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """Whether x ≥ y."""
    def hypot(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """√(x² + y²), without overflow on the way; at (0, 0) the gradient is 0."""
    def index_add(self, /, axis: int, indices: ArrayLike, source: ArrayLike) -> Tensor: ...
    def index_select(self, /, axis: int, indices: ArrayLike) -> Tensor: ...
    def isclose(
        self, b: ArrayLike, /, *, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> Tensor:
        """Whether |a − b| ≤ atol + rtol·|b|, element by element."""
    def isfinite(self, /, *, out: Tensor | None = None) -> Tensor:
        """Whether x is neither infinite nor NaN."""
    def isinf(self, /, *, out: Tensor | None = None) -> Tensor:
        """Whether x is ∞ or −∞."""
    def isnan(self, /, *, out: Tensor | None = None) -> Tensor:
        """Whether x is NaN."""
    def less(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """Whether x < y."""
    def less_equal(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """Whether x ≤ y."""
    def lgamma(self, /, *, out: Tensor | None = None) -> Tensor:
        """log |Γ(x)|."""
    def log(self, /, *, out: Tensor | None = None) -> Tensor:
        """The natural logarithm of x; −∞ at 0, NaN below."""
    def log10(self, /, *, out: Tensor | None = None) -> Tensor:
        """The logarithm of x to the base 10."""
    def log1p(self, /, *, out: Tensor | None = None) -> Tensor:
        """log(1 + x), accurate near 0."""
    def log2(self, /, *, out: Tensor | None = None) -> Tensor:
        """The logarithm of x to the base 2."""
    def log_softmax(self, /, axis: int = -1) -> Tensor:
        """xᵢ − log Σ exp(xⱼ) along `axis`: log(softmax(x)), accurate where that is small."""
    def logaddexp(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """log(eˣ + eʸ), without overflow."""
    def logical_and(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """Whether x and y both differ from 0."""
    def logical_not(self, /, *, out: Tensor | None = None) -> Tensor:
        """Whether x is 0."""
    def logical_or(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """Whether x or y differs from 0."""
    def logical_xor(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """Whether exactly one of x and y differs from 0."""
    def logit(self, /, *, out: Tensor | None = None) -> Tensor:
        """log(x/(1 − x)), the inverse of `expit`; NaN outside [0, 1]."""
    def logsumexp(self, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """log Σ exp(xᵢ) over `axis`, without overflow; its gradient is `softmax`."""
    def matmul(self, b: ArrayLike, /) -> Tensor:
        """The matrix product Σₖ aᵢₖ·bₖⱼ, batched over leading axes, which broadcast."""
    def max(self, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """The largest element over `axis`; NaN if there is one. Also spelled amax."""
    def maximum(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """The larger of x and y; equal ones share the gradient, and NaN wins."""
    def mean(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The arithmetic mean Σ xᵢ/n over `axis`."""
    def median(self, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """The middle element in order, or the mean of the middle two, as in NumPy."""
    def min(self, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """The smallest element over `axis`; NaN if there is one. Also spelled amin."""
    def minimum(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """The smaller of x and y; equal ones share the gradient, and NaN wins."""
    def moveaxis(self, source: int | Sequence[int], destination: int | Sequence[int], /) -> Tensor:
        """x with some axes moved, the others in their order."""
    def mul(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """The product x·y."""
    def multiply(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """The product x·y."""
    def neg(self, /, *, out: Tensor | None = None) -> Tensor:
        """−x."""
    def nonzero(self, /) -> tuple[Tensor, ...]:
        """Where x is not zero: for each axis an array of indices."""
    def norm(self, /, ord: float = 2, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """The vector norm (Σ |xᵢ|^ord)^(1/ord) over `axis`; at 0 its gradient is 0."""
    def not_equal(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """Whether x ≠ y."""
    def outer(self, b: ArrayLike, /) -> Tensor:
        """The products aᵢ·bⱼ of all pairs of elements of two vectors."""
    def permute_dims(self, /, axes: Axes = None, *more: int) -> Tensor:
        """x with its axes in another order: axis k of the result is axis axes[k] of x."""
    def pow(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """xʸ; NaN for negative x and a y that is not whole."""
    def prod(
        self, /, axis: Axes = None, *, dtype: DTypeLike | None = None, keepdims: bool = False
    ) -> Tensor:
        """The product Π xᵢ over `axis`; its derivative is exact where elements are zero."""
    def quantile(
        self, /, q: ArrayLike, axis: Axes = None, *, keepdims: bool = False, method: str = "linear"
    ) -> Tensor:
        """The value below which a share q of the elements over `axis` lies."""
    def reciprocal(self, /, *, out: Tensor | None = None) -> Tensor:
        """1/x."""
    def relu(self, /, *, out: Tensor | None = None) -> Tensor:
        """max(x, 0); its derivative at 0 is 0."""
    def remainder(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """x − y·⌊x/y⌋, which has the sign of y."""
    def repeat(self, /, repeats: int | ArrayLike, *, axis: int | None = None) -> Tensor:
        """Each element of x, or each slice along `axis`, several times."""
    def reshape(self, /, shape: Shape, *more: int, copy: bool | None = None) -> Tensor:
        """x with another shape, its elements in the same order, row by row."""
    def roll(self, /, shift: int | tuple[int, ...] | list[int], *, axis: Axes = None) -> Tensor:
        """x shifted circularly: out[(i + shift) mod n] = x[i]."""
    def round(self, /, *, out: Tensor | None = None) -> Tensor:
        """The nearest integer, halves to the even one; its derivative is 0."""
    def rsqrt(self, /, *, out: Tensor | None = None) -> Tensor:
        """1/√x."""
    def scatter(self, /, axis: int, indices: ArrayLike, source: ArrayLike) -> Tensor:
        """PyTorch's scatter: a copy of x with out[indices[i, j], j] = source[i, j] for axis 0."""
    def scatter_add(self, /, axis: int, indices: ArrayLike, source: ArrayLike) -> Tensor: ...
    def sigmoid(self, /) -> Tensor:
        """The logistic function σ(x) = 1/(1 + e⁻ˣ), from 0 to 1."""
    def sign(self, /, *, out: Tensor | None = None) -> Tensor:
        """x/|x|, and 0 at 0: −1, 0 or 1 for real numbers; their derivative is 0."""
    def silu(self, /) -> Tensor:
        """x·σ(x) with σ(x) = 1/(1 + e⁻ˣ). Also spelled swish."""
    def sin(self, /, *, out: Tensor | None = None) -> Tensor:
        """The sine of x, in radians."""
    def sinh(self, /, *, out: Tensor | None = None) -> Tensor:
        """The hyperbolic sine (eˣ − e⁻ˣ)/2."""
    def softmax(self, /, axis: int = -1) -> Tensor:
        """exp(xᵢ)/Σ exp(xⱼ) along `axis`, without overflow: positive numbers whose sum is 1."""
    def softplus(self, /) -> Tensor:
        """log(1 + eˣ), without overflow: a smooth max(x, 0)."""
    def sort(self, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        """x in ascending order along `axis`; NaN counts as the largest."""
    def split(self, /, sections: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
        """x cut into parts along an axis, as a tuple."""
    def sqrt(self, /, *, out: Tensor | None = None) -> Tensor:
        """√x, NaN for negative real x; its slope at 0 is infinite."""
    def square(self, /, *, out: Tensor | None = None) -> Tensor:
        """x²."""
    def squeeze(self, /, axis: Axes = None) -> Tensor:
        """x without axes of length 1."""
    def std(
        self, /, axis: Axes = None, *, correction: float = 0.0, keepdims: bool = False
    ) -> Tensor:
        """The standard deviation √(Σ |xᵢ − mean|²/(n − correction)) over `axis`."""
    def sub(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """The difference x − y."""
    def subtract(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """The difference x − y."""
    def sum(
        self, axis: Axes = None, keepdims: bool = False, *, dtype: DTypeLike | None = None
    ) -> Tensor:
        """The sum Σ xᵢ over `axis`."""
    def swapaxes(self, a: int, b: int, /) -> Tensor:
        """x with the axes a and b exchanged."""
    def take(self, /, indices: ArrayLike, *, axis: int | None = None) -> Tensor:
        """The elements, or slices along `axis`, that the indices name."""
    def tan(self, /, *, out: Tensor | None = None) -> Tensor:
        """The tangent of x, in radians."""
    def tanh(self, /, *, out: Tensor | None = None) -> Tensor:
        """The hyperbolic tangent (eˣ − e⁻ˣ)/(eˣ + e⁻ˣ)."""
    def tile(self, repetitions: int | tuple[int, ...] | list[int], /) -> Tensor:
        """x repeated as a whole along each axis."""
    def topk(self, /, k: int, *, axis: int = -1, largest: bool = True) -> Ordered:
        """The k largest elements along `axis`, in descending order, and their indices."""
    def trace(self, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
        """The sum Σ xᵢᵢ of a diagonal over the last two axes."""
    def transpose(self, /, axes: Axes = None, *more: int) -> Tensor: ...
    def tril(self, /, *, k: int = 0) -> Tensor:
        """The lower triangle of x: zeros above the k-th diagonal."""
    def triu(self, /, *, k: int = 0) -> Tensor:
        """The upper triangle of x: zeros below the k-th diagonal."""
    def trunc(self, /, *, out: Tensor | None = None) -> Tensor:
        """x without its fraction: rounded towards 0; its derivative is 0."""
    def unstack(self, /, *, axis: int = 0) -> tuple[Tensor, ...]:
        """The slices of x along an axis, as a tuple."""
    def var(
        self, /, axis: Axes = None, *, correction: float = 0.0, keepdims: bool = False
    ) -> Tensor:
        """The variance Σ |xᵢ − mean|²/(n − correction) over `axis`."""
    def __getitem__(self, key: Index) -> Tensor:
        """`x[key]` with NumPy's keys; differentiable."""
    def __setitem__(self, key: Index, value: ArrayLike) -> None:
        """`y[key] = value`: y becomes a new value; nobody else's tensor changes."""
    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """The namespace this tensor's functions live in: `weft`."""
    @property
    def T(self) -> Tensor:
        """x with its axes reversed; `.mT` exchanges the last two."""
    @property
    def imag(self) -> Tensor:
        """The imaginary part of x; zeros for real numbers."""
    @property
    def real(self) -> Tensor:
        """The real part of x; of real numbers x itself."""
    @property
    def mT(self) -> Tensor:
        """x with its last two axes exchanged: xᵀ for each matrix."""
    @property
    def mH(self) -> Tensor:
        """The conjugate of `.mT`."""
    def add(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """The sum x + y."""
    def add_at_index(self, position: int, value: ArrayLike) -> Tensor:
        """A copy with `value` added to the element at a flat position."""
    def add_scalar(self, value: ArrayLike) -> Tensor:
        """x + value."""
    def add_into(self, other: ArrayLike, buffer: Tensor) -> Tensor:
        """x + other, written into the memory of a tensor, which is returned."""
    def astype(
        self, dtype: DTypeLike, /, *, copy: bool = True, device: Device | None = None
    ) -> Tensor:
        """x in another dtype; float to float keeps the gradient."""
    @property
    def at(self) -> At:
        """`x.at[i].set(v)` and the like: changed copies."""
    def copy_(self, source: ArrayLike) -> Self:
        """Overwrite this tensor's memory with the values of `source`; returns this tensor."""
    def div_into(self, other: ArrayLike, buffer: Tensor) -> Tensor:
        """x / other, written into the memory of a tensor, which is returned."""
    def div_scalar(self, value: ArrayLike) -> Tensor:
        """x / value."""
    @staticmethod
    def from_array(
        data: ArrayLike,
        requires_grad: bool = False,
        dtype: DTypeLike | None = None,
        device: Device | None = None,
    ) -> Tensor:
        """A new tensor with a copy of `data`, cut off from any graph."""
    @staticmethod
    def from_scalar(
        value: ArrayLike, device: Device | None = None, dtype: DTypeLike | None = None
    ) -> Tensor:
        """A number as a tensor without axes."""
    @staticmethod
    def from_vec(
        values: Sequence[Any], shape: Shape | None = None, device: Device | None = None
    ) -> Tensor:
        """A flat list of numbers as a tensor of the given shape."""
    @staticmethod
    def ones(
        shape: Shape,
        *,
        dtype: DTypeLike | None = None,
        device: Device | None = None,
        requires_grad: bool = False,
    ) -> Tensor:
        """A tensor of ones."""
    @staticmethod
    def randn(
        shape: Shape = (),
        mean: complex = 0.0,
        std: float = 1.0,
        dtype: DTypeLike | None = None,
        device: Device | None = None,
        requires_grad: bool = False,
        generator: Generator | None = None,
    ) -> Tensor:
        """Normal with density exp(−(x − mean)²/(2·std²)) / (std·√(2π))."""
    @staticmethod
    def zeros(
        shape: Shape,
        *,
        dtype: DTypeLike | None = None,
        device: Device | None = None,
        requires_grad: bool = False,
    ) -> Tensor:
        """A tensor of zeros."""
    def mul_into(self, other: ArrayLike, buffer: Tensor) -> Tensor:
        """x · other, written into the memory of a tensor, which is returned."""
    def mul_scalar(self, value: ArrayLike) -> Tensor:
        """x · value."""
    def permute(self, /, axes: Axes = None, *more: int) -> Tensor:
        """x with its axes in another order: axis k of the result is axis axes[k] of x."""
    @staticmethod
    def scalar(
        value: ArrayLike, device: Device | None = None, dtype: DTypeLike | None = None
    ) -> Tensor:
        """A number as a tensor without axes."""
    def sub_at_index(self, position: int, value: Tensor | complex) -> Tensor:
        """A copy with `value` subtracted from the element at a flat position."""
    def sub_into(self, other: ArrayLike, buffer: Tensor) -> Tensor:
        """x − other, written into the memory of a tensor, which is returned."""
    def sub_scalar(self, value: ArrayLike) -> Tensor:
        """x − value."""
    def sum_dim(self, axis: int, keepdims: bool = False) -> Tensor:
        """The sum Σ xᵢ along one axis."""
    def view(self, /, shape: Shape, *more: int, copy: bool | None = None) -> Tensor:
        """x with another shape, its elements in the same order, row by row."""
    def __array__(
        self, dtype: np.dtype[Any] | type | None = None, copy: bool | None = None
    ) -> np.ndarray[Any, np.dtype[np.generic]]:
        """NumPy's `__array__`: refused where it would drop a gradient or move between devices."""
    def __array_ufunc__(
        self,
        function: np.ufunc,
        method: str,
        *inputs: Any,
        out: tuple[Any, ...] | None = None,
        **options: Any,
    ) -> Any:
        """NumPy's `__array_ufunc__`: `np.sin(x)` and `array * x` are Weft's own operations."""
    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """NumPy's `__array_function__`: `np.sum(x)` is `wf.sum(x)`, with the gradient."""
    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: Any = None,
    ) -> Any:
        """Export the memory by DLPack; refused where it would drop a gradient."""
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __buffer__(self, flags: int) -> memoryview:
        """The buffer protocol (Python ≥ 3.12), read-only."""
    def __reduce__(self) -> tuple[Any, ...]: ...
    def torch(self) -> Any:
        """The values as a torch tensor, sharing memory where possible."""
    def __iadd__(self, other: ArrayLike, /) -> Self: ...
    def __isub__(self, other: ArrayLike, /) -> Self: ...
    def __imul__(self, other: ArrayLike, /) -> Self: ...
    def __itruediv__(self, other: ArrayLike, /) -> Self: ...
    def __ifloordiv__(self, other: ArrayLike, /) -> Self: ...
    def __imod__(self, other: ArrayLike, /) -> Self: ...
    def __ipow__(self, other: ArrayLike, /) -> Self: ...
    def __imatmul__(self, other: ArrayLike, /) -> Self: ...
    def __iand__(self, other: ArrayLike, /) -> Self: ...
    def __ior__(self, other: ArrayLike, /) -> Self: ...
    def __ixor__(self, other: ArrayLike, /) -> Self: ...
    def __ilshift__(self, other: ArrayLike, /) -> Self: ...
    def __irshift__(self, other: ArrayLike, /) -> Self: ...
    def backward(
        self, grad: ArrayLike | None = None, retain_graph: bool = False, create_graph: bool = False
    ) -> GradientMap:
        """The gradients of this tensor with respect to the leaves it was computed from."""
    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> HookHandle: ...
    def retain_grad(self) -> None:
        """Keep the gradient of this intermediate value in `.grad`."""

TrackedTensor = Tensor
