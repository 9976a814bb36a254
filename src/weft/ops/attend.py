"""Rows: attention, which keeps its arguments, its result and one number a query.

Arrays are (…, heads, length, width); keys and values may have fewer heads, each shared by a group
of the queries' heads. A mask is True (none), or (…, heads or 1, queries or 1, keys or 1): of
booleans, or of numbers to be added to the scores. Seeds (…, heads) determine which weights dropout
drops; 0 stands for none.

Values and first derivatives are computed tile by tile (`backend.attention`). The push-forwards are
written out with all pairs of queries and keys: forward mode and second derivatives go that way.
"""

from math import inf

import numpy as np

from ..core import dtypes
from ..core.aval import Aval, broadcast
from ..core.backends import PYTHON_SCALARS
from ..core.op import Caller
from ..errors import DTypeError, ShapeError
from .batching import Along, Stacked, spread
from .contract import contraction
from .elementwise import exp, where
from .logic import equal
from .positions import index_like
from .rows import general, on_demand, row_without_derivative
from .samples import neural as samples
from .strong import strong_product
from .structural import broadcast_to, cast, reshape, sum_, unbroadcast


def _check(q: Aval, k: Aval, v: Aval) -> None:
    shown = f"attention: queries {q.shape}, keys {k.shape}, values {v.shape}"
    if min(q.ndim, k.ndim, v.ndim) < 3:
        raise ShapeError(f"{shown}: expected (…, heads, length, width)")
    if q.dtype not in dtypes.REAL:
        raise DTypeError(f"attention: got {q.dtype}, expected one of {dtypes.names(dtypes.REAL)}")
    if q.shape[-1] != k.shape[-1]:
        raise ShapeError(f"{shown}: widths {q.shape[-1]} ≠ {k.shape[-1]}")
    if k.shape[-3:-1] != v.shape[-3:-1]:
        raise ShapeError(f"{shown}: keys and values must have the same heads and lengths")
    if not k.shape[-3] or q.shape[-3] % k.shape[-3]:
        raise ShapeError(
            f"{shown}: {q.shape[-3]} heads of queries are no multiple of {k.shape[-3]} of keys"
        )


def _scores_shape(q: Aval, k: Aval, v: Aval, mask: Aval, *leads) -> tuple[int, ...]:
    """The shape of the scores: (…, heads, queries, keys)."""
    _check(q, k, v)
    leads = (*leads, *(x.shape[:-3] for x in (q, k, v)), mask.shape[:-3])
    scores = (q.shape[-3], q.shape[-2], k.shape[-2])
    shape = mask.shape[-3:]
    if mask.ndim and (mask.ndim < 3 or broadcast("attention", shape, scores) != scores):
        raise ShapeError(
            f"attention: a mask of shape {mask.shape} for scores of shape (…, {scores}); expected "
            "one that broadcasts to it, with at least three axes"
        )
    return (*broadcast("attention", *leads), *scores)


def _attention_shape(q, k, v, mask, seeds, causal, scale, p, dtype):
    scores = _scores_shape(q, k, v, mask, seeds.shape[:-1])
    own = dtypes.promote_all(x.dtype for x in (q, k, v))
    return (
        q.like((*scores[:-1], v.shape[-1]), own),
        q.like(scores[:-1], dtypes.canonical(dtype)),
    )


# -- all pairs at once, by other rows ----------------------------------------------------------


