"""NumPy's kernels of the activations: many passes over blocks that stay in the cache."""

from functools import lru_cache, wraps
from importlib import import_module

import numpy as np

from ..core.dtypes import HALF
from . import threads

# So many elements at a time: the passes over them stay in the second-level cache, and are long
# beside what a call costs.
_BLOCK = 1 << 16


def _is_half(x) -> bool:
    return x.itemsize == 2 and x.dtype in HALF


def _in_blocks(passes: int):
    """A decorator: an elementwise kernel of many passes, block by block, by all threads.

    Half types are computed in float32.
    """

    def decorate(kernel):
        def wide(x):
            if not _is_half(x):
                return kernel(x)
            return kernel(x.astype(np.float32)).astype(x.dtype)

        @wraps(kernel)
        def call(x):
            if not x.ndim:
                return wide(x.reshape(1)).reshape(())
            if x.size <= _BLOCK:
                return wide(x)
            flat, y = x.reshape(-1), np.empty(x.size, x.dtype)

            def do(piece):
                y[piece] = wide(flat[piece])

            pieces = [slice(k, k + _BLOCK) for k in range(0, x.size, _BLOCK)]
            threads.share(pieces, lambda: do, x.size * passes * threads.PASS)
            return y.reshape(x.shape)

        return call

    return decorate


@lru_cache(maxsize=16)
def _zeros(shape, dtype) -> np.ndarray:
    return np.zeros(shape, dtype)


def _rectified(x):
    # Beside a scalar NumPy's maximum is twice as slow as beside an array.
    return np.maximum(x, _zeros(x.shape, x.dtype))


# Φ(-a) = R(t)·exp(-a²/2) with t = 1/(1 + _PACE·a) for 0 ≤ a ≤ 14: R by a fit that is minimax in
# the relative error, which is 3.2e-8: half a unit of float32. In powers of t, from t⁹ down to t.
_PACE = 0.35
_TAIL = (
    -0.02914593938682071,
    0.1439717414192029,
    -0.25571434319188374,
    0.1591742606684386,
    -0.023109903649215682,
    0.10550803295095204,
    0.11983286031359895,
    0.13986187069042366,
    0.13962140423904817,
)
_DENSITY = 0.3989422804014327


def _tail(x):
    """|x|, Φ(-|x|) and exp(-x²/2)."""
    a = np.abs(x)
    e = np.multiply(x, x)
    e *= x.dtype.type(-0.5)
    np.exp(e, e)
    if x.itemsize > 4:
        return a, import_module("scipy.special").ndtr(-a), e
    t = a * x.dtype.type(_PACE)
    t += x.dtype.type(1)
    np.divide(x.dtype.type(1), t, t)
    tail = t * x.dtype.type(_TAIL[0])
    for c in _TAIL[1:]:
        tail += x.dtype.type(c)
        tail *= t
    tail *= e
    return a, tail, e


@_in_blocks(27)
def gelu(x):
    a, tail, _ = _tail(x)
    a *= tail
    return np.subtract(_rectified(x), a, a)


@_in_blocks(31)
def gelu_slope(x):
    """Φ(x) + xφ(x), from Φ(-|x|) and by symmetry."""
    a, tail, e = _tail(x)
    e *= x.dtype.type(_DENSITY)
    a *= e
    a -= tail
    side = np.copysign(x.dtype.type(1), x)
    a *= side
    side += x.dtype.type(1)
    side *= x.dtype.type(0.5)
    a += side
    return a


_ROOT, _CUBIC = 0.7978845608028654, 0.044715


def _inner_tanh(x):
    """tanh(√(2/π)(x + 0.044715x³)) and x²."""
    square = np.multiply(x, x)
    u = square * x.dtype.type(_ROOT * _CUBIC)
    u += x.dtype.type(_ROOT)
    u *= x
    return np.tanh(u, u), square


@_in_blocks(8)
def gelu_tanh(x):
    th, _ = _inner_tanh(x)
    th += x.dtype.type(1)
    th *= x
    th *= x.dtype.type(0.5)
    return th


@_in_blocks(13)
def gelu_tanh_slope(x):
    th, du = _inner_tanh(x)
    du *= x.dtype.type(3 * _ROOT * _CUBIC)
    du += x.dtype.type(_ROOT)
    du *= x
    falling = np.multiply(th, th)
    np.subtract(x.dtype.type(1), falling, falling)
    du *= falling
    du += th
    du += x.dtype.type(1)
    du *= x.dtype.type(0.5)
    return du


def _logistic(x):
    s = np.negative(x)
    with np.errstate(over="ignore"):
        np.exp(s, s)
    s += x.dtype.type(1)
    return np.divide(x.dtype.type(1), s, s)


@_in_blocks(5)
def silu(x):
    s = _logistic(x)
    s *= x
    return s


@_in_blocks(8)
def silu_slope(x):
    """s + xs(1 - s)."""
    s = _logistic(x)
    y = np.subtract(x.dtype.type(1), s)
    y *= x
    y += x.dtype.type(1)
    y *= s
    return y


@_in_blocks(7)
def softplus(x):
    y = np.abs(x)
    y *= x.dtype.type(-1)
    np.exp(y, y)
    np.log1p(y, y)
    y += _rectified(x)
    return y
