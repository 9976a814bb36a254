"""Logarithms, branch-free: x = 2ᵉ·m with m near 1, and a polynomial in f = m − 1."""

import math

from . import wide
from .arithmetic import fma, horner, larger, size
from .code import LLValue
from .exponentials import BIAS, FRACTION, LN2, exp_by_polynomial

_NORMAL = {"float": 2.0**-126, "double": 2.0**-1022}
_LIFT = {"float": 23, "double": 54}
# The least m: ¾, as the AVX-512 instructions split numbers, and √½.
_LEAST = {"float": 0x3F400000, "double": 0x3FE6A09E667F3BCD}
# ln 2 as the sum of two positive numbers.
_LN2 = {"float": (0.6931471228599548, 5.769999868903688e-08), "double": LN2["double"]}
# P in log(1 + f) = f − ½f² + f³P for −¼ ≤ f ≤ ½: error 4.9e-9.
_P = (
    0.33333449424260486,
    -0.2500009701934219,
    0.19990846208255436,
    -0.16647242063386605,
    0.14478491897189807,
    -0.13162090894223039,
    0.10464438248565265,
    -0.04508099303140936,
)
# R in log(1 + f) = 2s + s³R(s²) with s = f/(2 + f) for √½ − 1 ≤ f ≤ √2 − 1: error 1.7e-20.
_R = (
    0.6666666666666666,
    0.4000000000000633,
    0.2857142856905862,
    0.22222222650923779,
    0.18181775333697672,
    0.15387105332430745,
    0.1324978802231377,
    0.13254344041598665,
)
# 1/ln 2, 1/ln 10 and log₁₀ 2 as sums of two numbers.
_LOG2E = {
    "float": (1.4426950216293335, 1.925963033500011e-08),
    "double": (1.4426950408889634, 2.0355273740931033e-17),
}
_LOG10E = {
    "float": (0.4342944920063019, -1.0103049952192578e-08),
    "double": (0.4342944819032518, 1.098319650216765e-17),
}
_LOG10_2 = {
    "float": (0.3010300099849701, -1.432098883924482e-08),
    "double": (0.3010299956639812, -2.8037281277851704e-18),
}


def split_exponent(x: LLValue) -> tuple[LLValue, LLValue]:
    """e (as a float) and m for x > 0, denormal or not; unspecified for other x."""
    element = x.type.element
    if _is_wide(x):
        m = wide.mantissa(x)
        return wide.exponent(x) - wide.exponent(m), m
    low = x < _NORMAL[element]
    e, m = split_normal(low.choose(x * 2.0 ** _LIFT[element], x))
    return number(low.choose(e - _LIFT[element], e), x), m


def _is_wide(x: LLValue) -> bool:
    return x.type.element == "float" and wide.available(x)


def split_normal(x: LLValue) -> tuple[LLValue, LLValue]:
    """e and m for normal x > 0."""
    element = x.type.element
    bits = x.bits
    e = (bits - _LEAST[element]) >> FRACTION[element]
    return e, (bits - (e << FRACTION[element])).as_float(element)


def _single(f: LLValue, low: LLValue | None) -> LLValue:
    """log(1 + f) − f, plus `low`."""
    z = f * f
    y = f * z * horner(f, _P)
    return fma(z, -0.5, y if low is None else y + low)


def _double(f: LLValue, low: LLValue | None) -> LLValue:
    s, half = f / (f + 2.0), f * f * 0.5
    z = s * s
    y = s * (half + z * horner(z, _R))
    return (y if low is None else y + low) - half


def remainder(f: LLValue, low: LLValue | None = None) -> LLValue:
    """log(1 + f) − f + low, for a small low."""
    return (_single if f.type.element == "float" else _double)(f, low)


def guard_logarithm(y: LLValue, x: LLValue) -> LLValue:
    """y = log x, corrected at 0, below, at infinity and at NaN."""
    beyond = x.equals(0.0).choose(x.same(-math.inf), x.same(math.nan))
    return (x <= 0.0).choose(beyond, (x < math.inf).choose(y, x))


