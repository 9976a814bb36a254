"""NumPy's kernels of the activations: many passes over blocks that stay in the cache."""

from collections.abc import Callable
from functools import lru_cache, wraps
from importlib import import_module
from typing import Any

import numpy as np

from ...core.dtypes import HALF
from ..shared import threads
from .types import Array, Function, Shape

# Elements of a block: the passes over them stay in the second-level cache, and are long beside
# the overhead of a call. Smaller arrays get smaller blocks, so that BLAS stays on one thread.
_BLOCK, _SHORT = 1 << 16, 1 << 14


def _is_half(x: Array) -> bool:
    return x.itemsize == 2 and x.dtype in HALF


def _in_blocks(passes: int) -> Callable[[Function], Function]:
    """A decorator: an elementwise kernel of many passes over a line, in blocks, by all threads.

    Half types are computed in float32.
    """

    def decorate(kernel: Function) -> Function:
        def wide(x):
            if x.dtype.kind in "biu":
                raise TypeError("integers are made floats before they get here")
            if not _is_half(x):
                return kernel(x)
            return kernel(x.astype(np.float32)).astype(x.dtype)

        @wraps(kernel)
        def call(x):
            flat = x if x.ndim == 1 else x.reshape(-1)
            if x.size <= _SHORT:
                y = wide(flat)
                return y if x.ndim == 1 else y.reshape(x.shape)
            y = np.empty(x.size, x.dtype)

            def do(piece):
                y[piece] = wide(flat[piece])

            step = _BLOCK if x.size > _BLOCK else _SHORT
            pieces = [slice(k, k + step) for k in range(0, x.size, step)]
            threads.share(pieces, lambda: do, x.size * passes * threads.PASS)
            return y.reshape(x.shape)

        return call  # type: ignore[return-value]

    return decorate


@lru_cache(maxsize=16)
def _zeros(shape: Shape, dtype: np.dtype) -> np.ndarray:
    return np.zeros(shape, dtype)


# Beyond these Φ is 0 or 1, and so are expit and the slopes. In products they
# replace infinite arguments, as 0·∞ is NaN.
_END = {4: np.array(15, np.float32), 8: np.array(40.0)}
_FLAT = {4: np.array(200, np.float32), 8: np.array(800.0)}


def _rectify(x: Array) -> Array:
    # Beside a scalar NumPy's maximum is twice as slow as beside an array.
    return np.maximum(x, _zeros(x.shape, x.dtype))


# Φ(-a) = R(t)·exp(-a²/2) with t = 1/(1 + _PACE·a) for 0 ≤ a ≤ 14: R by a fit that is minimax in
# the relative error, which is 3.2e-8: half a unit of float32. In powers of t, from t to t⁹.
_PACE = 0.35
_TAIL = np.array(
    [
        (0.13962140423904817, 0.13986187069042366, 0.11983286031359895),
        (0.10550803295095204, -0.023109903649215682, 0.1591742606684386),
        (-0.25571434319188374, 0.1439717414192029, -0.02914593938682071),
    ],
    np.float32,
)
_DENSITY = 0.3989422804014327
# The sign of a number and the number one, as bits.
_BITS: dict[int, tuple[Any, Any]] = {4: (np.int32(-(1 << 31)), np.float32(1).view(np.int32))}
_BITS[8] = np.int64(-(1 << 63)), np.float64(1).view(np.int64)


