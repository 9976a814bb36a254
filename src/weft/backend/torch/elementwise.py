"""PyTorch's names and dtypes fixed for the elementwise rows."""

import math
import operator
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import torch

from . import bessel as torch_bessel
from .types import Array, Binary, Operand, Unary

_HALF = (torch.float16, torch.bfloat16)


def _first_tensor(args: Iterable[Operand]) -> torch.Tensor:
    return next(a for a in args if isinstance(a, torch.Tensor))


def _beside(s: Operand, t: torch.Tensor) -> torch.Tensor:
    """A Python scalar as a tensor to combine with t; made on its device, without a transfer."""
    if isinstance(s, torch.Tensor):
        return s
    return torch.full((), s, dtype=torch.result_type(t, s), device=t.device)


def _on_tensors(fn: Callable[..., Any]) -> Callable[..., Array]:
    """`fn`, which takes only tensors, for Python scalars too."""

    @wraps(fn)
    def call(*args):
        t = _first_tensor(args)
        return fn(*(_beside(a, t) for a in args))

    return call


def _on_floats(fn: Callable[..., Any]) -> Callable[..., Array]:
    """`fn`, which takes only floating-point tensors, for integers and scalars too."""

    @wraps(fn)
    def call(*args):
        t = _first_tensor(args)
        if t.is_complex():
            raise TypeError(f"{fn.__name__} is not supported for complex numbers")
        if not t.is_floating_point():
            t = t.to(torch.get_default_dtype())
        return fn(*(_beside(a, t).to(t.dtype) for a in args))

    return call


def _through(
    dtype: torch.dtype, *narrow: torch.dtype
) -> Callable[[Callable[..., Array]], Callable[..., Array]]:
    """A decorator: tensors of the narrow dtypes are computed in `dtype`."""

    def decorate(fn: Callable[..., Array]) -> Callable[..., Array]:
        @wraps(fn)
        def call(*args):
            t = _first_tensor(args)
            if t.dtype not in narrow:
                return fn(*args)
            wide = (a.to(dtype) if isinstance(a, torch.Tensor) else a for a in args)
            return fn(*wide).to(t.dtype)

        return call

    return decorate


_single = _through(torch.float32, *_HALF)
_double = _through(torch.float64, torch.float32, *_HALF)

# -- arithmetic: Python's operators take scalars on either side --------------------------------

add: Binary = operator.add
subtract: Binary = operator.sub
multiply: Binary = operator.mul
divide: Binary = operator.truediv
negative: Unary = operator.neg
equal: Binary = operator.eq
not_equal: Binary = operator.ne
less: Binary = operator.lt
less_equal: Binary = operator.le
greater: Binary = operator.gt
greater_equal: Binary = operator.ge
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def _on_bits(f: Callable[..., Array]) -> Callable[..., Array]:
    """A function of bits; PyTorch has few for unsigned integers above 8 bits."""

    def compute(*args: Operand) -> Array:
        first = next(a for a in args if isinstance(a, torch.Tensor))
        own = first.dtype
        if own not in _SIGNED:
            return f(*args)
        given = [torch.as_tensor(a, dtype=own, device=first.device) for a in args]
        return f(*[a.view(_SIGNED[own]) for a in given]).view(own)

    return compute


bitwise_and: Binary = _on_bits(operator.and_)
bitwise_or: Binary = _on_bits(operator.or_)
bitwise_xor: Binary = _on_bits(operator.xor)
bitwise_invert: Unary = _on_bits(torch.bitwise_not)
bitwise_left_shift: Binary = operator.lshift
bitwise_right_shift: Binary = operator.rshift
positive = torch.clone  # torch's own returns its argument
power_scalar = torch.pow
logical_and: Binary = _on_tensors(torch.logical_and)
logical_or: Binary = _on_tensors(torch.logical_or)
logical_xor: Binary = _on_tensors(torch.logical_xor)
atan2: Binary = _on_tensors(torch.atan2)
copysign: Binary = _on_tensors(torch.copysign)
hypot: Binary = _on_floats(torch.hypot)
logaddexp: Binary = _on_floats(torch.logaddexp)
nextafter: Binary = _on_floats(torch.nextafter)


def strong_quotient(a: Operand, b: Operand) -> Array:
    """a/b with an exact zero wherever a is zero."""
    c = a / b
    if not isinstance(a, torch.Tensor):
        return c if a else torch.zeros_like(c)
    return torch.where(a == 0, 0, c)


def _is_float(x: Operand) -> bool:
    return x.is_floating_point() if isinstance(x, torch.Tensor) else isinstance(x, float)


