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

# Their rows are in `complex_`.
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
    fused,
    linear,
    mark_unbounded,
    private,
    row_without_derivative,
    single,
    times,
)
from .samples import elementwise as samples
from .samples.case import reals
from .strong import over, strong_product, strong_quotient
from .structural import unbroadcast


def scalars_too(row: Caller) -> Caller:
    """Let rules apply a row to Python scalars only; the result is then a Python scalar."""
    kernels = KERNELS[row.op]

    def on_scalars(*args):
        return kernels[np.ndarray](*(np.asarray(a, float) for a in args)).item()

    kernels |= {float: on_scalars, int: on_scalars}
    return row


# -- arithmetic -------------------------------------------------------------------------------

add: Caller = elementwise(
    "add",
    [1, 1],
    cost="light",
    sample=samples.binary,
    doc="The sum x + y.\nadd([1.0, 2.0], 3.0) = [4.0, 5.0]",
)
subtract: Caller = elementwise(
    "subtract",
    [1, -1],
    spell=("sub",),
    cost="light",
    sample=samples.binary,
    doc="The difference x − y.\nsubtract([5.0, 2.0], 3.0) = [2.0, -1.0]",
)
multiply: Caller = elementwise(
    "multiply",
    [lambda y, a, b: b, lambda y, a, b: a],
    reads=("b", "a"),
    spell=("mul",),
    cost="light",
    sample=samples.binary,
    doc="The product x·y.\nmultiply([1.0, 2.0], 3.0) = [3.0, 6.0]",
)


divide: Caller = elementwise(
    "divide",
    [
        mark_unbounded(times(lambda t, y, a, b: over(t, b))),
        mark_unbounded(times(lambda t, y, a, b: -(t * y) / b)),
    ],
    reads=("b", "y b"),
    floating=True,
    spell=("div", "true_divide"),
    sample=samples.quotients,
    doc="The quotient x/y; of integers too it is a float.\ndivide([1.0, 6.0], 4.0) = [0.25, 1.5]",
)

floor_divide: Caller = elementwise(
    "floor_divide",
    [0, 0],
    integral=True,
    spell=("floordiv",),
    sample=samples.steps,
    doc="⌊x/y⌋, rounded towards −∞; its derivative is 0.\n"
    "floor_divide([7.0, -7.0], 2.0) = [3.0, -4.0]",
)
remainder: Caller = elementwise(
    "remainder",
    [1, mark_unbounded(lambda y, a, b: -floor_divide(a, b))],
    reads="a b",
    integral=True,
    spell=("mod",),
    sample=samples.steps,
    doc="x − y·⌊x/y⌋, which has the sign of y.\nremainder([7.0, -7.0], 3.0) = [1.0, 2.0]",
)

negative: Caller = elementwise(
    "negative",
    [-1],
    spell=("neg",),
    cost="light",
    sample=samples.unary,
    doc="−x.\nnegative([1.0, -2.0]) = [-1.0, 2.0]",
)
positive: Caller = elementwise(
    "positive",
    [1],
    cost="light",
    moves="values",
    sample=samples.unary,
    doc="x itself.\npositive([1.0, -2.0]) = [1.0, -2.0]",
)
square: Caller = single(
    "square",
    [times(lambda t, y, x: t * (x + x))],
    reads="x",
    integral=True,
    cost="light",
    sample=samples.squares,
    doc="x².\nsquare([3.0, -4.0]) = [9.0, 16.0]",
)
reciprocal: Caller = single(
    "reciprocal",
    [mark_unbounded(times(lambda t, y, x: -t / (x * x)))],
    reads="x",
    floating=True,
    sample=samples.positive,
    doc="1/x.\nreciprocal([2.0, -4.0]) = [0.5, -0.25]",
)

# -- powers and roots -------------------------------------------------------------------------


def _power_slope(y, x, n):
    if n == 0 or n == 1:
        return float(n)
    return n * x if n == 2 else n * power_scalar(x, n - 1)


_power = single(
    "power_scalar",
    [mark_unbounded(_power_slope)],
    reads="x",
    promote=(),
    public="",
    sample=samples.scalar_powers,
)


