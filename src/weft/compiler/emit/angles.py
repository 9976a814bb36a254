"""Inverse circular functions: polynomials on a short interval, and symmetries."""

import math

from .arithmetic import copy_sign, fma, horner, root, size
from .code import LLValue

# (atan t − t)/t³ in powers of t² for |t| ≤ tan π/8: errors 6.6e-10 and 1.2e-18.
_ATAN = {
    "float": (
        -0.33333316445350647,
        0.19998489320278168,
        -0.14243850111961365,
        0.10595954954624176,
        -0.060832131654024124,
    ),
    "double": (
        -0.333333333333332,
        0.19999999999954007,
        -0.14285714280240336,
        0.1111111078570506,
        -0.09090897823418911,
        0.07692061396328186,
        -0.06663117556087748,
        0.05847987743720147,
        -0.05039747644675829,
        0.03807577626698908,
        -0.017919432850650747,
    ),
}
# (asin t − t)/t³ in powers of t² for t² ≤ ¼: errors 5.0e-9 and 1.5e-17.
_ASIN = {
    "float": (
        0.16666753590106964,
        0.07495235651731491,
        0.04547805339097977,
        0.024142032489180565,
        0.0422293059527874,
    ),
    "double": (
        0.16666666666665375,
        0.07500000000344817,
        0.04464285682196148,
        0.030381959396006658,
        0.022371751927587925,
        0.01735979575962226,
        0.013884349579750167,
        0.012174946729250099,
        0.006503505330918595,
        0.019594372406607767,
        -0.01632672819619857,
        0.03198170521091928,
    ),
}
# π/4 as the sum of two numbers.
_QUARTER = {
    "float": (0.7853981852531433, -2.1855694143368964e-08),
    "double": (0.7853981633974483, 3.061616997868383e-17),
}
_EIGHTH = math.sqrt(2) - 1  # tan π/8


def _angle(a: LLValue, b: LLValue) -> LLValue:
    """atan a/b for a, b ≥ 0, by one division: a/b, (a − b)/(a + b) or −b/a."""
    high, low = _QUARTER[a.type.element]
    middle, steep = a > b * _EIGHTH, a * _EIGHTH > b
    top = steep.choose(-b, middle.choose(a - b, a))
    t = top / steep.choose(a, middle.choose(a + b, b))
    z = t * t
    curve = t * z * horner(z, _ATAN[a.type.element])
    zero = a.same(0.0)
    base = steep.choose(a.same(2 * high), middle.choose(a.same(high), zero))
    rest = steep.choose(a.same(2 * low), middle.choose(a.same(low), zero))
    return base + (t + (curve + rest))


def atan(x: LLValue) -> LLValue:
    a = size(x)
    top = math.inf
    y = _angle(a, x.same(1.0))
    return copy_sign(a.equals(top).choose(x.same(math.pi / 2), y), x)


def atan2(y: LLValue, x: LLValue) -> LLValue:
    """The angle of (x, y), with C99's values at zeros and infinities."""
    element = x.type.element
    a, b = size(y), size(x)
    huge = {"float": 1e37, "double": 1e307}[element]
    tiny = {"float": 1e-30, "double": 1e-290}[element]
    # Scaling by powers of two keeps sums finite and quotients normal.
    large = (a > huge) | (b > huge)
    small = (a < tiny) & (b < tiny)
    scale = large.choose(a.same(2.0**-4), small.choose(a.same(2.0**64), a.same(1.0)))
    a, b = a * scale, b * scale
    angle = _angle(a, b)
    infinite = a.equals(math.inf)
    both = b.equals(math.inf).choose(a.same(math.pi / 4), a.same(math.pi / 2))
    angle = infinite.choose(both, (b.equals(math.inf)).choose(a.same(0.0), angle))
    angle = a.equals(0.0).choose(a.same(0.0), angle)
    high, low = _QUARTER[element]
    magnitude = (x.bits < 0).choose((4 * high - angle) + 4 * low, angle)
    spoilt = x.compare("uno", y)
    return spoilt.choose(x + y, copy_sign(magnitude, y))


def _reduce_arcsine(x: LLValue) -> tuple[LLValue, LLValue, LLValue, LLValue]:
    """Whether |x| > ½, t = |x| or √((1 − |x|)/2), the rounding error of t, and asin t − t."""
    a = size(x)
    outer = a > 0.5
    z = outer.choose((1.0 - a) * 0.5, a * a)
    s = root(z)
    t = outer.choose(s, a)
    low = outer.choose(fma(-s, s, z) / (s + s), x.same(0.0))
    low = z.equals(0.0).choose(x.same(0.0), low)
    curve = t * z * horner(z, _ASIN[x.type.element])
    return outer, t, low, curve


def asin(x: LLValue) -> LLValue:
    """π/2 − 2·asin √((1 − a)/2) for a = |x| beyond ½."""
    outer, t, low, curve = _reduce_arcsine(x)
    high, rest = _QUARTER[x.type.element]
    far = (2 * high - (t + t)) - ((curve + low) * 2.0 - 2 * rest)
    return copy_sign(outer.choose(far, t + curve), x)


def acos(x: LLValue) -> LLValue:
    outer, t, low, curve = _reduce_arcsine(x)
    high, rest = _QUARTER[x.type.element]
    arc = t + (curve + low)
    left = 4 * high - ((arc + arc) - 4 * rest)
    inner = copy_sign(arc, x)
    near = 2 * high - (inner - 2 * rest)
    return outer.choose((x < 0.0).choose(left, arc + arc), near)
