"""Public functions that pick, place, order and count elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Never

from .. import errors
from ..core import dtypes
from ..core.aval import integer_in
from ..core.backends import PYTHON_SCALARS
from ..core.value import TENSORS
from ..ops import along, distinct, index, order, quantiles
from . import dtype_functions
from .arguments import axes_of, axis_of, boxed, boxed_beside, flat_or_axis, integers_beside
from .keywords import checks_keywords, unexpected_keyword
from .make import asarray

if TYPE_CHECKING:
    from .tensor import Tensor
    from .types import ArrayLike, Axes, DTypeLike


def _indices(x, i):
    """Indices as a tensor on the device of x."""
    return asarray(i, device=x.device)


@checks_keywords
def take(x: ArrayLike, /, indices: ArrayLike, *, axis: int | None = None) -> Tensor:
    """The elements (or slices along `axis`) that the indices name."""
    x, k = flat_or_axis("take", boxed(x), axis)
    return index.take(x, _indices(x, indices), k)


@checks_keywords
def index_select(x: ArrayLike, /, axis: int, indices: ArrayLike) -> Tensor:
    """`take` with PyTorch's order of arguments."""
    return take(x, indices, axis=axis)


@checks_keywords
def take_along_axis(x: ArrayLike, /, indices: ArrayLike, *, axis: int = -1) -> Tensor:
    """The elements that an array of indices names, along one axis."""
    x, k = flat_or_axis("take_along_axis", boxed(x), axis)
    return along.take_along_axis(x, _indices(x, indices), k)


@checks_keywords
def put_along_axis(
    x: ArrayLike, /, indices: ArrayLike, values: ArrayLike, *, axis: int = -1
) -> Tensor:
    """x with values written where the indices say, along one axis."""
    x, k = flat_or_axis("put_along_axis", boxed(x), axis)
    return along.put_along_axis(x, _indices(x, indices), values, k)


@checks_keywords
def gather(x: ArrayLike, /, axis: int, indices: ArrayLike) -> Tensor:
    """PyTorch's gather: out[i, j] = x[indices[i, j], j] for axis 0."""
    x = boxed(x)
    k = axis_of("gather", x, axis)
    return along.gather(x, _indices(x, indices), k)


@checks_keywords
def scatter(x: ArrayLike, /, axis: int, indices: ArrayLike, source: ArrayLike) -> Tensor:
    """PyTorch's scatter: a copy of x with out[indices[i, j], j] = source[i, j] for axis 0."""
    x = boxed(x)
    k = axis_of("scatter", x, axis)
    return along.scatter(x, _indices(x, indices), source, k)


@checks_keywords
def scatter_add(x: ArrayLike, /, axis: int, indices: ArrayLike, source: ArrayLike) -> Tensor:
    """`scatter` that adds; duplicates add up."""
    x = boxed(x)
    k = axis_of("scatter_add", x, axis)
    return along.scatter_add(x, _indices(x, indices), source, k)


@checks_keywords
def index_add(x: ArrayLike, /, axis: int, indices: ArrayLike, source: ArrayLike) -> Tensor:
    """x with slices of `source` added where the indices say; duplicates add up."""
    x = boxed(x)
    k = axis_of("index_add", x, axis)
    return index.index_add(x, _indices(x, indices), source, k)


def put(x: ArrayLike, indices: ArrayLike, values: ArrayLike, /) -> Tensor:
    """A copy of x with values at flat positions."""
    x = boxed(x)
    return along.put(x, _indices(x, indices), values)


def embedding(indices: ArrayLike, weight: ArrayLike, /) -> Tensor:
    """The rows of a table that the indices name."""
    weight = boxed(weight)
    return index.embedding(weight, _indices(weight, indices))


def one_hot(indices: ArrayLike, num_classes: int, /, *, dtype: DTypeLike | None = None) -> Tensor:
    """A vector with a single one for each index, along a new last axis."""
    dtype = dtypes.default_float() if dtype is None else dtypes.canonical(dtype)
    indices = boxed(indices)
    if not dtype_functions.isdtype(indices.dtype, "integral"):
        raise errors.DTypeError(f"one_hot: got {indices.dtype}, expected integer classes")
    if integer_in("one_hot", "num_classes", num_classes) < 1:
        raise errors.ArgumentError(f"one_hot: {num_classes} classes, expected 1 or more")
    return index.one_hot(indices, num_classes, dtype)


def nonzero(x: ArrayLike, /) -> tuple[Tensor, ...]:
    """Where x is not zero: for each axis an array of indices."""
    x = boxed(x)
    if not x.ndim:
        raise errors.ShapeError("nonzero: a 0-d tensor has no axes; reshape it to (1,) first")
    return index.nonzero(x)


def argwhere(x: ArrayLike, /) -> Tensor:
    """Where x is not zero: one row of indices for each element."""
    return index.argwhere(boxed(x))


def sort(
    x: ArrayLike,
    /,
    *,
    axis: int = -1,
    descending: bool = False,
    stable: bool = True,
    **unknown: Never,
) -> Tensor:
    """x in order along `axis`; always stable."""
    if unknown:
        raise unexpected_keyword(sort, unknown)
    x = boxed(x)
    return order.sort(x, axis_of("sort", x, axis), descending)


def argsort(
    x: ArrayLike,
    /,
    *,
    axis: int = -1,
    descending: bool = False,
    stable: bool = True,
    **unknown: Never,
) -> Tensor:
    """The indices that sort x along `axis`; always stable."""
    if unknown:
        raise unexpected_keyword(argsort, unknown)
    x = boxed(x)
    return order.argsort(x, axis_of("argsort", x, axis), descending)


