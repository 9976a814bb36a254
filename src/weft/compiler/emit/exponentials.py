"""Exponential functions, branch-free: x = n·ln 2 + r, a polynomial in r, and a shift of exponents.

Polynomials here and beside are minimax fits (Remez) of the stated remainder; the error given is
theirs alone, relative to the function.
"""

import math

from . import units, wide
from .arithmetic import copy_sign, fma, horner, larger, size, smaller
from .code import LLValue

# 1.5·2^p: added to a small number, its last bits are that number, rounded half to even.
MAGIC = {"float": 1.5 * 2**23, "double": 1.5 * 2**52}
_MAGIC_BITS = {"float": 0x4B400000, "double": 0x4338000000000000}
FRACTION = {"float": 23, "double": 52}
BIAS = {"float": 127, "double": 1023}
# ln 2 as the sum of two numbers.
LN2 = {
    "float": (0.6931471824645996, -1.904654212125934e-09),
    "double": (0.6931471805599453, 2.3190468138462996e-17),
}
# Beyond these eˣ is zero or infinite, halves and doubles of it included.
_RANGE = {"float": (-106.0, 91.0), "double": (-747.0, 712.0)}
# Just beyond the last finite eˣ; and where eˣ is nothing beside 1.
_TOP = {"float": 88.73, "double": 709.79}
_FLAT = {"float": -30.0, "double": -60.0}
# q in eʳ = 1 + r + r²q for |r| ≤ ½ ln 2: errors 3.4e-9 and 6.1e-20.
_Q = {
    "float": (
        0.5,
        0.16666512191295624,
        0.0416661873459816,
        0.008369598537683487,
        0.001395169529132545,
    ),
    "double": (
        0.5,
        0.16666666666666685,
        0.041666666666666734,
        0.00833333333331538,
        0.0013888888888855633,
        0.00019841269900454074,
        2.480158737862171e-05,
        2.7557230820467433e-06,
        2.7557229578966704e-07,
        2.5113437367087094e-08,
        2.092802342544199e-09,
    ),
}
# P in 2ʳ = 1 + rP for |r| ≤ ½: errors 1.9e-9 and 4.2e-20.
_P2 = {
    "float": (
        0.6931471824645996,
        0.24022650718688965,
        0.05550327152013779,
        0.00961800292134285,
        0.0013400537427514791,
        0.00015476673434022814,
    ),
    "double": (
        0.6931471805599453,
        0.24022650695910072,
        0.0555041086648217,
        0.009618129107628496,
        0.0013333558146389876,
        0.00015403530393340124,
        1.5252733856816472e-05,
        1.3215486833820117e-06,
        1.0178050951922424e-07,
        7.054887977833559e-09,
        4.456714817212123e-10,
        2.574217349814701e-11,
    ),
}


def nearest(x: LLValue, factor: float) -> tuple[LLValue, LLValue]:
    """x·factor rounded to a whole number, as a float and as an integer of the same width."""
    element = x.type.element
    shifted = fma(x, factor, MAGIC[element])
    return shifted - MAGIC[element], shifted.bits - _MAGIC_BITS[element]


def power_of_two(k: LLValue, element: str) -> LLValue:
    """2ᵏ for an integer k within the range of normal numbers."""
    return ((k + BIAS[element]) << FRACTION[element]).as_float(element)


def scale_by_power(y: LLValue, n: LLValue, k: LLValue) -> LLValue:
    """y·2ⁿ, rounded once also where it is denormal; k is n as an integer."""
    if wide.available(y):
        return wide.scale_by_power(y, n)
    element = y.type.element
    half = k >> 1
    # The first product is exact.
    return y * power_of_two(half, element) * power_of_two(k - half, element)


def clamp_exponent(x: LLValue) -> LLValue:
    """x within the range in which eˣ is neither zero nor infinite; NaN stays."""
    low, high = _RANGE[x.type.element]
    return larger(smaller(x, high), low)


def reduce_argument(x: LLValue) -> tuple[LLValue, LLValue, LLValue]:
    """r, and k as a float and as an integer, in x = k·ln 2 + r with |r| ≤ ½ ln 2."""
    n, k = nearest(x, math.log2(math.e))
    high, low = LN2[x.type.element]
    return fma(n, -low, fma(n, -high, x)), n, k


def growth(r: LLValue) -> LLValue:
    """eʳ − 1 for a reduced r."""
    return fma(r * r, horner(r, _Q[r.type.element]), r)


