"""Bounds of values, from those of the operands of their rows.

A value of a row lies in its interval or is NaN. Emitters that have fewer instructions for small
numbers ask `lies_within`. Only code for GPUs notes bounds: there instructions are what counts.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from .code import LLValue

Interval = tuple[float, float]
_ALL: Interval = (-math.inf, math.inf)
# What a function or a rounding, to half types at worst, may add: relative, and near zero.
_PART, _NEAR_ZERO = 2.0**-7, 2.0**-20
# Bounds beyond this are none: sums of float16 are infinite there.
_LARGEST = 6e4
_UNIT: Interval = (-1.0, 1.0)
_SHARE: Interval = (0.0, 1.0)


def _exp(x: Interval) -> Interval:
    low, high = [math.exp(min(max(end, -100.0), 100.0)) for end in x]
    return low, high


def _product(a: Interval, b: Interval) -> Interval:
    # 0·∞ is NaN, or zero.
    ends = [x * y if x and y else 0.0 for x in a for y in b]
    return min(ends), max(ends)


def _square(x: Interval) -> Interval:
    return 0.0, max(x[0] * x[0], x[1] * x[1])


def _sum(a: Interval, b: Interval) -> Interval:
    # Ends of infinity are all lower ones or all upper ones.
    return a[0] + b[0], a[1] + b[1]


def _negative(x: Interval) -> Interval:
    return -x[1], -x[0]


def _hull_with_zero(x: Interval) -> Interval:
    return min(x[0], 0.0), max(x[1], 0.0)


def _larger(a: Interval, b: Interval) -> Interval:
    return max(a[0], b[0]), max(a[1], b[1])


def _smaller(a: Interval, b: Interval) -> Interval:
    return min(a[0], b[0]), min(a[1], b[1])


_ROWS: dict[str, Callable[..., Interval]] = {
    **dict.fromkeys(("sin", "cos", "tanh", "erf"), lambda x: _UNIT),
    **dict.fromkeys(("expit", "ndtr"), lambda x: _SHARE),
    "exp": _exp,
    "negative": _negative,
    "square": _square,
    "abs": lambda x: (0.0, max(-x[0], x[1])),
    "relu": lambda x: _larger(x, (0.0, 0.0)),
    "add": _sum,
    "subtract": lambda a, b: _sum(a, _negative(b)),
    "multiply": _product,
    "strong_product": lambda a, b: _hull_with_zero(_product(a, b)),
    **dict.fromkeys(("maximum", "clip_lower"), _larger),
    **dict.fromkeys(("minimum", "clip_upper"), _smaller),
}


def note_bounds(row: str, operands: Sequence[Any], y: LLValue) -> None:
    """Keep the bounds of y, a row of values and Python's numbers, where units may use them."""
    if "units" not in y.code.module.features or row not in _ROWS or not y.type.is_float:
        return
    names = {x.name if isinstance(x, LLValue) else None for x in operands}
    if row == "multiply" and len(names) == 1 and None not in names:
        found = _square(bounds_of(operands[0]))
    else:
        found = _ROWS[row](*map(bounds_of, operands))
    y.code.memo["bounds", y.name] = _with_errors(found)


def bounds_of(x: Any) -> Interval:
    """The bounds of a value, or of a Python number."""
    if isinstance(x, LLValue):
        return x.code.memo.get(("bounds", x.name), _ALL)
    number = float(x)
    return (number, number) if math.isfinite(number) else _ALL


def lies_within(x: LLValue, low: float, high: float) -> bool:
    """Whether all of x but NaN is known to lie there."""
    found = bounds_of(x)
    return low <= found[0] and found[1] <= high


def excludes_zero(x: LLValue) -> bool:
    """Whether x is known not to be zero, NaN or not."""
    low, high = bounds_of(x)
    return low > 0.0 or high < 0.0


def _with_errors(found: Interval) -> Interval:
    low, high = found
    low -= abs(low) * _PART + _NEAR_ZERO
    high += abs(high) * _PART + _NEAR_ZERO
    return (low if low > -_LARGEST else -math.inf), (high if high < _LARGEST else math.inf)
