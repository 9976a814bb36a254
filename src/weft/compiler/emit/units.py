"""The special-function units of NVIDIA's GPUs, and float32 functions that are made of them.

`ex2.approx` gives 2ˣ, `rcp.approx` 1/x, within about a unit in the last place and with denormal
numbers as zero: arguments are reduced to where that does not matter, and quotients are corrected by
their remainder. With units that are off by one unit in the last place, the functions are within
two (tests/compiler/cuda/test_units.py). `sin.approx` is off by 2⁻²¹ near zero, and is not used.
"""

import math

from .arithmetic import copy_sign, fma, horner, size
from .code import LLValue, lanes_of

# log₂e as a number of few bits, whose products less n are exact where x is large, and the rest.
_LOG2E, _LOG2E_LOW = 1.4375, 0.005195040721446276
# Exponents of the scale in 2ˣ = 2ⁿ·2ʳ: normal numbers; r is what is left, also beyond them.
_LEAST, _MOST = -126, 127
# Added to a small number, its last bits are that number plus the bias of exponents.
_MAGIC = 1.5 * 2**23 + 127
# (tanh t − t)/t³ in powers of t² for |t| ≤ 0.9: error 1.6e-8.
_TANH = (
    -0.3333321213722229,
    0.13330359756946564,
    -0.05372149124741554,
    0.020904146134853363,
    -0.006860087625682354,
    0.0013039751211181283,
)
# Below this by the polynomial.
_NEAR = 0.9


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
    # n as a part of its range: the GPU clamps a sum to [0, 1] in the same instruction.
    wide = _MOST - _LEAST
    part = fma(x, math.log2(math.e) / wide, -_LEAST / wide)
    part = part.intrinsic("maxnum", 0.0).intrinsic("minnum", 1.0)
    shifted = fma(part, float(wide), _MAGIC + _LEAST)
    r = fma(x, _LOG2E_LOW, fma(x, _LOG2E, -(shifted - _MAGIC)))
    scale = (shifted.bits << 23).as_float("float")
    return exp2_unit(r) * scale


def tanh(x: LLValue) -> LLValue:
    """1 − 2/(1 + e²ᵃ) of a = |x|, and a polynomial near zero; NaN takes that."""
    a = size(x)
    # e²ᵃ = 4·2ˢ: s is small where its rounding counts most. An infinite e²ᵃ has the inverse 0.
    s = fma(a, 2 * math.log2(math.e), -2.0)
    q = reciprocal(fma(exp2_unit(s), 4.0, 1.0))
    square = x.contractible("mul", x)
    near = fma(x * square, horner(square, _TANH), x)
    return copy_sign((a >= _NEAR).choose(fma(q, -2.0, 1.0), near), x)
