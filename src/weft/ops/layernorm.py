"""Rows: layer normalisation with its weight and bias, in one step each way.

They act on the last axes of x, those that the weight has. Saved for the backward pass are the
normalised values and the variances, which have a dtype of their own.
"""

from math import prod

from ..core import dtypes
from ..core.aval import Aval
from ..core.op import Caller
from ..errors import ShapeError
from .axes import floating, real_only
from .batching import align_batch, spread
from .elementwise import rsqrt
from .normalise import (
    as_,
    projection,
    projection_push,
    standardise,
    standardise_pull,
    standardise_push,
)
from .rows import general
from .samples import neural as samples
from .strong import strong_product
from .structural import broadcast_to, sum_


def check_weight(name: str, x: Aval, w: Aval) -> tuple[int, ...]:
    """The shape of the variances, if the weight fits."""
    real_only(name, x)
    cut = x.ndim - w.ndim
    if not prod(w.shape) or not w.ndim or cut < 0 or x.shape[cut:] != w.shape:
        raise ShapeError(
            f"{name}: input {x.shape} and weight {w.shape}; expected a weight of the shape of the "
            "input's last axes, with at least one element"
        )
    return (*x.shape[:cut], *(1,) * w.ndim)


def _shape(x: Aval, w: Aval, b: Aval, eps, dtype):
    variances = check_weight("layer_norm", x, w)
    if b.shape != w.shape:
        raise ShapeError(f"layer_norm: weight {w.shape} and bias {b.shape}; expected one shape")
    x = x.like(dtype=floating(dtypes.promote_all([x.dtype, w.dtype, b.dtype])))
    return x, x, x.like(variances, dtypes.canonical(dtype))


def split_axes(x, w) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes of x before the weight's, and the weight's."""
    cut = len(x.shape) - len(w.shape)
    return tuple(range(cut)), tuple(range(cut, len(x.shape)))


def total(*terms):
    """The sum of the terms that are there; None for none."""
    found = None
    for t in terms:
        if t is not None:
            found = t if found is None else found + t
    return found


def product(t, other):
    return None if t is None else t * other


def _push(tangents, results, x, w, b, eps, dtype):
    tx, tw, tb = tangents
    out, y, variance = results
    axes = split_axes(y, w)[1]
    ty = tv = None
    if tx is not None:
        ty, _, tv = standardise_push((tx,), (y, None, variance), x, axes, eps, dtype)
    moved = total(product(ty, w), product(tw, y), tb)
    return (
        broadcast_to(moved, out.shape),
        strong_product(y, 0.0) if ty is None else ty,
        strong_product(variance, 0.0) if tv is None else tv,
    )


def _pull(gs, results, x, w, b, eps, dtype):
    (g, gy, gv), (_, y, variance) = gs, results
    if g is not None and gy is None and gv is None:
        return layer_norm_gradient(g, y, variance, w, eps)
    lead, axes = split_axes(y, w)
    h = total(product(g, w), gy)
    (dx,) = standardise_pull((h, None, gv), (y, None, variance), x, axes, eps, dtype)
    return dx, sum_over(product(g, y), lead), sum_over(g, lead)


def sum_over(x, axes):
    return None if x is None else sum_(x, axes, False)


def _batch(call, size, mapped, args, static):
    x, w, b = args
    if not mapped[1] and not mapped[2]:
        return call(x, w, b, *static)
    x = x if mapped[0] else spread(x, size)
    ndim = len(x.shape)
    axes = tuple(range(ndim - len(w.shape) + mapped[1], ndim))
    y, _, variance = standardise(x, axes, *static)
    w, b = (align_batch(v, ndim) if m else v for v, m in ((w, mapped[1]), (b, mapped[2])))
    return y * w + b, y, variance


# (x - mean)/√(variance + eps)·w + b over the last axes, the same without w and b, the variance.
layer_norm: Caller = general(
    "layer_norm",
    shape=_shape,
    push=_push,
    pull=_pull,
    reads="results w",
    arity=3,
    outputs=3,
    tracked=(0, 1, 2),
    unread=(0,),
    promote=(0, 1, 2),
    floating=True,
    static=True,
    precision="single",
    batch=_batch,
    sample=samples("layer_norms"),
)


def _gradient_shape(g: Aval, y: Aval, variance: Aval, w: Aval, eps):
    check_weight("layer_norm_gradient", y, w)
    return y, w, w


def _gradient_push(tangents, results, g, y, variance, w, eps):
    tg, ty, tv, tw = tangents
    lead, axes = split_axes(y, w)
    h, th = g * w, total(product(tg, w), product(tw, g))
    moved = projection_push((th, ty), None, h, y, axes, True) if th is not ty else None
    tdx = total(
        product(moved, rsqrt(variance + eps)),
        product(tv, results[0] / (variance + eps) * -0.5),
    )
    found = tdx, sum_over(total(product(tg, y), product(ty, g)), lead), sum_over(tg, lead)
    pairs = zip(found, results, strict=True)
    return tuple(strong_product(z, 0.0) if t is None else as_(t, z) for t, z in pairs)


def _gradient_batch(call, size, mapped, args, static):
    """By composites, since the sums do not run over the batch axis."""
    (eps,) = static
    g, y, variance = (
        a if m else spread(a, size) for a, m in zip(args[:3], mapped[:3], strict=True)
    )
    w, ndim = args[3], len(y.shape)
    cut = ndim - len(w.shape) + mapped[3]
    h = g * (align_batch(w, ndim) if mapped[3] else w)
    dx = as_(projection(h, y, tuple(range(cut, ndim)), True) * rsqrt(variance + eps), y)
    lead = tuple(range(1, cut))
    return dx, sum_(g * y, lead, False), sum_(g, lead, False)


# The cotangents of x, w and b, from that of the result, y and the variance.
layer_norm_gradient: Caller = general(
    "layer_norm_gradient",
    shape=_gradient_shape,
    push=_gradient_push,
    arity=4,
    outputs=3,
    tracked=(0, 1, 2),
    promote=(0, 1, 3),
    static=True,
    precision="single",
    batch=_gradient_batch,
    sample=samples("layer_norm_gradients"),
)
