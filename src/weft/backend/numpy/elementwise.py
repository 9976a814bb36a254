"""NumPy's names and dtypes fixed for the elementwise rows."""

from collections.abc import Callable, Iterable
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np

from ...core.dtypes import HALF
from .namespace import has_nan, quietly
from .types import Array, Binary, OfOrder, Operand, Shape, Unary

# NumPy's `where` mispredicts a branch per element; bit operations do not, but are more calls.
_LARGE = 4096
# Up to this size (1 MiB of float32) constant arrays are cached.
_CACHED = 1 << 18
_BITS: dict[int, np.dtype[Any]] = {2: np.dtype("int16"), 4: np.dtype("int32"), 8: np.dtype("int64")}


def _is_half(x: Array) -> bool:
    return x.dtype.itemsize == 2 and x.dtype in HALF


def _dtype_among(args: Iterable[Operand]) -> np.dtype:
    """The dtype of the first array among promoted arguments, which share it."""
    return next(a.dtype for a in args if hasattr(a, "dtype"))


# -- arithmetic -------------------------------------------------------------------------------


def strong_quotient(a: Operand, b: Operand) -> Array:
    """a/b with an exact zero wherever a is zero."""
    c = np.divide(a, b)
    nan = np.isnan(c)
    return where(np.logical_and(nan, np.equal(a, 0)), 0, c) if nan.any() else c


def floor_divide(a: Operand, b: Operand) -> Array:
    q = np.floor_divide(a, b)
    if q.dtype.kind in "biu":
        return q
    # Of infinities the Array API makes the plain quotient, NumPy NaN and -1.
    infinite = np.logical_or(np.isinf(a), np.isinf(b))
    return np.where(infinite, np.divide(a, b), q) if infinite.any() else q  # type: ignore[return-value]


def reciprocal(x: Array) -> Array:
    return np.divide(1, x)


def rsqrt(x: Array) -> Array:
    return np.divide(1, np.sqrt(x))


def expm1(x: Array) -> Array:
    y = np.expm1(x)
    if y.dtype.kind != "c":
        return y
    # Where NumPy's complex expm1 departs from C99's exp: at infinities, NaN and -0.
    y = np.where(np.isfinite(x), y, np.exp(x) - 1)
    y.real += 0.0  # pyright: ignore[reportAttributeAccessIssue] (dtypes that it cannot know)
    return y


def tanh(x: Array) -> Array:
    y = np.tanh(x)
    if y.dtype.kind != "c":
        return y
    # tanh(∞ + iy) = 1 ± 0i: the zero has the sign of sin 2y in C99, and is +0 in the Array API.
    return np.where(np.isposinf(x.real) & np.isfinite(x.imag), y.dtype.type(1), y)


def power_scalar(x: Array, n: float) -> Array:
    """xⁿ; products for the small n that occur most, as pow costs fifty times as much."""
    if _is_half(x):  # a product in between may be beyond a half type
        return power_scalar(x.astype(np.float32), n).astype(x.dtype)
    if n == 3:
        return x * x * x
    if n == 4:
        return np.square(np.square(x))
    if x.dtype.kind in "biu":
        return np.power(x, n)
    if n == -1:
        return np.divide(1, x)
    if n == -2:
        return np.divide(1, np.square(x))
    if n == 0.5:
        return np.sqrt(x)
    return np.power(x, n)


def round(x: Array) -> Array:
    return x.copy() if x.dtype.kind in "biu" else np.rint(x)


# -- choices ----------------------------------------------------------------------------------


def where(c: Array, a: Operand, b: Operand) -> Array:
    if getattr(c, "size", 0) < _LARGE:
        return _choose(c, a, b)
    dtype = _dtype_among((a, b)) if hasattr(a, "dtype") or hasattr(b, "dtype") else None
    if dtype is None or dtype.kind not in "fV" or c.dtype.kind != "b":
        return _choose(c, a, b)
    bits = _BITS[dtype.itemsize]
    mask = c.astype(bits)
    if _is_zero(a):
        mask -= 1
        return _combine(np.bitwise_and, mask, b.view(bits)).view(dtype)
    np.negative(mask, mask)
    if _is_zero(b):
        return _combine(np.bitwise_and, mask, a.view(bits)).view(dtype)
    a, b = np.asarray(a, dtype).view(bits), np.asarray(b, dtype).view(bits)
    chosen = _combine(np.bitwise_and, np.bitwise_xor(a, b), mask)
    return _combine(np.bitwise_xor, chosen, b).view(dtype)