def _check_exponent(dtype: np.dtype, n: int) -> None:
    """Refuse an integer exponent that integers of the dtype cannot be raised to."""
    dtypes.check_holds("pow", dtype, n)
    if n < 0 and not dtypes.is_inexact(dtype):
        raise errors.ArgumentError(
            f"pow: {dtype} to the power {n}: no integer in general; convert the tensor first, with "
            f'.to("{dtypes.default_float()}")'
        )


def beside_integer(x: Array) -> Array:
    """Booleans as integers, as in sums; anything else as it is."""
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


def _pow_slope(y, x, p):
    """p·xᵖ⁻¹, and zero for p = 0 even at x = 0."""
    if p.__class__ in PYTHON_SCALARS:
        return _power_slope(None, x, p)
    return strong_product(p, pow_(x, p - 1))


def _pow_growth(y, x, p):
    """xᵖ·ln x; 0ᵖ for p ≥ 0 counts as the constant 0, which it is for p > 0."""
    if x.__class__ in PYTHON_SCALARS:
        return y * (log(x) if x else 0.0)
    return strong_product(strong_product(not_equal(x, 0), log(x)), y)


pow_: Caller = single(
    "pow",
    [mark_unbounded(_pow_slope), mark_unbounded(_pow_growth)],
    reads=("x p", "y x"),
    integral=True,
    spell=("power",),
    public="",
    sample=samples.powers,
)

sqrt: Caller = elementwise(
    "sqrt",
    [mark_unbounded(times(lambda t, y, x: t / (y + y)))],
    reads="y",
    floating=True,
    sample=samples.positive,
    doc="√x, NaN for negative real x; its slope at 0 is infinite.\nsqrt([4.0, 9.0]) = [2.0, 3.0]",
)
rsqrt: Caller = single(
    "rsqrt",
    [mark_unbounded(lambda y, x: -0.5 * y / x)],
    floating=True,
    sample=samples.positive,
    doc="1/√x.\nrsqrt([4.0, 16.0]) ≈ [0.5, 0.25]",
)
cbrt: Caller = elementwise(
    "cbrt",
    [mark_unbounded(times(lambda t, y, x: t / (3 * y * y)))],
    reads="y",
    floating=True,
    sample=samples.roots,
    doc="The real cube root of x, also of negative numbers.\ncbrt([8.0, -27.0]) ≈ [2.0, -3.0]",
)
hypot: Caller = elementwise(
    "hypot",
    [
        mark_unbounded(lambda y, a, b: strong_quotient(a, y)),
        mark_unbounded(lambda y, a, b: strong_quotient(b, y)),
    ],
    reads=("y a", "y b"),
    floating=True,
    sample=samples.distances,
    doc="√(x² + y²), without overflow on the way; at (0, 0) the gradient is 0.\n"
    "hypot(3.0, [4.0, -4.0]) = [5.0, 5.0]",
)

# -- exponentials and logarithms --------------------------------------------------------------
# Exponential growth overflows at ordinary arguments, so these partials count as unbounded:
# where(x < 20, log1p(exp(x)), x) has to have the gradient 1 at x = 1000.

