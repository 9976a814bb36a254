"""NumPy's names and dtypes fixed for the reductions and the ordering rows."""

from collections.abc import Callable
from functools import lru_cache, wraps
from math import inf, nan
from math import isfinite as is_finite_number  # not as the row of that name
from math import prod as product
from typing import Any

import numpy as np

from ...core.dtypes import HALF, accumulator, default_float
from .index import sum
from .types import Array, Axes, Function

# NumPy's stubs have keywords only, and `keepdims` only as a literal.
_add: Any = np.add
_maximum: Any = np.maximum
_minimum: Any = np.minimum
_and: np.ufunc = np.logical_and
_or: np.ufunc = np.logical_or


def _is_half(x: Array) -> bool:
    return x.itemsize == 2 and x.dtype in HALF


def _floating(fn: Function) -> Function:
    """`fn` on floats: integers become the default float, half types are computed in float32."""

    @wraps(fn)
    def call(x, *static):
        if x.dtype.kind in "biu":
            x = x.astype(default_float())
        if _is_half(x):
            return fn(x.astype(np.float32), *static).astype(x.dtype)
        return fn(x, *static)

    return call  # type: ignore[return-value]


def _accumulate(ufunc: np.ufunc, method: str) -> Callable[..., Array]:
    """A ufunc's reduction or accumulation, with half types summed up in float32."""
    run = getattr(ufunc, method)

    def call(x, axis, **options):
        if _is_half(x):
            return run(x, axis=axis, dtype=np.float32, **options).astype(x.dtype)
        return run(x, axis=axis, **options)

    return call


_reduce_product = _accumulate(np.multiply, "reduce")
_running_sum = _accumulate(np.add, "accumulate")
_running_product = _accumulate(np.multiply, "accumulate")


def _as_comparable(x: Array) -> Array:
    """x in a dtype whose values NumPy compares as it should; ml_dtypes does not sort NaN."""
    if x.dtype.kind == "c":
        raise TypeError("complex numbers have no order")
    return x.astype(np.float32) if _is_half(x) else x


@_floating
def mean(x: Array, axes: Axes, keepdims: bool) -> Array:
    n = product([x.shape[a] for a in axes])
    total = sum(x, axes, keepdims)
    return total / n if n else total * nan


@_floating
def var(x: Array, axes: Axes, keepdims: bool, correction: float) -> Array:
    n = product([x.shape[a] for a in axes])
    d = x - np.add.reduce(x, axis=axes, keepdims=True) / (n or nan)
    square = d.real * d.real + d.imag * d.imag if d.dtype.kind == "c" else d * d
    total = _add.reduce(square, axis=axes, keepdims=keepdims)
    if n > correction:
        return total / (n - correction)
    return np.where(total > 0, inf, nan).astype(total.dtype)


@_floating
def std(x: Array, axes: Axes, keepdims: bool, correction: float) -> Array:
    return np.sqrt(var(x, axes, keepdims, correction))


def product_over(x: Array, axes: Axes, keepdims: bool) -> Array:
    return _reduce_product(x, axes, keepdims=keepdims)


def amax(x: Array, axes: Axes | int, keepdims: bool) -> Array:
    if x.dtype.kind == "f" and x.itemsize > 2:
        return _maximum.reduce(x, axes, None, None, keepdims)
    return _maximum.reduce(_as_comparable(x), axis=axes, keepdims=keepdims).astype(
        x.dtype, copy=False
    )


def amin(x: Array, axes: Axes | int, keepdims: bool) -> Array:
    if x.dtype.kind == "f" and x.itemsize > 2:
        return _minimum.reduce(x, axes, None, None, keepdims)
    return _minimum.reduce(_as_comparable(x), axis=axes, keepdims=keepdims).astype(
        x.dtype, copy=False
    )


def extreme_share(x: Array, y: Array, axes: Axes) -> Array:
    if x.dtype.char in "fd" and len(axes) == x.ndim and y.size == 1 and _finite(y):
        mask = np.equal(x, y.reshape(()))
        return mask * np.array(1 / np.count_nonzero(mask), x.dtype)
    mask = np.equal(x, y)
    if _is_half(x) or not _finite(y):
        mask |= np.isnan(x)
    times = _add.reduce(mask, axes, accumulator(x.dtype), None, True)
    return np.divide(mask, times, dtype=times.dtype).astype(x.dtype, copy=False)


