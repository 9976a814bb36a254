"""Functions whose results are rounded to a half type, made of a GPU's units.

Half types have 8 or 11 bits: relative errors of 2⁻¹⁵ in bfloat16 and 2⁻¹⁸ in float16 leave results
within 0.51 units in the last place, which takes a third of the instructions that float32 takes
(tests/compiler/cuda/test_half_units.py). Units give denormal numbers as zero, but results of
bfloat16 may be so small: for these, powers are computed 2²⁴ times as large.
"""

import math
from collections.abc import Callable

import numpy as np

from ...core import dtypes
from . import units
from .arithmetic import fma, horner, size
from .code import LLValue

_LOG2E = math.log2(math.e)
# The exponent of the scale of powers.
_SHIFT = {dtypes.bfloat16: 24, dtypes.float16: 0}
# (tanh t − t)/t³ in powers of t² below 0.3: error 2⁻¹⁹·⁴.
_NEAR = 0.3
_TANH = (-0.33315443992614746, 0.1268313229084015)
# As in `reals`; activations are 0 or x beyond ±_FLAT, and their slopes 0 or 1 beyond these ends.
_ROOT, _CUBIC = math.sqrt(2 / math.pi), 0.044715
_FLAT = 800.0
_GELU_ENDS, _SILU_ENDS = (-13.0, 9.2), (-110.0, 70.0)
# Where Φ(−a) and its slope are zero; log₂Φ(−a) in powers of a − middle up to there: errors 2⁻¹⁶·²
# and 2⁻¹⁹, the rounding of coefficients included 2⁻¹⁵·² and, above 2⁻¹⁴, 2⁻¹⁸·⁵.
_TAIL: dict[np.dtype, tuple[float, float, tuple[float, ...]]] = {
    dtypes.bfloat16: (
        14.0,
        6.0,
        (
            -29.916826248168945,
            -8.884794235229492,
            -0.704053521156311,
            -0.0016791780944913626,
            0.0001766292698448524,
            -1.7860667867353186e-05,
            1.751037757458107e-06,
            -2.2632414697909553e-07,
            3.0064406075780425e-08,
            -2.342147809031303e-09,
            7.190217865549187e-11,
        ),
    ),
    dtypes.float16: (
        6.25,
        2.0,
        (
            -5.457979679107666,
            -3.423826217651367,
            -0.6389235854148865,
            -0.014270495623350143,
            0.002380167366936803,
            -0.00035299203591421247,
            3.837211261270568e-05,
            -1.105974888560013e-06,
            -3.769149259369442e-07,
            3.940046156003518e-08,
        ),
    ),
}
# Φ(−a)/φ(a) = a at the sum of these; Φ(−a)/φ(a) − a, over the distance to it, in powers of
# 1/(a + k): error 2⁻¹⁹·⁷.
_ZERO = (0.7517915368080139, -1.211444945855772e-08)
_K = 3.0
_H = (
    -1.0001415014266968,
    -0.7438685297966003,
    -1.991265058517456,
    -2.0154988765716553,
    -16.337366104125977,
    19.09781837463379,
)


def _at_least(x: LLValue, low: float) -> LLValue:
    """The larger one; NaN stays."""
    return x.intrinsic("maximum", low)


def _at_most(x: LLValue, high: float) -> LLValue:
    return x.intrinsic("minimum", high)


# -- exponentials ------------------------------------------------------------------------------


def exp(x: LLValue, dtype: np.dtype) -> LLValue:
    """The square of e^½ˣ, which is normal wherever the result is not zero."""
    root = units.exp2_unit(x * (0.5 * _LOG2E))
    return root * root


def tanh(x: LLValue, dtype: np.dtype) -> LLValue:
    """1 − 2/(1 + e²ˣ), and a polynomial near zero."""
    q = units.reciprocal(units.exp2_unit(x * (2 * _LOG2E)) + 1.0)
    square = x * x
    near = x * fma(square, horner(square, _TANH), 1.0)
    return (size(x) < _NEAR).choose(near, fma(q, -2.0, 1.0))


def _scaled_power(x: LLValue, rate: LLValue | float, shift: int) -> LLValue:
    """2^(x·rate + shift)."""
    return units.exp2_unit(fma(x, rate, float(shift)) if shift else x * rate)