exp: Caller = single(
    "exp",
    [mark_unbounded(lambda y, x: y)],
    reads="y",
    floating=True,
    sample=samples.unary,
    doc="eˣ.\nexp([0.0, 1.0]) ≈ [1.0, 2.7183]",
)
exp2: Caller = single(
    "exp2",
    [mark_unbounded(lambda y, x: y * math.log(2))],
    reads="y",
    floating=True,
    sample=samples.unary,
    doc="2ˣ.\nexp2([3.0, -1.0]) ≈ [8.0, 0.5]",
)
expm1: Caller = single(
    "expm1",
    [mark_unbounded(lambda y, x: y + 1)],
    reads="y",
    floating=True,
    sample=samples.unary,
    doc="eˣ − 1, accurate near 0.\nexpm1([0.0, 1.0]) ≈ [0.0, 1.7183]",
)
log: Caller = scalars_too(
    single(
        "log",
        [mark_unbounded(times(lambda t, y, x: t / x))],
        reads="x",
        floating=True,
        sample=samples.positive,
        doc="The natural logarithm of x; −∞ at 0, NaN below.\nlog([1.0, 10.0]) ≈ [0.0, 2.3026]",
    )
)
log2: Caller = single(
    "log2",
    [mark_unbounded(lambda y, x: (1 / math.log(2)) / x)],
    reads="x",
    floating=True,
    sample=samples.positive,
    doc="The logarithm of x to the base 2.\nlog2([8.0, 0.5]) ≈ [3.0, -1.0]",
)
log10: Caller = single(
    "log10",
    [mark_unbounded(lambda y, x: (1 / math.log(10)) / x)],
    reads="x",
    floating=True,
    sample=samples.positive,
    doc="The logarithm of x to the base 10.\nlog10([1000.0, 0.1]) ≈ [3.0, -1.0]",
)
log1p: Caller = scalars_too(
    single(
        "log1p",
        [mark_unbounded(times(lambda t, y, x: t / (1 + x)))],
        reads="x",
        floating=True,
        sample=samples.above_minus_one,
        doc="log(1 + x), accurate near 0.\nlog1p([0.0, 1.0]) ≈ [0.0, 0.6931]",
    )
)
expit: Caller = elementwise(
    "expit",
    [fused("expit_product", lambda t, y, x: t * (y - y * y))],
    reads="y",
    floating=True,
    spell=("sigmoid",),
    public="special",
    sample=samples.real,
    doc="The logistic function 1/(1 + e⁻ˣ).\nexpit([0.0, 1.0]) ≈ [0.5, 0.7311]",
)


def _weight(a, b):
    """eᵃ/(eᵃ + eᵇ), and one half each where both are the same infinity."""
    return expit(strong_product(logical_or(isfinite(a), not_equal(a, b)), a - b))


logaddexp: Caller = single(
    "logaddexp",
    [lambda y, a, b: _weight(a, b), lambda y, a, b: _weight(b, a)],
    reads="a b",
    floating=True,
    sample=samples.log_sums,
    doc="log(eˣ + eʸ), without overflow.\nlogaddexp([0.0, 100.0], 0.0) ≈ [0.6931, 100.0]",
)

# -- circular and hyperbolic functions --------------------------------------------------------

sin: Caller = elementwise(
    "sin",
    [lambda y, x: cos(x)],
    reads="x",
    floating=True,
    sample=samples.unary,
    doc="The sine of x, in radians.\nsin([0.0, 1.0]) ≈ [0.0, 0.8415]",
)
cos: Caller = elementwise(
    "cos",
    [lambda y, x: -sin(x)],
    reads="x",
    floating=True,
    sample=samples.unary,
    doc="The cosine of x, in radians.\ncos([0.0, 1.0]) ≈ [1.0, 0.5403]",
)
tan: Caller = single(
    "tan",
    [lambda y, x: 1 + y * y],
    reads="y",
    floating=True,
    sample=reals((-1, 1), complex_too=True),
    doc="The tangent of x, in radians.\ntan([0.0, 1.0]) ≈ [0.0, 1.5574]",
)

