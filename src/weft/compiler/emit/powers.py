"""Powers and roots beyond single instructions."""

import math

from .arithmetic import by_lanes, fma, horner, larger, narrow, root, size, smaller, widen
from .code import LLValue
from .exponentials import nearest, scale_by_power
from .logarithms import number, split_normal

# 2ʳ = 1 + rP for |r| ≤ ½, error 4.8e-11, and log₂ m = s·A(s²) with s = (m − 1)/(m + 1), error
# 7.8e-14: float32's powers are computed in float64, where these are exact enough.
_P = (
    0.6931471805417272,
    0.24022651079678367,
    0.055504109619652055,
    0.009618036255062542,
    0.0013333431405682427,
    0.00015467344539234706,
    1.5314799408604962e-05,
)
_A = (
    2.8853900817778486,
    0.9617966941158756,
    0.5770779415936768,
    0.4122093337041777,
    0.31990222969958393,
    0.28295147476634797,
)


def power(x: LLValue, y: LLValue) -> LLValue:
    """xʸ as in C99; float64 calls the C library."""
    if x.type.element == "double":
        return by_lanes("pow", [x, y])
    return narrow(_wide_power(widen(x), widen(y)))


def _wide_power(x: LLValue, y: LLValue) -> LLValue:
    """xʸ in float64 for float32 arguments, to more digits than float32 has."""
    a = size(x)
    e, m = split_normal(a)
    s = (m - 1.0) / (m + 1.0)
    logarithm = fma(s, horner(s * s, _A), number(e, x))
    logarithm = a.equals(0.0).choose(x.same(-math.inf), logarithm)
    logarithm = a.equals(math.inf).choose(a, logarithm)
    t = y * logarithm
    bounded = larger((t > 300.0).choose(t.same(300.0), t), -300.0)
    n, k = nearest(bounded, 1.0)
    r = bounded - n
    z = scale_by_power(fma(r, horner(r, _P), 1.0), n, k)
    return _settle_special_cases(x, y, x.is_nan().choose(x, z))


def _settle_special_cases(x: LLValue, y: LLValue, z: LLValue) -> LLValue:
    """The sign of a power, and the powers that do not depend on the other argument."""
    half = y * 0.5
    whole = y.intrinsic("floor").equals(y)
    odd = whole & half.intrinsic("floor").compare("ne", half)
    negative = x.bits < 0
    z = (negative & odd).choose(-z, z)
    z = ((x < 0.0) & (x > -math.inf) & ~whole & ~y.is_nan()).choose(x.same(math.nan), z)
    unit = x.equals(-1.0) & size(y).equals(math.inf)
    one = y.equals(0.0) | x.equals(1.0) | unit
    return one.choose(x.same(1.0), z)


def by_whole(x: LLValue, n: int) -> LLValue:
    """xⁿ for a whole n ≥ 0, by repeated squaring."""
    y, factor = None, x
    while n:
        if n & 1:
            y = factor if y is None else y * factor
        n >>= 1
        factor = factor * factor if n else factor
    return x.same(1) if y is None else y


def hypot(a: LLValue, b: LLValue) -> LLValue:
    """√(a² + b²) without overflow or underflow; infinity wins over NaN."""
    if a.type.element == "float":
        wide = [widen(v) for v in (a, b)]
        y = narrow(root(fma(wide[0], wide[0], wide[1] * wide[1])))
    else:
        y = _wide_hypot(size(a), size(b))
    infinite = size(a).equals(math.inf) | size(b).equals(math.inf)
    return infinite.choose(a.same(math.inf), y)


def _wide_hypot(a: LLValue, b: LLValue) -> LLValue:
    top, low = larger(a, b), (a < b).choose(a, b)
    # Both are divided by two to the exponent of the larger one.
    e = smaller(larger(top.bits.logical_shift(52), 1), 2045)
    scale = ((2046 - e) << 52).as_float("double")
    a, b = top * scale, low * scale
    square = a * a
    h = root(fma(b, b, square))
    # One Newton step with an exact residual.
    rest = fma(-h, h, square) + fma(a, a, -square) + b * b
    h = h.equals(0.0).choose(h, h + rest / (h + h))
    return h * (e << 52).as_float("double")


# r^(−1/3) for r within 5 % of 1, cubed: error 5.9e-7.
_CBRT = (
    1.8751743493878645,
    -1.879893984865411,
    1.6108424614890111,
    -0.7493869072116367,
    0.14326398437014973,
)


def cbrt(x: LLValue) -> LLValue:
    """∛x: a third of the exponent, a polynomial, two Newton steps."""
    if x.type.element == "float":
        return narrow(cbrt(widen(x)))
    a = size(x)
    low = a < 2.0**-1022
    a = low.choose(a * 2.0**54, a)
    # A third of the bits: their upper half by a product, as vectors have no integer division.
    third = ((a.bits.logical_shift(32) * 0x55555556).logical_shift(32) << 32) + _THIRD
    t = third.as_float("double")
    r = t * t * (t / a)
    t = t * horner(r, _CBRT)
    t = _newton(a, _newton(a, t))
    t = low.choose(t * 2.0**-18, t)
    t = a.equals(math.inf).choose(a, a.equals(0.0).choose(a, t))
    return t.intrinsic("copysign", x)


_THIRD = 0x2A9F7893 << 32


def _newton(a: LLValue, t: LLValue) -> LLValue:
    """t − (t³ − a)/(3t²), with t² exact."""
    square = t * t
    low = fma(t, t, -square)
    rest = fma(-t, square, a) - t * low
    return t + rest / (square * 3.0)
