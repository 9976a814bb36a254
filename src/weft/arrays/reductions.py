"""Public reductions: sums, extremes, statistics, and running ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never

from .. import errors
from ..core import dtypes
from ..core.aval import integer_in
from ..ops import cumulate, order, reduce, structural
from ..ops.structural import sum_
from .arguments import as_tensor, axes_of, axis_of, flat_or_axis
from .keywords import unexpected_keyword
from .make import full, number
from .manipulation import concat

if TYPE_CHECKING:
    from .tensor import Tensor
    from .types import ArrayLike, Axes, DTypeLike


def _in(x, dtype):
    x = as_tensor(x)
    return x if dtype is None else structural.cast(x, dtypes.canonical(dtype))


def sum(
    x: ArrayLike,
    /,
    axis: Axes = None,
    *,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
    **unknown: Never,
) -> Tensor:
    """The sum Σ xᵢ over `axis`.

    x         an array, or anything `wf.asarray` accepts
    axis      the axis or axes to sum over; None: all
    dtype     what the sum is made in and returned as; None: that of x, 64 bits for integers
    keepdims  whether reduced axes stay, with length 1

    Half types are added up in float32.

    >>> import weft as wf
    >>> wf.sum([[1.0, 2.0], [3.0, 4.0]], axis=0).tolist()
    [4.0, 6.0]
    """
    if unknown:
        raise unexpected_keyword(sum, unknown)
    if dtype is None:
        x = as_tensor(x)
        return sum_(x, axes_of("sum", x, axis), keepdims)
    x = _in(x, dtype)
    return structural.cast(sum_(x, axes_of("sum", x, axis), keepdims), dtypes.canonical(dtype))


def prod(
    x: ArrayLike,
    /,
    axis: Axes = None,
    *,
    dtype: DTypeLike | None = None,
    keepdims: bool = False,
    **unknown: Never,
) -> Tensor:
    """The product Π xᵢ over `axis`; its derivative is exact where elements are zero.

    x         an array, or anything `wf.asarray` accepts
    axis      the axis or axes to multiply over; None: all
    dtype     what the product is made in and returned as; None: that of x, 64 bits for integers
    keepdims  whether reduced axes stay, with length 1

    >>> import weft as wf
    >>> wf.prod([2.0, 3.0, 4.0]).item()
    24.0
    >>> wf.grad(wf.prod)(wf.tensor([2.0, 0.0, 4.0])).tolist()
    [0.0, 8.0, 0.0]
    """
    if unknown:
        raise unexpected_keyword(prod, unknown)
    x = _in(x, dtype)
    out = reduce.prod(x, axes_of("prod", x, axis), keepdims)
    return out if dtype is None else structural.cast(out, dtypes.canonical(dtype))


def mean(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, **unknown: Never) -> Tensor:
    """The arithmetic mean Σ xᵢ/n over `axis`.

    x         an array; integers are made floats
    axis      the axis or axes to average over; None: all
    keepdims  whether reduced axes stay, with length 1

    >>> import weft as wf
    >>> wf.mean([[1.0, 2.0], [3.0, 6.0]], axis=1).tolist()
    [1.5, 4.5]
    """
    if unknown:
        raise unexpected_keyword(mean, unknown)
    x = as_tensor(x)
    return reduce.mean(x, axes_of("mean", x, axis), keepdims)


def max(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, **unknown: Never) -> Tensor:
    """The largest element over `axis`; NaN if there is one. Also spelled amax.

    x         an array, or anything `wf.asarray` accepts
    axis      the axis or axes to reduce; None: all
    keepdims  whether reduced axes stay, with length 1

    Equal largest elements share the gradient evenly; `max_with_indices` gives it to one of them.

    >>> import weft as wf
    >>> wf.max([[1.0, 5.0], [7.0, 2.0]], axis=0).tolist()
    [7.0, 5.0]
    >>> wf.grad(wf.max)(wf.tensor([3.0, 1.0, 3.0])).tolist()
    [0.5, 0.0, 0.5]
    """
    if unknown:
        raise unexpected_keyword(max, unknown)
    x = as_tensor(x)
    return reduce.amax(x, axes_of("max", x, axis), keepdims)


def min(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, **unknown: Never) -> Tensor:
    """The smallest element over `axis`; NaN if there is one. Also spelled amin.

    x         an array, or anything `wf.asarray` accepts
    axis      the axis or axes to reduce; None: all
    keepdims  whether reduced axes stay, with length 1

    Equal smallest elements share the gradient evenly; `min_with_indices` gives it to one of them.

    >>> import weft as wf
    >>> wf.min([[1.0, 5.0], [7.0, 2.0]], axis=0).tolist()
    [1.0, 2.0]
    """
    if unknown:
        raise unexpected_keyword(min, unknown)
    x = as_tensor(x)
    return reduce.amin(x, axes_of("min", x, axis), keepdims)


amax = max
amin = min


def any(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, **unknown: Never) -> Tensor:
    """Whether some element over `axis` is not zero; False over none.

    x         an array, or anything `wf.asarray` accepts
    axis      the axis or axes to reduce; None: all
    keepdims  whether reduced axes stay, with length 1

    >>> import weft as wf
    >>> wf.any([[True, False], [False, False]], axis=1).tolist()
    [True, False]
    """
    if unknown:
        raise unexpected_keyword(any, unknown)
    x = as_tensor(x)
    return reduce.any_(x, axes_of("any", x, axis), keepdims)


def all(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, **unknown: Never) -> Tensor:
    """Whether every element over `axis` is not zero; True over none.

    x         an array, or anything `wf.asarray` accepts
    axis      the axis or axes to reduce; None: all
    keepdims  whether reduced axes stay, with length 1

    >>> import weft as wf
    >>> wf.all([[True, False], [True, True]], axis=1).tolist()
    [False, True]
    """
    if unknown:
        raise unexpected_keyword(all, unknown)
    x = as_tensor(x)
    return reduce.all_(x, axes_of("all", x, axis), keepdims)


def count_nonzero(
    x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, **unknown: Never
) -> Tensor:
    """How many elements over `axis` are not zero.

    x         an array, or anything `wf.asarray` accepts
    axis      the axis or axes to count over; None: all
    keepdims  whether reduced axes stay, with length 1

    >>> import weft as wf
    >>> wf.count_nonzero([[1, 0], [2, 3]], axis=1).tolist()
    [1, 2]
    """
    if unknown:
        raise unexpected_keyword(count_nonzero, unknown)
    x = as_tensor(x)
    return reduce.count_nonzero(x, axes_of("count_nonzero", x, axis), keepdims)


def argmax(
    x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False, **unknown: Never
) -> Tensor:
    """The index of the largest element, the first of equal ones; it has no gradient.

    x         an array, or anything `wf.asarray` accepts
    axis      the axis to search along; None: the index is into the flattened tensor
    keepdims  whether the reduced axis stays, with length 1

    >>> import weft as wf
    >>> wf.argmax([[1.0, 5.0], [7.0, 2.0]], axis=1).tolist()
    [1, 0]
    >>> wf.argmax([[1.0, 5.0], [7.0, 2.0]]).item()
    2
    """
    if unknown:
        raise unexpected_keyword(argmax, unknown)
    x = as_tensor(x)
    return reduce.argmax(x, None if axis is None else axis_of("argmax", x, axis), keepdims)


def argmin(
    x: ArrayLike, /, axis: int | None = None, *, keepdims: bool = False, **unknown: Never
) -> Tensor:
    """The index of the smallest element, the first of equal ones; it has no gradient.

    x         an array, or anything `wf.asarray` accepts
    axis      the axis to search along; None: the index is into the flattened tensor
    keepdims  whether the reduced axis stays, with length 1

    >>> import weft as wf
    >>> wf.argmin([[1.0, 5.0], [7.0, 2.0]], axis=1).tolist()
    [0, 1]
    """
    if unknown:
        raise unexpected_keyword(argmin, unknown)
    x = as_tensor(x)
    return reduce.argmin(x, None if axis is None else axis_of("argmin", x, axis), keepdims)


def var(
    x: ArrayLike,
    /,
    axis: Axes = None,
    *,
    correction: float = 0.0,
    keepdims: bool = False,
    **unknown: Never,
) -> Tensor:
    """The variance Σ |xᵢ − mean|²/(n − correction) over `axis`.

    x           an array, or anything `wf.asarray` accepts
    axis        the axis or axes to reduce; None: all
    correction  0, NumPy's default, divides by n; 1, PyTorch's, by n − 1 (unbiased)
    keepdims    whether reduced axes stay, with length 1

    >>> import weft as wf
    >>> wf.var([1.0, 3.0]).item(), wf.var([1.0, 3.0], correction=1).item()
    (1.0, 2.0)
    """
    if unknown:
        raise unexpected_keyword(var, unknown)
    x = as_tensor(x)
    return reduce.var(x, axes_of("var", x, axis), keepdims, correction)


def std(
    x: ArrayLike,
    /,
    axis: Axes = None,
    *,
    correction: float = 0.0,
    keepdims: bool = False,
    **unknown: Never,
) -> Tensor:
    """The standard deviation √(Σ |xᵢ − mean|²/(n − correction)) over `axis`.

    x           an array, or anything `wf.asarray` accepts
    axis        the axis or axes to reduce; None: all
    correction  0, NumPy's default, divides by n; 1, PyTorch's, by n − 1
    keepdims    whether reduced axes stay, with length 1

    Where it is 0, its gradient is 0.

    >>> import weft as wf
    >>> wf.std([1.0, 3.0]).item()
    1.0
    """
    if unknown:
        raise unexpected_keyword(std, unknown)
    x = as_tensor(x)
    return reduce.std(x, axes_of("std", x, axis), keepdims, correction)


def norm(
    x: ArrayLike, /, ord: float = 2, axis: Axes = None, *, keepdims: bool = False, **unknown: Never
) -> Tensor:
    """The vector norm (Σ |xᵢ|^ord)^(1/ord) over `axis`; at 0 its gradient is 0.

    x         an array, or anything `wf.asarray` accepts
    ord       the exponent; inf is the largest |xᵢ|, -inf the smallest, 0 counts those that are
              not 0
    axis      the axis or axes whose elements are one vector; None: all
    keepdims  whether reduced axes stay, with length 1

    Matrices have norms of their own: `wf.linalg.matrix_norm`.

    >>> import weft as wf
    >>> wf.norm([3.0, -4.0]).item()
    5.0
    >>> wf.norm([3.0, -4.0], ord=1).item()
    7.0
    """
    if unknown:
        raise unexpected_keyword(norm, unknown)
    x = as_tensor(x)
    if isinstance(ord, str | list | tuple):
        raise errors.ArgumentError(f"norm: ord {ord!r}, expected a number; see linalg.matrix_norm")
    return reduce.norm(x, axes_of("norm", x, axis), keepdims, number("norm", "ord", ord))


def logsumexp(
    x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, **unknown: Never
) -> Tensor:
    """log Σ exp(xᵢ) over `axis`, without overflow; its gradient is `softmax`.

    x         an array, or anything `wf.asarray` accepts
    axis      the axis or axes to sum over; None: all
    keepdims  whether reduced axes stay, with length 1

    >>> import weft as wf
    >>> round(wf.logsumexp([0.0, 0.0]).item(), 4)
    0.6931
    >>> wf.logsumexp([1000.0, 0.0]).item()
    1000.0
    """
    if unknown:
        raise unexpected_keyword(logsumexp, unknown)
    x = as_tensor(x)
    return reduce.logsumexp(x, axes_of("logsumexp", x, axis), keepdims)


def softmax(x: ArrayLike, /, axis: int = -1, **unknown: Never) -> Tensor:
    """exp(xᵢ)/Σ exp(xⱼ) along `axis`, without overflow: positive numbers whose sum is 1.

    x     an array, or anything `wf.asarray` accepts
    axis  the axis to normalise along

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.softmax([0.0, 1.0]).tolist()]
    [0.2689, 0.7311]
    """
    if unknown:
        raise unexpected_keyword(softmax, unknown)
    x = as_tensor(x)
    return reduce.softmax(x, axis_of("softmax", x, axis))


def log_softmax(x: ArrayLike, /, axis: int = -1, **unknown: Never) -> Tensor:
    """xᵢ − log Σ exp(xⱼ) along `axis`: log(softmax(x)), accurate where that is small.

    x     an array, or anything `wf.asarray` accepts
    axis  the axis to normalise along

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.log_softmax([0.0, 100.0]).tolist()]
    [-100.0, 0.0]
    """
    if unknown:
        raise unexpected_keyword(log_softmax, unknown)
    x = as_tensor(x)
    return reduce.log_softmax(x, axis_of("log_softmax", x, axis))


def _running(name, row, start, x, axis, dtype, include_initial):
    x = _in(x, dtype)
    if axis is None and x.ndim == 1:
        axis = 0
    x, k = flat_or_axis(name, x, axis)
    out = row(x, k)
    out = out if dtype is None else structural.cast(out, dtypes.canonical(dtype))
    if include_initial:
        shape = (*x.shape[:k], 1, *x.shape[k + 1 :])
        out = concat([full(shape, start, dtype=out.dtype, device=out.device), out], axis=k)
    return out


def cumulative_sum(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
    **unknown: Never,
) -> Tensor:
    """Running sums x₀ + … + xᵢ along `axis`: the Array API's `cumsum`.

    x                an array, or anything `wf.asarray` accepts
    axis             the axis to run along; None: x is flattened first
    dtype            what the sums are made in and returned as; None: that of x, 64 bits for
                     integers
    include_initial  whether a 0 comes first

    >>> import weft as wf
    >>> wf.cumulative_sum([1.0, 2.0, 3.0], include_initial=True).tolist()
    [0.0, 1.0, 3.0, 6.0]
    """
    if unknown:
        raise unexpected_keyword(cumulative_sum, unknown)
    return _running("cumulative_sum", cumulate.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(
    x: ArrayLike,
    /,
    *,
    axis: int | None = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
    **unknown: Never,
) -> Tensor:
    """Running products x₀·…·xᵢ along `axis`: the Array API's `cumprod`.

    x                an array, or anything `wf.asarray` accepts
    axis             the axis to run along; None: x is flattened first
    dtype            what the products are made in and returned as; None: that of x, 64 bits for
                     integers
    include_initial  whether a 1 comes first

    >>> import weft as wf
    >>> wf.cumulative_prod([2.0, 3.0, 4.0], include_initial=True).tolist()
    [1.0, 2.0, 6.0, 24.0]
    """
    if unknown:
        raise unexpected_keyword(cumulative_prod, unknown)
    return _running("cumulative_prod", cumulate.cumprod, 1, x, axis, dtype, include_initial)


def cumsum(
    x: ArrayLike, axis: int | None = None, *, dtype: DTypeLike | None = None, **unknown: Never
) -> Tensor:
    """Running sums x₀ + … + xᵢ along `axis`.

    x      an array, or anything `wf.asarray` accepts
    axis   the axis to run along; None: x is flattened first
    dtype  what the sums are made in and returned as; None: that of x, 64 bits for integers

    >>> import weft as wf
    >>> wf.cumsum([[1.0, 2.0], [3.0, 4.0]], axis=0).tolist()
    [[1.0, 2.0], [4.0, 6.0]]
    """
    if unknown:
        raise unexpected_keyword(cumsum, unknown)
    if dtype is None and axis is not None:
        x = as_tensor(x)
        return cumulate.cumsum(x, axis_of("cumsum", x, axis))
    return _running("cumsum", cumulate.cumsum, 0, x, axis, dtype, False)


def cumprod(
    x: ArrayLike, axis: int | None = None, *, dtype: DTypeLike | None = None, **unknown: Never
) -> Tensor:
    """Running products x₀·…·xᵢ along `axis`; the derivative is exact where elements are zero.

    x      an array, or anything `wf.asarray` accepts
    axis   the axis to run along; None: x is flattened first
    dtype  what the products are made in and returned as; None: that of x, 64 bits for integers

    >>> import weft as wf
    >>> wf.cumprod([2.0, 3.0, 4.0]).tolist()
    [2.0, 6.0, 24.0]
    """
    if unknown:
        raise unexpected_keyword(cumprod, unknown)
    return _running("cumprod", cumulate.cumprod, 1, x, axis, dtype, False)


def cummax(x: ArrayLike, axis: int = 0, **unknown: Never) -> Tensor:
    """Running maxima max(x₀, …, xᵢ) along `axis`; the gradient goes to where each was attained.

    x     an array, or anything `wf.asarray` accepts
    axis  the axis to run along

    >>> import weft as wf
    >>> wf.cummax([1.0, 3.0, 2.0]).tolist()
    [1.0, 3.0, 3.0]
    """
    if unknown:
        raise unexpected_keyword(cummax, unknown)
    x = as_tensor(x)
    return order.cummax(x, axis_of("cummax", x, axis))[0]


def cummin(x: ArrayLike, axis: int = 0, **unknown: Never) -> Tensor:
    """Running minima min(x₀, …, xᵢ) along `axis`; the gradient goes to where each was attained.

    x     an array, or anything `wf.asarray` accepts
    axis  the axis to run along

    >>> import weft as wf
    >>> wf.cummin([3.0, 1.0, 2.0]).tolist()
    [3.0, 1.0, 1.0]
    """
    if unknown:
        raise unexpected_keyword(cummin, unknown)
    x = as_tensor(x)
    return order.cummin(x, axis_of("cummin", x, axis))[0]


def logcumsumexp(x: ArrayLike, axis: int = 0, **unknown: Never) -> Tensor:
    """Running log(exp(x₀) + … + exp(xᵢ)) along `axis`, without overflow.

    x     an array, or anything `wf.asarray` accepts
    axis  the axis to run along

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.logcumsumexp([0.0, 0.0]).tolist()]
    [0.0, 0.6931]
    """
    if unknown:
        raise unexpected_keyword(logcumsumexp, unknown)
    x = as_tensor(x)
    return cumulate.logcumsumexp(x, axis_of("logcumsumexp", x, axis))


def diff(
    x: ArrayLike,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: ArrayLike | None = None,
    append: ArrayLike | None = None,
    **unknown: Never,
) -> Tensor:
    """Differences xᵢ₊₁ − xᵢ of neighbours along `axis`, n times.

    x                an array, or anything `wf.asarray` accepts
    axis             the axis to take differences along
    n                how often: 2 gives differences of differences
    prepend, append  what is put before and after x along `axis` first; None: nothing

    >>> import weft as wf
    >>> wf.diff([1.0, 4.0, 9.0]).tolist()
    [3.0, 5.0]
    >>> wf.diff([1.0, 4.0, 9.0], n=2).tolist()
    [2.0]
    """
    if unknown:
        raise unexpected_keyword(diff, unknown)
    x = as_tensor(x)
    if integer_in("diff", "n", n) < 0:
        raise errors.ArgumentError(f"diff: n={n}, expected 0 or more")
    ends = [None if e is None else as_tensor(e) for e in (prepend, append)]
    return cumulate.diff(x, axis_of("diff", x, axis), n, *ends)
