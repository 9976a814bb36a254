"""Rows: layer normalisation that keeps its argument, as the kernels of GPU libraries do.

They act on the last axes of x, those that the weight has. Saved for the backward pass are x, and
of each line the mean and the reciprocal deviation, which have a dtype of their own.
"""

from math import prod

from ..core import dtypes
from ..core.aval import Aval
from ..core.op import Caller
from ..errors import ShapeError
from .axes import floating
from .batching import align_batch, spread
from .elementwise import rsqrt
from .layernorm import check_weight, product, split_axes, sum_over, total
from .normalise import as_, projection, projection_push, standardise
from .reduce import mean
from .rows import general
from .samples import neural as samples
from .strong import strong_product
from .structural import broadcast_to, sum_


def _shape(x: Aval, w: Aval, b: Aval, eps, dtype):
    statistics = check_weight("native_layer_norm", x, w)
    if b.shape != w.shape:
        raise ShapeError(f"layer_norm: weight {w.shape} and bias {b.shape}; expected one shape")
    x = x.like(dtype=floating(dtypes.promote_all([x.dtype, w.dtype, b.dtype])))
    statistic = x.like(statistics, dtypes.canonical(dtype))
    return x, statistic, statistic


def _push(tangents, results, x, w, b, eps, dtype):
    tx, tw, tb = tangents
    out, centre, rate = results
    axes, y = split_axes(x, w)[1], (x - centre) * rate
    ty, moved = None, (strong_product(centre, 0.0), strong_product(rate, 0.0))
    if tx is not None:
        wide = as_(tx, rate)
        ty = projection(wide, y, axes, True) * rate
        moved = mean(wide, axes, True), -(rate * rate * mean(wide * y, axes, True))
    along = total(product(ty, w), product(tw, y), tb)
    return broadcast_to(as_(along, out), out.shape), *moved


def _pull(gs, results, x, w, b, eps, dtype):
    (g, to_centre, to_rate), (_, centre, rate) = gs, results
    if g is not None and to_centre is None and to_rate is None:
        return native_layer_norm_gradient(g, x, centre, rate, w)
    lead, axes = split_axes(x, w)
    y, share = (x - centre) * rate, 1 / prod(w.shape)
    dx = total(
        None if g is None else projection(g * w, y, axes, True) * rate,
        None if to_centre is None else broadcast_to(to_centre * share, x.shape),
        None if to_rate is None else to_rate * rate * rate * y * -share,
    )
    to_w, to_b = sum_over(product(g, y), lead), sum_over(g, lead)
    return as_(dx, x), to_w if to_w is None else as_(to_w, w), to_b


def _batch(call, size, mapped, args, static):
    x, w, b = args
    eps, dtype = static
    if not mapped[1] and not mapped[2]:
        return call(x, w, b, *static)
    x = x if mapped[0] else spread(x, size)
    ndim = len(x.shape)
    axes = tuple(range(ndim - len(w.shape) + mapped[1], ndim))
    y, centre, variance = standardise(x, axes, eps, dtype)
    w, b = (align_batch(v, ndim) if m else v for v, m in ((w, mapped[1]), (b, mapped[2])))
    return y * w + b, centre, rsqrt(variance + eps)


# (x - mean)/√(variance + eps)·w + b over the last axes, the mean, and 1/√(variance + eps).
native_layer_norm: Caller = general(
    "native_layer_norm",
    shape=_shape,
    push=_push,
    pull=_pull,
    reads="results x w",
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


def _gradient_shape(g: Aval, x: Aval, centre: Aval, rate: Aval, w: Aval):
    check_weight("native_layer_norm_gradient", x, w)
    return x, w, w


def _gradient_push(tangents, results, g, x, centre, rate, w):
    tg, tx, tc, tr, tw = tangents
    lead, axes = split_axes(x, w)
    y, h, th = (x - centre) * rate, g * w, total(product(tg, w), product(tw, g))
    apart = tx if tc is None else -tc if tx is None else tx - tc
    ty = total(product(apart, rate), product(tr, x - centre))
    ty = None if ty is None else broadcast_to(as_(ty, y), y.shape)
    moved = None if th is None and ty is None else projection_push((th, ty), None, h, y, axes, True)
    tdx = total(product(moved, rate), product(tr, projection(h, y, axes, True)))
    found = tdx, sum_over(total(product(tg, y), product(ty, g)), lead), sum_over(tg, lead)
    pairs = zip(found, results, strict=True)
    return tuple(strong_product(z, 0.0) if t is None else as_(t, z) for t, z in pairs)


def _gradient_batch(call, size, mapped, args, static):
    """By composites, since the sums do not run over the batch axis."""
    g, x, centre, rate = (
        a if m else spread(a, size) for a, m in zip(args[:4], mapped[:4], strict=True)
    )
    w, ndim = args[4], len(x.shape)
    cut = ndim - len(w.shape) + mapped[4]
    y, h = (x - centre) * rate, g * (align_batch(w, ndim) if mapped[4] else w)
    dx = as_(projection(h, y, tuple(range(cut, ndim)), True) * rate, x)
    lead = tuple(range(1, cut))
    return dx, as_(sum_(g * y, lead, False), w), sum_(g, lead, False)


# The cotangents of x, w and b, from that of the result, x, its mean and 1/√(variance + eps).
native_layer_norm_gradient: Caller = general(
    "native_layer_norm_gradient",
    shape=_gradient_shape,
    push=_gradient_push,
    arity=5,
    outputs=3,
    tracked=(0, 1, 2),
    promote=(0, 1, 4),
    precision="single",
    batch=_gradient_batch,
    sample=samples("native_layer_norm_gradients"),
)