def _is_zero(value: Operand) -> bool:
    """Whether a value is the Python scalar +0."""
    return value.__class__ in (int, float) and value == 0 and not np.signbit(value)


def _combine(ufunc: np.ufunc, own: Array, other: Array) -> Array:
    """A ufunc of two arrays, in the memory of the first if the result has its shape."""
    return ufunc(own, other, own if own.shape == other.shape else None)


@lru_cache(maxsize=256)
def _point(value: float, dtype: np.dtype) -> np.ndarray:
    """A Python scalar as an array: NumPy is slow on scalars, bfloat16 widens beside them."""
    return np.asarray(value, dtype)


def _choose(c: Array, a: Operand, b: Operand) -> Array:
    if a.__class__ is np.ndarray:
        if b.__class__ is not np.ndarray:
            b = _beside(b, a.dtype)
    elif b.__class__ is np.ndarray:
        a = _beside(a, b.dtype)
    return np.where(c, a, b)  # type: ignore[return-value]  # mypy: `where(c)`


def _beside(value: Operand, dtype: np.dtype) -> Operand:
    """A scalar in the form that is fastest beside an array; ±0.0 would share a cached array."""
    if value.__class__ is int:
        return _point(value, dtype)
    return np.asarray(value, dtype) if value.__class__ is float and dtype.kind == "V" else value


def clip(x: Array, lo: float | None, hi: float | None) -> Array:
    if x.dtype.kind not in "biu":
        lo, hi = (v if v is None else x.dtype.type(float(v)) for v in (lo, hi))
    if lo is None:
        return np.positive(x) if hi is None else np.minimum(x, hi)
    x = np.maximum(x, lo)
    return x if hi is None else np.minimum(x, hi)


def relu(x: Array) -> Array:
    # Beside a scalar NumPy's maximum is four times as slow as beside an array.
    if _LARGE <= x.size <= _CACHED:
        return np.maximum(x, _zeros(x.shape, x.dtype))
    if x.size < _LARGE or not x.flags.c_contiguous:
        return np.maximum(x, _point(0, x.dtype))
    y, zeros = np.empty_like(x), _zeros((_CACHED,), x.dtype)
    line, made = x.reshape(-1), y.reshape(-1)
    for i in range(0, x.size, _CACHED):
        part = line[i : i + _CACHED]
        np.maximum(part, zeros[: part.size], out=made[i : i + _CACHED])
    return y


@lru_cache(maxsize=8)
def _zeros(shape: Shape, dtype: np.dtype) -> np.ndarray:
    return np.zeros(shape, dtype)


def sign(x: Array) -> Array:
    if x.size < _LARGE or x.dtype.char not in "fd" or has_nan(x):
        return np.sign(x)
    above = np.greater(x, _point(0, x.dtype)).view(np.int8)
    above -= np.less(x, _point(0, x.dtype)).view(np.int8)
    return above.astype(x.dtype)


_SIGN: dict[Any, Any] = {b: np.array(np.iinfo(b).min, b) for b in _BITS.values()}


def sign_product(t: Array, x: Array, size: Array) -> Array:
    # An exchange of sign bits is right where no sign is 0 or NaN.
    if size.size < _LARGE or not _alike(t, x) or not np.minimum.reduce(size, axis=None) > 0:
        return t * sign(x)
    bits = _BITS[x.itemsize]
    flipped = np.bitwise_and(x.view(bits), _SIGN[bits])
    return np.bitwise_xor(flipped, t.view(bits), flipped).view(x.dtype)


def _alike(a: Array, b: Array) -> bool:
    """Whether two arrays are floats of one kind, one shape and in one line of memory."""
    same = a.__class__ is b.__class__ and a.shape == b.shape and a.dtype is b.dtype
    return same and a.dtype.char in "fd" and a.flags.c_contiguous and b.flags.c_contiguous


def gate(t: Array, open: Array) -> Array:
    if open.size < _LARGE or t.shape != open.shape:
        return t * open
    passed = open.astype(t.dtype)  # the product alone would do, but in small blocks
    passed *= t
    return passed


def tie_share(a: Operand, b: Operand) -> Array:
    dtype = a.dtype if hasattr(a, "dtype") else b.dtype
    if dtype.kind in "biu":
        dtype = np.dtype(float)
    share, tied = np.greater(a, b).astype(dtype), np.equal(a, b)
    if np.count_nonzero(tied):
        share += tied * dtype.type(0.5)
    return share