def _finite(x: Array) -> bool:
    """Whether all of x is finite, judged by its sum of squares: in doubt, no."""
    if x.size == 1:
        return is_finite_number(x.item())
    flat = x.ravel()
    return is_finite_number(flat.dot(flat))


def argmax(x: Array, axis: int, keepdims: bool) -> Array:
    return np.argmax(_as_comparable(x), axis=axis, keepdims=keepdims)


def argmin(x: Array, axis: int, keepdims: bool) -> Array:
    return np.argmin(_as_comparable(x), axis=axis, keepdims=keepdims)


def any(x: Array, axes: Axes, keepdims: bool) -> Array:
    return _or.reduce(x, axis=axes, keepdims=keepdims)


def all(x: Array, axes: Axes, keepdims: bool) -> Array:
    return _and.reduce(x, axis=axes, keepdims=keepdims)


def count_nonzero(x: Array, axes: Axes, keepdims: bool) -> Array:
    return np.count_nonzero(x, axis=axes, keepdims=keepdims)


@_floating
def _p_norm(x: Array, axes: Axes, keepdims: bool, p: float) -> Array:
    if not axes:
        return np.abs(x)
    if p == 2:
        square = x.real * x.real + x.imag * x.imag if x.dtype.kind == "c" else x * x
        return np.sqrt(_add.reduce(square, axis=axes, keepdims=keepdims))
    with np.errstate(divide="ignore", over="ignore"):
        total = _add.reduce(np.abs(x) ** p, axis=axes, keepdims=keepdims)
        return total ** (1 / p)


def p_norm(x: Array, axes: Axes, keepdims: bool, p: float) -> Array:
    """(Σ|x|ᵖ)^(1/p)."""
    if p == 2 and len(axes) == x.ndim and x.flags.c_contiguous and x.dtype.kind == "f":
        if x.itemsize > 2:  # one pass, and no array of squares
            flat = x.reshape(-1)
            y = np.sqrt(flat.dot(flat))
            return y.reshape((1,) * x.ndim) if keepdims else y
    return _p_norm(x, axes, keepdims, p)


def _quiet(fn: Function) -> Function:
    """`fn` without warnings: its results at infinities are intended."""
    return np.errstate(over="ignore", divide="ignore", invalid="ignore")(fn)


# Up to this size `argmax` and `dot` are done before `reduce` has parsed its arguments.
_FEW = 4096


def _is_short(x: Array) -> bool:
    return x.ndim == 1 and 0 < x.size <= _FEW and x.dtype.char in "fd"


@lru_cache(maxsize=64)
def _ones(n: int, dtype: np.dtype) -> np.ndarray:
    return np.ones(n, dtype)


def _short_exponentials(x: Array) -> tuple[Array, Array | None]:
    """(exp(x - top), top) of a short line; None for top where that is not finite."""
    top = x[x.argmax(), ...]
    if not is_finite_number(top):
        return x, None
    e = np.subtract(x, top)
    return np.exp(e, e), top


@_floating
def logsumexp(x: Array, axes: Axes, keepdims: bool) -> Array:
    if axes and _is_short(x):
        e, top = _short_exponentials(x)
        if top is not None:
            y = np.log(e.dot(_ones(x.size, x.dtype))) + top[()]
            return y.reshape(1) if keepdims else y
    top = _maximum.reduce(x.real, axes, None, None, True, -inf)
    if not _finite(top):
        return _logsumexp_of_infinities(x, top, axes, keepdims)
    y = np.log(sum(np.exp(x - top), axes, True))
    y += top
    return y if keepdims else y.squeeze(axes)


@_quiet
def _logsumexp_of_infinities(x: Array, top: Array, axes: Axes, keepdims: bool) -> Array:
    top = np.where(np.isfinite(top), top, 0).astype(top.dtype, copy=False)
    y = np.log(np.add.reduce(np.exp(x - top), axis=axes, keepdims=True)) + top
    return y if keepdims else y.squeeze(axes)


def softmax(x: Array, axis: int) -> Array:
    return (_softmax if x.dtype.char in "fd" else _wide_softmax)(x, axis)


