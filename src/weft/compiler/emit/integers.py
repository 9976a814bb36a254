"""Emitters of the rows on integers and booleans: (kind, value, …, *static) → value.

Overflow wraps around, division by zero gives zero, and a shift beyond the width shifts out all
bits: nothing is left to LLVM's undefined behaviour.
"""

from collections.abc import Callable

from .code import LLValue
from .powers import by_whole


def _guard_divisor(a: LLValue, b: LLValue, signs: bool) -> tuple[LLValue, LLValue]:
    """A divisor that does not trap, and the lanes in which it replaces 0.

    The least number divided by −1, which traps as well, is 0 − a.
    """
    none = b.equals(0)
    bad = none | b.equals(-1) if signs else none
    return bad.choose(b.same(1), b), none


def floor_divide(a: LLValue, b: LLValue, signs: bool) -> LLValue:
    safe, none = _guard_divisor(a, b, signs)
    q = a.divide(safe, signs)
    if signs:
        r = a - q * safe
        crossed = r.compare("ne", 0) & ((r < 0) ^ (safe < 0))
        q = crossed.choose(q - 1, q)
        q = b.equals(-1).choose(0 - a, q)
    return none.choose(a.same(0), q)


def remainder(a: LLValue, b: LLValue, signs: bool) -> LLValue:
    """The remainder of a division by 0 or −1 is zero, as by the 1 in their place."""
    safe, _ = _guard_divisor(a, b, signs)
    r = a.modulo(safe, signs)
    if signs:
        crossed = r.compare("ne", 0) & ((r < 0) ^ (safe < 0))
        r = crossed.choose(r + safe, r)
    return r


def _maximum(a: LLValue, b: LLValue, signs: bool) -> LLValue:
    return b.compare("gt", a, signs).choose(b, a)


def _minimum(a: LLValue, b: LLValue, signs: bool) -> LLValue:
    return b.compare("lt", a, signs).choose(b, a)


def clip(x: LLValue, signs: bool, lo: int | None, hi: int | None) -> LLValue:
    if lo is not None:
        x = _maximum(x, x.same(_within(x, signs, lo)), signs)
    return x if hi is None else _minimum(x, x.same(_within(x, signs, hi)), signs)


def _within(x: LLValue, signs: bool, bound: int) -> int:
    """A bound clamped to the range of the type."""
    top = 2 ** (x.type.width - signs)
    return min(max(bound, -top if signs else 0), top - 1)


def sign(x: LLValue, signs: bool) -> LLValue:
    y = x.compare("ne", 0).choose(x.same(1), x.same(0))
    return (x < 0).choose(x.same(-1), y) if signs else y


def _shift_left(a: LLValue, b: LLValue, signs: bool) -> LLValue:
    """A shift by a negative number counts as a huge one, as in NumPy."""
    inside = b.compare("lt", a.type.width, signed=False)
    return inside.choose(a << inside.choose(b, b.same(0)), a.same(0))


def _right(a: LLValue, b: LLValue, signs: bool) -> LLValue:
    inside = b.compare("lt", a.type.width, signed=False)
    by = inside.choose(b, b.same(a.type.width - 1))
    if signs:
        return a >> by
    return inside.choose(a.logical_shift(by), a.same(0))


def _compare(word: str) -> Callable[..., LLValue]:
    return lambda a, b, signs: a.compare(word, b, signs)


def _plain(function: Callable[..., LLValue]) -> Callable[..., LLValue]:
    """An emitter that ignores signedness."""
    count = function.__code__.co_argcount
    return lambda *args: function(*args[:count])


COMPARISONS = {
    "equal": _compare("eq"),
    "not_equal": _compare("ne"),
    "less": _compare("lt"),
    "less_equal": _compare("le"),
    "greater": _compare("gt"),
    "greater_equal": _compare("ge"),
}
_same = _plain(lambda x: x)
EMITTERS: dict[str, Callable[..., LLValue]] = {
    **COMPARISONS,
    "add": _plain(lambda a, b: a + b),
    "subtract": _plain(lambda a, b: a - b),
    "multiply": _plain(lambda a, b: a * b),
    "strong_product": _plain(lambda a, b: a * b),
    "scale_shift": lambda x, w, b, signs: x * w + b,
    "floor_divide": floor_divide,
    "remainder": remainder,
    "negative": _plain(lambda x: 0 - x),
    "positive": _same,
    "square": _plain(lambda x: x * x),
    "power_scalar": lambda x, signs, n: by_whole(x, n),
    "floor": _same,
    "ceil": _same,
    "trunc": _same,
    "round": _same,
    "abs": lambda x, signs: (x < 0).choose(0 - x, x) if signs else x,
    "sign": sign,
    "maximum": _maximum,
    "minimum": _minimum,
    "clip_lower": _maximum,
    "clip_upper": _minimum,
    "clip": clip,
    "relu": lambda x, signs: _maximum(x, x.same(0), signs),
    "signbit": lambda x, signs: x < 0 if signs else x.compare("lt", 0, signed=False),
    "bitwise_and": _plain(lambda a, b: a & b),
    "bitwise_or": _plain(lambda a, b: a | b),
    "bitwise_xor": _plain(lambda a, b: a ^ b),
    "bitwise_left_shift": _shift_left,
    "bitwise_right_shift": _right,
    "bitwise_invert": _plain(lambda x: ~x),
}
# Rows on booleans as NumPy computes them; the rows that it rejects are missing.
BOOLEAN: dict[str, Callable[..., LLValue]] = {
    **{name: COMPARISONS[name] for name in ("equal", "not_equal")},
    "less": lambda a, b, signs: ~a & b,
    "less_equal": lambda a, b, signs: ~a | b,
    "greater": lambda a, b, signs: a & ~b,
    "greater_equal": lambda a, b, signs: a | ~b,
    "add": _plain(lambda a, b: a | b),
    "multiply": _plain(lambda a, b: a & b),
    "strong_product": _plain(lambda a, b: a & b),
    "maximum": _plain(lambda a, b: a | b),
    "minimum": _plain(lambda a, b: a & b),
    "clip_lower": _plain(lambda a, b: a | b),
    "clip_upper": _plain(lambda a, b: a & b),
    "scale_shift": lambda x, w, b, signs: x & w | b,
    "signbit": _plain(lambda x: x ^ x),
    "abs": _same,
    "floor": _same,
    "ceil": _same,
    "trunc": _same,
    "round": _same,
    "relu": _same,
    "bitwise_and": _plain(lambda a, b: a & b),
    "bitwise_or": _plain(lambda a, b: a | b),
    "bitwise_xor": _plain(lambda a, b: a ^ b),
    "bitwise_invert": _plain(lambda x: ~x),
}
