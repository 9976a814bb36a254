"""Public reductions: sums, extremes, statistics, and running ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Never

from .. import errors
from ..core import dtypes
from ..core.aval import integer_in
from ..ops import cumulate, order, reduce, structural
from ..ops.structural import sum_
from .arguments import axes_of, axis_of, boxed, flat_or_axis
from .keywords import unexpected_keyword
from .make import full, number
from .manipulation import concat

if TYPE_CHECKING:
    from .tensor import Tensor
    from .types import ArrayLike, Axes, DTypeLike


def _in(x, dtype):
    x = boxed(x)
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
    """The sum over `axis` (None: all; an integer; a tuple).

    >>> import weft as wf
    >>> wf.sum(wf.tensor([[1.0, 2.0], [3.0, 4.0]]), axis=0).tolist()
    [4.0, 6.0]
    """
    if unknown:
        raise unexpected_keyword(sum, unknown)
    if dtype is None:
        x = boxed(x)
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
    """The product over `axis`; its derivative is exact where elements are zero."""
    if unknown:
        raise unexpected_keyword(prod, unknown)
    x = _in(x, dtype)
    out = reduce.prod(x, axes_of("prod", x, axis), keepdims)
    return out if dtype is None else structural.cast(out, dtypes.canonical(dtype))


def mean(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, **unknown: Never) -> Tensor:
    """The arithmetic mean over `axis`."""
    if unknown:
        raise unexpected_keyword(mean, unknown)
    x = boxed(x)
    return reduce.mean(x, axes_of("mean", x, axis), keepdims)


def max(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, **unknown: Never) -> Tensor:
    """The largest element over `axis`; equal ones share the gradient."""
    if unknown:
        raise unexpected_keyword(max, unknown)
    x = boxed(x)
    return reduce.amax(x, axes_of("max", x, axis), keepdims)


def min(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, **unknown: Never) -> Tensor:
    """The smallest element over `axis`; equal ones share the gradient."""
    if unknown:
        raise unexpected_keyword(min, unknown)
    x = boxed(x)
    return reduce.amin(x, axes_of("min", x, axis), keepdims)


amax = max
amin = min


def any(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, **unknown: Never) -> Tensor:
    """Whether some element over `axis` is not zero."""
    if unknown:
        raise unexpected_keyword(any, unknown)
    x = boxed(x)
    return reduce.any_(x, axes_of("any", x, axis), keepdims)


def all(x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, **unknown: Never) -> Tensor:
    """Whether every element over `axis` is not zero."""
    if unknown:
        raise unexpected_keyword(all, unknown)
    x = boxed(x)
    return reduce.all_(x, axes_of("all", x, axis), keepdims)


def count_nonzero(
    x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, **unknown: Never
) -> Tensor:
    """How many elements over `axis` are not zero."""
    if unknown:
        raise unexpected_keyword(count_nonzero, unknown)
    x = boxed(x)
    return reduce.count_nonzero(x, axes_of("count_nonzero", x, axis), keepdims)


def argmax(
    x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, **unknown: Never
) -> Tensor:
    """Where the (first) largest element is."""
    if unknown:
        raise unexpected_keyword(argmax, unknown)
    x = boxed(x)
    return reduce.argmax(x, None if axis is None else axis_of("argmax", x, axis), keepdims)


def argmin(
    x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, **unknown: Never
) -> Tensor:
    """Where the (first) smallest element is."""
    if unknown:
        raise unexpected_keyword(argmin, unknown)
    x = boxed(x)
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
    """The variance over `axis`: squared deviations over (n − correction)."""
    if unknown:
        raise unexpected_keyword(var, unknown)
    x = boxed(x)
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
    """The square root of `var`; where that is 0, so is the gradient."""
    if unknown:
        raise unexpected_keyword(std, unknown)
    x = boxed(x)
    return reduce.std(x, axes_of("std", x, axis), keepdims, correction)


def norm(
    x: ArrayLike, /, ord: float = 2, axis: Axes = None, *, keepdims: bool = False, **unknown: Never
) -> Tensor:
    """The vector norm (Σ|x|^ord)^(1/ord) over `axis`; at 0 its gradient is 0."""
    if unknown:
        raise unexpected_keyword(norm, unknown)
    x = boxed(x)
    if isinstance(ord, str | list | tuple):
        raise errors.ArgumentError(f"norm: ord {ord!r}, expected a number; see linalg.matrix_norm")
    return reduce.norm(x, axes_of("norm", x, axis), keepdims, number("norm", "ord", ord))


def logsumexp(
    x: ArrayLike, /, axis: Axes = None, *, keepdims: bool = False, **unknown: Never
) -> Tensor:
    """log Σ exp(x) over `axis`, without overflow."""
    if unknown:
        raise unexpected_keyword(logsumexp, unknown)
    x = boxed(x)
    return reduce.logsumexp(x, axes_of("logsumexp", x, axis), keepdims)


def softmax(x: ArrayLike, /, axis: int = -1, **unknown: Never) -> Tensor:
    """exp(x) / Σ exp(x) along `axis`."""
    if unknown:
        raise unexpected_keyword(softmax, unknown)
    x = boxed(x)
    return reduce.softmax(x, axis_of("softmax", x, axis))


def log_softmax(x: ArrayLike, /, axis: int = -1, **unknown: Never) -> Tensor:
    """x − log Σ exp(x) along `axis`."""
    if unknown:
        raise unexpected_keyword(log_softmax, unknown)
    x = boxed(x)
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
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
    **unknown: Never,
) -> Tensor:
    """Running sums along `axis`."""
    if unknown:
        raise unexpected_keyword(cumulative_sum, unknown)
    return _running("cumulative_sum", cumulate.cumsum, 0, x, axis, dtype, include_initial)


def cumulative_prod(
    x: ArrayLike,
    /,
    *,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    include_initial: bool = False,
    **unknown: Never,
) -> Tensor:
    """Running products along `axis`."""
    if unknown:
        raise unexpected_keyword(cumulative_prod, unknown)
    return _running("cumulative_prod", cumulate.cumprod, 1, x, axis, dtype, include_initial)


def cumsum(
    x: ArrayLike, axis: Axes = None, *, dtype: DTypeLike | None = None, **unknown: Never
) -> Tensor:
    """Running sums along `axis` (None: of the flattened tensor)."""
    if unknown:
        raise unexpected_keyword(cumsum, unknown)
    if dtype is None and axis is not None:
        x = boxed(x)
        return cumulate.cumsum(x, axis_of("cumulative_sum", x, axis))
    return cumulative_sum(x, axis=axis, dtype=dtype)


def cumprod(
    x: ArrayLike, axis: Axes = None, *, dtype: DTypeLike | None = None, **unknown: Never
) -> Tensor:
    """Running products along `axis` (None: of the flattened tensor)."""
    if unknown:
        raise unexpected_keyword(cumprod, unknown)
    return cumulative_prod(x, axis=axis, dtype=dtype)


def cummax(x: ArrayLike, axis: int = 0, **unknown: Never) -> Tensor:
    """Running maxima along `axis`; the gradient goes to where each was attained."""
    if unknown:
        raise unexpected_keyword(cummax, unknown)
    x = boxed(x)
    return order.cummax(x, axis_of("cummax", x, axis))[0]


def cummin(x: ArrayLike, axis: int = 0, **unknown: Never) -> Tensor:
    """Running minima along `axis`; the gradient goes to where each was attained."""
    if unknown:
        raise unexpected_keyword(cummin, unknown)
    x = boxed(x)
    return order.cummin(x, axis_of("cummin", x, axis))[0]


def logcumsumexp(x: ArrayLike, axis: int = 0, **unknown: Never) -> Tensor:
    """Running `logsumexp` along `axis`."""
    if unknown:
        raise unexpected_keyword(logcumsumexp, unknown)
    x = boxed(x)
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
    """n-th differences of neighbours along `axis`."""
    if unknown:
        raise unexpected_keyword(diff, unknown)
    x = boxed(x)
    if integer_in("diff", "n", n) < 0:
        raise errors.ArgumentError(f"diff: n {n}, expected 0 or more")
    ends = [None if e is None else boxed(e) for e in (prepend, append)]
    return cumulate.diff(x, axis_of("diff", x, axis), n, *ends)
