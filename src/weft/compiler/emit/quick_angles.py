"""sin and cos of float32 to two units in the last place, in few instructions, where there is no C
library: x = n·π/2 + r by three products, polynomials in r, and signs by the bits of n.
"""

import math

from .arithmetic import fma, horner, rarely_all, size
from .code import LLValue
from .far_angles import reduce_far

# n·π/2 is exact to the last digit of r up to here.
LIMIT = 1e5
# π/2 as the sum of three numbers that are all positive, so that r of −0 is −0.
_HALF_PI = (1.5707962512969971, 7.549789415861596e-08, 5.390302529957765e-15)
# Added to a small number, its last bits are that number.
_MAGIC = 1.5 * 2**23
# (sin r − r)/r³ and (cos r − 1)/r² in powers of r² for |r| ≤ 0.789: errors 4.0e-9 and 1.2e-10.
_SIN = (-0.16666655242443085, 0.008332187309861183, -0.0001951789454324171)
_COS = (-0.5, 0.04166664555668831, -0.0013887309469282627, 2.4432327336398885e-05)


def _waves(x: LLValue) -> tuple[LLValue, LLValue, LLValue]:
    """sin r, cos r, and a number whose last two bits are those of n."""
    # sin and cos of the same number share this.
    memo = x.code.memo
    if ("waves", x.name) not in memo:
        shifted = fma(x, 2 / math.pi, _MAGIC)
        n, r = shifted - _MAGIC, x
        for part in _HALF_PI:
            r = fma(n, -part, r)
        far = size(x) > LIMIT
        r, k = rarely_all(far, [r, shifted.bits], lambda: reduce_far(x)[::2])
        z = r * r
        # A product comes last: a sum would lose the sign of −0.
        sine = fma(z, horner(z, _SIN), 1.0) * r
        memo["waves", x.name] = sine, fma(z, horner(z, _COS), 1.0), k
    return memo["waves", x.name]


def sin(x: LLValue) -> LLValue:
    return _turned(x, 0)


def cos(x: LLValue) -> LLValue:
    return _turned(x, 1)


def _turned(x: LLValue, turn: int) -> LLValue:
    """sin(x + turn·π/2)."""
    sine, cosine, k = _waves(x)
    odd = (k & 1).compare("ne", 0)
    y = odd.choose(sine, cosine) if turn else odd.choose(cosine, sine)
    # The second last bit of k + turn is the sign.
    sign = ((k << 30) + (turn << 30)) & -(2**31)
    return (y.bits ^ sign).as_float("float")
