"""Angles of float32 that are far from zero, reduced by quarter turns (Payne and Hanek, 1983).

x = m·2^q with a whole m < 2²⁴. Of 2/π·2^q only the 96 bits from 2¹ down matter: those before make
whole turns, those after less than 2⁻⁶⁸. The product with m is x·2/π modulo 4, to 62 bits after the
point; no float32 is closer than 2⁻³⁰ to a whole number of quarter turns, relative to one.
"""

import math
from itertools import pairwise

from .arithmetic import narrow, widen
from .code import LLValue

# The bits of 2/π after the point, behind a word of zeros.
_WORDS = (
    0x00000000,
    0xA2F9836E,
    0x4E441529,
    0xFC2757D1,
    0xF534DDC0,
    0xDB629599,
    0x3C439041,
    0xFE5163AB,
)
_WORD = 0xFFFFFFFF


def _pick(k: LLValue, start: int) -> LLValue:
    """Word k + start, for k from 0 to 4."""
    y = k.same(_WORDS[start])
    for n in range(1, 5):
        if start + n < len(_WORDS):
            y = (k >= n).choose(k.same(_WORDS[start + n]), y)
    return y


def reduce_far(x: LLValue) -> tuple[LLValue, LLValue, LLValue]:
    """r, its rounding error, and n, in x = n·π/2 + r, for 2¹⁶ ≤ |x|; NaN for infinities."""
    bits = x.intrinsic("fabs").bits
    m = ((bits & 0x7FFFFF) | 0x800000).cast("zext", "i64")
    start = (bits.logical_shift(23) - (127 + 23 - 30)).cast("zext", "i64")
    k, shift = start.logical_shift(5), start & 31
    words = [_pick(k, n) for n in range(4)]
    # Three words from bit `start` on, multiplied from the last one up.
    parts = [(((a << 32) | b) << shift).logical_shift(32) for a, b in pairwise(words)]
    low = m * parts[2]
    middle = m * parts[1] + low.logical_shift(32)
    high = m * parts[0] + middle.logical_shift(32)
    turns = (high << 32) | (middle & _WORD)
    n = (turns + 2**61).logical_shift(62)
    wide = (turns << 2).cast("sitofp", "double") * (math.pi / 2 * 2.0**-64)
    sign = widen(x.same(1.0).intrinsic("copysign", x))
    wide = wide * sign
    r = narrow(wide)
    rest = narrow(wide - widen(r))
    n = (x < 0.0).choose(-n, n).cast("trunc", "i32")
    return r + (x - x), rest, n
