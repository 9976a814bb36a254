"""Rows: cross-entropy of logits, which keeps the logits and two numbers a line of them.

The logits are (…, classes). Neither their log-softmax nor a second array for their gradient is
allocated: backends go through the lines in chunks.

The two numbers are log Σ exp(x), lse, and its rounding error, rest: beside large logits lse
has few digits after the point, or none, and the softmax is exp(x − lse − rest).
"""

from ..core import dtypes
from ..core.aval import Aval, broadcast
from ..core.op import Caller
from ..errors import ShapeError
from .along import take_along_axis
from .axes import floating, real_only
from .batching import Stacked
from .elementwise import exp
from .index import one_hot
from .positions import in_range, integers
from .rows import general, on_demand
from .samples import neural as samples
from .strong import strong_product
from .structural import broadcast_to, cast, reshape, sum_, unbroadcast


def _lines(name: str, x: Aval, *others) -> tuple[int, ...]:
    """The shape of the losses, one a line."""
    real_only(name, x)
    if not x.ndim or not x.shape[-1]:
        raise ShapeError(f"{name}: logits of shape {x.shape}; expected at least one class")
    return broadcast(name, x.shape[:-1], *others)


def _last(x):
    return reshape(x, (*x.shape, 1))


def _over_last(x):
    return sum_(x, (len(x.shape) - 1,), False)


def _in(dtype, *values):
    """Values cast to a dtype; None and Python numbers stay."""
    dtype = dtypes.canonical(dtype)
    return [
        cast(v, dtype) if hasattr(v, "dtype") and dtypes.canonical(v.dtype) != dtype else v
        for v in values
    ]


def _shares(x, lse, rest):
    """The softmax, from the logarithms of its denominators."""
    return exp((x - _last(lse)) - _last(rest))


# -- one class for each line -------------------------------------------------------------------


def _class_shape(x: Aval, classes: Aval, smoothing, dtype):
    integers("cross_entropy", classes)
    lines = _lines("cross_entropy", x, classes.shape)
    statistic = x.like(lines, dtypes.canonical(dtype))
    return x.like(lines, floating(x.dtype)), statistic, statistic


def _class_push(tangents, results, x, classes, smoothing, _dtype):
    own, (loss, lse, rest) = x.dtype, results
    x, t = _in(lse.dtype, x, tangents[0])
    n = x.shape[-1]
    tlse = _over_last(_shares(x, lse, rest) * t)
    places = _last(broadcast_to(classes, loss.shape))  # the classes may be unbatched
    at_class = take_along_axis(broadcast_to(t, (*loss.shape, n)), places, len(loss.shape))
    tloss = tlse - reshape(at_class, loss.shape) * (1.0 - smoothing)
    if smoothing:
        tloss = tloss - _over_last(t) * (smoothing / n)
    return *_in(own, tloss), tlse, None


def _class_pull(gs, results, x, classes, smoothing, _dtype):
    g, h, _ = gs
    h = 0.0 if h is None else h
    g = strong_product(results[0], 0.0) if g is None else g
    z = cross_entropy_gradient(g, h, *results[1:], x, classes, smoothing)
    return unbroadcast(z, x.shape), None


# lse(x) - (1 - s)·x[class] - s·mean(x) for each line, lse(x), and its rounding error.
cross_entropy: Caller = general(
    "cross_entropy",
    compute=in_range("cross_entropy"),
    shape=_class_shape,
    push=_class_push,
    pull=_class_pull,
    arity=2,
    promote=(0,),
    floating=True,
    static=True,
    recast=True,
    outputs=3,
    tracked=(0, 1),
    precision="single",
    batch=Stacked((1, 0)),
    sample=samples("cross_entropies"),
)


def _tangent_of_log_weights(tlse, trest, tx):
    """The tangent of x − lse − rest."""
    down = _sum(tlse, trest)
    return _sum(tx, None if down is None else -_last(down))


def _class_gradient_push(tangents, z, g, h, lse, rest, x, classes, smoothing):
    own, n = z.dtype, z.shape[-1]
    tg, th, tlse, trest, tx, _ = _in(lse.dtype, *tangents)
    g, h, x = _in(lse.dtype, g, h, x)
    p = _shares(x, lse, rest)
    parts = []
    moved = _sum(tg, th)
    if moved is not None:
        parts.append(_last(moved) * p)
    moved = _tangent_of_log_weights(tlse, trest, tx)
    if moved is not None:
        parts.append(_last(g + h) * p * moved)
    if tg is not None:
        target = one_hot(classes, n, dtypes.canonical(lse.dtype)) * (1.0 - smoothing)
        parts.append(-(_last(tg) * (target + smoothing / n if smoothing else target)))
    return broadcast_to(*_in(own, _sum(*parts)), z.shape)


