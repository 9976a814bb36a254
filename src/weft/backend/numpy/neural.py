"""NumPy's kernels of the neural rows."""

from collections.abc import Callable
from functools import lru_cache, wraps
from math import prod
from typing import Any

import numpy as np

from ...core.dtypes import HALF
from ..shared import attention as shared
from ..shared import crossentropy as _crossentropy
from ..shared import threads
from . import namespace as numpy_
from .index import _ones, sum
from .namespace import quietly
from .types import Array, Axes, Function, Operand, Shape


def _is_half(x: Array) -> bool:
    return x.itemsize == 2 and x.dtype in HALF


def masked_scale(x: Array, mask: Array, scale: float) -> Array:
    wide = _wide(x)
    y = np.empty(np.broadcast_shapes(x.shape, mask.shape), wide.dtype)
    np.multiply(mask, wide.dtype.type(scale), y)
    y *= wide
    return _in(x.dtype, y)


def scale_shift(x: Array, w: Operand, b: Operand) -> Array:
    y = np.multiply(x, w)
    if y.shape == np.broadcast_shapes(y.shape, np.shape(b)) and y.ndim:
        y += b
        return y
    return y + b


def _mean(x: Array, axes: Axes) -> Array:
    return sum(x, axes, True) / x.dtype.type(prod([x.shape[a] for a in axes]))


def _mean_product(x: Array, y: Array, axes: Axes) -> Array:
    """The mean of xy over axes, without the array of products where they are the last ones."""
    n = prod([x.shape[a] for a in axes])
    if x.size and axes == tuple(range(x.ndim - len(axes), x.ndim)):
        lead = x.shape[: x.ndim - len(axes)]
        total = np.einsum("ij,ij->i", x.reshape(-1, n), y.reshape(-1, n))
        total = total.reshape(lead + (1,) * len(axes))
    else:
        total = sum(x * y, axes, True)
    return total / x.dtype.type(n)


def _in_single(fn: Function) -> Function:
    """`fn` on floats: half types are computed in float32, and so are the results cast back."""

    @wraps(fn)
    def call(x, *rest):
        if not _is_half(x):
            return fn(x, *rest)
        wide = (a.astype(np.float32) if isinstance(a, np.ndarray) else a for a in rest)
        y = fn(x.astype(np.float32), *wide)
        return tuple(a.astype(x.dtype) for a in y) if type(y) is tuple else y.astype(x.dtype)

    return call  # type: ignore[return-value]


def _wide(x: Array) -> Array:
    return x.astype(np.float32) if _is_half(x) else x


def standardise(x: Array, axes: Axes, eps: float, dtype: np.dtype) -> tuple[Array, Array, Array]:
    wide = _wide(x)
    mean = _mean(wide, axes)
    y = wide - mean
    variance = _mean_product(y, y, axes)
    y *= 1 / np.sqrt(variance + wide.dtype.type(eps))
    return _in(x.dtype, y), _in(dtype, mean), _in(dtype, variance)


def _in(dtype: np.dtype, x: Array) -> Array:
    return x if x.dtype is dtype else x.astype(dtype)


def root_mean_square(x: Array, axes: Axes, eps: float, dtype: np.dtype) -> tuple[Array, Array]:
    wide = _wide(x)
    square = _mean_product(wide, wide, axes)
    y = wide * (1 / np.sqrt(square + wide.dtype.type(eps)))
    return _in(x.dtype, y), _in(dtype, square)


@_in_single
def projection(g: Array, y: Array, axes: Axes, centred: bool) -> Array:
    z = y * _mean_product(g, y, axes)
    if centred:
        z += _mean(g, axes)
    return np.subtract(g, z, z)


# Elements of a block: the passes over them stay in the cache.
_BLOCK = 1 << 17


