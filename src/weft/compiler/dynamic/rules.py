"""Rules for elementwise rows and reductions on axes with padding.

A rule takes an equation whose operands have spans, and emits one that is right at the call's own
positions, whatever the padding holds. Padding along axes that the row reduces or reads across is
replaced by a neutral value, or refused.
"""

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import numpy as np

from ...core import dtypes
from ...core.op import TABLE
from ...graph.guard import GUARD
from ...graph.structured import structure_of
from ...graph.unrecorded import UNRECORDED
from ...ops.batching import Along, Pointwise
from ..passes.rewriting import Operand
from .lift import Lift, LiftedEquation, Made, Rule, involves_length
from .spans import Span, Spans, is_ragged
from .traces import Differs

Axes = int | Sequence[int] | None  # of a row's static parameters; None: all
RULES: dict[str, Rule] = {}
MASK = "do it outside of the compiled function, or keep that axis at one length"


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for rows."""

    def enter(f: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, f))
        return f

    return enter


def structure_rule(name: str) -> Callable[[Rule], Rule]:
    """Register the rule of a loop or a branch."""

    def enter(f: Rule) -> Rule:
        _STRUCTURED[name] = f
        return f

    return enter


_STRUCTURED: dict[str, Rule] = {}


def rule_of(lift: Lift, at: LiftedEquation) -> Rule:
    """The rule of an equation."""
    if structure_of(at.e) is not None:
        return _STRUCTURED[at.name]
    apart = not involves_length(lift, at) and (at.fixed or at.name not in (*RULES, *_named))
    # Steps that are padding must not fail either: rows that may fail have rules.
    if apart and (not lift.padding or at.name.startswith("draw_")):
        return _apart
    if TABLE.get(at.name) is not at.e.op and at.e.op is not UNRECORDED:
        return _named.get(at.name, _unknown)
    if at.name in RULES:
        return RULES[at.name]
    batch = at.e.op.batch
    if isinstance(batch, Pointwise):
        return by_element
    return _beside if isinstance(batch, Along) and at.name in _KEEPS_AXES else _unknown


_named: dict[str, Rule] = {}  # rules of rows that are not in the table


def _apart(lift: Lift, at: LiftedEquation) -> Made:
    """Equations that do not involve the length."""
    same_static(lift, at)
    return lift.keep(at, [(None,) * lift.aval(i).ndim for i in at.e.outputs])


def _unknown(lift: Lift, at: LiftedEquation) -> Made:
    lift.refuse(
        "gets or makes an axis of dynamic length, and nothing is known of what padding does there",
        MASK,
    )


def same_static(lift: Lift, at: LiftedEquation) -> None:
    """Refuse static parameters that depend on the length."""
    if at.small.static == at.e.static != at.actual.static:
        raise Differs(f"{at.name} at {at.e.line} has other parameters")
    if not at.fixed:
        lift.refuse(
            f"has a parameter that depends on the length: {_describe_static(at.small.static)} at "
            f"length {lift.small.length}, {_describe_static(at.e.static)} at {lift.large.length}",
            "give it a number that is the same at all lengths",
        )


def _describe_static(static: tuple) -> str:
    text = ", ".join(map(repr, static))
    return text if len(text) < 80 else text[:77] + "…"


# -- by element ----------------------------------------------------------------------------------


def merge_spans(lift: Lift, given: list[Spans]) -> Spans:
    """The spans of the result of a broadcast."""
    ndim = max(map(len, given), default=0)
    out: list[Span | None] = []
    for k in range(-ndim, 0):
        found = {s[k] for s in given if len(s) >= -k} - {None}
        if len(found) > 1:
            lift.refuse(
                "meets two axes of dynamic length whose padding lies in other places",
                "join axes in the same way in all operands",
            )
        out.append(found.pop() if found else None)
    return tuple(out)


def by_element(lift: Lift, at: LiftedEquation) -> Made:
    """Rows that broadcast: padding stays where it is."""
    same_static(lift, at)
    spans, given = merge_spans(lift, [lift.of(x) for x in at.e.inputs]), list(at.e.inputs)
    if at.name == "pow" and lift.aval(given[1]).dtype.kind in "iu":  # no negative powers
        given[1] = lift.index(given[1])
    if all([lift.is_uniform(x) for x in at.e.inputs]):
        lift.uniform.update(at.e.outputs)
    for a in range(-len(spans), 0):
        if spans[a] is not None and all([lift.is_even(x, a) for x in at.e.inputs]):
            lift.even.update([(i, a) for i in at.e.outputs])
    return lift.keep(at, [spans for _ in at.e.outputs], given)


for _name in ("where", "gate", "sign_product"):
    RULES[_name] = by_element


@rule("one_hot")
def _one_hot(lift: Lift, at: LiftedEquation) -> Made:
    same_static(lift, at)
    (i,) = at.e.inputs
    return lift.keep(at, [(*lift.of(i), None)], [lift.index(i)])


# -- over axes -----------------------------------------------------------------------------------


def _axes(axes: Axes, ndim: int) -> tuple[int, ...]:
    return tuple(range(ndim)) if axes is None else (axes,) if isinstance(axes, int) else tuple(axes)


def padded_axes(lift: Lift, x: Operand, axes: Axes) -> list[int]:
    """The axes with padding among those that a row reduces or reads across."""
    spans = lift.of(x)
    return [a for a in _axes(axes, len(spans)) if spans[a] is not None]


def reduced_spans(spans: Spans, axes: Axes, keepdims: bool) -> Spans:
    """The spans after a reduction over axes."""
    axes = _axes(axes, len(spans))
    if keepdims:
        return tuple([None if a in axes else s for a, s in enumerate(spans)])
    return tuple([s for a, s in enumerate(spans) if a not in axes])


def least(dtype: np.dtype) -> float:
    """The least value of a dtype."""
    if dtype.kind == "b":
        return False
    return -inf if dtypes.is_inexact(dtype) else int(np.iinfo(dtype).min)


def greatest(dtype: np.dtype) -> float:
    if dtype.kind == "b":
        return True
    return inf if dtypes.is_inexact(dtype) else int(np.iinfo(dtype).max)


_IDENTITIES: dict[str, Callable[[np.dtype], float]] = {
    "sum": lambda dtype: 0,
    "count_nonzero": lambda dtype: 0,
    "norm": lambda dtype: 0,
    "prod": lambda dtype: 1,
    "any": lambda dtype: 0,
    "all": lambda dtype: 1,
    "amax": least,
    "amin": greatest,
    "logsumexp": least,
}


@rule(*_IDENTITIES)
def _reduction(lift: Lift, at: LiftedEquation) -> Made:
    """Padding is replaced by the neutral value of the reduction."""
    same_static(lift, at)
    (x,), (axes, keepdims, *options) = at.e.inputs, at.e.static
    over, dtype = padded_axes(lift, x, axes), lift.aval(x).dtype
    if over and at.name == "norm" and not options[0] > 0:
        lift.refuse(f"of order {options[0]} takes the padding in", MASK)
    if over and at.name == "logsumexp" and not dtypes.is_inexact(dtype):
        lift.refuse(f"of {dtype} takes the padding in", "cast it to a float first")
    spans = reduced_spans(lift.of(x), axes, keepdims)
    return lift.keep(at, [spans], [lift.mask_padding(x, _IDENTITIES[at.name](dtype), over)])


def cast(lift: Lift, x: int, dtype: np.dtype) -> int:
    """x in another dtype."""
    if lift.aval(x).dtype == dtype:
        return x
    return lift.emit("cast", x, dtype, spans=lift.of(x))


@rule("extreme_share")
def _extreme_share(lift: Lift, at: LiftedEquation) -> Made:
    """One over the number of elements that attain an extreme, counted among the call's own."""
    same_static(lift, at)
    (x, y), (axes,) = at.e.inputs, at.e.static
    spans = merge_spans(lift, [lift.of(x), lift.of(y)])
    over = padded_axes(lift, x, axes)
    if not over:
        return lift.keep(at, [spans])
    attains = lift.emit("equal", x, y, spans=spans)
    dtype = lift.aval(at.e.outputs[0]).dtype
    if dtypes.is_inexact(dtype):
        nans = [lift.emit("isnan", v, spans=lift.of(v)) for v in (x, y)]
        both = lift.emit("logical_and", *nans, spans=spans)
        attains = lift.emit("logical_or", attains, both, spans=spans)
    share = lift.mask_padding(cast(lift, attains, dtype), 0, over)
    total = lift.emit("sum", share, axes, True, spans=reduced_spans(spans, axes, True))
    return [(lift.emit("divide", share, total, spans=spans), spans)]


