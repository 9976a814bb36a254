"""The special-function units of NVIDIA's GPUs, and float32 functions that are made of them.

`ex2.approx` gives 2ˣ, `rcp.approx` 1/x, within about a unit in the last place and with denormal
numbers as zero: arguments are reduced to where that does not matter, and quotients are corrected by
their remainder. With units that are off by one unit in the last place, the functions are within
two (tests/compiler/cuda/test_units.py). `sin.approx` is off by 2⁻²¹ near zero, and is not used.
"""

import math

from .arithmetic import copy_sign, fma, horner, size
from .code import LLValue, lanes_of

# Added to a small number, its last bits are that number plus the bias of exponents.
_MAGIC = 1.5 * 2**23 + 127
_LOG2E, _LOG2E_LOW = 1.4426950216293335, 1.925963033500011e-08
# Exponents of the scale in 2ˣ = 2ⁿ·2ʳ: normal numbers; r is what is left, also beyond them.
_EXPONENTS = 126.0
# (tanh t − t)/t³ in powers of t² for |t| ≤ ¾: error 1.6e-9.
_TANH = (
    -0.33333316445350647,
    0.1333269476890564,
    -0.053892724215984344,
    0.021452033892273903,
    -0.007657255977392197,
    0.0017369361594319344,
)
# Below this by the polynomial; from 20 on tanh is 1.
_NEAR, _FLAT = 0.75, 20.0


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
    t = (x * _LOG2E).intrinsic("minnum", _EXPONENTS).intrinsic("maxnum", -_EXPONENTS)
    shifted = t + _MAGIC
    r = fma(x, _LOG2E_LOW, fma(x, _LOG2E, -(shifted - _MAGIC)))
    scale = (shifted.bits << 23).as_float("float")
    return exp2_unit(r) * scale


def tanh(x: LLValue) -> LLValue:
    """1 − 2/(1 + e²ᵃ) of a = |x|, and a polynomial near zero; NaN takes that."""
    a = size(x)
    # e²ᵃ = 4·2ˢ: s is small where its rounding counts most.
    s = fma(a.intrinsic("minnum", _FLAT), 2 * math.log2(math.e), -2.0)
    t = fma(exp2_unit(s), 4.0, 1.0)
    q = reciprocal(t)
    q = fma(q, fma(-t, q, 1.0), q)
    square = x * x
    near = fma(x * square, horner(square, _TANH), x)
    return copy_sign((a >= _NEAR).choose(fma(q, -2.0, 1.0), near), x)
