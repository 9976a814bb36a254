"""Rows: arithmetic and elementary functions, element by element."""

import math
from typing import Any

import numpy as np

from .. import errors
from ..core import dtypes
from ..core.aval import Aval, broadcast
from ..core.backends import KERNELS, PYTHON_SCALARS
from ..core.dispatch import above
from ..core.op import Caller
from ..core.types import Array
from ..core.value import TENSORS, aval_of
from .batching import Along, pointwise

# Their rows are among the complex numbers'.
from .complex_ import abs_ as abs_
from .complex_ import sign as sign
from .logic import (
    equal,
    greater,
    greater_equal,
    isfinite,
    less,
    less_equal,
    logical_and,
    logical_or,
    not_equal,
)
from .rows import (
    elementwise,
    elementwise_shape,
    linear,
    single,
    times,
    unbounded,
    undifferentiated,
)
from .samples import elementwise as samples
from .samples.case import reals
from .strong import over, strong_product, strong_quotient
from .structural import unbroadcast


def scalars_too(row: Caller) -> Caller:
    """Let rules apply a row to Python scalars alone; the answer is a Python scalar too."""
    kernels = KERNELS[row.op]

    def on_scalars(*args):
        return kernels[np.ndarray](*(np.asarray(a, float) for a in args)).item()

    kernels |= {float: on_scalars, int: on_scalars}
    return row


# -- arithmetic -------------------------------------------------------------------------------

add: Caller = elementwise("add", [1, 1], sample=samples.binary)
subtract: Caller = elementwise("subtract", [1, -1], spell=("sub",), sample=samples.binary)
multiply: Caller = elementwise(
    "multiply",
    [lambda _y, _a, b: b, lambda _y, a, _b: a],
    spell=("mul",),
    sample=samples.binary,
)


divide: Caller = elementwise(
    "divide",
    [
        unbounded(times(lambda t, _y, _a, b: over(t, b))),
        unbounded(times(lambda t, y, _a, b: -(t * y) / b)),
    ],
    floating=True,
    spell=("div", "true_divide"),
    sample=samples.quotients,
)

floor_divide: Caller = elementwise(
    "floor_divide", [0, 0], integral=True, spell=("floordiv",), sample=samples.steps
)
remainder: Caller = elementwise(
    "remainder",
    [1, unbounded(lambda _y, a, b: -floor_divide(a, b))],
    integral=True,
    spell=("mod",),
    sample=samples.steps,
)

negative: Caller = elementwise("negative", [-1], spell=("neg",), sample=samples.unary)
positive: Caller = elementwise("positive", [1], sample=samples.unary)
square: Caller = single(
    "square", [times(lambda t, _y, x: t * (x + x))], integral=True, sample=samples.squares
)
reciprocal: Caller = single(
    "reciprocal",
    [unbounded(times(lambda t, _y, x: -t / (x * x)))],
    floating=True,
    sample=samples.positive,
)

# -- powers and roots -------------------------------------------------------------------------


def _power_slope(_y, x, n):
    if n == 0 or n == 1:
        return float(n)
    return n * x if n == 2 else n * power_scalar(x, n - 1)


_power = single("power_scalar", [unbounded(_power_slope)], promote=(), sample=samples.scalar_powers)


def _check_exponent(dtype: np.dtype, n: int) -> None:
    """Refuse an integer exponent that integers of the dtype cannot be raised to."""
    dtypes.check_holds("pow", dtype, n)
    if n < 0 and not dtypes.is_inexact(dtype):
        raise errors.ArgumentError(
            f"pow: {dtype} to the power {n}: no integer in general; convert the tensor first, with "
            f'.to("{dtypes.default_float()}")'
        )


def beside_integer(x: Array) -> Array:
    """Booleans beside a Python integer are integers, as in sums; anything else as it is."""
    if x.__class__ in TENSORS and x._data.dtype in dtypes.RAW_BOOLEANS:
        return above.cast(x, dtypes.int64)
    return x


def power_scalar(x: Array, n: Any) -> Array:
    """xⁿ for a Python scalar n."""
    if n.__class__ is not int:
        whole = x.__class__ in TENSORS and not dtypes.is_inexact(x.dtype)
        if n.__class__ is not float or whole:
            return pow_(x, n)
    else:
        x = beside_integer(x)
        if not 0 <= n < 128:
            _check_exponent(aval_of(x).dtype, n)
    return square(x) if n == 2 else _power(x, n)


def _pow_slope(_y, x, p):
    """p·xᵖ⁻¹, and zero for p = 0 even at x = 0."""
    if p.__class__ in PYTHON_SCALARS:
        return _power_slope(None, x, p)
    return strong_product(p, pow_(x, p - 1))


def _pow_growth(y, x, _p):
    """xᵖ·ln x; as a function of p ≥ 0, 0ᵖ is taken for the constant it is beyond p = 0."""
    if x.__class__ in PYTHON_SCALARS:
        return y * (log(x) if x else 0.0)
    return strong_product(strong_product(not_equal(x, 0), log(x)), y)


pow_: Caller = single(
    "pow",
    [unbounded(_pow_slope), unbounded(_pow_growth)],
    integral=True,
    spell=("power",),
    sample=samples.powers,
)

