"""NumPy's kernels of the neural rows."""

from functools import wraps
from math import prod

import numpy as np

from ..core.dtypes import HALF
from . import attention as shared
from . import crossentropy as _crossentropy
from . import numpy_
from .numpy_ import quietly
from .numpy_index import sum


def _is_half(x) -> bool:
    return x.itemsize == 2 and x.dtype in HALF


def masked_scale(x, mask, scale):
    y = np.empty(np.broadcast_shapes(x.shape, mask.shape), x.dtype)
    np.multiply(mask, x.dtype.type(scale), y)
    y *= x
    return y


def scale_shift(x, w, b):
    y = np.multiply(x, w)
    if y.shape == np.broadcast_shapes(y.shape, np.shape(b)) and y.ndim:
        y += b
        return y
    return y + b


def _mean(x, axes):
    return sum(x, axes, True) / x.dtype.type(prod([x.shape[a] for a in axes]))


def _mean_product(x, y, axes):
    """The mean of xy over axes, without the array of products where they are the last ones."""
    n = prod([x.shape[a] for a in axes])
    if x.size and axes == tuple(range(x.ndim - len(axes), x.ndim)):
        lead = x.shape[: x.ndim - len(axes)]
        total = np.einsum("ij,ij->i", x.reshape(-1, n), y.reshape(-1, n))
        total = total.reshape(lead + (1,) * len(axes))
    else:
        total = sum(x * y, axes, True)
    return total / x.dtype.type(n)


def _in_single(fn):
    """`fn` on floats: half types are computed in float32, and so are the results cast back."""

    @wraps(fn)
    def call(x, *rest):
        if not _is_half(x):
            return fn(x, *rest)
        wide = (a.astype(np.float32) if isinstance(a, np.ndarray) else a for a in rest)
        y = fn(x.astype(np.float32), *wide)
        return tuple(a.astype(x.dtype) for a in y) if type(y) is tuple else y.astype(x.dtype)

    return call


@_in_single
def standardise(x, axes, eps):
    mean = _mean(x, axes)
    y = x - mean
    variance = _mean_product(y, y, axes)
    y *= 1 / np.sqrt(variance + x.dtype.type(eps))
    return y, mean, variance


@_in_single
def root_mean_square(x, axes, eps):
    square = _mean_product(x, x, axes)
    return x * (1 / np.sqrt(square + x.dtype.type(eps))), square


@_in_single
def projection(g, y, axes, centred):
    z = y * _mean_product(g, y, axes)
    if centred:
        z += _mean(g, axes)
    return np.subtract(g, z, z)


def swapped(x):
    """x with its last two axes exchanged."""
    return x.swapaxes(-1, -2)


def fill_where(x, mask, value) -> None:
    np.copyto(x, value, where=mask)


def later(x, shift: int):
    """Which columns of x's matrices, moved on by `shift`, lie behind the diagonal."""
    return ~np.tri(x.shape[-2], x.shape[-1], -shift, dtype=bool)


def exp_into(x) -> None:
    np.exp(x, x)


def log_or_minus_inf(x):
    with np.errstate(divide="ignore"):
        return np.log(x)


def counting(like, start: int, stop: int):
    return np.arange(start, stop, dtype=np.int64)


def spread_copy(x, shape):
    return np.array(np.broadcast_to(x, shape))


def attention(*args):
    return quietly(shared.attend, numpy_, *args)


def attention_gradient(*args):
    return quietly(shared.attend_gradient, numpy_, *args)


def attention_mask_gradient(*args):
    return quietly(shared.attend_mask_gradient, numpy_, *args)


def attention_dropout(seeds, rows, columns, p):
    return shared.dropout_bits(numpy_, seeds, (0, rows), (0, columns), p)


def checked_classes(classes, n: int):
    """Classes from 0 to n - 1, or an error that names the first that is none."""
    if classes.size and not 0 <= classes.min() <= classes.max() < n:
        wrong = classes[(classes < 0) | (classes >= n)][0]
        raise IndexError(f"class {wrong} of {n}; expected 0 to {n - 1}")
    return classes


def log_denominators(x):
    """log Σ exp of each line."""
    top = np.maximum.reduce(x, 1, keepdims=True)
    top = np.where(np.isfinite(top), top, x.dtype.type(0))
    e = x - top
    np.exp(e, e)
    return log_or_minus_inf(sum(e, (1,), False)) + top[:, 0]


def picked(x, classes):
    """x[k, classes[k]] for each line k."""
    return x[np.arange(len(x)), classes]


def add_picked(x, classes, values) -> None:
    x[np.arange(len(x)), classes] += values


def clear_lines(x, mask) -> None:
    if mask.any():
        x[mask] = 0


def cross_entropy(*args):
    return quietly(_crossentropy.cross_entropy, numpy_, *args)


def cross_entropy_gradient(*args):
    return quietly(_crossentropy.cross_entropy_gradient, numpy_, *args)


def soft_cross_entropy(*args):
    return quietly(_crossentropy.soft_cross_entropy, numpy_, *args)


def soft_cross_entropy_gradient(*args):
    return quietly(_crossentropy.soft_cross_entropy_gradient, numpy_, *args)


def rotate(x, turn, interleaved, back):
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


def _open(gates) -> None:
    """The logistic function in place."""
    gates *= gates.dtype.type(-1)  # np.negative (2.4) errs where it writes with some strides
    with np.errstate(over="ignore"):
        np.exp(gates, gates)
    gates += gates.dtype.type(1)
    np.divide(gates.dtype.type(1), gates, gates)


@_in_single
def lstm_cell(z, c):
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
def gru_cell(x, y, h):
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