# -- complex numbers --------------------------------------------------------------------------


def complex_(a: Operand, b: Operand) -> Array:
    dtype = _dtype_among((a, b))
    z = np.empty(np.broadcast_shapes(np.shape(a), np.shape(b)), np.result_type(dtype, np.complex64))
    z.real, z.imag = a, b
    return z


# -- special functions ------------------------------------------------------------------------


@lru_cache(maxsize=None)
def _scipy(name: str) -> Callable[..., Any]:
    return getattr(import_module("scipy.special"), name)


def _special(name: str) -> Callable[..., Array]:
    """scipy.special's function, imported when first called, in the dtype of its arguments."""

    def kernel(*args):
        dtype = _dtype_among(args)
        if dtype in HALF:
            # A float is rounded as the array beside it was; an order stays an integer.
            args = [a if a.__class__ is int else np.float32(np.asarray(a, dtype)) for a in args]
        z = _scipy(name)(*args)
        return z if z.dtype is dtype or dtype.kind in "biu" else z.astype(dtype)

    return kernel


def _of_order(name: str) -> Callable[[Array, int], Array]:
    """A Bessel function with its integer order as the last argument."""
    kernel = _special(name)
    return lambda x, n: kernel(n, x)


beta: Binary = _special("beta")
betaln: Binary = _special("betaln")
digamma: Unary = _special("psi")
entr: Unary = _special("entr")
erf: Unary = _special("erf")
erfc: Unary = _special("erfc")
erfcx: Unary = _special("erfcx")
erfinv: Unary = _special("erfinv")
gamma: Unary = _special("gamma")
gammainc: Binary = _special("gammainc")
gammaincc: Binary = _special("gammaincc")
gammaln: Unary = _special("gammaln")
i0: Unary = _special("i0")
i0e: Unary = _special("i0e")
i1: Unary = _special("i1")
i1e: Unary = _special("i1e")
j0: Unary = _special("j0")
j1: Unary = _special("j1")
k0: Unary = _special("k0")
k0e: Unary = _special("k0e")
k1: Unary = _special("k1")
k1e: Unary = _special("k1e")
kl_div: Binary = _special("kl_div")
log_ndtr: Unary = _special("log_ndtr")
logit: Unary = _special("logit")
ndtr: Unary = _special("ndtr")
ndtri: Unary = _special("ndtri")
polygamma: Binary = _special("polygamma")
rel_entr: Binary = _special("rel_entr")
xlog1py: Binary = _special("xlog1py")
xlogy: Binary = _special("xlogy")
y0: Unary = _special("y0")
y1: Unary = _special("y1")
zeta: Binary = _special("zeta")
bessel_i: OfOrder = _of_order("iv")
bessel_ie: OfOrder = _of_order("ive")
bessel_j: OfOrder = _of_order("jv")
spherical_j: OfOrder = _of_order("spherical_jn")


def _by_double(name: str) -> Callable[..., Array]:
    """scipy.special's function in double precision, where single precision loses too much."""
    kernel = _special(name)

    def wide(*args):
        dtype = _dtype_among(args)
        if dtype.char != "f" and dtype not in HALF:
            return kernel(*args)
        return kernel(*[np.asarray(a, dtype).astype(np.float64) for a in args]).astype(dtype)

    return wide


betainc: Callable[[Operand, Operand, Operand], Array] = _by_double(
    "betainc"
)  # in single precision infinite where it is nearly zero
sinc: Unary = _by_double("sinc")  # πx loses what sin πx depends on


# Up to this size SciPy's one slow loop is as fast as four fast passes.
_FEW = 64


def expit(x: Array) -> Array:
    if x.dtype.char not in "fd":
        return expit(x.astype(np.float32)).astype(x.dtype) if _is_half(x) else _scipy("expit")(x)
    if x.size <= _FEW:
        y = _scipy("expit")(x)
        if np.count_nonzero(y) == x.size:  # e⁻ˣ has not overflowed
            return y
    # eˣ/(1 + eˣ) keeps small results; from e⁶⁴ on it is 1.
    t = np.asarray(np.minimum(x, _point(64, x.dtype)))
    quietly(np.exp, t, t)
    return np.divide(t, np.add(t, _point(1, x.dtype)), t)