sqrt: Caller = elementwise(
    "sqrt",
    [unbounded(times(lambda t, y, _x: t / (y + y)))],
    floating=True,
    sample=samples.positive,
)
rsqrt: Caller = single(
    "rsqrt", [unbounded(lambda y, x: -0.5 * y / x)], floating=True, sample=samples.positive
)
cbrt: Caller = elementwise(
    "cbrt",
    [unbounded(times(lambda t, y, _x: t / (3 * y * y)))],
    floating=True,
    sample=samples.roots,
)
hypot: Caller = elementwise(
    "hypot",
    [
        unbounded(lambda y, a, _b: strong_quotient(a, y)),
        unbounded(lambda y, _a, b: strong_quotient(b, y)),
    ],
    floating=True,
    sample=samples.distances,
)

# -- exponentials and logarithms --------------------------------------------------------------
# Exponential growth overflows at ordinary arguments, so these partials count as unbounded:
# where(x < 20, log1p(exp(x)), x) has to have the gradient 1 at x = 1000.

exp: Caller = single("exp", [unbounded(lambda y, _x: y)], floating=True, sample=samples.unary)
exp2: Caller = single(
    "exp2", [unbounded(lambda y, _x: y * math.log(2))], floating=True, sample=samples.unary
)
expm1: Caller = single(
    "expm1", [unbounded(lambda y, _x: y + 1)], floating=True, sample=samples.unary
)
log: Caller = scalars_too(
    single(
        "log",
        [unbounded(times(lambda t, _y, x: t / x))],
        floating=True,
        sample=samples.positive,
    )
)
log2: Caller = single(
    "log2",
    [unbounded(lambda _y, x: (1 / math.log(2)) / x)],
    floating=True,
    sample=samples.positive,
)
log10: Caller = single(
    "log10",
    [unbounded(lambda _y, x: (1 / math.log(10)) / x)],
    floating=True,
    sample=samples.positive,
)
log1p: Caller = scalars_too(
    single(
        "log1p",
        [unbounded(times(lambda t, _y, x: t / (1 + x)))],
        floating=True,
        sample=samples.above_minus_one,
    )
)
expit: Caller = elementwise(
    "expit",
    [times(lambda t, y, _x: t * (y - y * y))],
    floating=True,
    spell=("sigmoid",),
    sample=samples.real,
)


def _weight(a, b):
    """eᵃ/(eᵃ + eᵇ), and one half each where both are the same infinity."""
    return expit(strong_product(logical_or(isfinite(a), not_equal(a, b)), a - b))


logaddexp: Caller = single(
    "logaddexp",
    [lambda _y, a, b: _weight(a, b), lambda _y, a, b: _weight(b, a)],
    floating=True,
    sample=samples.log_sums,
)

# -- circular and hyperbolic functions --------------------------------------------------------

sin: Caller = elementwise("sin", [lambda _y, x: cos(x)], floating=True, sample=samples.unary)
cos: Caller = elementwise("cos", [lambda _y, x: -sin(x)], floating=True, sample=samples.unary)
tan: Caller = single(
    "tan", [lambda y, _x: 1 + y * y], floating=True, sample=reals((-1, 1), complex_too=True)
)

# (1 - x)(1 + x) rather than 1 - x²: exact where the derivative is large.
asin: Caller = single(
    "asin",
    [unbounded(times(lambda t, _y, x: t / sqrt((1 - x) * (1 + x))))],
    floating=True,
    spell=("arcsin",),
    sample=samples.within_one,
)
acos: Caller = single(
    "acos",
    [unbounded(times(lambda t, _y, x: -t / sqrt((1 - x) * (1 + x))))],
    floating=True,
    spell=("arccos",),
    sample=samples.within_one,
)
atan: Caller = elementwise(
    "atan",
    [times(lambda t, _y, x: t / (1 + x * x))],
    floating=True,
    spell=("arctan",),
    sample=samples.unary,
)
atan2: Caller = elementwise(
    "atan2",
    [
        unbounded(lambda _y, a, b: strong_quotient(b, a * a + b * b)),
        unbounded(lambda _y, a, b: strong_quotient(-a, a * a + b * b)),
    ],
    floating=True,
    spell=("arctan2",),
    sample=samples.angles,
)
sinh: Caller = single(
    "sinh", [unbounded(lambda _y, x: cosh(x))], floating=True, sample=samples.unary
)
cosh: Caller = single(
    "cosh", [unbounded(lambda _y, x: sinh(x))], floating=True, sample=samples.unary
)
tanh: Caller = elementwise(
    "tanh", [times(lambda t, y, _x: t - t * y * y)], floating=True, sample=samples.unary
)
asinh: Caller = elementwise(
    "asinh",
    [times(lambda t, _y, x: t / sqrt(1 + x * x))],
    floating=True,
    spell=("arcsinh",),
    sample=samples.unary,
)
acosh: Caller = single(
    "acosh",
    # One root of x² - 1 would have the wrong sign in the left half of the complex plane.
    [unbounded(times(lambda t, _y, x: t / strong_product(sqrt(x - 1), sqrt(x + 1))))],
    floating=True,
    spell=("arccosh",),
    sample=samples.beyond_one,
)
atanh: Caller = single(
    "atanh",
    [unbounded(times(lambda t, _y, x: t / ((1 - x) * (1 + x))))],
    floating=True,
    spell=("arctanh",),
    sample=samples.within_one,
)

