"""Rules for indexing: the dynamic axis ends at the call's own length."""

from math import prod

import numpy as np

from ...graph.graph import Literal
from ...graph.guard import GUARD
from .lift import Lift, LiftedEquation, Made
from .moves import APART
from .rules import OUTSIDE, merge_spans, rule, same_static
from .spans import Span
from .traces import Differs


def _place_indices(lift: Lift, i, span: Span | None):
    """Indices of an axis as the bucket's program needs them; zeros in their own padding.

    On the dynamic axis, negative indices count from the call's end, and a guard checks the bounds:
    beyond that end there is padding, which the bucket's program would read.
    """
    if span is None or lift.placed.get(i) == span:
        return lift.index(i)
    if not span.plain:
        lift.refuse("takes indices of an axis that joins others with the dynamic one", APART)
    if lift.padding:
        lift.refuse("takes indices of the dynamic axis in a loop", "take them before the loop")
    i, spans = lift.index(i), lift.of(i)
    end = lift.number(np.asarray(span.size(lift.actual.length), lift.aval(i).dtype))
    back = lift.emit("add", i, end, spans=spans)
    below = lift.emit("less", i, Literal(0), spans=spans)
    i = lift.emit("where", below, back, i, spans=spans)
    low = lift.emit("greater_equal", i, Literal(0), spans=spans)
    fits = lift.emit("logical_and", low, lift.emit("less", i, end, spans=spans), spans=spans)
    fits = lift.mask_padding(fits, True)
    flag = lift.emit("all", fits, tuple(range(len(spans))), False, spans=()) if spans else fits
    return lift.emit(GUARD, i, flag, OUTSIDE, spans=spans)


@rule("ravel_index")
def _ravel_index(lift: Lift, at: LiftedEquation) -> Made:
    """Indices of several axes as flat indices of the joined axes; one may be dynamic."""
    sizes = list(zip(*[e.static[0] for e in (at.small, at.e)], strict=True))
    spans = [lift.between(*n) for n in sizes]
    given = [_place_indices(lift, i, s) for i, s in zip(at.e.inputs, spans, strict=True)]
    own = [(k, s.offset) for k, s in enumerate(spans) if s is not None]
    if len(own) > 1:
        lift.refuse("joins two axes of dynamic length", APART)
    for k, offset in own:
        large = [n for _, n in sizes]
        lift.placed[at.e.outputs[0]] = Span(prod(large[:k]), offset, prod(large[k + 1 :]))
    return lift.keep(at, [merge_spans(lift, [lift.of(i) for i in given])], given)


@rule("take")
def _take(lift: Lift, at: LiftedEquation) -> Made:
    same_static(lift, at)
    (x, i), (axis,) = at.e.inputs, at.e.static
    spans = lift.of(x)
    made = (*spans[:axis], *lift.of(i), *spans[axis + 1 :])
    return lift.keep(at, [made], [x, _place_indices(lift, i, spans[axis])])


@rule("segment_sum")
def _segment_sum(lift: Lift, at: LiftedEquation) -> Made:
    (x, i), (axis, _) = at.e.inputs, at.e.static
    spans, count = lift.of(x), len(lift.of(i))
    over, span = range(axis, axis + count), _span_of_sum(lift, at, i)
    made = (*spans[:axis], span, *spans[axis + count :])
    return lift.keep(at, [made], [lift.mask_padding(x, 0, over), _place_indices(lift, i, span)])


def _span_of_sum(lift: Lift, at: LiftedEquation, i) -> Span | None:
    """The span of the axis that elements are added into; its length is a static parameter."""
    if {e.static[0] for e in (at.small, at.e, at.actual)} != {at.e.static[0]}:
        raise Differs(f"{at.name} at {at.e.line} goes along another axis")
    return lift.placed.get(i) or lift.between(at.small.static[1], at.e.static[1])


@rule("take_along_axis")
def _take_along(lift: Lift, at: LiftedEquation) -> Made:
    same_static(lift, at)
    (x, i), (axis,) = at.e.inputs, at.e.static
    return lift.keep(at, [lift.of(i)], [x, _place_indices(lift, i, lift.of(x)[axis])])


@rule("scatter_sum")
def _scatter_sum(lift: Lift, at: LiftedEquation) -> Made:
    (x, i), (axis, _) = at.e.inputs, at.e.static
    spans, span = lift.of(x), _span_of_sum(lift, at, i)
    made = (*spans[:axis], span, *spans[axis + 1 :])
    return lift.keep(at, [made], [lift.mask_padding(x, 0, [axis]), _place_indices(lift, i, span)])
