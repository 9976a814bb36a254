"""Rows: normalisations that keep their argument, as the kernels of GPU libraries do.

Layer, group, instance and batch norm are `native_norm` over axes of their own, with a weight and a
bias that broadcast to x. Saved for the backward pass are x, and of each set that is normalised the
mean and the reciprocal deviation, which have a dtype of their own. The result has x's dtype; the
weight and the bias may have a wider one. `native_rms_norm` is the same without the mean and the
bias.
"""

from ..core import dtypes
from ..core.aval import Aval, axes_in, broadcast, reduced_shape
from ..core.op import Caller
from ..errors import ShapeError
from .axes import count, floating, real_only
from .batching import align_batch, spread
from .layernorm import product, total
from .normalise import as_, projection, projection_push
from .reduce import mean
from .rows import general
from .samples import neural as samples
from .strong import strong_product
from .structural import broadcast_to, reshape, unbroadcast

# The parameters of x alone differ between the two rows: centred ones have (x, w, b) and the
# statistics (mean, rate), the others (x, w) and (rate,).


def _check(name: str, x: Aval, w: Aval, axes) -> None:
    real_only(name, x)
    axes_in(name, axes, x.ndim)
    if not count(x.shape, axes) or broadcast(name, x.shape, w.shape) != x.shape:
        raise ShapeError(
            f"{name}: input {x.shape} over axes {axes} and weight {w.shape}; expected at least one "
            "element along the axes, and a weight that broadcasts to the input"
        )


def _shape(x: Aval, w: Aval, *rest):
    *bias, axes, _eps, dtype = rest
    _check("native_norm", x, w, axes)
    if any([b.shape != w.shape for b in bias]):
        raise ShapeError(f"native_norm: weight {w.shape} and bias {bias[0].shape}, not one shape")
    out = x.like(dtype=floating(x.dtype))
    statistic = x.like(reduced_shape(x.shape, axes, True), dtypes.canonical(dtype))
    return out, *[statistic] * (1 + len(bias))


def _unit(x, centre, rate):
    """x, brought to mean zero and variance one; without a centre to mean square one."""
    return (x - centre[0] if centre else x) * rate


def push_norm(tangents, results, x, w, *rest):
    """The tangents of a norm's results."""
    (tx, tw, *tb), (out, *centre, rate), axes = tangents, results, rest[-3]
    y = _unit(x, centre, rate)
    ty, moved = None, [strong_product(s, 0.0) for s in (*centre, rate)]
    if tx is not None:
        wide = as_(tx, rate)
        ty = projection(wide, y, axes, bool(centre)) * rate
        moved = [*[mean(wide, axes, True) for _ in centre]]
        moved.append(-(rate * rate * mean(wide * y, axes, True)))
    along = total(product(ty, w), product(tw, y), *tb)
    return broadcast_to(as_(along, out), out.shape), *moved


def pull_norm(gs, results, x, w, *rest):
    """The cotangents of a norm's arguments."""
    (g, *along), (_, *centre, rate), axes = gs, results, rest[-3]
    row = native_norm_gradient if centre else native_rms_norm_gradient
    if g is not None and all([s is None for s in along]):
        return row(g, x, *centre, rate, w, axes)
    y, share = _unit(x, centre, rate), 1 / count(x.shape, axes)
    *to_centre, to_rate = along
    dx = total(
        None if g is None else projection(g * w, y, axes, bool(centre)) * rate,
        *[None if t is None else broadcast_to(t * share, x.shape) for t in to_centre],
        None if to_rate is None else to_rate * rate * rate * y * -share,
    )
    dw, *db = [_fold(v, w) for v in (product(g, y), *[g for _ in centre])]
    return as_(dx, x), dw, *db


def _fold(t, w):
    """A cotangent of x summed to the shape of the weight; None stays."""
    return None if t is None else as_(unbroadcast(t, w.shape), w)


def _batch(call, size, mapped, args, static):
    axes, *rest = static
    x = args[0] if mapped[0] else spread(args[0], size)
    if any(mapped[1:]):  # of one shape, so all of them
        aligned = [
            align_batch(v if m else spread(v, size), len(x.shape))
            for v, m in zip(args[1:], mapped[1:], strict=True)
        ]
    else:
        aligned = args[1:]
    return call(x, *aligned, tuple([a + 1 for a in axes]), *rest)


def _norm(name: str, weights: int) -> Caller:
    """(x − mean)/√(variance + eps)·w + b over axes, the mean, and 1/√(variance + eps)."""
    arguments = tuple(range(1 + weights))
    return general(
        name,
        shape=_shape,
        push=push_norm,
        pull=pull_norm,
        reads="results x w",
        arity=1 + weights,
        outputs=1 + weights,
        tracked=arguments,
        unread=(0,),
        promote=(0,),
        floating=True,
        static=True,
        precision="single",
        batch=_batch,
        sample=samples(f"{name}s"),
    )


native_norm: Caller = _norm("native_norm", 2)
native_rms_norm: Caller = _norm("native_rms_norm", 1)


def _gradient_shape(g: Aval, x: Aval, *rest):
    *statistics, w, axes = rest
    _check("native_norm_gradient", x, w, axes)
    return x, *[w] * len(statistics)


def push_norm_gradient(tangents, results, g, x, *rest):
    """The tangents of a norm's cotangents."""
    (tg, tx, *tc, tr, tw), (*centre, rate, w, axes) = tangents, rest
    y, h, th = _unit(x, centre, rate), g * w, total(product(tg, w), product(tw, g))
    apart = total(tx, *[None if t is None else -t for t in tc])
    ty = total(product(apart, rate), product(tr, x - centre[0] if centre else x))
    ty = None if ty is None else broadcast_to(as_(ty, y), y.shape)
    centred, moved = bool(centre), None
    if th is not None or ty is not None:
        moved = projection_push((th, ty), None, h, y, axes, centred)
    tdx = total(product(moved, rate), product(tr, projection(h, y, axes, centred)))
    folded = [_fold(t, w) for t in (total(product(tg, y), product(ty, g)), *[tg for _ in centre])]
    pairs = zip((tdx, *folded), results, strict=True)
    return tuple(strong_product(z, 0.0) if t is None else as_(t, z) for t, z in pairs)


def _gradient_batch(call, size, mapped, args, static):
    """The weight gets a batch axis: its cotangents are not summed over that."""
    *given, w = (a if m else spread(a, size) for a, m in zip(args, mapped, strict=True))
    (axes,) = static
    aligned = align_batch(w, len(given[1].shape))
    dx, *folded = call(*given, aligned, tuple([a + 1 for a in axes]))
    return dx, *[reshape(d, w.shape) for d in folded]


def _gradient(name: str, weights: int) -> Caller:
    """The cotangents of x, w and b, from that of the result, x and the statistics."""
    return general(
        name,
        shape=_gradient_shape,
        push=push_norm_gradient,
        arity=3 + weights,
        outputs=1 + weights,
        tracked=tuple(range(1 + weights)),
        promote=(0, 1),
        static=True,
        precision="single",
        batch=_gradient_batch,
        sample=samples(f"{name}s"),
    )


native_norm_gradient: Caller = _gradient("native_norm_gradient", 2)
native_rms_norm_gradient: Caller = _gradient("native_rms_norm_gradient", 1)