class Ordered(NamedTuple):
    """Values and where they were."""

    values: Tensor
    indices: Tensor


@checks_keywords
def topk(x: ArrayLike, /, k: int, *, axis: int = -1, largest: bool = True) -> Ordered:
    """The k largest (or smallest) along `axis`, in order, and where they were."""
    x, k = boxed(x), integer_in("topk", "k", k)
    return Ordered(*order.topk(x, k, axis_of("topk", x, axis), largest))


def max_with_indices(
    x: ArrayLike, /, axis: int = -1, *, keepdims: bool = False, **unknown: Never
) -> Ordered:
    """The largest along `axis` and where it is; the gradient goes there."""
    if unknown:
        raise unexpected_keyword(max_with_indices, unknown)
    x = boxed(x)
    return Ordered(*order.max_with_indices(x, axis_of("max_with_indices", x, axis), keepdims))


def min_with_indices(
    x: ArrayLike, /, axis: int = -1, *, keepdims: bool = False, **unknown: Never
) -> Ordered:
    """The smallest along `axis` and where it is; the gradient goes there."""
    if unknown:
        raise unexpected_keyword(min_with_indices, unknown)
    x = boxed(x)
    return Ordered(*order.min_with_indices(x, axis_of("min_with_indices", x, axis), keepdims))


def median(
    x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, **unknown: Never
) -> Tensor:
    """The middle element, or the mean of the middle two."""
    if unknown:
        raise unexpected_keyword(median, unknown)
    x = boxed(x)
    return quantiles.median(x, axes_of("median", x, axis), keepdims)


def _levels(name: str, q):
    """Numbers, or tensors of them, as they are; anything else is an error."""
    if isinstance(q, str) or q is None:
        raise errors.DTypeError(f"{name}: q is {q!r}, expected numbers")
    return q


@checks_keywords
def quantile(
    x: ArrayLike,
    /,
    q: ArrayLike,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    method: str = "linear",
) -> Tensor:
    """The q-quantile(s) over `axis`."""
    x, q = boxed(x), _levels("quantile", q)
    return quantiles.quantile(x, q, axes_of("quantile", x, axis), keepdims, method)


@checks_keywords
def percentile(
    x: ArrayLike,
    /,
    q: ArrayLike,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    method: str = "linear",
) -> Tensor:
    """The q-th percentile(s) over `axis`."""
    x, q = boxed(x), _levels("percentile", q)
    return quantiles.percentile(x, q, axes_of("percentile", x, axis), keepdims, method)


def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    /,
    left: ArrayLike | None = None,
    right: ArrayLike | None = None,
    period: float | None = None,
) -> Tensor:
    """Piecewise linear interpolation of the points (xp, fp) at x; differentiable in all three."""
    xp = boxed(xp)
    return quantiles.interp(boxed_beside(xp, x), xp, boxed_beside(xp, fp), left, right, period)


def searchsorted(
    x1: ArrayLike, x2: ArrayLike, /, *, side: str = "left", sorter: ArrayLike | None = None
) -> Tensor:
    """Where the elements of x2 belong in the sorted x1."""
    x1 = boxed(x1)
    x2 = integers_beside(x1, x2)
    if side not in ("left", "right"):
        raise errors.ArgumentError(f"searchsorted: side {side!r}, expected 'left' or 'right'")
    if sorter is not None:
        x1 = take(x1, sorter)
    return order.searchsorted(x1, x2, side == "right")


def bincount(x: ArrayLike, /, weights: ArrayLike | None = None, *, minlength: int = 0) -> Tensor:
    """How often each nonnegative integer occurs, or the sum of its weights."""
    x = boxed(x)
    if not dtype_functions.isdtype(x.dtype, "integral"):
        raise errors.DTypeError(f"bincount: got {x.dtype}, expected integers")
    return distinct.bincount(x, weights, minlength)


def histogram(x: ArrayLike, edges: ArrayLike, /, weights: ArrayLike | None = None) -> Tensor:
    """How many elements fall between neighbouring edges."""
    x = boxed(x)
    return distinct.histogram(x, boxed_beside(x, edges), weights)


class UniqueAll(NamedTuple):
    """What `unique_all` finds."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """What `unique_counts` finds."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """What `unique_inverse` finds."""

    values: Tensor
    inverse_indices: Tensor


def unique_values(x: ArrayLike, /) -> Tensor:
    """The distinct elements."""
    return distinct.unique_values(boxed(x))


def unique_all(x: ArrayLike, /) -> UniqueAll:
    """The distinct elements, where each occurs first, how to rebuild x, and the counts."""
    return UniqueAll(*distinct.unique_all(boxed(x)))


def unique_counts(x: ArrayLike, /) -> UniqueCounts:
    """The distinct elements and how often each occurs."""
    return UniqueCounts(*distinct.unique_counts(boxed(x)))


def unique_inverse(x: ArrayLike, /) -> UniqueInverse:
    """The distinct elements and how to rebuild x from them."""
    return UniqueInverse(*distinct.unique_inverse(boxed(x)))


def isin(x1: ArrayLike, x2: ArrayLike, /, *, invert: bool = False) -> Tensor:
    """Whether each element of x1 is among those of x2."""
    if type(x1) in PYTHON_SCALARS and type(x2) in TENSORS:
        x1 = integers_beside(x2, x1)
    x1 = boxed(x1)
    x2 = integers_beside(x1, x2)
    found = (x1.reshape((*x1.shape, 1)) == x2.reshape((-1,))).any(axis=-1)
    return ~found if invert else found