def _softmax(x: Array, axis: int) -> Array:
    if _is_short(x):
        e, top = _short_exponentials(x)
        if top is not None:
            e /= _inner(e, _ones(x.size, x.dtype))
            return e
    top = _maximum.reduce(x, axis, None, None, True, -inf)
    if not _finite(top):
        return _softmax_of_infinities(x, top, axis)
    e = np.exp(x - top)
    e /= sum(e, (axis,), True)
    return e


def _inner(x: Array, y: Array) -> Array:
    """Σxy of lines as an array without axes: `dot` by itself makes a scalar, which is slow."""
    out = np.empty((), x.dtype)
    x.dot(y, out)
    return out


@_floating
def _wide_softmax(x: Array, axis: int) -> Array:
    return _softmax(_as_comparable(x), axis)


@_quiet
def _softmax_of_infinities(x: Array, top: Array, axis: int) -> Array:
    e = np.exp(x - top)
    e /= np.add.reduce(e, axis=axis, keepdims=True)
    return e


@_floating
def shares(x: Array, axes: Axes) -> Array:
    if axes and _is_short(x):
        e, top = _short_exponentials(x)
        if top is not None:
            e /= _inner(e, _ones(x.size, x.dtype))
            return e
    top = _maximum.reduce(x.real, axes, None, None, True, -inf)
    if not _finite(top):
        return _shares_of_infinities(x, top, axes)
    e = np.exp(x - top)
    e /= sum(e, axes, True)
    return e


@_quiet
def _shares_of_infinities(x: Array, top: Array, axes: Axes) -> Array:
    e = np.exp(x - np.where(np.equal(top, -inf), 0, top))
    total = np.add.reduce(e, axis=axes, keepdims=True)
    return np.where(np.equal(total, 0), 0, e / total)


@_floating
@_quiet
def log_softmax(x: Array, axis: int) -> Array:
    x = _as_comparable(x)
    y = x - np.maximum.reduce(x, axis=axis, keepdims=True, initial=-inf)
    y -= np.log(np.add.reduce(np.exp(y), axis=axis, keepdims=True))
    return y


def _pair_in_single(fn: Function) -> Function:
    """`fn` of two arrays, computed in float32 where they are of a half type."""

    @wraps(fn)
    def call(a, b, *static):
        if _is_half(b):
            return fn(a.astype(np.float32), b.astype(np.float32), *static).astype(b.dtype)
        return fn(a, b, *static)

    return call  # type: ignore[return-value]


@_pair_in_single
def softmax_product(t: Array, y: Array, axis: int) -> Array:
    if _is_short(y):
        z = np.subtract(t, _inner(t, y))
    else:
        z = np.multiply(t, y)
        np.subtract(t, sum(z, (axis,), True), z)
    z *= y
    return z


@_pair_in_single
def log_softmax_product(t: Array, y: Array, axis: int) -> Array:
    z = np.exp(y)
    z *= np.add.reduce(t, axis=axis, keepdims=True)
    return np.subtract(t, z, out=z)


def cumsum(x: Array, axis: int) -> Array:
    if x.ndim == 1 and x.size >= _LONG and x.dtype.char in "fd":
        if is_finite_number(np.add.reduce(x)):  # an infinity times zero would spread
            return _cumsum_by_blocks(x)
    return _running_sum(x, axis)


# From this size on a product with a triangle of ones is faster: additions are independent.
_LONG, _BLOCK = 8192, 32


@lru_cache(maxsize=2)
def _triangle(dtype: np.dtype) -> np.ndarray:
    return np.triu(np.ones((_BLOCK, _BLOCK), dtype))


def _cumsum_by_blocks(x: Array) -> Array:
    """Running sums within short blocks, then the sum of the blocks before added to each."""
    n = x.size // _BLOCK * _BLOCK
    blocks = x[:n].reshape(-1, _BLOCK).dot(_triangle(x.dtype))
    before = np.add.accumulate(blocks[:, -1])
    blocks[1:] += before[:-1, None]
    if n == x.size:
        return blocks.reshape(-1)
    rest = np.add.accumulate(x[n:])
    rest += before[-1]
    return np.concatenate((blocks.reshape(-1), rest))


