"""Rules for rows that move elements."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .lift import Lift, LiftedEquation, Made
from .rules import merge_spans, rule, same_static
from .spans import Span, reshape_spans
from .traces import Differs

APART = "keep the dynamic axis apart, or in front of what it is joined with"


@rule("reshape")
def _reshape(lift: Lift, at: LiftedEquation) -> Made:
    (x,), out = at.e.inputs, at.e.outputs[0]
    shape, grown = lift.large.graph.avals[out].shape, lift.spans_from_shapes(out)
    if x in lift.uniform:
        lift.uniform.add(out)
        return lift.keep(at, [grown])
    new = [n if s is None else s for n, s in zip(shape, grown, strict=True)]
    spans = reshape_spans(lift.of(x), lift.aval(x).shape, new)
    if spans is None:
        lift.refuse(
            f"of {lift.aval(x).shape} to {shape} takes the dynamic axis apart, or joins two", APART
        )
    return lift.keep(at, [spans])


@rule("permute")
def _permute(lift: Lift, at: LiftedEquation) -> Made:
    same_static(lift, at)
    (x,), (axes,) = at.e.inputs, at.e.static
    return lift.keep(at, [tuple([lift.of(x)[a] for a in axes])])


@rule("broadcast_to")
def _broadcast(lift: Lift, at: LiftedEquation) -> Made:
    (x,), out = at.e.inputs, at.e.outputs[0]
    if lift.is_uniform(x):
        lift.uniform.add(out)
        return lift.keep(at, [lift.spans_from_shapes(out)])
    given, grown = lift.of(x), lift.spans_from_shapes(out)
    own = (*(None,) * (len(grown) - len(given)), *given)
    lift.even.update(
        [(out, a) for a in range(-len(grown), 0) if grown[a] is not None and own[a] is None]
    )
    return lift.keep(at, [tuple([g if s is None else s for g, s in zip(grown, own, strict=True)])])


@rule("stack")
def _stack(lift: Lift, at: LiftedEquation) -> Made:
    same_static(lift, at)
    spans, axis = merge_spans(lift, [lift.of(x) for x in at.e.inputs]), at.e.static[0]
    return lift.keep(at, [(*spans[:axis], None, *spans[axis:])])


@rule("tril", "triu")
def _triangle(lift: Lift, at: LiftedEquation) -> Made:
    """Which elements are kept depends on their positions, which padding does not change."""
    same_static(lift, at)
    (x,) = at.e.inputs
    if any([s is not None and not s.plain for s in lift.of(x)[-2:]]):
        lift.refuse("goes along an axis that joins others with the dynamic one", APART)
    return lift.keep(at, [lift.of(x)])


@rule("concat")
def _concat(lift: Lift, at: LiftedEquation) -> Made:
    axis = at.e.static[0]
    spans = [lift.of(x) for x in at.e.inputs]
    found = [(k, span) for k, s in enumerate(spans) if (span := s[axis]) is not None]
    others = merge_spans(lift, [(*s[:axis], None, *s[axis + 1 :]) for s in spans])
    if not found:
        same_static(lift, at)
        return lift.keep(at, [others])
    (k, own), *more = found
    if more or not own.plain:
        lift.refuse("joins arrays along the dynamic axis, of which only one may be dynamic", APART)
    sizes = [lift.aval(x).shape[axis] for x in at.e.inputs]
    before, after = sum(sizes[:k]), sum(sizes[k + 1 :])
    new = Span(1, own.offset + before + after, 1)
    ((made, kept),) = lift.keep(at, [(*others[:axis], new, *others[axis + 1 :])])
    if after:  # operands after the dynamic one would come after its padding
        lift.spans[made] = kept
        end, last = before + own.size(lift.actual.length), before + own.size(lift.large.length)
        made = take_positions(lift, made, np.r_[:end, last : last + after], axis, new)
    return [(made, kept)]


def take_positions(lift: Lift, x: int, places: Any, axis: int, span: Span | None) -> int:
    """Take the elements at these positions of an axis, which then has this span."""
    size = len(places) if span is None else span.size(lift.large.length)
    spans = (*lift.spans[x][:axis], span, *lift.spans[x][axis + 1 :])
    return lift.emit("take", x, lift.positions(places, size), axis, spans=spans)


def _along(lift: Lift, x: int, axis: int, order: Callable[[np.ndarray], np.ndarray]) -> int:
    """Reorder the call's own positions; the padding stays at the end."""
    span = lift.of(x)[axis]
    if span is None or not span.plain:
        lift.refuse("goes along an axis that joins others with the dynamic one", APART)
    places = order(np.arange(span.size(lift.actual.length)))
    return take_positions(lift, x, places, axis, span)


@rule("flip")
def _flip(lift: Lift, at: LiftedEquation) -> Made:
    same_static(lift, at)
    (x,), (axes,) = at.e.inputs, at.e.static
    spans = lift.of(x)
    still = tuple([a for a in axes if spans[a] is None])
    x = lift.emit("flip", x, still, spans=spans) if still else x
    for a in set(axes) - set(still):
        x = _along(lift, x, a, np.flip)
    return [(x, spans)]


@rule("roll")
def _roll(lift: Lift, at: LiftedEquation) -> Made:
    (x,), (shifts, axes) = at.e.inputs, at.actual.static
    spans, fixed = lift.of(x), dict(zip(at.e.static[1], at.e.static[0], strict=True))
    if axes != at.e.static[1]:
        raise Differs(f"roll at {at.e.line} goes along other axes")
    for a, shift in zip(axes, shifts, strict=True):
        if spans[a] is not None:
            x = _along(lift, x, a, partial(np.roll, shift=shift))
        elif shift != fixed[a]:
            raise Differs(f"roll at {at.e.line} goes another way")
        else:
            x = lift.emit("roll", x, (shift,), (a,), spans=spans)
    return [(x, spans)]


@rule("pad")
def _pad(lift: Lift, at: LiftedEquation) -> Made:
    """The margin after the dynamic axis begins in the padding, which gets the margin's value."""
    same_static(lift, at)
    (x,), (widths, value) = at.e.inputs, at.e.static
    spans = list(lift.of(x))
    grown = []
    for a, s in enumerate(spans):
        if s is None or widths[a] == (0, 0):
            continue
        if not s.plain:
            lift.refuse("goes along an axis that joins others with the dynamic one", APART)
        spans[a] = Span(1, s.offset + sum(widths[a]), 1)
        grown.append(a)
    return lift.keep(at, [tuple(spans)], [lift.mask_padding(x, value, grown)])
