"""Emitters of the rows on floats, beyond the elementary functions: (value, …, *static) → value."""

import math
from collections.abc import Callable

from .arithmetic import copy_sign, fma, larger, size, smaller
from .code import LLValue
from .elementary import ELEMENTARY, wide
from .exponentials import expit
from .logarithms import log, log1p
from .powers import by_whole, power
from .sums import add, multiply, negative, strong_product, subtract


def maximum(a: LLValue, b: LLValue) -> LLValue:
    """The larger one; NaN if either is NaN."""
    y = (b > a).choose(b, a)
    return b.is_nan().choose(b, y)


def minimum(a: LLValue, b: LLValue) -> LLValue:
    """The smaller one; NaN if either is NaN."""
    y = (b < a).choose(b, a)
    return b.is_nan().choose(b, y)


def strong_quotient(a: LLValue, b: LLValue) -> LLValue:
    """a/b, and zero where a is zero, whatever b is."""
    return a.equals(0.0).choose(a.same(0.0), a / b)


def remainder(a: LLValue, b: LLValue) -> LLValue:
    """a − b·⌊a/b⌋ with the sign of b, as in Python."""
    r = a.code.emit(a.type, f"frem {a.type.text} {a.name}, {b.name}")
    crossed = r.compare("ne", 0.0) & ((r < 0.0) ^ (b < 0.0))
    r = crossed.choose(r + b, r)
    return r.equals(0.0).choose(copy_sign(r, b), r)


def floor_divide(a: LLValue, b: LLValue) -> LLValue:
    """⌊a/b⌋; where an operand is infinite the plain quotient, as in the Array API."""
    r = a.code.emit(a.type, f"frem {a.type.text} {a.name}, {b.name}")
    quotient = (a - r) / b
    crossed = r.compare("ne", 0.0) & ((r < 0.0) ^ (b < 0.0))
    quotient = crossed.choose(quotient - 1.0, quotient)
    down = quotient.intrinsic("floor")
    down = (quotient - down > 0.5).choose(down + 1.0, down)
    plain = a / b
    down = quotient.equals(0.0).choose(copy_sign(a.same(0.0), plain), down)
    special = b.equals(0.0) | size(a).equals(math.inf) | size(b).equals(math.inf)
    return special.choose(plain, down)


def sign(x: LLValue) -> LLValue:
    one, zero = x.same(1.0), x.same(0.0)
    y = (x > 0.0).choose(one, (x < 0.0).choose(x.same(-1.0), zero))
    return x.is_nan().choose(x, y)


def power_scalar(x: LLValue, n: int | float) -> LLValue:
    """xⁿ; products where NumPy's kernel uses them, and for all small whole n."""
    if n == 0.5:
        return x.intrinsic("sqrt")
    if n in (-1, -2):
        return 1.0 / (x if n == -1 else x * x)
    if n in (0, 1, 2, 3):
        return by_whole(x, int(n))
    if n == 4:
        return by_whole(x * x, 2)
    return power(x, x.same(n))


def clip(x: LLValue, lo: float | None, hi: float | None) -> LLValue:
    """x clamped; NaN propagates, also from a bound, and an upper bound below the lower one wins."""
    if any([bound is not None and math.isnan(bound) for bound in (lo, hi)]):
        return x.same(math.nan)
    if lo is not None:
        x = (x < lo).choose(x.same(lo), x)
    return x if hi is None else (x > hi).choose(x.same(hi), x)


def tie_share(a: LLValue, b: LLValue) -> LLValue:
    """1 where a > b, ½ where they are equal, else 0."""
    tied = a.equals(b).choose(a.same(0.5), a.same(0.0))
    return (a > b).choose(a.same(1.0), tied)


def nextafter(a: LLValue, b: LLValue) -> LLValue:
    """The neighbour of a in the direction of b."""
    bits = a.bits
    away = (b > a) ^ (bits < 0)
    stepped = away.choose(bits + 1, bits - 1).as_float(a.type.element)
    smallest = (bits.same(1)).as_float(a.type.element)
    stepped = a.equals(0.0).choose(copy_sign(smallest, b), stepped)
    y = a.equals(b).choose(b, stepped)
    return a.compare("uno", b).choose(a + b, y)


_ROOT, _CUBIC = math.sqrt(2 / math.pi), 0.044715
# From here on these activations are 0 or x, and their slopes 0 or 1, also in float64.
_FLAT = 800.0


def gelu_tanh(x: LLValue) -> LLValue:
    """½x(1 + tanh u) with u = √(2/π)(x + 0.044715x³), as x·expit 2u."""
    x = larger(x, -_FLAT)
    return x * expit(x * fma(x * x, 2 * _ROOT * _CUBIC, 2 * _ROOT))


def gelu_tanh_slope(x: LLValue) -> LLValue:
    x = larger(smaller(x, _FLAT), -_FLAT)
    square = x * x
    s = expit(x * fma(square, 2 * _ROOT * _CUBIC, 2 * _ROOT))
    du = x * fma(square, 6 * _ROOT * _CUBIC, 2 * _ROOT)
    return s * fma(du, 1.0 - s, 1.0)


