"""Composites: reductions that pass over NaN."""

from math import inf, nan

from ..core.types import Array
from .elementwise import sqrt, where
from .logic import greater, isnan, logical_not
from .reduce import all_, amax, amin, count_nonzero, p_norm, prod, square_size
from .structural import cast, sum_


def nansum(x: Array, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """The sum of the elements that are not NaN."""
    return sum_(where(isnan(x), 0, x), axes, keepdims)


def nanprod(x: Array, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """The product of the elements that are not NaN."""
    return prod(where(isnan(x), 1, x), axes, keepdims)


def nanmax(x: Array, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """The largest element that is not NaN; NaN if there is none."""
    lost = isnan(x)
    return where(all_(lost, axes, keepdims), nan, amax(where(lost, -inf, x), axes, keepdims))


def nanmin(x: Array, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """The smallest element that is not NaN; NaN if there is none."""
    lost = isnan(x)
    return where(all_(lost, axes, keepdims), nan, amin(where(lost, inf, x), axes, keepdims))


def _count(x, axes, keepdims: bool, correction: float = 0):
    """How many elements are not NaN, less the correction; NaN where nothing is left."""
    n = count_nonzero(logical_not(isnan(x)), axes, keepdims) - correction
    return where(greater(n, 0), cast(n, x.dtype), nan)


def nanmean(x: Array, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """The mean of the elements that are not NaN; NaN if there is none."""
    return nansum(x, axes, keepdims) / _count(x, axes, keepdims)


def _deviation(x, axes):
    return where(isnan(x), 0, x - nanmean(x, axes, True))


def nanvar(x: Array, axes: tuple[int, ...], keepdims: bool = False, correction: float = 0) -> Array:
    """The variance of the elements that are not NaN."""
    total = sum_(square_size(_deviation(x, axes)), axes, keepdims)
    return total / _count(x, axes, keepdims, correction)


def nanstd(x: Array, axes: tuple[int, ...], keepdims: bool = False, correction: float = 0) -> Array:
    """The standard deviation of the elements that are not NaN."""
    total = p_norm(_deviation(x, axes), axes, keepdims, 2)
    return total / sqrt(_count(x, axes, keepdims, correction))
