"""The error function, the normal distribution and functions derived from them.

erfc a = e^(−a²)·X(a) for a ≥ 0, where the scaled X falls slowly from 1 to 1/(a√π); the square is
kept in two numbers, since the exponential would multiply its rounding error.
"""

import math

from .arithmetic import copy_sign, fma, horner, larger, narrow, size, widen
from .code import LLValue
from .exponentials import clamp_exponent, exp_by_polynomial, scale_by_power, small_growth
from .logarithms import log, log1p

# erf x/x in powers of x² for |x| ≤ 1, less 1: errors 1.2e-9 and 1.3e-19.
_NEAR = {
    "float": (
        1.1283791065216064 - 1,
        -0.3761262595653534,
        0.1128358468413353,
        -0.02685377188026905,
        0.0051882402040064335,
        -0.0008009331068024039,
        7.850704423617572e-05,
    ),
    "double": (
        0.12837916709551256,
        -0.3761263890318375,
        0.11283791670954854,
        -0.026866170645072334,
        0.005223977624774975,
        -0.000854832697838133,
        0.00012055331023025115,
        -1.4925593158347425e-05,
        1.6460967009594227e-06,
        -1.6349961598854596e-07,
        1.465743941250432e-08,
        -1.136391972042377e-09,
        5.942240118841107e-11,
    ),
}
# X = P(1 − 2Kv)·v with v = 1/(a + K): errors 2.1e-9 for a ≤ 10 and 3.3e-18 for a ≤ 27.5.
_K = {"float": 3.0, "double": 4.0}
_P = {
    "float": (
        1.0740069150924683,
        -0.8833944797515869,
        0.5902283191680908,
        -0.3104660212993622,
        0.11952906847000122,
        -0.02683982253074646,
        -0.0012264385586604476,
        0.0030803182162344456,
        -0.00048316564061678946,
        -0.00032532165641896427,
    ),
    "double": (
        1.095995661000491,
        -0.9765487290808821,
        0.7732087022652367,
        -0.5408538313132248,
        0.3308515878780249,
        -0.17401093724029223,
        0.07638151490911531,
        -0.02637005333459545,
        0.006112055657162765,
        -0.00028095891593404935,
        -0.0004550526914317739,
        0.00017681308605287108,
        -3.635139319707772e-06,
        -1.886177854152067e-05,
        4.694306544011419e-06,
        1.4260696770538203e-06,
        -8.459746679071718e-07,
        -7.793299104699696e-08,
        1.2391936870581265e-07,
        2.5652065075067528e-09,
        -1.5394601516138297e-08,
        -3.6481586388093524e-10,
        1.0237366737103198e-09,
    ),
}
# log erfc a for 1 ≤ a ≤ 4: what it leaves of 1 − erfc a is 1.0e-9.
_LOG = (
    -0.0003537648299243301,
    -1.1270397901535034,
    -0.6382259726524353,
    -0.10303708165884018,
    0.0218051765114069,
    -0.0029395706951618195,
    0.00018557015573605895,
)


def scaled_tail(a: LLValue, below: LLValue | None = None) -> LLValue:
    """e^(a²)·erfc a for 0 ≤ a ≤ 27.5, or ≤ 10 in float32; `below` is the rounding error of a."""
    element = a.type.element
    k = _K[element]
    s = a + k
    v = 1.0 / s
    if element == "float":  # only gelu uses this: four units of error will do, in half the time
        return v * horner(fma(v, -2 * k, 1.0), _P[element])
    # The rounding errors of the sum and the quotient, then of q and the polynomial's last step.
    lost = (s - k) - a
    rest = v * fma(v, lost if below is None else lost - below, fma(-v, s, 1.0))
    q = fma(v, -2 * k, 1.0)
    under = fma(rest, -2 * k, fma(v, -2 * k, 1.0 - q))
    first, *others = _P[element]
    slope = horner(q, others)
    step = q * slope
    p = step + first
    back = p - step
    low = (step - (p - back)) + (first - back) + fma(q, slope, -step)
    # P′/P is 0.54q − 0.97 to within 5 %.
    low = fma(p * fma(q, 0.54, -0.97), under, low)
    return fma(p, v, fma(p, rest, low * v))


def _any_scaled_tail(a: LLValue) -> LLValue:
    """`scaled_tail` of float64 without an upper limit: far out, seven terms of its series."""
    t = 0.5 / (a * a)
    series = horner(t, (1.0, -1.0, 3.0, -15.0, 105.0, -945.0, 10395.0, -135135.0))
    far = series * ((1 / math.sqrt(math.pi)) / a)
    return (a > 26.0).choose(far, scaled_tail(_cap(a, 26.0)))


