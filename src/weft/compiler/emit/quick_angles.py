"""sin and cos of float32 to two units in the last place, in few instructions, where there is no C
library: x = n·π/2 + r by three products, polynomials in r, and signs by the bits of n. Where |x| is
known to be less than 3π/4, n is 0 or 1 of |x|.
"""

import math

from .arithmetic import copy_sign, fma, horner, rarely_all, size
from .code import LLValue
from .far_angles import reduce_far
from .intervals import lies_within

# n·π/2 is exact to the last digit of r up to here.
LIMIT = 1e5
# π/2 as the sum of three numbers that are all positive, so that r of −0 is −0.
_HALF_PI = (1.5707962512969971, 7.549789415861596e-08, 5.390302529957765e-15)
# Up to here sin|x| is positive, and |x| is nearer to 0 or π/2 than to π.
_FIRST = 2.356
# π/2 as the sum of two numbers: of all float32, 1.5707964 is nearest to it, 4.4e-8 off, where what
# is missing, 1.7e-15, is less than a unit in the last place.
_ONE_TURN = (1.5707963705062866, -4.371138828673793e-08)
# Added to a small number, its last bits are that number.
_MAGIC = 1.5 * 2**23
# Taken from r², this is lost but for r = ±0: there r·r² has the other sign, so that r, and what the
# polynomial adds, are zeros of the same sign.
_TINY = 2.0**-100
# (sin r − r)/r³ and (cos r − 1)/r² in powers of r² for |r| ≤ 0.789: errors 4.0e-9 and 3.9e-8.
_SIN = (-0.16666655242443085, 0.008332187309861183, -0.0001951789454324171)
_COS = (-0.4999988377094269, 0.04165571555495262, -0.0013591018505394459)


def sin(x: LLValue) -> LLValue:
    odd, sine, cosine = _waves(x)
    y = odd.choose(cosine, sine)
    return copy_sign(y, x) if _is_near(x) else y


def cos(x: LLValue) -> LLValue:
    odd, sine, cosine = _waves(x)
    return odd.choose(-sine, cosine)


def _is_near(x: LLValue) -> bool:
    return lies_within(x, -_FIRST, _FIRST)


def _waves(x: LLValue) -> tuple[LLValue, LLValue, LLValue]:
    """Whether n is odd, and sin r and cos r with the sign of (−1)^⌊n/2⌋."""
    # sin and cos of the same number share this.
    memo = x.code.memo
    if ("waves", x.name) not in memo:
        memo["waves", x.name] = _near_waves(x) if _is_near(x) else _all_waves(x)
    return memo["waves", x.name]


def _near_waves(x: LLValue) -> tuple[LLValue, LLValue, LLValue]:
    """The same of |x| up to 3π/4: n is 0 or 1. NaN has n = 0."""
    a = size(x)
    odd = a > math.pi / 4
    n, r = odd.choose(a.same(1.0), a.same(0.0)), a
    for part in _ONE_TURN:
        r = fma(n, -part, r)
    square = r * r
    return odd, fma(r * square, horner(square, _SIN), r), fma(square, horner(square, _COS), 1.0)


def _all_waves(x: LLValue) -> tuple[LLValue, LLValue, LLValue]:
    r, k = _reduce(x)
    turn = k << 30
    square = fma(r, r, -_TINY)
    r = (r.bits ^ (turn & -(2**31))).as_float("float")
    sine = fma(r * square, horner(square, _SIN), r)
    # cos r is positive.
    cosine = copy_sign(fma(square, horner(square, _COS), 1.0), turn.as_float("float"))
    return (k & 1).compare("ne", 0), sine, cosine


def _reduce(x: LLValue) -> tuple[LLValue, LLValue]:
    """r, and a number whose last two bits are those of n."""
    shifted = fma(x, 2 / math.pi, _MAGIC)
    n, r = shifted - _MAGIC, x
    for part in _HALF_PI:
        r = fma(n, -part, r)
    r, k = rarely_all(size(x) > LIMIT, [r, shifted.bits], lambda: reduce_far(x)[::2])
    return r, k
