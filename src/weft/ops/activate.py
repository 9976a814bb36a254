"""Rows: activations that keep their argument and nothing else.

As composites each would save several arrays. Their slopes are rows too, so that a backend
computes one in a single pass.
"""

import math

from ..core.op import Caller
from .batching import pointwise
from .elementwise import exp, expit, tanh
from .rows import fused, linear, private, single, times
from .samples import neural as samples
from .samples.case import reals
from .structural import unbroadcast

_DENSITY = 1 / math.sqrt(2 * math.pi)

# xΦ(x) with the normal distribution function Φ; its slope Φ(x) + xφ(x).
gelu_slope: Caller = private(
    "gelu_slope",
    [lambda y, x: (2.0 - x * x) * exp(x * x * -0.5) * _DENSITY],
    reads="x",
    floating=True,
    sample=reals((-3, 3)),
)
gelu: Caller = private(
    "gelu",
    [fused("gelu_product", lambda t, y, x: t * gelu_slope(x))],
    reads="x",
    floating=True,
    sample=reals((-3, 3)),
)

ROOT, CUBIC = math.sqrt(2 / math.pi), 0.044715


def _gelu_tanh_bend(y, x):
    """The second derivative of ½x(1 + tanh u) for u = √(2/π)(x + 0.044715x³)."""
    square = x * x
    th = tanh(x * (square * (ROOT * CUBIC) + ROOT))
    du, ddu = square * (3 * ROOT * CUBIC) + ROOT, x * (6 * ROOT * CUBIC)
    return (1.0 - th * th) * (du + 0.5 * x * (ddu - 2.0 * th * du * du))


gelu_tanh_slope: Caller = private(
    "gelu_tanh_slope", [_gelu_tanh_bend], reads="x", floating=True, sample=reals((-3, 3))
)
gelu_tanh: Caller = private(
    "gelu_tanh",
    [fused("gelu_tanh_product", lambda t, y, x: t * gelu_tanh_slope(x))],
    reads="x",
    floating=True,
    sample=reals((-3, 3)),
)


def _silu_bend(y, x):
    s = expit(x)
    return s * (1.0 - s) * (2.0 + x * (1.0 - 2.0 * s))


# x·sigmoid(x), and its slope.
silu_slope: Caller = private(
    "silu_slope", [_silu_bend], reads="x", floating=True, sample=reals((-3, 3))
)
silu: Caller = private(
    "silu",
    [fused("silu_product", lambda t, y, x: t * silu_slope(x))],
    reads="x",
    floating=True,
    sample=reals((-3, 3)),
)

# log(1 + exp(x)) without overflow.
softplus: Caller = single(
    "softplus",
    [times(lambda t, y, x: t * expit(x))],
    reads="x",
    floating=True,
    public="",
    sample=reals((-3, 3)),
)

# x·scale where the mask is true, else zero: dropout, which keeps a byte for each element.
masked_scale: Caller = linear(
    "masked_scale",
    reads="mask",
    shape=lambda x, mask, scale: x,
    transpose=[
        lambda g, x, mask, scale: unbroadcast(masked_scale(g, mask, scale), x.shape),
        None,
    ],
    static=True,
    batch=pointwise,
    sample=samples("masks"),
)

# x·w + b: what follows a normalisation, in one step.
scale_shift: Caller = private(
    "scale_shift",
    [lambda y, x, w, b: w, lambda y, x, w, b: x, 1],
    reads=("w", "x", None),
    cost="light",
    sample=reals((-2, 2), (-2, 2), (-2, 2)),
)