def _sum(*terms):
    """The sum of the terms that are there; None for none."""
    total = None
    for t in terms:
        if t is not None:
            total = t if total is None else total + t
    return total


def _gradient_shape(g, h, lse, rest, x):
    lines = _lines("cross_entropy", x, g.shape, h.shape, lse.shape, rest.shape)
    return x.like((*lines, x.shape[-1]), floating(x.dtype))


# (g + h)·softmax(x) - g·((1 - s)·one_hot(class) + s/n), the softmax by lse and its rest.
cross_entropy_gradient: Caller = general(
    "cross_entropy_gradient",
    compute=in_range("cross_entropy_gradient"),
    shape=lambda g, h, lse, rest, x, classes, s: _gradient_shape(g, h, lse, rest, x),
    push=_class_gradient_push,
    arity=6,
    static=True,
    recast=True,
    batch=Stacked((0, 0, 0, 0, 1, 0)),
    sample=samples("cross_entropy_gradients"),
)

# -- a distribution over the classes for each line ---------------------------------------------


def _soft_shape(x: Aval, q: Aval, dtype):
    if q.shape[-1:] != x.shape[-1:]:
        raise ShapeError(
            f"cross_entropy: logits of shape {x.shape} and targets of shape {q.shape}; their last "
            "axes, the classes, must be alike"
        )
    lines = _lines("cross_entropy", x, q.shape[:-1])
    own = floating(dtypes.promote(x.dtype, q.dtype))
    statistic = x.like(lines, dtypes.canonical(dtype))
    return x.like(lines, own), statistic, statistic


def _soft_push(tangents, results, x, q, _dtype):
    own, (loss, lse, rest) = x.dtype, results
    x, q, tx, tq = _in(lse.dtype, x, q, *tangents)
    tlse = None if tx is None else _over_last(_shares(x, lse, rest) * tx)
    tloss = _sum(
        None if tlse is None else tlse * _over_last(q) - _over_last(tx * q),
        None if tq is None else _over_last(tq * ((_last(lse) - x) + _last(rest))),
    )
    tlse = strong_product(lse, 0.0) if tlse is None else broadcast_to(tlse, lse.shape)
    return broadcast_to(*_in(own, tloss), loss.shape), tlse, None


@on_demand
def _soft_pull(gs, results, x, q, _dtype):
    (g, h, _), (_, lse, rest) = gs, results
    h = 0.0 if h is None else h
    g = strong_product(results[0], 0.0) if g is None else g

    def to_target():
        wide_g, wide_x = _in(lse.dtype, g, x)
        each = _last(wide_g) * ((_last(lse) - wide_x) + _last(rest))
        (each,) = _in(q.dtype, each)
        return unbroadcast(each, q.shape)

    return unbroadcast(soft_cross_entropy_gradient(g, h, lse, rest, x, q), x.shape), to_target


# Σ q·(lse(x) - x) for each line, lse(x), and its rounding error.
soft_cross_entropy: Caller = general(
    "soft_cross_entropy",
    shape=_soft_shape,
    push=_soft_push,
    pull=_soft_pull,
    arity=2,
    promote=(0, 1),
    floating=True,
    static=True,
    recast=True,
    outputs=3,
    tracked=(0, 1),
    precision="single",
    batch=Stacked((1, 1)),
    sample=samples("soft_cross_entropies"),
)


def _soft_gradient_push(tangents, z, g, h, lse, rest, x, q):
    own = z.dtype
    tg, th, tlse, trest, tx, tq = _in(lse.dtype, *tangents)
    g, h, x, q = _in(lse.dtype, g, h, x, q)
    p, total = _shares(x, lse, rest), _over_last(q)
    weight = _sum(
        None if tg is None else tg * total, th, None if tq is None else g * _over_last(tq)
    )
    moved = _tangent_of_log_weights(tlse, trest, tx)
    parts = [
        None if weight is None else _last(weight) * p,
        None if moved is None else _last(g * total + h) * p * moved,
        None if tg is None else -(_last(tg) * q),
        None if tq is None else -(_last(g) * tq),
    ]
    return broadcast_to(*_in(own, _sum(*parts)), z.shape)


# (g·Σq + h)·softmax(x) - g·q, the softmax by lse and its rest.
soft_cross_entropy_gradient: Caller = general(
    "soft_cross_entropy_gradient",
    shape=lambda g, h, lse, rest, x, q: _gradient_shape(g, h, lse, rest, x),
    push=_soft_gradient_push,
    arity=6,
    recast=True,
    batch=Stacked((0, 0, 0, 0, 1, 1)),
    sample=samples("soft_cross_entropy_gradients"),
)