def _group_heads(x, groups: int):
    """(…, heads, T, D) as (…, groups, heads of a group, T, D)."""
    *lead, heads, rows, columns = x.shape
    return reshape(x, (*lead, groups, heads // groups, rows, columns))


def _join_heads(x):
    *lead, groups, heads, rows, columns = x.shape
    return reshape(x, (*lead, groups * heads, rows, columns))


def _labels(x, last: str) -> str:
    """Labels of an array by position from the end, so that leading axes broadcast."""
    return "ABCDEFGH"[8 - (len(x.shape) - len(last)) :] + last


def _product(a, b, left: str, right: str, out: str):
    """A contraction over the last axes; the ones before broadcast."""
    la, lb = _labels(a, left), _labels(b, right)
    lead = max(la[: len(la) - len(left)], lb[: len(lb) - len(right)], key=len)
    return contraction([a, b], f"{la},{lb}->{lead}{out}")


def _pairs(q, k):
    """Σ over the width of queries by keys: (…, heads, T, S)."""
    return _join_heads(_product(_group_heads(q, k.shape[-3]), k, "ghtd", "gsd", "ghts"))


def _mix_values(w, v):
    """Σ over the keys of weights by values: (…, heads, T, D)."""
    return _join_heads(_product(_group_heads(w, v.shape[-3]), v, "ghts", "gsd", "ghtd"))


def _collect_queries(w, g, groups: int):
    """Σ over the queries, and over a group's heads, of weights by vectors: (…, groups, S, D)."""
    return _product(_group_heads(w, groups), _group_heads(g, groups), "ghts", "ghtd", "gsd")


def _is_bias(mask) -> bool:
    """Whether a mask is of numbers, and not of truth values or none."""
    if mask.__class__ in PYTHON_SCALARS:
        return False
    return dtypes.is_inexact(dtypes.canonical(mask.dtype))


def _last(x):
    return reshape(x, (*x.shape, 1))


def _over_last(x):
    return sum_(x, (len(x.shape) - 1,), False)


def _weights(lse, q, k, mask, causal, scale):
    """exp(scores - lse), and zeros where every key is masked."""
    s = _pairs(q, k) * scale
    if _is_bias(mask):
        s = s + mask
    elif mask.__class__ not in PYTHON_SCALARS:
        s = where(mask, s, -inf)
    if causal:
        s = where(index_like(q, np.tri(s.shape[-2], s.shape[-1], dtype=bool)), s, -inf)
    return exp(s - _last(where(equal(lse, -inf), inf, lse)))


def _sum(*terms):
    """The sum of the terms that are there; None for none."""
    total = None
    for t in terms:
        if t is not None:
            total = t if total is None else total + t
    return total


def _times(t, function, other):
    return None if t is None else function(t, other)


def _scale(x, factor):
    return None if x is None or factor is None else x * factor


def _scores_push(tangents, q, k, scale):
    """The tangent of the scores by queries, keys and mask."""
    tq, tk, tmask = tangents
    moved = _sum(_times(tq, _pairs, k), None if tk is None else _pairs(q, tk))
    return _sum(_scale(moved, scale), tmask)


def _factor(seeds, q, k, p, dtype):
    """What dropout multiplies the weights by; None without it."""
    if not p:
        return None
    return cast(attention_dropout(seeds, q.shape[-2], k.shape[-2], p), dtype) * (1 / (1 - p))


def _drop(x, factor):
    return x if factor is None or x is None else x * factor


def _widen(dtype, *arrays):
    """Arrays cast to the dtype of the logarithms; None and boolean masks stay."""
    return [
        cast(x, dtype)
        if hasattr(x, "dtype")
        and dtypes.is_inexact(own := dtypes.canonical(x.dtype))
        and own != dtype
        else x
        for x in arrays
    ]


def _attention_push(tangents, results, q, k, v, mask, seeds, causal, scale, p, dtype):
    own, dtype = q.dtype, dtypes.canonical(dtype)
    (tq, tk, tv, tmask), lse = _widen(dtype, *tangents[:4]), results[1]
    q, k, v, mask = _widen(dtype, q, k, v, mask)
    w, factor = _weights(lse, q, k, mask, causal, scale), _factor(seeds, q, k, p, dtype)
    ts = _scores_push((tq, tk, tmask), q, k, scale)
    tlse = None if ts is None else _over_last(w * ts)
    tw = None if ts is None else w * (ts - _last(tlse))
    moved = _sum(
        _times(_drop(tw, factor), _mix_values, v),
        None if tv is None else _mix_values(_drop(w, factor), tv),
    )
    return _fit_tangent(moved, results[0], own), _fit_tangent(tlse, lse, lse.dtype)


def _fit_tangent(t, like, dtype):
    """A tangent in the shape and dtype of its primal; zeros for None."""
    if t is None:
        return strong_product(like, 0.0)  # zeros, also beside the −∞ of all keys masked
    t = t if tuple(t.shape) == tuple(like.shape) else broadcast_to(t, like.shape)
    return t if t.dtype == dtype else cast(t, dtypes.canonical(dtype))


@on_demand
def _attention_pull(gs, results, q, k, v, mask, seeds, causal, scale, p, dtype):
    (g, h), (out, lse) = gs, results
    g = strong_product(out, 0.0) if g is None else g
    h = 0.0 if h is None else h
    args = (g, h, out, lse, q, k, v, mask, seeds, causal, scale, p)
    dq, dk, dv = attention_gradient(*args)

    def to_mask():
        d = unbroadcast(attention_mask_gradient(*args), mask.shape)
        return _fit_tangent(d, mask, mask.dtype)

    return (
        unbroadcast(dq, q.shape),
        unbroadcast(dk, k.shape),
        unbroadcast(dv, v.shape),
        to_mask if _is_bias(mask) else None,
        None,
    )


attention: Caller = general(
    "attention",
    shape=_attention_shape,
    push=_attention_push,
    pull=_attention_pull,
    arity=5,
    promote=(0, 1, 2),
    floating=True,
    static=True,
    recast=True,
    outputs=2,
    tracked=(0, 1),
    precision="half",
    batch=Stacked((3, 3, 3, 3, 1)),
    sample=samples("attentions"),
)

# -- first derivatives: rows of their own, since they are computed tile by tile -----------------


def _gradient_shape(g, h, out, lse, q, k, v, mask, seeds, causal, scale, p):
    leads = (g.shape[:-3], h.shape[:-2], out.shape[:-3], lse.shape[:-2], seeds.shape[:-1])
    lead = _scores_shape(q, k, v, mask, *leads)[:-3]
    return tuple(x.like((*lead, *x.shape[-3:])) for x in (q, k, v))


def _mask_gradient_shape(g, h, out, lse, q, k, v, mask, seeds, causal, scale, p):
    _scores_shape(q, k, v, mask)
    return mask


class _Bent:
    """The scores' cotangents and their tangents: what the gradients' push-forwards share."""

    def __init__(self, tangents, g, h, out, lse, q, k, v, mask, seeds, causal, scale, p):
        dtype = dtypes.canonical(lse.dtype)
        self.dtype = dtype
        tg, th, tout, tlse, tq, tk, tv, tmask = _widen(dtype, *tangents[:8])
        g, h, out, q, k, v, mask = _widen(dtype, g, h, out, q, k, v, mask)
        factor = _factor(seeds, q, k, p, dtype)
        w = _weights(lse, q, k, mask, causal, scale)
        slope = _drop(_pairs(g, v), factor) - _last(_over_last(g * out) - h)
        ts = _scores_push((tq, tk, tmask), q, k, scale)
        moved = _sum(ts, None if tlse is None else -_last(tlse))
        tw = None if moved is None else w * moved
        tdelta = _sum(
            None if tg is None else _over_last(tg * out),
            None if tout is None else _over_last(g * tout),
            None if th is None else -th,
        )
        tslope = _sum(
            _drop(_sum(_times(tg, _pairs, v), None if tv is None else _pairs(g, tv)), factor),
            None if tdelta is None else -_last(tdelta),
        )
        self.w, self.tw, self.ds = _drop(w, factor), _drop(tw, factor), w * slope
        self.tds = _sum(None if tw is None else tw * slope, None if tslope is None else w * tslope)


def _gradient_push(tangents, results, g, h, out, lse, q, k, v, mask, seeds, causal, scale, p):
    b = _Bent(tangents, g, h, out, lse, q, k, v, mask, seeds, causal, scale, p)
    tg, tq, tk = _widen(b.dtype, tangents[0], tangents[4], tangents[5])
    q, k, g = _widen(b.dtype, q, k, g)
    groups = k.shape[-3]
    tdq = _sum(_times(b.tds, _mix_values, k), None if tk is None else _mix_values(b.ds, tk))
    tdk = _sum(
        None if b.tds is None else _collect_queries(b.tds, q, groups),
        None if tq is None else _collect_queries(b.ds, tq, groups),
    )
    tdv = _sum(
        None if b.tw is None else _collect_queries(b.tw, g, groups),
        None if tg is None else _collect_queries(b.w, tg, groups),
    )
    moved = (_scale(tdq, scale), _scale(tdk, scale), tdv)
    return tuple(_fit_tangent(t, y, y.dtype) for t, y in zip(moved, results, strict=True))


def _mask_gradient_push(tangents, z, g, h, out, lse, q, k, v, mask, seeds, causal, scale, p):
    b = _Bent(tangents, g, h, out, lse, q, k, v, mask, seeds, causal, scale, p)
    moved = None if b.tds is None else unbroadcast(b.tds, z.shape)
    return _fit_tangent(moved, z, z.dtype)


_CORE = (3, 2, 3, 2, 3, 3, 3, 3, 1)
_stacked = Stacked(_CORE)

# The cotangents of queries, keys and values from those of the results, g and h.
attention_gradient: Caller = general(
    "attention_gradient",
    shape=_gradient_shape,
    push=_gradient_push,
    arity=9,
    promote=(0, 2, 4, 5, 6),
    static=True,
    outputs=3,
    tracked=(0, 1, 2),
    batch=_stacked,
    sample=samples("attention_gradients"),
)


def _mask_gradient_batch(call, size, mapped, args, static):
    """The mask gets the batch axis, so that its cotangents are not added up over the batch."""
    mask = args[7] if mapped[7] else spread(args[7], size)
    mapped, args = (*mapped[:7], True, mapped[8]), (*args[:7], mask, args[8])
    z = _stacked(call, size, mapped, args, static)
    return reshape(z, tuple(mask.shape))


attention_mask_gradient: Caller = general(
    "attention_mask_gradient",
    shape=_mask_gradient_shape,
    push=_mask_gradient_push,
    arity=9,
    promote=(0, 2, 4, 5, 6),
    static=True,
    batch=_mask_gradient_batch,
    sample=samples("attention_mask_gradients"),
)

# Which weights dropout keeps: (…, heads) seeds to (…, heads, queries, keys) truth values.
attention_dropout: Caller = row_without_derivative(
    "attention_dropout",
    shape=lambda seeds, rows, columns, p: seeds.like((*seeds.shape, rows, columns), dtypes.bool_),
    batch=Along(()),
    sample=samples("attention_seeds"),
)
