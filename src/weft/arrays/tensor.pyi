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
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def device(self) -> str:
        """`cpu` (NumPy), `torch` (PyTorch on the CPU) or `cuda:0`, `cuda:1`, …"""
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def itemsize(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Tensor]: ...
    def __contains__(self, value: ArrayLike) -> bool: ...
    @property
    def requires_grad(self) -> bool:
        """Whether operations on this tensor are recorded."""
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
        """Refuse to be a number for `array[i] = x` and inside NumPy, SciPy or scikit-learn."""
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
        """`abs`, element by element; `out=` writes into a tensor's memory."""
    def acos(self, /, *, out: Tensor | None = None) -> Tensor:
        """`acos`, element by element; `out=` writes into a tensor's memory."""
    def acosh(self, /, *, out: Tensor | None = None) -> Tensor:
        """`acosh`, element by element; `out=` writes into a tensor's memory."""
    def all(self, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """Whether every element over `axis` is not zero."""
    def amax(self, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """The largest element over `axis`; equal ones share the gradient."""
    def amin(self, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """The smallest element over `axis`; equal ones share the gradient."""
    def any(self, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """Whether some element over `axis` is not zero."""
    def argmax(self, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """Where the (first) largest element is."""
    def argmin(self, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """Where the (first) smallest element is."""
    def argsort(
        self, /, *, axis: int = -1, descending: bool = False, stable: bool = True
    ) -> Tensor:
        """The indices that sort x along `axis`; always stable."""
    def asin(self, /, *, out: Tensor | None = None) -> Tensor:
        """`asin`, element by element; `out=` writes into a tensor's memory."""
    def asinh(self, /, *, out: Tensor | None = None) -> Tensor:
        """`asinh`, element by element; `out=` writes into a tensor's memory."""
    def atan(self, /, *, out: Tensor | None = None) -> Tensor:
        """`atan`, element by element; `out=` writes into a tensor's memory."""
    def atan2(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`atan2`, element by element; `out=` writes into a tensor's memory."""
    def atanh(self, /, *, out: Tensor | None = None) -> Tensor:
        """`atanh`, element by element; `out=` writes into a tensor's memory."""
    def broadcast_to(self, /, shape: Shape) -> Tensor:
        """x repeated, without a copy, to a larger shape."""
    def ceil(self, /, *, out: Tensor | None = None) -> Tensor:
        """`ceil`, element by element; `out=` writes into a tensor's memory."""
    def chunk(self, /, chunks: int, axis: int = 0) -> tuple[Tensor, ...]:
        """x in at most `chunks` parts of one length, the last of which may be shorter."""
    def clamp(
        self,
        /,
        min: ArrayLike | None = None,
        max: ArrayLike | None = None,
        *,
        out: Tensor | None = None,
    ) -> Tensor:
        """x limited to [min, max]; at a bound the gradient passes."""
    def clip(
        self,
        /,
        min: ArrayLike | None = None,
        max: ArrayLike | None = None,
        *,
        out: Tensor | None = None,
    ) -> Tensor:
        """x limited to [min, max]; at a bound the gradient passes."""
    def clone(self, /) -> Tensor:
        """A copy that stays connected."""
    def conj(self, /, *, out: Tensor | None = None) -> Tensor:
        """`conj`, element by element; `out=` writes into a tensor's memory."""
    def cos(self, /, *, out: Tensor | None = None) -> Tensor:
        """`cos`, element by element; `out=` writes into a tensor's memory."""
    def cosh(self, /, *, out: Tensor | None = None) -> Tensor:
        """`cosh`, element by element; `out=` writes into a tensor's memory."""
    def count_nonzero(self, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """How many elements over `axis` are not zero."""
    def cross(self, b: ArrayLike, /, *, axis: int = -1) -> Tensor:
        """The cross product of vectors in three dimensions."""
    def cummax(self, axis: int = 0) -> Tensor:
        """Running maxima along `axis`; the gradient goes to where each was attained."""
    def cummin(self, axis: int = 0) -> Tensor:
        """Running minima along `axis`; the gradient goes to where each was attained."""
    def cumprod(self, axis: Axes = None, *, dtype: DTypeLike | None = None) -> Tensor:
        """Running products along `axis` (None: of the flattened tensor)."""
    def cumsum(self, axis: Axes = None, *, dtype: DTypeLike | None = None) -> Tensor:
        """Running sums along `axis` (None: of the flattened tensor)."""
    def diag(self, /, offset: int = 0) -> Tensor:
        """A matrix's diagonal, or the matrix that has a vector as its diagonal."""
    def diagonal(self, /, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
        """The diagonals over two axes, along a new last axis."""
    def diff(
        self,
        /,
        *,
        axis: int = -1,
        n: int = 1,
        prepend: ArrayLike | None = None,
        append: ArrayLike | None = None,
    ) -> Tensor:
        """n-th differences of neighbours along `axis`."""
    def digamma(self, /, *, out: Tensor | None = None) -> Tensor:
        """`digamma`, element by element; `out=` writes into a tensor's memory."""
    def div(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`divide`, element by element; `out=` writes into a tensor's memory."""
    def divide(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`divide`, element by element; `out=` writes into a tensor's memory."""
    def dot(self, b: ArrayLike, /) -> Tensor:
        """NumPy's dot."""
    def equal(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`equal`, element by element; `out=` writes into a tensor's memory."""
    def erf(self, /, *, out: Tensor | None = None) -> Tensor:
        """`erf`, element by element; `out=` writes into a tensor's memory."""
    def erfc(self, /, *, out: Tensor | None = None) -> Tensor:
        """`erfc`, element by element; `out=` writes into a tensor's memory."""
    def erfinv(self, /, *, out: Tensor | None = None) -> Tensor:
        """`erfinv`, element by element; `out=` writes into a tensor's memory."""
    def exp(self, /, *, out: Tensor | None = None) -> Tensor:
        """`exp`, element by element; `out=` writes into a tensor's memory."""
    def exp2(self, /, *, out: Tensor | None = None) -> Tensor:
        """`exp2`, element by element; `out=` writes into a tensor's memory."""
    def expand_dims(self, /, axis: int | tuple[int, ...] | list[int] = 0) -> Tensor:
        """x with a new axis of length 1."""
    def expm1(self, /, *, out: Tensor | None = None) -> Tensor:
        """`expm1`, element by element; `out=` writes into a tensor's memory."""
    def flatten(self, /) -> Tensor:
        """x in one dimension."""
    def flip(self, /, *, axis: Axes = None) -> Tensor:
        """x with the order along `axis` reversed (None: all axes)."""
    def floor(self, /, *, out: Tensor | None = None) -> Tensor:
        """`floor`, element by element; `out=` writes into a tensor's memory."""
    def floor_divide(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`floor_divide`, element by element; `out=` writes into a tensor's memory."""
    def gather(self, /, axis: int, indices: ArrayLike) -> Tensor:
        """PyTorch's gather: out[i, j] = x[indices[i, j], j] for axis 0."""
    def gelu(self, /, approximate: str = "none") -> Tensor:
        """x·Φ(x) with the normal distribution function Φ; or its tanh approximation."""
    def greater(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`greater`, element by element; `out=` writes into a tensor's memory."""
    def greater_equal(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`greater_equal`, element by element; `out=` writes into a tensor's memory."""
    def hypot(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`hypot`, element by element; `out=` writes into a tensor's memory."""
    def index_add(self, /, axis: int, indices: ArrayLike, source: ArrayLike) -> Tensor:
        """x with slices of `source` added where the indices say; duplicates add up."""
    def index_select(self, /, axis: int, indices: ArrayLike) -> Tensor:
        """`take` with PyTorch's order of arguments."""
    def isclose(
        self, b: ArrayLike, /, *, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> Tensor:
        """|a − b| ≤ atol + rtol·|b|, element by element."""
    def isfinite(self, /, *, out: Tensor | None = None) -> Tensor:
        """`isfinite`, element by element; `out=` writes into a tensor's memory."""
    def isinf(self, /, *, out: Tensor | None = None) -> Tensor:
        """`isinf`, element by element; `out=` writes into a tensor's memory."""
    def isnan(self, /, *, out: Tensor | None = None) -> Tensor:
        """`isnan`, element by element; `out=` writes into a tensor's memory."""
    def less(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`less`, element by element; `out=` writes into a tensor's memory."""
    def less_equal(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`less_equal`, element by element; `out=` writes into a tensor's memory."""
    def lgamma(self, /, *, out: Tensor | None = None) -> Tensor:
        """`gammaln`, element by element; `out=` writes into a tensor's memory."""
    def log(self, /, *, out: Tensor | None = None) -> Tensor:
        """`log`, element by element; `out=` writes into a tensor's memory."""
    def log10(self, /, *, out: Tensor | None = None) -> Tensor:
        """`log10`, element by element; `out=` writes into a tensor's memory."""
    def log1p(self, /, *, out: Tensor | None = None) -> Tensor:
        """`log1p`, element by element; `out=` writes into a tensor's memory."""
    def log2(self, /, *, out: Tensor | None = None) -> Tensor:
        """`log2`, element by element; `out=` writes into a tensor's memory."""
    def log_softmax(self, /, axis: int = -1) -> Tensor:
        """x − log Σ exp(x) along `axis`."""
    def logaddexp(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`logaddexp`, element by element; `out=` writes into a tensor's memory."""
    def logical_and(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`logical_and`, element by element; `out=` writes into a tensor's memory."""
    def logical_not(self, /, *, out: Tensor | None = None) -> Tensor:
        """`logical_not`, element by element; `out=` writes into a tensor's memory."""
    def logical_or(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`logical_or`, element by element; `out=` writes into a tensor's memory."""
    def logical_xor(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`logical_xor`, element by element; `out=` writes into a tensor's memory."""
    def logit(self, /, *, out: Tensor | None = None) -> Tensor:
        """`logit`, element by element; `out=` writes into a tensor's memory."""
    def logsumexp(self, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """log Σ exp(x) over `axis`, without overflow."""
    def matmul(self, b: ArrayLike, /) -> Tensor:
        """The matrix product, batched over leading axes."""
    def max(self, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """The largest element over `axis`; equal ones share the gradient."""
    def maximum(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`maximum`, element by element; `out=` writes into a tensor's memory."""
    def mean(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """`wf.mean`, with keepdims also by position."""
    def median(self, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """The middle element, or the mean of the middle two."""
    def min(self, /, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """The smallest element over `axis`; equal ones share the gradient."""
    def minimum(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`minimum`, element by element; `out=` writes into a tensor's memory."""
    def moveaxis(
        self, source: int | tuple[int, ...], destination: int | tuple[int, ...], /
    ) -> Tensor:
        """x with some axes moved, the others in their order."""
    def mul(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`multiply`, element by element; `out=` writes into a tensor's memory."""
    def multiply(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`multiply`, element by element; `out=` writes into a tensor's memory."""
    def neg(self, /, *, out: Tensor | None = None) -> Tensor:
        """`negative`, element by element; `out=` writes into a tensor's memory."""
    def nonzero(self, /) -> tuple[Tensor, ...]:
        """Where x is not zero: for each axis an array of indices."""
    def norm(self, /, ord: float = 2, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """The vector norm (Σ|x|^ord)^(1/ord) over `axis`; at 0 its gradient is 0."""
    def not_equal(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`not_equal`, element by element; `out=` writes into a tensor's memory."""
    def outer(self, b: ArrayLike, /) -> Tensor:
        """The products of all pairs of elements of two vectors."""
    def permute_dims(self, /, axes: Axes = None, *more: int) -> Tensor:
        """x with its axes in another order (None: reversed)."""
    def pow(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """xʸ; the derivative of x⁰ at 0 is 0, and x² has the second derivative 2 there."""
    def prod(
        self, /, axis: Axes = None, *, dtype: DTypeLike | None = None, keepdims: bool = False
    ) -> Tensor:
        """The product over `axis`; its derivative is exact where elements are zero."""
    def quantile(
        self, /, q: ArrayLike, axis: Axes = None, *, keepdims: bool = False, method: str = "linear"
    ) -> Tensor:
        """The q-quantile(s) over `axis`."""
    def reciprocal(self, /, *, out: Tensor | None = None) -> Tensor:
        """`reciprocal`, element by element; `out=` writes into a tensor's memory."""
    def relu(self, /, *, out: Tensor | None = None) -> Tensor:
        """`relu`, element by element; `out=` writes into a tensor's memory."""
    def remainder(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`remainder`, element by element; `out=` writes into a tensor's memory."""
    def repeat(self, /, repeats: int | ArrayLike, *, axis: int | None = None) -> Tensor:
        """Each element repeated along `axis` (None: of the flattened tensor)."""
    def reshape(self, /, shape: Shape, *more: int, copy: bool | None = None) -> Tensor:
        """x with another shape; one size may be −1."""
    def roll(self, /, shift: int | tuple[int, ...] | list[int], *, axis: Axes = None) -> Tensor:
        """x shifted around along `axis` (None: as if flattened)."""
    def round(self, /, *, out: Tensor | None = None) -> Tensor:
        """`round`, element by element; `out=` writes into a tensor's memory."""
    def rsqrt(self, /, *, out: Tensor | None = None) -> Tensor:
        """`rsqrt`, element by element; `out=` writes into a tensor's memory."""
    def scatter(self, /, axis: int, indices: ArrayLike, source: ArrayLike) -> Tensor:
        """PyTorch's scatter: a copy of x with out[indices[i, j], j] = source[i, j] for axis 0."""
    def scatter_add(self, /, axis: int, indices: ArrayLike, source: ArrayLike) -> Tensor:
        """`scatter` that adds; duplicates add up."""
    def sigmoid(self, /) -> Tensor:
        """1 / (1 + exp(−x))."""
    def sign(self, /, *, out: Tensor | None = None) -> Tensor:
        """`sign`, element by element; `out=` writes into a tensor's memory."""
    def silu(self, /) -> Tensor:
        """x·sigmoid(x), also called swish."""
    def sin(self, /, *, out: Tensor | None = None) -> Tensor:
        """`sin`, element by element; `out=` writes into a tensor's memory."""
    def sinh(self, /, *, out: Tensor | None = None) -> Tensor:
        """`sinh`, element by element; `out=` writes into a tensor's memory."""
    def softmax(self, /, axis: int = -1) -> Tensor:
        """exp(x) / Σ exp(x) along `axis`."""
    def softplus(self, /) -> Tensor:
        """log(1 + exp(x)), without overflow."""
    def sort(self, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        """x in order along `axis`; always stable."""
    def split(self, /, sections: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
        """x in equal parts (an integer), or cut at positions (a sequence)."""
    def sqrt(self, /, *, out: Tensor | None = None) -> Tensor:
        """`sqrt`, element by element; `out=` writes into a tensor's memory."""
    def square(self, /, *, out: Tensor | None = None) -> Tensor:
        """`square`, element by element; `out=` writes into a tensor's memory."""
    def squeeze(self, /, axis: Axes = None) -> Tensor:
        """x without axes of length 1 (None: all of them)."""
    def std(
        self, /, axis: Axes = None, *, correction: float = 0.0, keepdims: bool = False
    ) -> Tensor:
        """The square root of `var`; where that is 0, so is the gradient."""
    def sub(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`subtract`, element by element; `out=` writes into a tensor's memory."""
    def subtract(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`subtract`, element by element; `out=` writes into a tensor's memory."""
    def sum(
        self, axis: Axes = None, keepdims: bool = False, *, dtype: DTypeLike | None = None
    ) -> Tensor:
        """`wf.sum`, with keepdims also by position."""
    def swapaxes(self, a: int, b: int, /) -> Tensor:
        """x with two axes exchanged."""
    def take(self, /, indices: ArrayLike, *, axis: int | None = None) -> Tensor:
        """The elements (or slices along `axis`) that the indices name."""
    def tan(self, /, *, out: Tensor | None = None) -> Tensor:
        """`tan`, element by element; `out=` writes into a tensor's memory."""
    def tanh(self, /, *, out: Tensor | None = None) -> Tensor:
        """`tanh`, element by element; `out=` writes into a tensor's memory."""
    def tile(self, repetitions: int | tuple[int, ...] | list[int], /) -> Tensor:
        """x repeated as a whole along each axis."""
    def topk(self, /, k: int, *, axis: int = -1, largest: bool = True) -> Ordered:
        """The k largest (or smallest) along `axis`, in order, and where they were."""
    def trace(self, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Tensor:
        """The sum of a diagonal over the last two axes."""
    def transpose(self, /, axes: Axes = None, *more: int) -> Tensor: ...
    def tril(self, /, *, k: int = 0) -> Tensor:
        """x with zeros above the k-th diagonal."""
    def triu(self, /, *, k: int = 0) -> Tensor:
        """x with zeros below the k-th diagonal."""
    def trunc(self, /, *, out: Tensor | None = None) -> Tensor:
        """`trunc`, element by element; `out=` writes into a tensor's memory."""
    def unstack(self, /, *, axis: int = 0) -> tuple[Tensor, ...]:
        """The slices of x along an axis."""
    def var(
        self, /, axis: Axes = None, *, correction: float = 0.0, keepdims: bool = False
    ) -> Tensor:
        """The variance over `axis`: squared deviations over (n − correction)."""
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
        """`imag`, element by element; `out=` writes into a tensor's memory."""
    @property
    def real(self) -> Tensor:
        """`real`, element by element; `out=` writes into a tensor's memory."""
    @property
    def mT(self) -> Tensor:
        """x with its last two axes exchanged."""
    @property
    def mH(self) -> Tensor:
        """The conjugate of `.mT`."""
    def add(self, y: ArrayLike, /, *, out: Tensor | None = None) -> Tensor:
        """`add`, element by element; `out=` writes into a tensor's memory."""
    def add_at_index(self, position: int, value: ArrayLike) -> Tensor:
        """A copy with `value` added to the element at a flat position."""
    def add_scalar(self, value: ArrayLike) -> Tensor: ...
    def add_into(self, other: ArrayLike, buffer: Tensor) -> Tensor:
        """`add` into the memory of a tensor; returns it."""
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
        """`divide` into the memory of a tensor; returns it."""
    def div_scalar(self, value: ArrayLike) -> Tensor: ...
    @staticmethod
    def from_array(
        data: ArrayLike,
        requires_grad: bool = False,
        dtype: DTypeLike | None = None,
        device: Device | None = None,
    ) -> Tensor:
        """A new tensor with a copy of `data`."""
    @staticmethod
    def from_scalar(
        value: ArrayLike, device: Device | None = None, dtype: DTypeLike | None = None
    ) -> Tensor:
        """A number as a 0-d tensor."""
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
        """Normal with density exp(-(x-mean)²/(2 std²)) / (std √(2π))."""
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
        """`multiply` into the memory of a tensor; returns it."""
    def mul_scalar(self, value: ArrayLike) -> Tensor: ...
    def permute(self, /, axes: Axes = None, *more: int) -> Tensor:
        """x with its axes in another order (None: reversed)."""
    @staticmethod
    def scalar(
        value: ArrayLike, device: Device | None = None, dtype: DTypeLike | None = None
    ) -> Tensor:
        """A number as a 0-d tensor."""
    def sub_at_index(self, position: int, value: Tensor | complex) -> Tensor:
        """A copy with `value` subtracted from the element at a flat position."""
    def sub_into(self, other: ArrayLike, buffer: Tensor) -> Tensor:
        """`subtract` into the memory of a tensor; returns it."""
    def sub_scalar(self, value: ArrayLike) -> Tensor: ...
    def sum_dim(self, axis: int, keepdims: bool = False) -> Tensor:
        """The sum along one axis."""
    def view(self, /, shape: Shape, *more: int, copy: bool | None = None) -> Tensor:
        """x with another shape; one size may be −1."""
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