# -- steps ------------------------------------------------------------------------------------

floor: Caller = elementwise("floor", [0], sample=samples.fractions)
ceil: Caller = elementwise("ceil", [0], sample=samples.fractions)
trunc: Caller = elementwise("trunc", [0], spell=("fix",), sample=samples.fractions)
round_: Caller = elementwise("round", [0], spell=("rint",), sample=samples.rounded)
copysign: Caller = elementwise(
    "copysign",
    [unbounded(lambda y, a, _b: strong_quotient(y, a)), 0],
    floating=True,
    sample=samples.signs,
)
nextafter: Caller = undifferentiated(
    "nextafter",
    shape=elementwise_shape("nextafter", True),
    arity=2,
    promote=(0, 1),
    floating=True,
    batch=pointwise,
    sample=samples.neighbours,
)

# -- choices ----------------------------------------------------------------------------------

# 1 where a > b, ½ where they are equal, 0 elsewhere.
tie_share: Caller = elementwise("tie_share", [0, 0], floating=True, sample=samples.tied)

maximum: Caller = elementwise(
    "maximum",
    [lambda _y, a, b: tie_share(a, b), lambda _y, a, b: tie_share(b, a)],
    sample=samples.tied,
)
minimum: Caller = elementwise(
    "minimum",
    [lambda _y, a, b: tie_share(b, a), lambda _y, a, b: tie_share(a, b)],
    sample=samples.tied,
)
# t where the mask is true.
gate: Caller = linear(
    "gate",
    shape=lambda t, open: t,
    transpose=[lambda g, _t, open: gate(g, open), None],
    moves=True,
    batch=Along(()),
    sample=samples.gated,
)

relu: Caller = elementwise(
    "relu",
    [times(lambda t, positive: gate(t, positive))],
    keep=lambda _y, x: (greater(x, 0),),
    sample=samples.rectified,
)


def _inside(x, lo, hi):
    if lo is None and hi is None:
        return equal(x, x)
    if lo is None:
        return less_equal(x, hi)
    within = greater_equal(x, lo)
    return within if hi is None else logical_and(within, less_equal(x, hi))


_clip = elementwise(
    "clip",
    [times(lambda t, inside, *_bounds: gate(t, inside))],
    keep=lambda _y, x, lo, hi: (_inside(x, lo, hi),),
    promote=(),
    sample=samples.clipped,
)

# clip with an array as the bound: at the bound the gradient goes to x.
clip_lower: Caller = elementwise(
    "clip_lower",
    [lambda _y, x, lo: greater_equal(x, lo), lambda _y, x, lo: less(x, lo)],
    compute=lambda xp, x, lo: xp.maximum(x, lo),
    sample=samples.tied,
)
clip_upper: Caller = elementwise(
    "clip_upper",
    [lambda _y, x, hi: less_equal(x, hi), lambda _y, x, hi: greater(x, hi)],
    compute=lambda xp, x, hi: xp.minimum(x, hi),
    sample=samples.tied,
)


def _limits(dtype: np.dtype, lo: Any, hi: Any) -> tuple[Any, Any]:
    """Bounds of clip without integers that limit nothing; the others are held by the dtype."""
    least, most = dtypes.bounds(dtype)
    lo = None if lo.__class__ is int and lo < least else lo
    hi = None if hi.__class__ is int and hi > most else hi
    for bound in (lo, hi):
        dtypes.check_holds("clip", dtype, bound)
    return lo, hi


def clip(x: Array, lo: Array | None = None, hi: Array | None = None) -> Array:
    """x limited to [lo, hi]: arrays, Python scalars or None; hi wins where lo > hi."""
    if lo.__class__ is int or hi.__class__ is int:
        x = beside_integer(x)
        lo, hi = _limits(x.dtype, lo, hi)
    kinds = [type(bound) for bound in (lo, hi) if bound is not None]
    if all(k is int or (k is float and dtypes.is_inexact(x.dtype)) for k in kinds):
        return _clip(x, lo, hi)
    if lo is not None:
        x = clip_lower(x, lo)
    return x if hi is None else clip_upper(x, hi)


def _where_shape(c: Aval, a: Aval, b: Aval) -> Aval:
    chosen = elementwise_shape("where", False)(a, b)
    shape = broadcast("where", c.shape, a.shape, b.shape)
    return Aval(shape, chosen.dtype, c.device if chosen.device is None else chosen.device)


where: Caller = linear(
    "where",
    shape=_where_shape,
    transpose=[
        None,
        lambda g, c, _a, _b: unbroadcast(where(c, g, 0), _a.shape),
        lambda g, c, _a, _b: unbroadcast(where(c, 0, g), _b.shape),
    ],
    joint=True,
    promote=(1, 2),
    batch=pointwise,
    sample=samples.selections,
)