def number(e: LLValue, like: LLValue) -> LLValue:
    """An integer as a float."""
    return e.cast("sitofp", like.type.element)


def log(x: LLValue) -> LLValue:
    n, m = split_exponent(x)
    high, low = _LN2[x.type.element]
    f = m - 1.0
    y = fma(n, high, f + remainder(f, n * low))
    # Where instructions split x, the exponent of zero is −∞, and a negative number gives NaN.
    return y if _is_wide(x) else guard_logarithm(y, x)


def _in_base(x: LLValue, factor: tuple[float, float], step: tuple[float, float]) -> LLValue:
    """log x·factor, with `step` = ln 2·factor; both as sums of two numbers."""
    n, m = split_exponent(x)
    f = m - 1.0
    rest = remainder(f)
    y = f + rest
    # The rounding error of the sum, and the second half of the factor.
    tail = fma(y, factor[1], ((f - y) + rest) * factor[0])
    return guard_logarithm(fma(n, step[0], fma(y, factor[0], fma(n, step[1], tail))), x)


def log2(x: LLValue) -> LLValue:
    return _in_base(x, _LOG2E[x.type.element], (1.0, 0.0))


def log10(x: LLValue) -> LLValue:
    return _in_base(x, _LOG10E[x.type.element], _LOG10_2[x.type.element])


def log1p(x: LLValue) -> LLValue:
    """log u for u = 1 + x rounded, plus the rounding error divided by u."""
    element = x.type.element
    u = x + 1.0
    b = u - 1.0
    lost = (x - b) + (1.0 - (u - b))
    e, m = split_normal(u)
    n, f = number(e, x), m - 1.0
    # lost·2⁻ᵉ/m; near m = 1, where it counts, the quotient is exact enough.
    shift = (larger(-e + BIAS[element], 0) << FRACTION[element]).as_float(element)
    low = lost * shift * fma(f, fma(f, 0.8, -1.0), 1.0)
    high, tail = _LN2[element]
    y = guard_logarithm(fma(n, high, f + remainder(f, fma(n, tail, low))), u)
    return x.equals(0.0).choose(x, y)


def softplus(x: LLValue) -> LLValue:
    """log(1 + eˣ) without overflow."""
    return larger(x, 0.0) + log1p(exp_by_polynomial(-size(x)))


def logaddexp(a: LLValue, b: LLValue) -> LLValue:
    """log(eᵃ + eᵇ); equal infinities give that infinity."""
    top = larger(a, b)
    y = top + log1p(exp_by_polynomial(-size(a - b)))
    equal = a.equals(b)
    y = equal.choose(a + math.log(2), y)
    return b.is_nan().choose(b, y)


def asinh(x: LLValue) -> LLValue:
    """log(a + √(a² + 1)) of a = |x|, near zero without cancellation."""
    a = size(x)
    square = a * a
    near = a + square / ((square + 1.0).intrinsic("sqrt") + 1.0)
    return _far(a, near).intrinsic("copysign", x)


def _far(a: LLValue, near: LLValue) -> LLValue:
    """log1p(near), and log 2a for a so large that its square overflows or swallows a 1."""
    far = a > 2.0**60
    y = log1p(far.choose(a, near))
    return y + far.choose(y.same(math.log(2)), y.same(0.0))


def acosh(x: LLValue) -> LLValue:
    t = x - 1.0
    side = fma(t, t, t + t).intrinsic("sqrt")
    near = t + side
    # The rounding error of the sum matters near 1, where `side` is the larger term.
    lost = (t < 1.0).choose(t - (near - side), t.same(0.0))
    y = _far(x, near) + lost / (near + 1.0)
    return (x < 1.0).choose(x.same(math.nan), y)


def atanh(x: LLValue) -> LLValue:
    a = size(x)
    return (log1p((a + a) / (1.0 - a)) * 0.5).intrinsic("copysign", x)