@rule("argmax", "argmin")
def _place(lift: Lift, at: LiftedEquation) -> Made:
    """Of equal elements the first is found, and padding comes last."""
    same_static(lift, at)
    (x,), (axis, keepdims) = at.e.inputs, at.e.static
    over = padded_axes(lift, x, axis)
    if over and axis is None and len(lift.of(x)) > 1:
        lift.refuse("without an axis counts the padding in", "give an axis")
    _plain(lift, x, over)
    fill = (least if at.name == "argmax" else greatest)(lift.aval(x).dtype)
    return lift.keep(
        at, [reduced_spans(lift.of(x), axis, keepdims)], [lift.mask_padding(x, fill, over)]
    )


@rule("max_with_indices", "min_with_indices")
def _extreme_and_place(lift: Lift, at: LiftedEquation) -> Made:
    same_static(lift, at)
    (x,), (axis, *_) = at.e.inputs, at.e.static
    over = padded_axes(lift, x, axis)
    _plain(lift, x, over)
    fill = (least if at.name == "max_with_indices" else greatest)(lift.aval(x).dtype)
    spans = reduced_spans(lift.of(x), axis, lift.aval(at.e.outputs[0]).ndim == len(lift.of(x)))
    return lift.keep(at, [spans, spans], [lift.mask_padding(x, fill, over)])