def _logistic(x: LLValue, rate: LLValue | float, dtype: np.dtype) -> LLValue:
    """1/(1 + 2^(x·rate)): an infinite power has the inverse 0."""
    least = 2.0 ** -_SHIFT[dtype]
    return units.reciprocal(_scaled_power(x, rate, -_SHIFT[dtype]) + least) * least


def _logistic_pair(
    x: LLValue, rate: LLValue | float, dtype: np.dtype
) -> tuple[LLValue, LLValue, float]:
    """s = 1/(1 + 2^(−x·rate)), and 1 − s as a product, without cancellation; 2^(x·rate) ≤ 2¹⁰²."""
    scale = 2.0 ** _SHIFT[dtype]
    power = _scaled_power(x, rate, _SHIFT[dtype])
    inverse = units.reciprocal(power + scale)
    return power * inverse, inverse, scale


def expit(x: LLValue, dtype: np.dtype) -> LLValue:
    return _logistic(x, -_LOG2E, dtype)


def silu(x: LLValue, dtype: np.dtype) -> LLValue:
    return _at_least(x, -_FLAT) * _logistic(x, -_LOG2E, dtype)


def silu_slope(x: LLValue, dtype: np.dtype) -> LLValue:
    """s(1 + x(1 − s)) with s = expit x."""
    low, high = _SILU_ENDS
    x = _at_most(_at_least(x, low), high)
    s, rest, scale = _logistic_pair(x, _LOG2E, dtype)
    return s * fma(x * scale, rest, 1.0)


# -- GELU --------------------------------------------------------------------------------------


def gelu_tanh(x: LLValue, dtype: np.dtype) -> LLValue:
    """x·expit 2u with u = √(2/π)(x + 0.044715x³)."""
    x = _at_least(x, -_FLAT)
    rate = -2 * _ROOT * _LOG2E
    return x * _logistic(x, fma(x * x, rate * _CUBIC, rate), dtype)


def gelu_tanh_slope(x: LLValue, dtype: np.dtype) -> LLValue:
    """s(1 + 2xu′(1 − s)) with s = expit 2u."""
    low, high = _GELU_ENDS
    x = _at_most(_at_least(x, low), high)
    square, rate = x * x, 2 * _ROOT * _LOG2E
    s, rest, scale = _logistic_pair(x, fma(square, rate * _CUBIC, rate), dtype)
    slope = x * fma(square, 6 * _ROOT * _CUBIC * scale, 2 * _ROOT * scale)
    return s * fma(slope, rest, 1.0)


def gelu(x: LLValue, dtype: np.dtype) -> LLValue:
    """xΦ(x), as the positive part of x less aΦ(−a) of a = |x|."""
    end, middle, (first, *others) = _TAIL[dtype]
    shift = _SHIFT[dtype]
    a = _at_most(size(x), end)
    tail = units.exp2_unit(horner(a - middle, (first + shift, *others)))
    return fma(-a, tail * 2.0**-shift, _at_least(x, -0.0))


def gelu_slope(x: LLValue, dtype: np.dtype) -> LLValue:
    """Φ(x) + xφ(x): on the left w = Φ(−a) − aφ(a), which is φ(a)(a − root)·h, then 1 − w."""
    a, shift = _at_most(size(x), _TAIL[dtype][0]), _SHIFT[dtype]
    power = fma(a * a, -0.5 * _LOG2E, shift - 0.5 * math.log2(2 * math.pi))
    h = horner(units.reciprocal(a + _K), _H)
    w = (a - _ZERO[0] - _ZERO[1]) * h * units.exp2_unit(power)
    least = 2.0**-shift
    return (x > 0.0).choose(fma(w, -least, 1.0), w * least)


# Rows of one operand: (value, dtype of the result) → value, to be rounded.
EMITTERS: dict[str, Callable[[LLValue, np.dtype], LLValue]] = {
    "exp": exp,
    "tanh": tanh,
    "expit": expit,
    "silu": silu,
    "silu_slope": silu_slope,
    "gelu_tanh": gelu_tanh,
    "gelu_tanh_slope": gelu_tanh_slope,
    "gelu": gelu,
    "gelu_slope": gelu_slope,
}
