"""The special-function units of NVIDIA's GPUs, and float32 functions that are made of them.

`ex2.approx` gives 2ˣ, `rcp.approx` 1/x, within about a unit in the last place and with denormal
numbers as zero: arguments are reduced to where that does not matter, and quotients are corrected by
their remainder. With units that are off by one unit in the last place, the functions are within
two (tests/compiler/cuda/test_units.py). `sin.approx` is off by 2⁻²¹ near zero, and is not used.
"""

import math

from .arithmetic import copy_sign, fma, horner, size
from .code import LLValue, lanes_of
from .intervals import lies_within

# log₂e as a number of few bits, whose products less n are exact where x is large, and the rest.
_LOG2E, _LOG2E_LOW = 1.4375, 0.005195040721446276
# Exponents of the scale in 2ˣ = 2ⁿ·2ʳ: normal numbers; r is what is left, also beyond them.
_LEAST, _MOST = -126, 127
# Added to a small number, its last bits are that number plus the bias of exponents.
_MAGIC = 1.5 * 2**23 + 127
# (tanh t − t)/t³ in powers of t² for |t| ≤ 0.75: error 3.3e-8.
_TANH = (
    -0.3333306908607483,
    0.13326530158519745,
    -0.05339064449071884,
    0.019665595144033432,
    -0.00476991618052125,
)
# Below this by the polynomial.
_NEAR = 0.75
# 1/(1 + e²ᵃ) = k/(k + k·2ᶜ·2ˢ) with s = 2a·log₂e − c. Near a = 0.75, where errors count most, 2ˢ is
# then between ½ and 1, and the denominator just above 4: there the units' errors are smallest.
_TANH_SHIFT, _TANH_SCALE = 2.56, 0.8
_TANH_FACTOR = 4.717661380767822  # k·2ᶜ
# Between these eˣ is a normal number, and 2ⁿ can be added to the exponent.
_NORMAL = (-87.0, 88.0)


def available(x: LLValue) -> bool:
    """Whether the units are there for a value."""
    return "units" in x.code.module.features and x.type.element == "float"


def _each(name: str, x: LLValue) -> LLValue:
    """A unit's function in each lane."""
    code, kind, one = x.code, x.type, lanes_of("float")
    if kind.lanes == 1:
        return code.call(name, one, [x])
    made = LLValue(code, kind, "poison")
    for n in range(kind.lanes):
        item = code.emit(one, f"extractelement {kind} {x}, i32 {n}")
        item = code.call(name, one, [item])
        made = code.emit(kind, f"insertelement {kind} {made}, {one} {item}, i32 {n}")
    return made


def exp2_unit(x: LLValue) -> LLValue:
    """2ˣ by the unit."""
    return _each("llvm.nvvm.ex2.approx.ftz.f32", x)


def reciprocal(x: LLValue) -> LLValue:
    """1/x by the unit."""
    return _each("llvm.nvvm.rcp.approx.ftz.f", x)


def exp(x: LLValue) -> LLValue:
    """2ⁿ·2ʳ with n + r = x·log₂e; NaN and infinities go on in r."""
    # Of −y, y is used by others, too, and signs of constants cost nothing.
    plain = x.code.memo.get(("negative", x.name), x)
    sign = 1.0 if plain is x else -1.0
    if lies_within(x, *_NORMAL):
        return _normal_exp(plain, sign)
    # n as a part of its range: the GPU clamps a sum to [0, 1] in the same instruction.
    wide = _MOST - _LEAST
    part = fma(plain, sign * math.log2(math.e) / wide, -_LEAST / wide)
    part = part.intrinsic("maxnum", 0.0).intrinsic("minnum", 1.0)
    shifted = fma(part, float(wide), _MAGIC + _LEAST)
    scale = (shifted.bits << 23).as_float("float")
    return exp2_unit(_left_over(plain, sign, shifted)) * scale


def _normal_exp(x: LLValue, sign: float) -> LLValue:
    """The exponential of ±x where it is a normal number."""
    # Without the bias: it is in the exponent of 2ʳ.
    shifted = fma(x, sign * math.log2(math.e), _MAGIC - 127)
    power = exp2_unit(_left_over(x, sign, shifted, _MAGIC - 127))
    return (power.bits + (shifted.bits << 23)).as_float("float")


def _left_over(x: LLValue, sign: float, shifted: LLValue, magic: float = _MAGIC) -> LLValue:
    """±x·log₂e less the whole number whose bits are the last ones of `shifted`."""
    first = fma(x, sign * _LOG2E, -(shifted - magic))
    return fma(x, sign * _LOG2E_LOW, first)


def tanh(x: LLValue) -> LLValue:
    """1 − 2/(1 + e²ᵃ) of a = |x|, and a polynomial near zero; NaN takes that."""
    a = size(x)
    # An infinite e²ᵃ has the inverse 0.
    s = fma(a, 2 * math.log2(math.e), -_TANH_SHIFT)
    q = reciprocal(fma(exp2_unit(s), _TANH_FACTOR, _TANH_SCALE))
    square = x.contractible("mul", x)
    near = fma(x * square, horner(square, _TANH), x)
    return copy_sign((a >= _NEAR).choose(fma(q, -2 * _TANH_SCALE, 1.0), near), x)