def _by_nonzero(f: Binary) -> Binary:
    """A quotient or a remainder; by an integer that is zero it is zero, as NumPy's."""

    def compute(a: Operand, b: Operand) -> Array:
        if _is_float(a) or _is_float(b):
            return f(a, b)
        if isinstance(b, torch.Tensor):
            none = b == 0
            return torch.where(none, 0, f(a, torch.where(none, 1, b)))
        return f(a, b) if b else torch.zeros_like(a)

    return compute


@_by_nonzero
def floor_divide(a: Operand, b: Operand) -> Array:
    q = a // b
    if not q.is_floating_point():
        return q
    # Of infinities the Array API makes the plain quotient, torch NaN and -1.
    return torch.where(_is_infinite(a) | _is_infinite(b), a / b, q)


def _is_infinite(x: Operand) -> Any:
    return x.isinf() if isinstance(x, torch.Tensor) else math.isinf(x)


@_by_nonzero
def remainder(a: Operand, b: Operand) -> Array:
    r = a % b
    # A zero remainder has the sign of the divisor.
    return torch.copysign(r, b) if r.is_floating_point() else r


def pow(a: Operand, b: Operand) -> Array:
    y = a**b
    # torch says NaN for the complex 0⁰ with arrays.
    complex_power = y.is_complex() and isinstance(b, torch.Tensor)
    return torch.where(b == 0, 1, y) if complex_power else y


# C99's answers for complex infinities, NaN and signed zeros, where torch has others.


def expm1(x: Array) -> Array:
    y = torch.expm1(x)
    if not x.is_complex():
        return y
    y = torch.where(x.isfinite(), y, torch.exp(x) - 1)
    return torch.complex(y.real + 0.0, y.imag)


def log1p(x: Array) -> Array:
    y = torch.log1p(x)
    return torch.where(x.isfinite(), y, torch.log(1 + x)) if x.is_complex() else y


def acos(x: Array) -> Array:
    y = torch.acos(x)
    return torch.complex(y.real, torch.copysign(y.imag, -x.imag)) if x.is_complex() else y


@_on_floats
def cbrt(x: Array) -> Array:
    return torch.copysign(x.abs() ** (1 / 3), x)


def sign(x: Array) -> Array:
    s = torch.sgn(x)
    # torch says 0 for NaN.
    return torch.where(x.isnan(), x, s) if x.is_floating_point() or x.is_complex() else s


def round(x: Array) -> Array:
    if x.is_complex():
        return torch.complex(x.real.round(), x.imag.round())
    return torch.round(x)


# -- choices ----------------------------------------------------------------------------------


def maximum(a: Operand, b: Operand) -> Array:
    return _extreme(a, b, torch.clamp_min, torch.maximum)


def minimum(a: Operand, b: Operand) -> Array:
    return _extreme(a, b, torch.clamp_max, torch.minimum)


def _extreme(
    a: Operand,
    b: Operand,
    bounded: Callable[[Array, Any], Array],
    paired: Callable[[Array, Array], Array],
) -> Array:
    if not isinstance(a, torch.Tensor):
        a, b = b, a
    if isinstance(b, torch.Tensor):
        return paired(a, b)
    return bounded(a, b) if a.is_floating_point() else paired(a, _beside(b, a))


def clip(x: Array, lo: float | None, hi: float | None) -> Array:
    return x.clone() if lo is None and hi is None else torch.clamp(x, lo, hi)


def sign_product(t: Array, x: Array, size: Array) -> Array:
    return t * torch.sign(x)


def gate(t: Array, open: Array) -> Array:
    return t * open


def tie_share(a: Operand, b: Operand) -> Array:
    dtype = _first_tensor((a, b)).dtype
    return (greater(a, b).to(dtype) + greater_equal(a, b)) * 0.5


# -- complex numbers --------------------------------------------------------------------------


def angle(x: Array) -> Array:
    return torch.angle(x) if x.is_complex() else torch.atan2(torch.zeros_like(x), x)


# Not torch's lazy conjugate, which is a view of its argument.
conj = torch.conj_physical


def imag(x: Array) -> Array:
    return x.imag if x.is_complex() else torch.zeros_like(x)


def complex_(a: Operand, b: Operand) -> Array:
    a, b = (_beside(v, _first_tensor((a, b))) for v in (a, b))
    return torch.complex(*(v.float() if v.dtype in _HALF else v for v in (a, b)))


# -- special functions ------------------------------------------------------------------------