def cumprod(x: Array, axis: int) -> Array:
    return _running_product(x, axis)


@_floating
@_quiet
def logcumsumexp(x: Array, axis: int) -> Array:
    return np.logaddexp.accumulate(_as_comparable(x), axis=axis)


def _running_extreme(ufunc: np.ufunc, x: Array, axis: int) -> tuple[Array, Array]:
    """The running extreme with the index of its last occurrence; a NaN persists."""
    wide = _as_comparable(x)
    y = ufunc.accumulate(wide, axis=axis)
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    here = np.arange(x.shape[axis]).reshape(shape)
    index = np.where((wide == y) | (wide != wide), here, 0)
    return y.astype(x.dtype, copy=False), np.maximum.accumulate(index, axis=axis)


def cummax(x: Array, axis: int) -> tuple[Array, Array]:
    return _running_extreme(np.maximum, x, axis)


def cummin(x: Array, axis: int) -> tuple[Array, Array]:
    return _running_extreme(np.minimum, x, axis)


def sort(x: Array, axis: int, descending: bool) -> Array:
    y = np.sort(_as_comparable(x), axis=axis).astype(x.dtype, copy=False)
    return np.flip(y, axis) if descending else y


def argsort(x: Array, axis: int, descending: bool) -> Array:
    x = _as_comparable(x)
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    # Reversed twice, so that equal elements keep their order.
    order = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(order, axis)


def _topk_by_rounds(x: Array, k: int, axis: int, largest: bool) -> Array:
    """The indices of the best, the next best and so on."""
    left, index = x.copy(), []
    for _ in range(k):
        index.append((np.argmax if largest else np.argmin)(left, axis=axis, keepdims=True))
        np.put_along_axis(left, index[-1], -inf if largest else inf, axis)
    return np.concatenate(index, axis)


def _topk_by_partition(x: Array, k: int, axis: int, largest: bool) -> Array:
    n = x.shape[axis]
    at = range(n - k, n) if largest else range(k)
    found = np.argpartition(x, n - k if largest else k - 1, axis=axis)
    found = np.sort(np.take(found, at, axis), axis=axis)
    values = np.take_along_axis(x, found, axis)
    worst = (np.minimum if largest else np.maximum).reduce(values, axis=axis, keepdims=True)
    if np.count_nonzero(x == worst) > np.count_nonzero(values == worst) or (values != values).any():
        # Ties with the last one are left out: the first of them belong in the result.
        return np.take(argsort(x, axis, largest), range(k), axis)
    order = argsort(values, axis, largest)
    return np.take_along_axis(found, order, axis)


def topk(x: Array, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    n, wide = x.shape[axis], _as_comparable(x)
    if not 0 <= k <= n:
        raise ValueError(f"k = {k} of {n}")
    if 0 < k <= 8 and 64 < n and wide.dtype.kind == "f":
        index = _topk_by_rounds(wide, k, axis, largest)
        y = np.take_along_axis(x, index, axis)
        if np.isfinite(y).all():  # else an infinity may have been taken twice
            return y, index
    if 0 < 4 * k < n:
        index = _topk_by_partition(wide, k, axis, largest)
    else:
        index = np.take(argsort(x, axis, largest), range(k), axis)
    return np.take_along_axis(x, index, axis), index


def max_with_indices(x: Array, axis: int) -> tuple[Array, Array]:
    return amax(x, axis, True), argmax(x, axis, True)


def min_with_indices(x: Array, axis: int) -> tuple[Array, Array]:
    return amin(x, axis, True), argmin(x, axis, True)


def searchsorted(sequence: Array, x: Array, right: bool) -> Array:
    return np.searchsorted(
        _as_comparable(sequence), _as_comparable(x), "right" if right else "left"
    )


def unique_values(x: Array) -> Array:
    return unique_all(x)[0] if _is_half(x) else np.unique(x, equal_nan=False)


def unique_all(x: Array) -> tuple[Array, ...]:
    values, *rest = np.unique_all(x.astype(np.float32) if _is_half(x) else x)
    return values.astype(x.dtype, copy=False), *rest


def bincount(x: Array, length: int) -> Array:
    return np.bincount(x, minlength=length)
