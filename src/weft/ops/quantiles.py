"""Composites: medians and quantiles, and functions given by a table."""

import math
from math import nan
from typing import Any

import numpy as np

from ..core import dtypes
from ..core.aval import reduced_shape
from ..core.types import Array
from ..core.value import TENSORS
from ..errors import ArgumentError, ShapeError
from .axes import count, floating
from .elementwise import ceil, clip, floor, remainder, round_, where
from .index import take
from .logic import equal, greater, isnan, less
from .order import argsort, searchsorted, sort
from .positions import index_like
from .slicing import narrow
from .structural import cast, concat, permute, reshape, stack

# α and β of the position n·q + α + q·(1 - α - β) - 1 (Hyndman and Fan 1996, methods 4 to 9).
_PLOTTING = {
    "linear": (1.0, 1.0),
    "interpolated_inverted_cdf": (0.0, 1.0),
    "hazen": (0.5, 0.5),
    "weibull": (0.0, 0.0),
    "median_unbiased": (1 / 3, 1 / 3),
    "normal_unbiased": (3 / 8, 3 / 8),
}
_ROUNDING = ("lower", "higher", "nearest", "midpoint")


def _sorted_together(name: str, x, axes):
    """x sorted over all of `axes`, joined into one last axis."""
    n = count(x.shape, axes)
    if not n:
        raise ShapeError(f"{name}: shape {tuple(x.shape)} has no element along axes {axes}")
    dtype = dtypes.canonical(x.dtype)
    if not dtypes.is_inexact(dtype):
        x = cast(x, floating(dtype))
    rest = tuple(i for i in range(len(x.shape)) if i not in axes)
    x = reshape(permute(x, (*rest, *axes)), (*reduced_shape(x.shape, axes, False), n))
    return sort(x, len(rest), False), len(rest), n


def _nan_if_any(y, ordered, axis: int, n: int):
    """y, or NaN where there is one among the sorted elements; it is then the last."""
    return where(isnan(narrow(ordered, axis, n - 1, n)), nan, y)