erfcx: Unary = _single(torch.special.erfcx)
k0: Unary = _single(torch.special.modified_bessel_k0)
k0e: Unary = _single(torch.special.scaled_modified_bessel_k0)
k1: Unary = _single(torch.special.modified_bessel_k1)
k1e: Unary = _single(torch.special.scaled_modified_bessel_k1)
log_ndtr: Unary = _single(torch.special.log_ndtr)
ndtri: Unary = _single(torch.special.ndtri)
gammainc: Binary = _single(_on_floats(torch.special.gammainc))
gammaincc: Binary = _single(_on_floats(torch.special.gammaincc))


@_single
@_on_floats
def zeta(x: Array, q: Array) -> Array:
    # torch says NaN for q = ∞.
    return torch.where(q == math.inf, 0, torch.special.zeta(x, q))


def _gamma_sign(x: Array) -> Array:
    """The sign of Γ(x): negative between -1 and 0, positive between -2 and -1, and so on."""
    return torch.where((x < 0) & (torch.floor(x) % 2 != 0), -1.0, 1.0)


@_double
@_on_floats
def gamma(x: Array) -> Array:
    y = _gamma_sign(x) * torch.exp(torch.lgamma(x))
    y = torch.where(x == 0, torch.copysign(y, x), y)
    return torch.where((x < 0) & (x == torch.floor(x)), math.nan, y)


@_double
@_on_floats
def betaln(a: Array, b: Array) -> Array:
    return torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)


@_double
@_on_floats
def beta(a: Array, b: Array) -> Array:
    sign = _gamma_sign(a) * _gamma_sign(b) * _gamma_sign(a + b)
    return sign * torch.exp(betaln(a, b))


@_double
def polygamma(n: Operand, x: Operand) -> Array:
    """(-1)ⁿ⁺¹ n! ζ(n + 1, x); torch's own trigamma has only nine digits."""
    if not isinstance(n, torch.Tensor):
        scale = math.factorial(int(n)) * (1 if n % 2 else -1)
        return scale * zeta(n + 1.0, x) if n else torch.digamma(x)
    x = _beside(x, n)
    scale = (2 * (n % 2) - 1) * torch.exp(torch.lgamma(n + 1.0))
    return torch.where(n == 0, torch.digamma(x), scale * zeta(n + 1.0, x))


@_single
@_on_floats
def rel_entr(x: Array, y: Array) -> Array:
    z = torch.where((x > 0) & (y > 0), x * torch.log(x / y), math.inf)
    z = torch.where((x == 0) & (y >= 0), 0, z)
    return torch.where(x.isnan() | y.isnan(), math.nan, z)


@_single
@_on_floats
def kl_div(x: Array, y: Array) -> Array:
    return rel_entr(x, y) - x + y


@_double
@_on_floats
def betainc(a: Array, b: Array, x: Array) -> Array:
    """The regularised incomplete beta function by its continued fraction."""
    swap = x > (a + 1) / (a + b + 2)
    p, q, t = torch.where(swap, b, a), torch.where(swap, a, b), torch.where(swap, 1 - x, x)
    front = torch.exp(torch.xlogy(p, t) + torch.special.xlog1py(q, -t) - betaln(p, q))
    tail = front * _beta_fraction(p, q, t) / p
    y = torch.where(swap, 1 - tail, tail)
    return torch.where((x < 0) | (x > 1), math.nan, y)


def _beta_fraction(a: Array, b: Array, x: Array) -> Array:
    """Lentz's evaluation (DLMF 8.17.22); O(√max(a, b)) steps are needed."""
    c, d = torch.ones_like(x), 1 / (1 - (a + b) * x / (a + 1))
    h = d
    for m in range(1, 2000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for step in (even, odd):
            d = 1 / (1 + step * d)
            c = 1 + step / c
            h = h * (c * d)
        if m % 8 == 0 and bool(((c * d - 1).abs() < 1e-15).all()):
            break
    return h


@_double
def bessel_j(x: Array, n: int) -> Array:
    return torch_bessel.j(x, n)


@_double
def bessel_i(x: Array, n: int) -> Array:
    return torch_bessel.i(x, n)


@_double
def bessel_ie(x: Array, n: int) -> Array:
    return torch_bessel.ie(x, n)


@_double
def spherical_j(x: Array, n: int) -> Array:
    return torch_bessel.spherical_j(x, n)


def _of_order(function: Callable[[Array, int], Array], n: int) -> Callable[..., Array]:
    """A Bessel function of fixed order, for integers too."""
    return _double(_on_floats(lambda x: function(x, n)))


j0: Unary = _of_order(torch_bessel.j, 0)
j1: Unary = _of_order(torch_bessel.j, 1)
y0: Unary = _of_order(torch_bessel.y, 0)
y1: Unary = _of_order(torch_bessel.y, 1)