def _each_block(lines: Array, passes: int, do: Callable[[int, slice], None]) -> int:
    """do(at, rows) for blocks of lines, by all threads; how many blocks there are."""
    step = max(1, _BLOCK // lines.shape[1])
    starts = range(0, len(lines), step)
    pieces = [(at, slice(k, k + step)) for at, k in enumerate(starts)]
    threads.share(pieces, lambda: lambda piece: do(*piece), lines.size * passes * threads.PASS)
    return len(pieces)


def layer_norm(x: Array, w: Array, b: Array, eps: float, dtype: np.dtype) -> tuple[Array, ...]:
    results = _layer_norm(_wide(x), _wide(w), _wide(b), eps)
    return tuple([_in(d, a) for d, a in zip((x.dtype, x.dtype, dtype), results, strict=True)])


def _layer_norm(x: Array, w: Array, b: Array, eps: float) -> tuple[Array, Array, Array]:
    n, kind = w.size, x.dtype.type
    lines = x.reshape(x.size // n, n)
    out, y, variance = np.empty_like(lines), np.empty_like(lines), np.empty(len(lines), x.dtype)
    shares = np.full(n, kind(1 / n))

    def do(_, rows):
        z = np.subtract(lines[rows], (lines[rows] @ shares)[:, None], y[rows])
        v = np.multiply(np.einsum("ij,ij->i", z, z), kind(1 / n), variance[rows])
        z *= (1 / np.sqrt(v + kind(eps)))[:, None]
        scaled = np.multiply(z, w.reshape(n), out[rows])
        scaled += b.reshape(n)

    _each_block(lines, 8, do)
    kept = (*x.shape[: x.ndim - w.ndim], *(1,) * w.ndim)
    return out.reshape(x.shape), y.reshape(x.shape), variance.reshape(kept)


@_in_single
def layer_norm_gradient(
    g: Array, y: Array, variance: Array, w: Array, eps: float
) -> tuple[Array, Array, Array]:
    n, kind = w.size, y.dtype.type
    g, y, rates = g.reshape(y.size // n, n), y.reshape(y.size // n, n), variance.reshape(-1, 1)
    dx, flat = np.empty_like(y), w.reshape(n)
    to_w, to_b = {}, {}

    def do(at, rows):
        part, line = g[rows], y[rows]
        z = np.multiply(part, line)
        ones = _ones(len(part), y.dtype)
        to_w[at], to_b[at] = ones @ z, ones @ part
        h = np.multiply(part, flat, dx[rows])
        h -= np.multiply(line, (z @ flat * kind(1 / n))[:, None], z)
        h -= (part @ flat * kind(1 / n))[:, None]
        h *= 1 / np.sqrt(rates[rows] + kind(eps))

    count = _each_block(y, 10, do)
    dw, db = (_add_parts([to[at] for at in range(count)], flat) for to in (to_w, to_b))
    lead = variance.shape[: variance.ndim - w.ndim]
    return dx.reshape((*lead, *w.shape)), dw.reshape(w.shape), db.reshape(w.shape)


def _add_parts(parts: list[Array], like: Array) -> Array:
    total = np.zeros_like(like)
    for part in parts:
        total += part
    return total


def swap_last(x: Array) -> Array:
    """x with its last two axes exchanged."""
    return x.swapaxes(-1, -2)


def fill_where(x: Array, mask: Array, value: float) -> None:
    np.copyto(x, value, where=mask)


def later(x: Array, shift: int) -> Array:
    """Which columns of x's matrices, shifted by `shift`, lie above the diagonal."""
    return _later(*x.shape[-2:], shift)


@lru_cache(maxsize=16)
def _later(rows: int, columns: int, shift: int) -> np.ndarray:
    return ~np.tri(rows, columns, -shift, dtype=bool)


def row_dots(x: Array, y: Array) -> Array:
    """Σ xy over the last axis."""
    products = np.multiply(x, y, np.empty(np.broadcast_shapes(x.shape, y.shape), x.dtype))
    return sum(products, (products.ndim - 1,), False)


def exp_into(x: Array) -> None:
    np.exp(x, x)


def log_or_minus_inf(x: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.log(x)


def counting(like: Array, start: int, stop: int) -> Array:
    return np.arange(start, stop, dtype=np.int64)


def spread_copy(x: Array, shape: Shape) -> Array:
    return np.array(np.broadcast_to(x, shape))


def attention(*args: Any) -> tuple[Array, Array]:
    return quietly(shared.attend, numpy_, *args)


def attention_gradient(*args: Any) -> tuple[Array, Array, Array]:
    return quietly(shared.attend_gradient, numpy_, *args)


def attention_mask_gradient(*args: Any) -> Array:
    return quietly(shared.attend_mask_gradient, numpy_, *args)


def attention_dropout(seeds: Array, rows: int, columns: int, p: float) -> Array:
    return shared.dropout_bits(numpy_, seeds, (0, rows), (0, columns), p)


def checked_classes(classes: Array, n: int) -> Array:
    """Classes in [0, n), or an error that names the first that is out of range."""
    if classes.size and not 0 <= classes.min() <= classes.max() < n:
        wrong = classes[(classes < 0) | (classes >= n)][0]
        raise IndexError(f"class {wrong} of {n}; expected 0 to {n - 1}")
    return classes


def log_denominators(x: Array) -> tuple[Array, Array]:
    """The largest element of each line, and log Σ exp less that; NaN where it is infinite."""
    top = np.maximum.reduce(x, 1, keepdims=True)
    e = x - top
    np.exp(e, e)
    return top[:, 0], np.log(sum(e, (1,), False))


def pick_classes(x: Array, classes: Array) -> Array:
    """x[k, classes[k]] for each line k."""
    return x[np.arange(len(x)), classes]


def add_picked(x: Array, classes: Array, values: Array) -> None:
    x[np.arange(len(x)), classes] += values


def clear_lines(x: Array, mask: Array) -> None:
    if mask.any():
        x[mask] = 0


def cross_entropy(*args: Any) -> tuple[Array, Array, Array]:
    return quietly(_crossentropy.cross_entropy, numpy_, *args)


def cross_entropy_gradient(*args: Any) -> Array:
    return quietly(_crossentropy.cross_entropy_gradient, numpy_, *args)


def soft_cross_entropy(*args: Any) -> tuple[Array, Array, Array]:
    return quietly(_crossentropy.soft_cross_entropy, numpy_, *args)


def soft_cross_entropy_gradient(*args: Any) -> Array:
    return quietly(_crossentropy.soft_cross_entropy_gradient, numpy_, *args)


def rotate(x: Array, turn: Array, interleaved: bool, back: bool) -> Array:
    y = np.empty(np.broadcast_shapes(x.shape, turn.shape), x.dtype)
    half = x.shape[-1] // 2
    first, second = slice(half), slice(half, None)
    if interleaved:
        first, second = slice(0, None, 2), slice(1, None, 2)
    a, b, c, s = x[..., first], x[..., second], turn[..., :half], turn[..., half:]
    s = -s if back else s
    np.multiply(a, c, y[..., first])
    y[..., first] -= b * s
    np.multiply(b, c, y[..., second])
    y[..., second] += a * s
    return y


def _open(gates: Array) -> None:
    """The logistic function in place."""
    gates *= gates.dtype.type(-1)  # np.negative (2.4) errs where it writes with some strides
    with np.errstate(over="ignore"):
        np.exp(gates, gates)
    gates += gates.dtype.type(1)
    np.divide(gates.dtype.type(1), gates, gates)


def native_norm(
    x: Array, w: Array, b: Array, axes: Axes, eps: float, dtype: np.dtype
) -> tuple[Array, Array, Array]:
    wide = _wide(x)
    y, mean, variance = standardise(wide, axes, eps, wide.dtype)
    rate = 1 / np.sqrt(variance + wide.dtype.type(eps))
    return _in(x.dtype, y * _wide(w) + _wide(b)), _in(dtype, mean), _in(dtype, rate)


def native_norm_gradient(
    g: Array, x: Array, mean: Array, rate: Array, w: Array, axes: Axes
) -> tuple[Array, Array, Array]:
    own, g, wide = x.dtype, _wide(g), _wide(x)
    y = _in(wide.dtype, (wide - mean) * rate)
    dx = projection(_in(wide.dtype, g * w), y, axes, True) * rate
    return _in(own, dx), _fold(g * y, w), _fold(g, w)


def _channels(x: Array, *lines: Array) -> list[Array]:
    """One number for each channel of (N, C, …), as arrays that broadcast to x."""
    return [v.reshape(-1, *(1,) * (x.ndim - 2)) for v in lines]


def native_batch_norm(
    x: Array, w: Array, b: Array, eps: float, dtype: np.dtype
) -> tuple[Array, ...]:
    w, b = _channels(x, w, b)
    y, *statistics = native_norm(x, w, b, (0, *range(2, x.ndim)), eps, dtype)
    return y, *[s.reshape(-1) for s in statistics]


def native_batch_norm_gradient(
    g: Array, x: Array, mean: Array, rate: Array, w: Array
) -> tuple[Array, ...]:
    mean, rate, w = _channels(x, mean, rate, w)
    dx, *others = native_norm_gradient(g, x, mean, rate, w, (0, *range(2, x.ndim)))
    return dx, *[d.reshape(-1) for d in others]


def native_rms_norm(
    x: Array, w: Array, axes: Axes, eps: float, dtype: np.dtype
) -> tuple[Array, Array]:
    wide = _wide(x)
    y, square = root_mean_square(wide, axes, eps, wide.dtype)
    rate = 1 / np.sqrt(square + wide.dtype.type(eps))
    return _in(x.dtype, y * _wide(w)), _in(dtype, rate)


def native_rms_norm_gradient(
    g: Array, x: Array, rate: Array, w: Array, axes: Axes
) -> tuple[Array, Array]:
    own, g, wide = x.dtype, _wide(g), _wide(x)
    y = _in(wide.dtype, wide * rate)
    dx = projection(_in(wide.dtype, g * w), y, axes, False) * rate
    return _in(own, dx), _fold(g * y, w)


def _fold(t: Array, w: Array) -> Array:
    """t summed to the shape and dtype of the weight."""
    lead = t.ndim - w.ndim
    axes = (*range(lead), *(lead + k for k, n in enumerate(w.shape) if n == 1))
    return _in(w.dtype, t.sum(axes).reshape(w.shape))


@_in_single
def lstm_cell(z: Array, c: Array) -> tuple[Array, Array, Array]:
    lead = np.broadcast_shapes(z.shape[:-1], c.shape[:-1])
    gates = np.array(np.broadcast_to(z, lead + z.shape[-1:]))
    i, f, u, o = np.split(gates, 4, -1)
    _open(gates[..., : 2 * c.shape[-1]])
    np.tanh(u, u)
    _open(o)
    new = f * c
    new += i * u
    return o * np.tanh(new), new, gates


@_in_single
def gru_cell(x: Array, y: Array, h: Array) -> tuple[Array, Array]:
    lead = np.broadcast_shapes(x.shape[:-1], y.shape[:-1], h.shape[:-1])
    gates = np.array(np.broadcast_to(x, lead + x.shape[-1:]))
    width = h.shape[-1]
    front = gates[..., : 2 * width]
    front += y[..., : 2 * width]
    _open(front)
    r, z = np.split(front, 2, -1)
    n = gates[..., 2 * width :]
    n += r * y[..., 2 * width :]
    np.tanh(n, n)
    return n + z * (h - n), gates


def mean_nll(logs: Array, classes: Array, ignored: int) -> tuple[Array, Array]:
    counts = classes != ignored
    classes = checked_classes(np.where(counts, classes, 0), logs.shape[-1])
    shape = np.broadcast_shapes(logs.shape[:-1], classes.shape)
    wide = np.broadcast_to(_wide(logs), (*shape, logs.shape[-1]))
    places = np.broadcast_to(classes, shape)[..., None]
    picked = np.take_along_axis(wide, places, -1)[..., 0]
    n = np.maximum(np.broadcast_to(counts.sum(-1), shape[:-1]), 1).astype(wide.dtype)
    total = np.where(counts, picked, wide.dtype.type(0)).sum(-1)
    return _in(logs.dtype, -total / n), _in(logs.dtype, n)


def nll_gradient(g: Array, classes: Array, ignored: int, width: int) -> Array:
    lead = np.broadcast_shapes(np.shape(g), classes.shape[:-1])
    classes = np.broadcast_to(classes, (*lead, classes.shape[-1]))
    counts = (classes != ignored)[..., None]
    z = np.zeros((*classes.shape, width), g.dtype)
    values = np.where(counts, -np.broadcast_to(g, lead)[..., None, None], g.dtype.type(0))
    np.put_along_axis(z, np.where(counts, classes[..., None], 0), values, -1)
    return z
