"""Rules for means, deviations and normalisation: they use the call's own count."""

from math import prod

import numpy as np

from ...core import dtypes
from ...graph.graph import Literal
from .lift import Lift, LiftedEquation, Made
from .rules import cast, merge_spans, padded_axes, reduced_spans, rule, same_static
from .spans import Spans


def _count(lift: Lift, spans: Spans, shape, axes) -> int:
    """How many of the call's own elements are reduced over the axes."""
    n = lift.actual.length
    return prod([shape[a] if (s := spans[a]) is None else s.size(n) for a in axes])


def _wide(dtype: np.dtype) -> np.dtype:
    """The dtype in which values of a dtype are summed."""
    return dtypes.float32 if dtype.itemsize < 4 else dtype


def _over(lift: Lift, x: int, axes, keepdims: bool, by: float) -> int:
    """The sum of the call's own elements over axes, divided by a number."""
    spans = reduced_spans(lift.of(x), axes, keepdims)
    own = lift.mask_padding(x, 0, padded_axes(lift, x, axes))
    total = lift.emit("sum", own, axes, keepdims, spans=spans)
    number = lift.number(np.asarray(by, lift.aval(total).dtype))
    return lift.emit("divide", total, number, spans=spans)


def _with(lift: Lift, row: str, a, b) -> int:
    return lift.emit(row, a, b, spans=merge_spans(lift, [lift.of(a), lift.of(b)]))


def _mean(lift: Lift, x: int, axes) -> int:
    """The mean over axes, with keepdims."""
    return _over(lift, x, axes, True, _count(lift, lift.of(x), lift.aval(x).shape, axes))


@rule("mean", "var", "std")
def _moment(lift: Lift, at: LiftedEquation) -> Made:
    same_static(lift, at)
    (x,), (axes, keepdims, *options) = at.e.inputs, at.e.static
    if not padded_axes(lift, x, axes):
        return lift.keep(at, [reduced_spans(lift.of(x), axes, keepdims)])
    if dtypes.is_complex(lift.aval(x).dtype) and at.name != "mean":
        lift.refuse("of complex numbers takes the padding in", "take it of real and imaginary part")
    out = lift.aval(at.e.outputs[0]).dtype
    count = _count(lift, lift.of(x), lift.aval(x).shape, axes)
    x = cast(lift, x, _wide(out))
    if at.name == "mean":
        made = _over(lift, x, axes, keepdims, count)
    else:
        apart = _with(lift, "subtract", x, _mean(lift, x, axes))
        freedom = count - options[0]
        square = _with(lift, "multiply", apart, apart)
        made = _over(lift, square, axes, keepdims, freedom if freedom > 0 else np.nan)
        if at.name == "std":
            made = lift.emit("sqrt", made, spans=lift.of(made))
    made = cast(lift, made, out)
    return [(made, lift.of(made))]


def _per_root(lift: Lift, x: int, square: int, eps: float) -> int:
    """x/√(square + eps)."""
    raised = _with(lift, "add", square, Literal(eps))
    return _with(lift, "multiply", x, lift.emit("rsqrt", raised, spans=lift.of(raised)))


@rule("standardise", "root_mean_square")
def _standardise(lift: Lift, at: LiftedEquation) -> Made:
    same_static(lift, at)
    (x,), (axes, eps, dtype) = at.e.inputs, at.e.static
    spans = lift.of(x)
    flat = reduced_spans(spans, axes, True)
    if not padded_axes(lift, x, axes):
        return lift.keep(at, [spans, *[flat for _ in at.e.outputs[1:]]])
    out = lift.aval(at.e.outputs[0]).dtype
    x, statistics = cast(lift, x, dtypes.canonical(dtype)), []
    if at.name == "standardise":
        statistics = [_mean(lift, x, axes)]
        x = _with(lift, "subtract", x, statistics[0])
    statistics.append(_mean(lift, _with(lift, "multiply", x, x), axes))
    y = cast(lift, _per_root(lift, x, statistics[-1], eps), out)
    return [(y, spans), *[(s, flat) for s in statistics]]


@rule("projection")
def _projection(lift: Lift, at: LiftedEquation) -> Made:
    same_static(lift, at)
    (g, y), (axes, centred) = at.e.inputs, at.e.static
    spans = merge_spans(lift, [lift.of(g), lift.of(y)])
    if not padded_axes(lift, y, axes) and not padded_axes(lift, g, axes):
        return lift.keep(at, [spans])
    out = lift.aval(at.e.outputs[0]).dtype
    g, y = (cast(lift, x, _wide(out)) for x in (g, y))
    along = _mean(lift, _with(lift, "multiply", g, y), axes)
    z = _with(lift, "subtract", g, _with(lift, "multiply", y, along))
    if centred:
        z = _with(lift, "subtract", z, _mean(lift, g, axes))
    return [(cast(lift, z, out), spans)]