def _tail(x: Array) -> tuple[Array, Array, Array]:
    """|x|, up to where Φ(-|x|) is zero, Φ(-|x|) and exp(-x²/2) of a line."""
    a = np.abs(x)
    np.minimum(a, _END[x.itemsize], out=a)
    e = np.multiply(a, a)
    e *= x.dtype.type(-0.5)
    np.exp(e, e)
    if x.itemsize > 4:
        return a, import_module("scipy.special").ndtr(-a), e
    powers = np.empty((3, x.size), x.dtype)
    t, square, cube = powers
    np.multiply(a, x.dtype.type(_PACE), t)
    t += x.dtype.type(1)
    np.divide(x.dtype.type(1), t, t)
    np.multiply(t, t, square)
    np.multiply(t, square, cube)
    # Three polynomials at a time: BLAS multiplies and adds in one step, NumPy in two.
    low, middle, tail = _TAIL @ powers
    for rest in (middle, low):
        tail *= cube
        tail += rest
    tail *= e
    return a, tail, e


@_in_blocks(20)
def gelu(x: Array) -> Array:
    a, tail, _ = _tail(x)
    a *= tail
    np.subtract(_rectify(x), a, a)
    return np.copysign(a, x, a)  # also of zeros


@_in_blocks(25)
def gelu_slope(x: Array) -> Array:
    """Φ(x) + xφ(x), from Φ(-|x|) and by symmetry: [x ≥ 0] - sign(x)·Φ(-|x|) + xφ(x)."""
    a, tail, e = _tail(x)
    e *= x.dtype.type(_DENSITY)
    e *= np.copysign(a, x, a)
    sign, one = _BITS[x.itemsize]
    bits = x.view(sign.dtype)
    marks = np.bitwise_and(bits, sign)
    signed = tail.view(sign.dtype)
    signed ^= marks
    e -= tail
    np.invert(np.right_shift(bits, 8 * x.itemsize - 1, marks), marks)  # all ones where x ≥ 0
    marks &= one
    e += marks.view(x.dtype)
    return e


_ROOT, _CUBIC = 0.7978845608028654, 0.044715


def _inner_logistic(x: Array) -> tuple[Array, Array]:
    """expit 2u = ½(1 + tanh u) for u = √(2/π)(x + 0.044715x³), and x²."""
    square = np.multiply(x, x)
    u = square * x.dtype.type(2 * _ROOT * _CUBIC)
    u += x.dtype.type(2 * _ROOT)
    u *= x
    return _logistic(u), square


@_in_blocks(9)
def gelu_tanh(x: Array) -> Array:
    s, _ = _inner_logistic(_to_flat(x))
    s *= _from_flat(x)
    return s


@_in_blocks(13)
def gelu_tanh_slope(x: Array) -> Array:
    """s + 2xu's(1 - s)."""
    x = _to_flat(x)
    s, du = _inner_logistic(x)
    du *= x.dtype.type(6 * _ROOT * _CUBIC)
    du += x.dtype.type(2 * _ROOT)
    du *= x
    du *= np.subtract(x.dtype.type(1), s)
    du += x.dtype.type(1)
    du *= s
    return du


def _from_flat(x: Array) -> Array:
    return np.maximum(x, np.negative(_FLAT[x.itemsize]))


def _to_flat(x: Array) -> Array:
    return np.minimum(_from_flat(x), _FLAT[x.itemsize])


def _logistic(x: Array) -> Array:
    """eˣ/(1 + eˣ), which keeps small results; from e⁶⁴ on it is 1."""
    t = np.minimum(x, x.dtype.type(64))
    with np.errstate(under="ignore"):
        np.exp(t, t)
    return np.divide(t, t + x.dtype.type(1), t)


@_in_blocks(6)
def silu(x: Array) -> Array:
    s = _logistic(x)
    s *= _from_flat(x)
    return s


@_in_blocks(9)
def silu_slope(x: Array) -> Array:
    """s + xs(1 - s)."""
    x = _to_flat(x)
    s = _logistic(x)
    y = np.subtract(x.dtype.type(1), s)
    y *= x
    y += x.dtype.type(1)
    y *= s
    return y


@_in_blocks(7)
def softplus(x: Array) -> Array:
    y = np.abs(x)
    y *= x.dtype.type(-1)
    np.exp(y, y)
    np.log1p(y, y)
    y += _rectify(x)
    return y