def _plain(lift: Lift, x, over: list[int]) -> None:
    """Refuse positions on an axis with other axes joined in front of it."""
    spans: Any = lift.of(x)
    if any([spans[a].outer != 1 for a in over]):
        lift.refuse(
            "goes along an axis that joins others with the dynamic one",
            "go along the dynamic axis by itself, before the reshape",
        )


# -- along axes that stay ------------------------------------------------------------------------


@rule("softmax", "log_softmax", "shares")
def _softmax(lift: Lift, at: LiftedEquation) -> Made:
    same_static(lift, at)
    (x,), (axes, *_) = at.e.inputs, at.e.static
    over = padded_axes(lift, x, axes)
    if over and not dtypes.is_inexact(lift.aval(x).dtype):
        x = cast(lift, x, lift.aval(at.e.outputs[0]).dtype)
    return lift.keep(at, [lift.of(x)], [lift.mask_padding(x, -inf, over)])


@rule("softmax_product", "log_softmax_product")
def _softmax_product(lift: Lift, at: LiftedEquation) -> Made:
    """Both sum products with t, which is zero in the padding."""
    same_static(lift, at)
    (t, y), (axis, *_) = at.e.inputs, at.e.static
    spans = merge_spans(lift, [lift.of(t), lift.of(y)])
    t = lift.mask_padding(t, 0, padded_axes(lift, t, axis))
    if at.name == "softmax_product":
        y = lift.mask_padding(y, 0, padded_axes(lift, y, axis))
    return lift.keep(at, [spans], [t, y])


@rule("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "linear_recurrence")
def _running(lift: Lift, at: LiftedEquation) -> Made:
    """Later elements, such as padding, do not influence a result."""
    same_static(lift, at)
    axis = at.e.static[0]
    fills = {"cumsum": 0, "cumprod": 1, "linear_recurrence": 0, "logcumsumexp": -inf}
    given = []
    for x in at.e.inputs:
        over = padded_axes(lift, x, axis)
        _plain(lift, x, over)
        fill = fills.get(at.name)
        given.append(x if fill is None else lift.mask_padding(x, fill, over))
    spans = merge_spans(lift, [lift.of(x) for x in given])
    return lift.keep(at, [spans for _ in at.e.outputs], given)


# Rows along axes named by their parameters; all results keep the axes.
_KEEPS_AXES = ("sort", "argsort", "fftn", "ifftn")


def _beside(lift: Lift, at: LiftedEquation) -> Made:
    """Rows that compute each line along their axes separately; these may not be dynamic."""
    same_static(lift, at)
    batch: Along = at.e.op.batch  # type: ignore[assignment]
    axes = at.e.static[batch.axes[0]]
    for x in at.e.inputs:
        if padded_axes(lift, x, axes):
            lift.refuse("goes along the dynamic axis and takes the padding in", MASK)
    spans = merge_spans(lift, [lift.of(x) for x in at.e.inputs])
    return lift.keep(at, [spans for _ in at.e.outputs])


@rule("topk")
def _topk(lift: Lift, at: LiftedEquation) -> Made:
    same_static(lift, at)
    (x,), axis = at.e.inputs, at.e.static[1]
    if padded_axes(lift, x, axis):
        lift.refuse("goes along the dynamic axis and takes the padding in", MASK)
    return lift.keep(at, [lift.of(x), lift.of(x)])


@rule("searchsorted")
def _searchsorted(lift: Lift, at: LiftedEquation) -> Made:
    same_static(lift, at)
    sequence, x = at.e.inputs
    if is_ragged(lift.of(sequence)):
        lift.refuse("searches along the dynamic axis", MASK)
    return lift.keep(at, [lift.of(x)])


def _guard(lift: Lift, at: LiftedEquation) -> Made:
    """A value that is valid if a flag is true; the rules of the flag's rows have lifted it."""
    x, flag, *seen = at.e.inputs
    if not at.fixed:  # an index of the dynamic axis, whose length the message would name
        return [(lift.emit(GUARD, x, flag, OUTSIDE, spans=lift.of(x)), lift.of(x))]
    given = [lift.mask_padding(v, at.e.static[1]) for v in seen]
    return lift.keep(at, [lift.of(x)], [x, flag, *given])


_named["guard"] = _guard
OUTSIDE = "index: an index is out of range for the dynamic axis"