def silu_slope(x: LLValue) -> LLValue:
    x = larger(smaller(x, _FLAT), -_FLAT)
    s = expit(x)
    return s * fma(x, 1.0 - s, 1.0)


def logit(x: LLValue) -> LLValue:
    """log(x/(1 − x)); near ½, where the quotient is near 1, without cancellation."""
    middle = (x > 0.3) & (x < 0.65)
    t = (x - 0.5) * 2.0
    near = log1p((t + t) / (1.0 - t))
    return middle.choose(near, log(x / (1.0 - x)))


def _by_log(x: LLValue, y: LLValue, function: Callable[[LLValue], LLValue]) -> LLValue:
    """x·function(y), and zero where x is zero and y is not NaN."""
    return (x.equals(0.0) & ~y.is_nan()).choose(x.same(0.0), x * function(y))


def entr(x: LLValue) -> LLValue:
    y = x.equals(0.0).choose(x.same(0.0), -(x * log(x)))
    return (x < 0.0).choose(x.same(-math.inf), y)


def _log_quotient(x: LLValue, y: LLValue) -> LLValue:
    """log(x/y) of positive numbers, also near 1 and where the quotient overflows."""
    q = x / y
    normal = ((q > 1e-300) & (q < 1e300)).choose(log(q), log(x) - log(y))
    return ((q > 0.5) & (q < 2.0)).choose(log1p((x - y) / y), normal)


def rel_entr(x: LLValue, y: LLValue) -> LLValue:
    inside = (x > 0.0) & (y > 0.0)
    edge = (x.equals(0.0) & (y >= 0.0)).choose(x.same(0.0), x.same(math.inf))
    z = inside.choose(x * _log_quotient(x, y), edge)
    return x.compare("uno", y).choose(x + y, z)


def kl_div(x: LLValue, y: LLValue) -> LLValue:
    inside = (x > 0.0) & (y > 0.0)
    edge = (x.equals(0.0) & (y >= 0.0)).choose(y, x.same(math.inf))
    z = inside.choose(x * log(x / y) - x + y, edge)
    return x.compare("uno", y).choose(x + y, z)


def sinc(x: LLValue) -> LLValue:
    """sin πx/πx."""
    t = x * math.pi
    return x.equals(0.0).choose(x.same(1.0), ELEMENTARY["sin"](t) / t)


def angle(x: LLValue) -> LLValue:
    """0 or π, by the sign."""
    y = (x.bits < 0).choose(x.same(math.pi), x.same(0.0))
    return x.is_nan().choose(x, y)


def _compare(word: str) -> Callable[[LLValue, LLValue], LLValue]:
    return lambda a, b: a.compare(word, b)


def _intrinsic(name: str) -> Callable[[LLValue], LLValue]:
    return lambda x: x.intrinsic(name)


EMITTERS: dict[str, Callable[..., LLValue]] = {
    **ELEMENTARY,
    "add": add,
    "subtract": subtract,
    "multiply": multiply,
    "divide": lambda a, b: a / b,
    "strong_product": strong_product,
    "strong_quotient": strong_quotient,
    "floor_divide": floor_divide,
    "remainder": remainder,
    "negative": negative,
    "positive": lambda x: x,
    "square": lambda x: multiply(x, x),
    "reciprocal": lambda x: 1.0 / x,
    "rsqrt": lambda x: 1.0 / x.intrinsic("sqrt"),
    "power_scalar": power_scalar,
    "floor": _intrinsic("floor"),
    "ceil": _intrinsic("ceil"),
    "trunc": _intrinsic("trunc"),
    "round": _intrinsic("rint"),
    "abs": size,
    "sign": sign,
    "sign_product": lambda t, x, _size: t * sign(x),
    "copysign": copy_sign,
    "nextafter": nextafter,
    "angle": angle,
    "maximum": maximum,
    "minimum": minimum,
    "clip_lower": maximum,
    "clip_upper": minimum,
    "clip": clip,
    "relu": lambda x: larger(x, 0.0),
    "tie_share": tie_share,
    "silu": lambda x: larger(x, -_FLAT) * expit(x),
    "silu_slope": silu_slope,
    "gelu_tanh": gelu_tanh,
    "gelu_tanh_slope": gelu_tanh_slope,
    "scale_shift": fma,
    "logit": logit,
    "xlogy": lambda x, y: _by_log(x, y, log),
    "xlog1py": lambda x, y: _by_log(x, y, log1p),
    "entr": entr,
    "rel_entr": wide(rel_entr),
    "kl_div": wide(kl_div),
    "sinc": wide(sinc),
    "isnan": lambda x: x.is_nan(),
    "isinf": lambda x: size(x).equals(math.inf),
    "isfinite": lambda x: size(x) < math.inf,
    "signbit": lambda x: x.bits < 0,
    "equal": _compare("eq"),
    "not_equal": _compare("ne"),
    "less": _compare("lt"),
    "less_equal": _compare("le"),
    "greater": _compare("gt"),
    "greater_equal": _compare("ge"),
}
