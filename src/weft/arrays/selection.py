"""Public functions that pick, place, order and count elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Never

import numpy as np

from .. import errors
from ..core import dtypes
from ..core.aval import integer_in
from ..core.backends import PYTHON_SCALARS
from ..core.value import TENSORS
from ..ops import along, distinct, index, order, quantiles
from . import dtype_functions
from .arguments import as_tensor, axes_of, axis_of, boxed_beside, flat_or_axis, integers_beside
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
    """The elements, or slices along `axis`, that the indices name.

    x        an array, or anything `wf.asarray` accepts
    indices  integers, of any shape, which takes the place of the axis; negative ones count from
             the end
    axis     the axis to index; None: x is flattened first

    The gradients of an element that is taken several times add up.

    >>> import weft as wf
    >>> wf.take([10.0, 20.0, 30.0], [2, 0, 2]).tolist()
    [30.0, 10.0, 30.0]
    """
    x, k = flat_or_axis("take", as_tensor(x), axis)
    return index.take(x, _indices(x, indices), k)


@checks_keywords
def index_select(x: ArrayLike, /, axis: int, indices: ArrayLike) -> Tensor:
    """The slices along `axis` that the indices name: `take` with PyTorch's order of arguments.

    x        an array, or anything `wf.asarray` accepts
    axis     the axis to index
    indices  integers; negative ones count from the end

    >>> import weft as wf
    >>> wf.index_select([[1.0, 2.0], [3.0, 4.0]], 1, [1]).tolist()
    [[2.0], [4.0]]
    """
    x = as_tensor(x)
    return take(x, indices, axis=axis_of("index_select", x, axis))


@checks_keywords
def take_along_axis(x: ArrayLike, /, indices: ArrayLike, *, axis: int | None = -1) -> Tensor:
    """out[i, j] = x[i, indices[i, j]] for the last axis: for each index the element it names.

    x        an array, or anything `wf.asarray` accepts
    indices  integers with as many axes as x, which broadcast but for `axis`
    axis     the axis to index; None: x is flattened first

    >>> import weft as wf
    >>> wf.take_along_axis([[1.0, 2.0], [3.0, 4.0]], [[1], [0]], axis=1).tolist()
    [[2.0], [3.0]]
    """
    x, k = flat_or_axis("take_along_axis", as_tensor(x), axis)
    return along.take_along_axis(x, _indices(x, indices), k)


@checks_keywords
def put_along_axis(
    x: ArrayLike, /, indices: ArrayLike, values: ArrayLike, *, axis: int | None = -1
) -> Tensor:
    """A copy of x with out[i, indices[i, j]] = values[i, j] for the last axis.

    x        an array, or anything `wf.asarray` accepts
    indices  integers with as many axes as x, which broadcast but for `axis`
    values   what is written; it broadcasts to the indices
    axis     the axis to index; None: x is flattened first

    Of several writes to one place the last wins, and alone gets the gradient.

    >>> import weft as wf
    >>> wf.put_along_axis([[1.0, 2.0], [3.0, 4.0]], [[1], [0]], 9.0, axis=1).tolist()
    [[1.0, 9.0], [9.0, 4.0]]
    """
    x, k = flat_or_axis("put_along_axis", as_tensor(x), axis)
    return along.put_along_axis(x, _indices(x, indices), values, k)


@checks_keywords
def gather(x: ArrayLike, /, axis: int, indices: ArrayLike) -> Tensor:
    """PyTorch's gather: out[i, j] = x[indices[i, j], j] for axis 0.

    x        an array, or anything `wf.asarray` accepts
    axis     the axis to index
    indices  integers with as many axes as x, not longer than it on the others

    >>> import weft as wf
    >>> wf.gather([[1.0, 2.0], [3.0, 4.0]], 0, [[1, 0]]).tolist()
    [[3.0, 2.0]]
    """
    x = as_tensor(x)
    k = axis_of("gather", x, axis)
    return along.gather(x, _indices(x, indices), k)


@checks_keywords
def scatter(x: ArrayLike, /, axis: int, indices: ArrayLike, source: ArrayLike) -> Tensor:
    """PyTorch's scatter: a copy of x with out[indices[i, j], j] = source[i, j] for axis 0.

    x        an array, or anything `wf.asarray` accepts
    axis     the axis to index
    indices  integers with as many axes as x, not longer than it on the others
    source   what is written: an array at least as large as the indices, or a number

    Of several writes to one place the last wins, and alone gets the gradient.

    >>> import weft as wf
    >>> wf.scatter([[1.0, 2.0], [3.0, 4.0]], 0, [[1, 0]], [[8.0, 9.0]]).tolist()
    [[1.0, 9.0], [8.0, 4.0]]
    """
    x = as_tensor(x)
    k = axis_of("scatter", x, axis)
    return along.scatter(x, _indices(x, indices), source, k)


@checks_keywords
def scatter_add(x: ArrayLike, /, axis: int, indices: ArrayLike, source: ArrayLike) -> Tensor:
    """A copy of x with source[i, j] added at [indices[i, j], j] for axis 0; duplicates add up.

    x        an array, or anything `wf.asarray` accepts
    axis     the axis to index
    indices  integers with as many axes as x, not longer than it on the others
    source   what is added: an array at least as large as the indices, or a number

    >>> import weft as wf
    >>> wf.scatter_add([1.0, 2.0], 0, [1, 1], [10.0, 20.0]).tolist()
    [1.0, 32.0]
    """
    x = as_tensor(x)
    k = axis_of("scatter_add", x, axis)
    return along.scatter_add(x, _indices(x, indices), source, k)


@checks_keywords
def index_add(x: ArrayLike, /, axis: int, indices: ArrayLike, source: ArrayLike) -> Tensor:
    """A copy of x with the slices of `source` added where the indices say; duplicates add up.

    x        an array, or anything `wf.asarray` accepts
    axis     the axis to index
    indices  integers along one axis
    source   the slices: x's shape but for `axis`, which is as long as the indices

    >>> import weft as wf
    >>> wf.index_add([1.0, 2.0], 0, [1, 1], [10.0, 20.0]).tolist()
    [1.0, 32.0]
    """
    x = as_tensor(x)
    k = axis_of("index_add", x, axis)
    return index.index_add(x, _indices(x, indices), source, k)


def put(x: ArrayLike, indices: ArrayLike, values: ArrayLike, /) -> Tensor:
    """A copy of x with values at positions counted in its flat order.

    x        an array, or anything `wf.asarray` accepts
    indices  integers; negative ones count from the end
    values   what is written; fewer than indices are repeated

    >>> import weft as wf
    >>> wf.put([[1.0, 2.0], [3.0, 4.0]], [0, 3], [8.0, 9.0]).tolist()
    [[8.0, 2.0], [3.0, 9.0]]
    """
    x = as_tensor(x)
    return along.put(x, _indices(x, indices), values)


def embedding(indices: ArrayLike, weight: ArrayLike, /) -> Tensor:
    """The rows weight[i] of a table, for each index.

    indices  integers of any shape
    weight   a table: one row for each index that there can be

    >>> import weft as wf
    >>> wf.embedding([1, 0, 1], [[1.0, 2.0], [3.0, 4.0]]).tolist()
    [[3.0, 4.0], [1.0, 2.0], [3.0, 4.0]]
    """
    weight = as_tensor(weight)
    return index.embedding(weight, _indices(weight, indices))


def one_hot(indices: ArrayLike, num_classes: int, /, *, dtype: DTypeLike | None = None) -> Tensor:
    """1 at the place of each index and 0 elsewhere, along a new last axis.

    indices      integers from 0 to num_classes − 1
    num_classes  the length of the new axis
    dtype        None: the default float

    >>> import weft as wf
    >>> wf.one_hot([0, 2], 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    dtype = dtypes.default_float() if dtype is None else dtypes.canonical(dtype)
    indices = as_tensor(indices)
    if not dtype_functions.isdtype(indices.dtype, "integral"):
        raise errors.DTypeError(f"one_hot: got {indices.dtype}, expected integer classes")
    if integer_in("one_hot", "num_classes", num_classes) < 1:
        raise errors.ArgumentError(f"one_hot: num_classes={num_classes}, expected 1 or more")
    return index.one_hot(indices, num_classes, dtype)


def nonzero(x: ArrayLike, /) -> tuple[Tensor, ...]:
    """Where x is not zero: for each axis an array of indices.

    x  an array with at least one axis

    >>> import weft as wf
    >>> [i.tolist() for i in wf.nonzero([[0, 5], [6, 0]])]
    [[0, 1], [1, 0]]
    """
    x = as_tensor(x)
    if not x.ndim:
        raise errors.ShapeError("nonzero: a 0-d tensor has no axes; reshape it to (1,) first")
    return index.nonzero(x)


def argwhere(x: ArrayLike, /) -> Tensor:
    """Where x is not zero: one row of indices for each such element.

    x  an array, or anything `wf.asarray` accepts

    >>> import weft as wf
    >>> wf.argwhere([[0, 5], [6, 0]]).tolist()
    [[0, 1], [1, 0]]
    """
    return index.argwhere(as_tensor(x))


def sort(
    x: ArrayLike,
    /,
    *,
    axis: int = -1,
    descending: bool = False,
    stable: bool = True,
    **unknown: Never,
) -> Tensor:
    """x in ascending order along `axis`; NaN counts as the largest.

    x           an array, or anything `wf.asarray` accepts
    axis        the axis to sort along
    descending  whether the largest comes first
    stable      accepted for the Array API: equal elements always keep their order

    The gradient of each element goes to where it came from.

    >>> import weft as wf
    >>> wf.sort([3.0, 1.0, 2.0]).tolist()
    [1.0, 2.0, 3.0]
    """
    if unknown:
        raise unexpected_keyword(sort, unknown)
    x = as_tensor(x)
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
    """The indices that put x in ascending order along `axis`; NaN counts as the largest.

    x           an array, or anything `wf.asarray` accepts
    axis        the axis to sort along
    descending  whether the largest comes first
    stable      accepted for the Array API: equal elements always keep their order

    >>> import weft as wf
    >>> wf.argsort([3.0, 1.0, 2.0]).tolist()
    [1, 2, 0]
    """
    if unknown:
        raise unexpected_keyword(argsort, unknown)
    x = as_tensor(x)
    return order.argsort(x, axis_of("argsort", x, axis), descending)


class Ordered(NamedTuple):
    """Values and where they were."""

    values: Tensor
    indices: Tensor


@checks_keywords
def topk(x: ArrayLike, /, k: int, *, axis: int = -1, largest: bool = True) -> Ordered:
    """The k largest elements along `axis`, in descending order, and their indices.

    x        an array, or anything `wf.asarray` accepts
    k        how many
    axis     the axis to search along
    largest  False gives the smallest, in ascending order

    The result is a named tuple (values, indices); the gradient goes to those indices.

    >>> import weft as wf
    >>> values, indices = wf.topk([1.0, 4.0, 3.0], 2)
    >>> values.tolist(), indices.tolist()
    ([4.0, 3.0], [1, 2])
    """
    x, k = as_tensor(x), integer_in("topk", "k", k)
    return Ordered(*order.topk(x, k, axis_of("topk", x, axis), largest))


def max_with_indices(
    x: ArrayLike, /, axis: int = -1, *, keepdims: bool = False, **unknown: Never
) -> Ordered:
    """The largest element along `axis` and its index, the first of equal ones.

    x         an array, or anything `wf.asarray` accepts
    axis      the axis to reduce
    keepdims  whether the reduced axis stays, with length 1

    The result is a named tuple (values, indices); the gradient goes to that index alone.

    >>> import weft as wf
    >>> values, indices = wf.max_with_indices([[1.0, 5.0], [7.0, 2.0]])
    >>> values.tolist(), indices.tolist()
    ([5.0, 7.0], [1, 0])
    """
    if unknown:
        raise unexpected_keyword(max_with_indices, unknown)
    x = as_tensor(x)
    return Ordered(*order.max_with_indices(x, axis_of("max_with_indices", x, axis), keepdims))


def min_with_indices(
    x: ArrayLike, /, axis: int = -1, *, keepdims: bool = False, **unknown: Never
) -> Ordered:
    """The smallest element along `axis` and its index, the first of equal ones.

    x         an array, or anything `wf.asarray` accepts
    axis      the axis to reduce
    keepdims  whether the reduced axis stays, with length 1

    The result is a named tuple (values, indices); the gradient goes to that index alone.

    >>> import weft as wf
    >>> values, indices = wf.min_with_indices([[1.0, 5.0], [7.0, 2.0]])
    >>> values.tolist(), indices.tolist()
    ([1.0, 2.0], [0, 1])
    """
    if unknown:
        raise unexpected_keyword(min_with_indices, unknown)
    x = as_tensor(x)
    return Ordered(*order.min_with_indices(x, axis_of("min_with_indices", x, axis), keepdims))


def median(
    x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, **unknown: Never
) -> Tensor:
    """The middle element in order, or the mean of the middle two, as in NumPy.

    x         an array, or anything `wf.asarray` accepts
    axis      the axis or axes to reduce; None: all
    keepdims  whether reduced axes stay, with length 1

    Where there is a NaN, the median is NaN.

    >>> import weft as wf
    >>> wf.median([3.0, 1.0, 2.0]).item(), wf.median([1.0, 2.0, 3.0, 10.0]).item()
    (2.0, 2.5)
    """
    if unknown:
        raise unexpected_keyword(median, unknown)
    x = as_tensor(x)
    return quantiles.median(x, axes_of("median", x, axis), keepdims)


def _levels(name: str, q):
    """Tensors as they are, anything else as an array of real numbers."""
    if type(q) in TENSORS:
        return q
    found = np.asarray(q)
    if found.dtype.kind == "O" and all([hasattr(v, "__float__") for v in found.flat]):
        return q  # numbers that a compiled function reads anew at each call
    if found.dtype.kind not in "fiub":
        raise errors.DTypeError(f"{name}: q is {q!r}, expected real numbers")
    return found.astype(np.float64)


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
    """The value below which a share q of the elements over `axis` lies.

    x         an array, or anything `wf.asarray` accepts
    q         numbers from 0 to 1, whose axes come first in the result; differentiable too
    axis      the axis or axes to reduce; None: all
    keepdims  whether reduced axes stay, with length 1
    method    what lies between two elements: "linear" (the default: at position (n − 1)·q),
              "lower", "higher", "nearest", "midpoint", or one of NumPy's
              "interpolated_inverted_cdf", "hazen", "weibull", "median_unbiased" and
              "normal_unbiased"

    >>> import weft as wf
    >>> wf.quantile([1.0, 2.0, 3.0, 4.0], 0.5).item()
    2.5
    >>> wf.quantile([1.0, 2.0, 3.0, 4.0], [0.25, 0.75], method="lower").tolist()
    [1.0, 3.0]
    """
    x, q = as_tensor(x), _levels("quantile", q)
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
    """The value below which q percent of the elements over `axis` lie: `quantile` at q/100.

    x         an array, or anything `wf.asarray` accepts
    q         numbers from 0 to 100, whose axes come first in the result
    axis      the axis or axes to reduce; None: all
    keepdims  whether reduced axes stay, with length 1
    method    what lies between two elements: "linear" and the others of `quantile`

    >>> import weft as wf
    >>> wf.percentile([1.0, 2.0, 3.0, 4.0, 5.0], 25).item()
    2.0
    """
    x, q = as_tensor(x), _levels("percentile", q)
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
    """The piecewise linear function through the points (xp, fp), at x.

    x            where it is evaluated
    xp           the points' abscissae, increasing
    fp           the points' ordinates
    left, right  the values below xp[0] and above xp[-1]; None: fp[0] and fp[-1]
    period       the period of a periodic function, whose points may then be in any order

    It is differentiable in x, xp and fp.

    >>> import weft as wf
    >>> wf.interp([0.5, 3.0], [0.0, 1.0, 2.0], [0.0, 10.0, 40.0]).tolist()
    [5.0, 40.0]
    """
    xp = as_tensor(xp)
    return quantiles.interp(boxed_beside(xp, x), xp, boxed_beside(xp, fp), left, right, period)


def searchsorted(
    x1: ArrayLike, x2: ArrayLike, /, *, side: str = "left", sorter: ArrayLike | None = None
) -> Tensor:
    """The index before which each element of x2 would be put into the sorted x1.

    x1      sorted numbers along one axis
    x2      what is looked up
    side    "left": before equal elements, "right": after them
    sorter  indices that sort x1; None: it is sorted

    >>> import weft as wf
    >>> wf.searchsorted([1.0, 2.0, 3.0], [2.0, 2.5]).tolist()
    [1, 2]
    """
    x1 = as_tensor(x1)
    x2 = integers_beside(x1, x2)
    if side not in ("left", "right"):
        raise errors.ArgumentError(f"searchsorted: side={side!r}, expected 'left' or 'right'")
    if sorter is not None:
        x1 = take(x1, sorter)
    return order.searchsorted(x1, x2, side == "right")


def bincount(x: ArrayLike, /, weights: ArrayLike | None = None, *, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, 2, … occurs in x, or the sum of its weights.

    x          nonnegative integers along one axis
    weights    one number for each element, whose gradient is kept; None: 1
    minlength  how long the result is at least

    >>> import weft as wf
    >>> wf.bincount([0, 2, 2]).tolist()
    [1, 0, 2]
    """
    x = as_tensor(x)
    if not dtype_functions.isdtype(x.dtype, "integral"):
        raise errors.DTypeError(f"bincount: got {x.dtype}, expected integers")
    return distinct.bincount(x, weights, minlength)


@checks_keywords
def histogram(x: ArrayLike, edges: ArrayLike, /, weights: ArrayLike | None = None) -> Tensor:
    """How many elements of x, or which sum of weights, fall into [edges[i], edges[i + 1]).

    x        an array, or anything `wf.asarray` accepts
    edges    increasing numbers; the last interval includes its upper end
    weights  one number for each element; None: 1

    >>> import weft as wf
    >>> wf.histogram([0.5, 1.5, 1.7, 3.0], [0.0, 1.0, 3.0]).tolist()
    [1, 3]
    """
    x = as_tensor(x)
    edges = boxed_beside(x, edges)
    if edges.ndim != 1 or not edges.size:
        raise errors.ShapeError(
            f"histogram: edges of shape {edges.shape}, expected one axis with at least one edge; "
            "for n intervals give wf.linspace(x.min(), x.max(), n + 1)"
        )
    weights = None if weights is None else boxed_beside(x, weights)
    if weights is not None and weights.size != x.size:
        raise errors.ShapeError(
            f"histogram: weights of shape {weights.shape} for x of shape {x.shape}, expected one "
            "for each element; wf.full_like(x, w) has the same for all"
        )
    return distinct.histogram(x, edges, weights)


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
    """The distinct elements, in ascending order.

    x  an array, which is flattened

    >>> import weft as wf
    >>> wf.unique_values([3, 1, 3]).tolist()
    [1, 3]
    """
    return distinct.unique_values(as_tensor(x))


def unique_all(x: ArrayLike, /) -> UniqueAll:
    """The distinct elements, where each occurs first, how to rebuild x, and how often each occurs.

    x  an array, which is flattened; `inverse_indices` has its shape

    The result is a named tuple (values, indices, inverse_indices, counts), where
    x = values[inverse_indices].

    >>> import weft as wf
    >>> found = wf.unique_all([3, 1, 3])
    >>> found.values.tolist(), found.indices.tolist(), found.inverse_indices.tolist()
    ([1, 3], [1, 0], [1, 0, 1])
    """
    return UniqueAll(*distinct.unique_all(as_tensor(x)))


def unique_counts(x: ArrayLike, /) -> UniqueCounts:
    """The distinct elements, in ascending order, and how often each occurs.

    x  an array, which is flattened

    The result is a named tuple (values, counts).

    >>> import weft as wf
    >>> found = wf.unique_counts([3, 1, 3])
    >>> found.values.tolist(), found.counts.tolist()
    ([1, 3], [1, 2])
    """
    return UniqueCounts(*distinct.unique_counts(as_tensor(x)))


def unique_inverse(x: ArrayLike, /) -> UniqueInverse:
    """The distinct elements, in ascending order, and which of them each element of x is.

    x  an array, which is flattened; `inverse_indices` has its shape

    The result is a named tuple (values, inverse_indices), where x = values[inverse_indices].

    >>> import weft as wf
    >>> found = wf.unique_inverse([3, 1, 3])
    >>> found.values.tolist(), found.inverse_indices.tolist()
    ([1, 3], [1, 0, 1])
    """
    return UniqueInverse(*distinct.unique_inverse(as_tensor(x)))


def isin(x1: ArrayLike, x2: ArrayLike, /, *, invert: bool = False) -> Tensor:
    """Whether each element of x1 is among those of x2.

    x1, x2  arrays
    invert  whether it is not among them

    >>> import weft as wf
    >>> wf.isin([1, 2, 3], [3, 1]).tolist()
    [True, False, True]
    """
    if type(x1) in PYTHON_SCALARS and type(x2) in TENSORS:
        x1 = integers_beside(x2, x1)
    x1 = as_tensor(x1)
    x2 = integers_beside(x1, x2)
    found = (x1.reshape((*x1.shape, 1)) == x2.reshape((-1,))).any(axis=-1)
    return ~found if invert else found