# (1 - x)(1 + x) rather than 1 - x²: exact where the derivative is large.
asin: Caller = single(
    "asin",
    [mark_unbounded(times(lambda t, y, x: t / sqrt((1 - x) * (1 + x))))],
    reads="x",
    floating=True,
    spell=("arcsin",),
    sample=samples.within_one,
    doc="The angle in [−π/2, π/2] whose sine is x; NaN where |x| > 1.\n"
    "asin([0.0, 1.0]) ≈ [0.0, 1.5708]",
)
acos: Caller = single(
    "acos",
    [mark_unbounded(times(lambda t, y, x: -t / sqrt((1 - x) * (1 + x))))],
    reads="x",
    floating=True,
    spell=("arccos",),
    sample=samples.within_one,
    doc="The angle in [0, π] whose cosine is x; NaN where |x| > 1.\n"
    "acos([1.0, 0.0]) ≈ [0.0, 1.5708]",
)
atan: Caller = elementwise(
    "atan",
    [times(lambda t, y, x: t / (1 + x * x))],
    reads="x",
    floating=True,
    spell=("arctan",),
    sample=samples.unary,
    doc="The angle in (−π/2, π/2) whose tangent is x.\natan([0.0, 1.0]) ≈ [0.0, 0.7854]",
)
atan2: Caller = elementwise(
    "atan2",
    [
        mark_unbounded(lambda y, a, b: strong_quotient(b, a * a + b * b)),
        mark_unbounded(lambda y, a, b: strong_quotient(-a, a * a + b * b)),
    ],
    reads="a b",
    floating=True,
    spell=("arctan2",),
    sample=samples.angles,
    doc="The angle in [−π, π] of the point with ordinate x and abscissa y.\n"
    "atan2(1.0, [1.0, -1.0]) ≈ [0.7854, 2.3562]",
)
sinh: Caller = single(
    "sinh",
    [mark_unbounded(lambda y, x: cosh(x))],
    reads="x",
    floating=True,
    sample=samples.unary,
    doc="The hyperbolic sine (eˣ − e⁻ˣ)/2.\nsinh([0.0, 1.0]) ≈ [0.0, 1.1752]",
)
cosh: Caller = single(
    "cosh",
    [mark_unbounded(lambda y, x: sinh(x))],
    reads="x",
    floating=True,
    sample=samples.unary,
    doc="The hyperbolic cosine (eˣ + e⁻ˣ)/2.\ncosh([0.0, 1.0]) ≈ [1.0, 1.5431]",
)
tanh: Caller = elementwise(
    "tanh",
    [fused("tanh_product", lambda t, y, x: t - t * y * y)],
    reads="y",
    floating=True,
    sample=samples.unary,
    doc="The hyperbolic tangent (eˣ − e⁻ˣ)/(eˣ + e⁻ˣ).\ntanh([0.0, 1.0]) ≈ [0.0, 0.7616]",
)
asinh: Caller = elementwise(
    "asinh",
    [times(lambda t, y, x: t / sqrt(1 + x * x))],
    reads="x",
    floating=True,
    spell=("arcsinh",),
    sample=samples.unary,
    doc="The inverse hyperbolic sine log(x + √(x² + 1)).\nasinh([0.0, 1.0]) ≈ [0.0, 0.8814]",
)
acosh: Caller = single(
    "acosh",
    # One root of x² - 1 would have the wrong sign in the left half of the complex plane.
    [mark_unbounded(times(lambda t, y, x: t / strong_product(sqrt(x - 1), sqrt(x + 1))))],
    reads="x",
    floating=True,
    spell=("arccosh",),
    sample=samples.beyond_one,
    doc="The inverse hyperbolic cosine log(x + √(x² − 1)); NaN for x < 1.\n"
    "acosh([1.0, 2.0]) ≈ [0.0, 1.317]",
)
atanh: Caller = single(
    "atanh",
    [mark_unbounded(times(lambda t, y, x: t / ((1 - x) * (1 + x))))],
    reads="x",
    floating=True,
    spell=("arctanh",),
    sample=samples.within_one,
    doc="The inverse hyperbolic tangent ½ log((1 + x)/(1 − x)); NaN where |x| > 1.\n"
    "atanh([0.0, 0.5]) ≈ [0.0, 0.5493]",
)

# -- steps ------------------------------------------------------------------------------------

floor: Caller = elementwise(
    "floor",
    [0],
    sample=samples.fractions,
    doc="⌊x⌋, the largest integer not above x; its derivative is 0.\n"
    "floor([1.5, -1.5]) = [1.0, -2.0]",
)
ceil: Caller = elementwise(
    "ceil",
    [0],
    sample=samples.fractions,
    doc="⌈x⌉, the smallest integer not below x; its derivative is 0.\n"
    "ceil([1.5, -1.5]) = [2.0, -1.0]",
)
trunc: Caller = elementwise(
    "trunc",
    [0],
    spell=("fix",),
    sample=samples.fractions,
    doc="x without its fraction: rounded towards 0; its derivative is 0.\n"
    "trunc([1.5, -1.5]) = [1.0, -1.0]",
)
round_: Caller = elementwise(
    "round",
    [0],
    spell=("rint",),
    sample=samples.rounded,
    doc="The nearest integer, halves to the even one; its derivative is 0.\n"
    "round([0.5, 1.5, 2.6]) = [0.0, 2.0, 3.0]",
)
copysign: Caller = elementwise(
    "copysign",
    [mark_unbounded(lambda y, a, b: strong_quotient(y, a)), 0],
    reads="y a",
    floating=True,
    sample=samples.signs,
    doc="|x| with the sign of y.\ncopysign([1.0, -2.0], -3.0) = [-1.0, -2.0]",
)
nextafter: Caller = row_without_derivative(
    "nextafter",
    shape=elementwise_shape("nextafter", True),
    arity=2,
    promote=(0, 1),
    floating=True,
    public="weft",
    batch=pointwise,
    sample=samples.neighbours,
    doc="The next floating-point number after x towards y; no derivative.\n"
    "nextafter(1.0, [2.0, 0.0]) = [1.0000001192092896, 0.9999999403953552]",
)