def small_growth(x: LLValue) -> tuple[LLValue, LLValue, LLValue]:
    """eʳ − 1, and k twice, in x = k·ln 2 + r, with the rounding error of r included."""
    n, k = nearest(x, math.log2(math.e))
    high, low = LN2[x.type.element]
    exact = fma(n, -high, x)
    r = fma(n, -low, exact)
    rest = fma(n, -low, exact - r)
    return r + fma(r * r, horner(r, _Q[x.type.element]), rest), n, k


def exp(x: LLValue) -> LLValue:
    return units.exp(x) if units.available(x) else exp_by_polynomial(x)


def exp_by_polynomial(x: LLValue) -> LLValue:
    """The exponential to 0.6 units, for functions that lose digits besides."""
    r, n, k = reduce_argument(clamp_exponent(x))
    return scale_by_power(growth(r) + 1.0, n, k)


def half_exp(x: LLValue) -> LLValue:
    """½eˣ, which is finite a little beyond where eˣ is."""
    r, n, k = reduce_argument(clamp_exponent(x))
    return scale_by_power(growth(r) + 1.0, n - 1.0, k - 1)


def exp2(x: LLValue) -> LLValue:
    element = x.type.element
    bound = 2.0 * BIAS[element]
    x = larger(smaller(x, bound), -bound)
    n, k = nearest(x, 1.0)
    r = x - n
    return scale_by_power(fma(r, horner(r, _P2[element]), 1.0), n, k)


def expm1(x: LLValue) -> LLValue:
    """2ᵏ(eʳ − 1) + (2ᵏ − 1), half of it first, so that 2ᵏ does not overflow before the sum does."""
    element = x.type.element
    g, _, k = small_growth(larger(smaller(x, _TOP[element]), _FLAT[element]))
    half = power_of_two(k - 1, element)
    y = fma(half, g, half - 0.5)
    return x.equals(0.0).choose(x, y + y)


def falling(a: LLValue) -> LLValue:
    """e⁻ᵃ − 1 for a ≥ 0."""
    element = a.type.element
    g, _, k = small_growth(larger(-a, _FLAT[element]))
    scale = power_of_two(k, element)
    return fma(scale, g, scale - 1.0)


def tanh(x: LLValue) -> LLValue:
    """(1 − e⁻²ᵃ)/(1 + e⁻²ᵃ) of a = |x|."""
    if units.available(x):
        return units.tanh(x)
    a = size(x)
    d = falling(a + a)
    return copy_sign(quotient(d, 2.0, d), x)


def quotient(n: LLValue, a: float, b: LLValue) -> LLValue:
    """n/(a + b) for a sum between 1 and 2, corrected for the rounding of sum and quotient."""
    t = b + a
    quick = t.type.element == "float" and (wide.available(t) or units.available(t))
    # 1/t to within 5 % is enough for the correction of a quotient.
    inverse = _reciprocal(t) if quick else fma(t, -0.5, 1.457)
    q = n * inverse if quick else n / t
    rest = fma(-q, t, n) - q * (b - (t - a))
    return fma(rest, inverse, q)


def _reciprocal(t: LLValue) -> LLValue:
    """1/t to within 2⁻¹⁴ at least."""
    return units.reciprocal(t) if units.available(t) else wide.reciprocal(t)


def expit(x: LLValue) -> LLValue:
    """1/(1 + e⁻ˣ); from e^−|x|, so that neither end overflows or loses denormal results."""
    e = exp_by_polynomial(-size(x))
    return quotient((x < 0.0).choose(e, x.same(1.0)), 1.0, e)


# (sinh t − t)/t³ in powers of t² for |t| ≤ 1: errors 5.7e-11 and 7.0e-23.
_SINH = {
    "float": (
        0.1666666716337204,
        0.008333350531756878,
        0.000198360561626032,
        2.817499307639082e-06,
    ),
    "double": (
        0.16666666666666666,
        0.008333333333333333,
        0.0001984126984126959,
        2.7557319224120655e-06,
        2.505210834553557e-08,
        1.6059050720561916e-10,
        7.646475322239591e-13,
        2.8484276143614077e-15,
    ),
}


def sinh(x: LLValue) -> LLValue:
    """From ½eᵃ beyond 1, by a polynomial up to 1."""
    a = size(x)
    e = half_exp(a)
    square = x * x
    near = fma(x * square, horner(square, _SINH[x.type.element]), x)
    return (a > 1.0).choose(copy_sign(e - 0.25 / e, x), near)


def cosh(x: LLValue) -> LLValue:
    e = half_exp(size(x))
    return e + 0.25 / e