def times_exp(y: LLValue, high: LLValue, low: LLValue) -> LLValue:
    """y·e^(high + low), for a low part whose square is negligible."""
    t, n, k = small_growth(clamp_exponent(high))
    return scale_by_power(fma(y, t + fma(low, t, low), y), n, k)


def _tail(a: LLValue) -> LLValue:
    """erfc a for a ≥ 0."""
    square = a * a
    return times_exp(scaled_tail(a), -square, fma(-a, a, square))


def _near(x: LLValue) -> LLValue:
    z = x * x
    return fma(x, horner(z, _NEAR[x.type.element]), x)


def erf(x: LLValue) -> LLValue:
    a = size(x)
    if x.type.element == "float":
        a = (a > 4.0).choose(x.same(4.0), a)
        far = 1.0 - exp_by_polynomial(horner(a, _LOG))
    else:
        far = 1.0 - _tail(_cap(a, 6.0))
    return (a < 1.0).choose(_near(x), copy_sign(x.is_nan().choose(x, far), x))


def _cap(a: LLValue, top: float) -> LLValue:
    return (a > top).choose(a.same(top), a)


def erfc(x: LLValue) -> LLValue:
    if x.type.element == "float":
        return narrow(erfc(widen(x)))
    a = _cap(size(x), 28.0)
    tail = _tail(a)
    return (a < 0.5).choose(1.0 - _near(x), (x < 0.0).choose(2.0 - tail, tail))


def erfcx(x: LLValue) -> LLValue:
    if x.type.element == "float":
        return narrow(erfcx(widen(x)))
    y = _any_scaled_tail(size(x))
    x = larger(x, -27.0)
    square = x * x
    mirrored = times_exp(x.same(2.0), square, fma(x, x, -square)) - y
    return (x < 0.0).choose(mirrored, y)


# √½ as the sum of two numbers.
_ROOT_HALF = (0.7071067811865476, -4.833646656726457e-17)


def _normal_tail(a: LLValue) -> LLValue:
    """Φ(−a) for a ≥ 0."""
    half = a * 0.5
    square = a * half
    high, low = _ROOT_HALF
    b = a * high
    y = scaled_tail(b, fma(a, low, fma(a, high, -b))) * 0.5
    return times_exp(y, -square, fma(-a, half, square))


def ndtr(x: LLValue) -> LLValue:
    """Φ(x), the normal distribution function."""
    if x.type.element == "float":
        return narrow(ndtr(widen(x)))
    return _normal(x, 39.0)


def _normal(x: LLValue, limit: float) -> LLValue:
    """Φ(x): in the middle from erf, beyond from the tail, which is zero from the limit on."""
    a = _cap(size(x), limit)
    tail = _normal_tail(a)
    y = (x > 0.0).choose(1.0 - tail, tail)
    if x.type.element == "float":
        return y
    middle = fma(_near(x * math.sqrt(0.5)), 0.5, 0.5)
    return (a < 0.8).choose(middle, y)


def log_ndtr(x: LLValue) -> LLValue:
    """log Φ(x): far to the left from the scaled tail, which does not underflow."""
    if x.type.element == "float":
        return narrow(log_ndtr(widen(x)))
    a = size(x)
    left = log(_any_scaled_tail(a * math.sqrt(0.5)) * 0.5) - a * a * 0.5
    right = log1p(-_normal_tail(_cap(a, 39.0)))
    return (x < -1.0).choose(left, (x > 0.0).choose(right, log(_normal(x, 39.0))))


# From here on the tail is zero; and its slope, which is x times as large.
_END = {"float": 14.4, "double": 39.0}
_SLOPE_END = {"float": 15.0, "double": 39.5}


def gelu(x: LLValue) -> LLValue:
    """xΦ(x)."""
    end = _END[x.type.element]
    return larger(x, -end) * _normal(x, end)


def gelu_slope(x: LLValue) -> LLValue:
    """Φ(x) + xφ(x)."""
    end = _SLOPE_END[x.type.element]
    a = _cap(size(x), end)
    half = a * 0.5
    square = a * half
    factor = a * (1 / math.sqrt(2 * math.pi))
    return _normal(x, end) + copy_sign(times_exp(factor, -square, fma(-a, half, square)), x)