# -- choices ----------------------------------------------------------------------------------

# 1 where a > b, ½ where they are equal, 0 elsewhere.
tie_share: Caller = private("tie_share", [0, 0], floating=True, sample=samples.tied)

maximum: Caller = elementwise(
    "maximum",
    [lambda y, a, b: tie_share(a, b), lambda y, a, b: tie_share(b, a)],
    reads="a b",
    cost="light",
    sample=samples.tied,
    doc="The larger of x and y; equal ones share the gradient, and NaN wins.\n"
    "maximum([1.0, 5.0], 3.0) = [3.0, 5.0]",
)
minimum: Caller = elementwise(
    "minimum",
    [lambda y, a, b: tie_share(b, a), lambda y, a, b: tie_share(a, b)],
    reads="a b",
    cost="light",
    sample=samples.tied,
    doc="The smaller of x and y; equal ones share the gradient, and NaN wins.\n"
    "minimum([1.0, 5.0], 3.0) = [1.0, 3.0]",
)
# t where the mask is true.
gate: Caller = linear(
    "gate",
    reads="open",
    shape=lambda t, open: t,
    transpose=[lambda g, t, open: gate(g, open), None],
    cost="light",
    moves="values",
    pulls_mask=True,
    batch=Along(()),
    sample=samples.gates,
)

relu: Caller = elementwise(
    "relu",
    [times(lambda t, positive: gate(t, positive))],
    keep=lambda y, x: (greater(x, 0),),
    cost="light",
    sample=samples.rectified,
    doc="max(x, 0); its derivative at 0 is 0.\nrelu([-1.0, 2.0]) = [0.0, 2.0]",
)


def _inside(x, lo, hi):
    if lo is None and hi is None:
        return equal(x, x)
    if lo is None:
        return less_equal(x, hi)
    within = greater_equal(x, lo)
    return within if hi is None else logical_and(within, less_equal(x, hi))


_clip = private(
    "clip",
    [times(lambda t, inside, *bounds: gate(t, inside))],
    keep=lambda y, x, lo, hi: (_inside(x, lo, hi),),
    promote=(),
    cost="light",
    sample=samples.clipped,
)

# clip with an array as the bound: at the bound the gradient goes to x.
clip_lower: Caller = private(
    "clip_lower",
    [lambda y, x, lo: greater_equal(x, lo), lambda y, x, lo: less(x, lo)],
    reads="x lo",
    compute=lambda xp, x, lo: xp.maximum(x, lo),
    sample=samples.tied,
)
clip_upper: Caller = private(
    "clip_upper",
    [lambda y, x, hi: less_equal(x, hi), lambda y, x, hi: greater(x, hi)],
    reads="x hi",
    compute=lambda xp, x, hi: xp.minimum(x, hi),
    sample=samples.tied,
)


def _limits(dtype: np.dtype, lo: Any, hi: Any) -> tuple[Any, Any]:
    """Bounds of clip, None for integers that limit nothing; the others must fit the dtype."""
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
    reads="c",
    shape=_where_shape,
    transpose=[
        None,
        lambda g, c, a, b: unbroadcast(where(c, g, 0), a.shape),
        lambda g, c, a, b: unbroadcast(where(c, 0, g), b.shape),
    ],
    joint=True,
    promote=(1, 2),
    cost="light",
    moves="values",
    batch=pointwise,
    sample=samples.selections,
)
