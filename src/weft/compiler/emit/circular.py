"""Circular functions: x = n·π/2 + r by three exact products, and polynomials in r.

Beyond `LIMIT` the reduction would lose digits; vectors that contain such a number call the C
library lane by lane, or, where there is none, are reduced by more digits of π (float32 only).
"""

import math

from . import quick_angles, units
from .arithmetic import by_lanes, fma, horner, rarely, rarely_all, size
from .code import LLValue
from .exponentials import nearest
from .far_angles import reduce_far

# n·π/2 is exact to the last digit of r up to here.
LIMIT = {"float": 1e5, "double": 1e9}
# π/2 as the sum of three numbers.
_HALF_PI = {
    "float": (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15),
    "double": (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33),
}
# (sin r − r)/r³ in powers of r² for |r| ≤ 0.8: errors 5.9e-12 and 2.6e-21.
_SIN = {
    "float": (
        -0.1666666716337204,
        0.008333329111337662,
        -0.00019839187734760344,
        2.716916924327961e-06,
    ),
    "double": (
        -0.16666666666666666,
        0.008333333333333321,
        -0.00019841269841252196,
        2.7557319212692855e-06,
        -2.5052104520095404e-08,
        1.6058316639353147e-10,
        -7.576217247153672e-13,
    ),
}
# (cos r − 1 + ½r²)/r⁴ in powers of r²: errors 1.2e-10 and 6.3e-20.
_COS = {
    "float": (0.04166664555668831, -0.0013887252425774932, 2.4424974981229752e-05),
    "double": (
        0.04166666666666658,
        -0.0013888888888871165,
        2.4801587287576835e-05,
        -2.755731378796049e-07,
        2.087564495193611e-09,
        -1.1355521928007466e-11,
    ),
}

# (tan r − r)/r³ in powers of r²: errors 1.8e-9 and 1.7e-18.
_TAN = {
    "float": (
        0.3333335518836975,
        0.13332459330558777,
        0.05408342555165291,
        0.02115883119404316,
        0.011159989051520824,
        -0.00032625990570522845,
        0.0045834188349545,
    ),
    "double": (
        0.3333333333333342,
        0.13333333333319508,
        0.053968253976034206,
        0.021869488314695453,
        0.008863239274155183,
        0.003592086943857087,
        0.0014561433290343978,
        0.0005883826250117326,
        0.00024544876177365235,
        7.926574424322279e-05,
        7.495226696310079e-05,
        -3.530373617384394e-05,
        5.662018355522819e-05,
        -2.8185504988814476e-05,
        1.0659999846530188e-05,
    ),
}


def _reduce_angle(x: LLValue) -> tuple[LLValue, LLValue, LLValue]:
    """r, its rounding error, and n."""
    if not _is_alone(x):
        return _reduce_near(x)
    # sin and cos of the same number share this.
    memo = x.code.memo
    if ("angle", x.name) not in memo:
        memo["angle", x.name] = _reduce_alone(x)
    return memo["angle", x.name]


def _reduce_near(x: LLValue) -> tuple[LLValue, LLValue, LLValue]:
    n, k = nearest(x, 2 / math.pi)
    first, second, third = _HALF_PI[x.type.element]
    exact = fma(n, -first, x)
    step = n * second
    r = exact - step
    # The rounding errors of the difference and the product, and the third number.
    back = r - exact
    low = (exact - (r - back)) - (step + back)
    return r, fma(n, -third, low - fma(n, second, -step)), k


def _reduce_alone(x: LLValue) -> tuple[LLValue, LLValue, LLValue]:
    """The same for all numbers."""
    r, low, k = rarely_all(size(x) > LIMIT["float"], _reduce_near(x), lambda: reduce_far(x))
    return r, low, k


def _is_alone(x: LLValue) -> bool:
    """Whether there is no C library to call."""
    return "freestanding" in x.code.module.features and x.type.element == "float"


def _sine(r: LLValue, low: LLValue, z: LLValue) -> LLValue:
    cube = r * z
    return r + fma(cube, horner(z, _SIN[r.type.element]), low)


def _cosine(r: LLValue, low: LLValue, z: LLValue) -> LLValue:
    tail = fma(z * z, horner(z, _COS[r.type.element]), -(r * low))
    half = z * 0.5
    w = 1.0 - half
    return w + (((1.0 - w) - half) + tail)


def _beyond(x: LLValue, y: LLValue, name: str) -> LLValue:
    """y, but the C library's value where x is too large."""
    if _is_alone(x):
        return y
    symbol = name + ("f" if x.type.element == "float" else "")
    return rarely(size(x) > LIMIT[x.type.element], y, lambda: by_lanes(symbol, [x]))


def _wave(x: LLValue, name: str, turn: int) -> LLValue:
    """sin(x + turn·π/2)."""
    r, low, k = _reduce_angle(x)
    k = k + turn if turn else k
    z = r * r
    odd = (k & 1).compare("ne", 0)
    y = odd.choose(_cosine(r, low, z), _sine(r, low, z))
    y = (y.bits ^ ((k & 2) << (x.type.width - 2))).as_float(x.type.element)
    return _beyond(x, y, name)


def sin(x: LLValue) -> LLValue:
    if units.available(x):
        return quick_angles.sin(x)
    return x.equals(0.0).choose(x, _wave(x, "sin", 0))


def cos(x: LLValue) -> LLValue:
    if units.available(x):
        return quick_angles.cos(x)
    return _wave(x, "cos", 1)


def tan(x: LLValue) -> LLValue:
    """tan r, or −1/tan r after an odd number of quarter turns."""
    r, low, k = _reduce_alone(x) if _is_alone(x) else _reduce_near(x)
    z = r * r
    curve = r * z * horner(z, _TAN[x.type.element])
    t = r + (curve + fma(low, z, low))
    odd = (k & 1).compare("ne", 0)
    y = odd.choose(-1.0 / t, t)
    return x.equals(0.0).choose(x, _beyond(x, y, "tan"))