def median(x: Array, axes: tuple[int, ...], keepdims: bool = False) -> Array:
    """The middle element, or the mean of the middle two."""
    ordered, axis, n = _sorted_together("median", x, axes)
    y = narrow(ordered, axis, n // 2, n // 2 + 1)
    if n % 2 == 0:
        y = (narrow(ordered, axis, n // 2 - 1, n // 2) + y) * 0.5
    y = _nan_if_any(y, ordered, axis, n)
    return reshape(y, reduced_shape(x.shape, axes, keepdims))


def _position(q, n: int, method: str):
    """Where in the sorted elements the quantile lies, counted from 0."""
    a, b = _PLOTTING.get(method, (1.0, 1.0))
    return q * (n + 1 - a - b) + (a - 1)


def _cell(position, method: str, floor, ceil, round):
    """The neighbours of a position, and how far it is from the first to the second."""
    if method == "lower":
        return floor(position), floor(position), 0.0
    if method == "higher":
        return ceil(position), ceil(position), 0.0
    if method == "nearest":
        return round(position), round(position), 0.0
    low = floor(position)
    return low, ceil(position), 0.5 if method == "midpoint" else position - low


def _one_quantile(ordered, axis: int, n: int, q: float, method: str):
    position = min(max(_position(q, n, method), 0.0), n - 1.0)
    low, high, t = _cell(position, method, math.floor, math.ceil, round)
    y = narrow(ordered, axis, low, low + 1)
    if high > low:
        y = y + (narrow(ordered, axis, high, high + 1) - y) * t
    return _nan_if_any(y, ordered, axis, n)


def _quantiles_at(ordered, axis: int, n: int, q, method: str):
    """Quantiles at an array of q, whose axes come first in the result."""
    position = clip(_position(q, n, method), 0.0, n - 1.0)
    low, high, t = _cell(position, method, floor, ceil, round_)
    a, b = (take(ordered, cast(i, dtypes.int64), axis) for i in (low, high))
    bad = reshape(narrow(ordered, axis, n - 1, n), ordered.shape[:axis] + (1,) * len(q.shape))
    y = where(isnan(bad), nan, a + (b - a) * t)
    ndim = len(y.shape)
    return permute(y, (*range(axis, ndim), *range(axis)))


def quantile(
    x: Array, q: Any, axes: tuple[int, ...], keepdims: bool = False, method: str = "linear"
) -> Array:
    """The element below which a share q of the elements lie.

    q is numbers or a tensor; its axes come first in the result.
    """
    return _quantile("quantile", x, q, 1, axes, keepdims, method)


def _quantile(name: str, x, q, whole: int, axes: tuple[int, ...], keepdims: bool, method: str):
    """`quantile`, with q in parts of which `whole` are all."""
    if method not in _PLOTTING and method not in _ROUNDING:
        known = ", ".join((*_PLOTTING, *_ROUNDING))
        raise ArgumentError(f"{name}: method {method!r}, expected one of {known}")
    ordered, axis, n = _sorted_together(name, x, axes)
    shape = reduced_shape(x.shape, axes, keepdims)
    if type(q) in TENSORS:
        q = q if whole == 1 else q / whole
        return reshape(_quantiles_at(ordered, axis, n, q, method), (*q.shape, *shape))
    q = np.asarray(q, np.float64)
    if not q.size:
        return reshape(take(ordered, index_like(x, q.astype(int)), axis), (*q.shape, *shape))
    if not 0 <= q.min() <= q.max() <= whole:
        more = "" if whole > 1 else " (percentile takes 0 to 100)"
        raise ArgumentError(f"{name}: q = {q.tolist()}, expected 0 to {whole}{more}")
    each = [_one_quantile(ordered, axis, n, p / whole, method) for p in q.reshape(-1).tolist()]
    if not q.shape:
        return reshape(each[0], shape)
    return reshape(stack([reshape(y, shape) for y in each], 0), (*q.shape, *shape))


def percentile(
    x: Array, q: Any, axes: tuple[int, ...], keepdims: bool = False, method: str = "linear"
) -> Array:
    """`quantile`, with q in percent."""
    return _quantile("percentile", x, q, 100, axes, keepdims, method)


def interp(
    x: Array,
    xp: Array,
    fp: Array,
    left: Array | None = None,
    right: Array | None = None,
    period: float | None = None,
) -> Array:
    """The piecewise linear function through the points (xp, fp), xp increasing, at x.

    Outside of xp it is `left` and `right`, by default the first and the last of fp; or it is
    repeated with a period. At a point the derivative is that of the piece to its right.
    """
    if len(xp.shape) != 1 or xp.shape != fp.shape or not xp.shape[0]:
        raise ShapeError(
            f"interp: xp {tuple(xp.shape)} and fp {tuple(fp.shape)}, expected one axis of "
            "the same length, at least 1"
        )
    if period is not None:
        x, xp, fp = _unroll_period(x, xp, fp, period)
    n = xp.shape[0]
    first, last = narrow(fp, 0, 0, 1), narrow(fp, 0, n - 1, n)
    y = _between(x, xp, fp, n) if n > 1 else _scalar(first)
    y = where(less(x, _scalar(narrow(xp, 0, 0, 1))), _scalar(first) if left is None else left, y)
    beyond = greater(x, _scalar(narrow(xp, 0, n - 1, n)))
    return where(beyond, _scalar(last) if right is None else right, y)


def _scalar(x):
    return reshape(x, ())


def _between(x, xp, fp, n: int):
    i = clip(searchsorted(xp, x, True) - 1, 0, n - 2)
    x0, x1, f0, f1 = take(xp, i, 0), take(xp, i + 1, 0), take(fp, i, 0), take(fp, i + 1, 0)
    # Only a point given twice at the very end makes a piece without width: there f1 holds.
    width, zero = x1 - x0, equal(x1, x0)
    return f0 + (f1 - f0) * where(zero, 1.0, (x - x0) / where(zero, 1.0, width))


def _unroll_period(x, xp, fp, period: float):
    """One period of the points, sorted, with a point of its neighbours at either end."""
    if period == 0:
        raise ArgumentError("interp: period = 0, expected another number")
    period = abs(period)
    x, xp = remainder(x, period), remainder(xp, period)
    order, n = argsort(xp, 0, False), xp.shape[0]
    xp, fp = take(xp, order, 0), take(fp, order, 0)
    ends = [(0, 1), (n - 1, n)]
    (x_first, x_last), (f_first, f_last) = ([narrow(a, 0, *e) for e in ends] for a in (xp, fp))
    xp = concat([x_last - period, xp, x_first + period], 0)
    return x, xp, concat([f_last, fp, f_first], 0)
