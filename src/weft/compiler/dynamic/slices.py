"""Rules for slices: their ends may depend on the length."""

from typing import Any, NamedTuple

import numpy as np

from ..passes.rewriting import Operand
from .lift import Lift, LiftedEquation, Made
from .moves import APART, take_positions
from .rules import merge_spans, rule
from .spans import Span, Spans
from .traces import Differs

Three = tuple[Any, ...]  # at the bucket's length, the reference length and the call's


class SlicePart(NamedTuple):
    """What a slice takes of one axis.

    entry  of the basic index at the bucket's length: a position, or (start, count, step)
    size   of the axis at that length
    span   of the axis in the result; None: its length is fixed, or the axis is removed
    whole  whether the whole axis is taken
    moved  the positions, if they depend on the length; else None
    """

    entry: Any
    size: int
    span: Span | None = None
    whole: bool = False
    moved: Any = None

    @property
    def gone(self) -> bool:
        """Whether the axis is removed."""
        return self.entry.__class__ is int


def _parts(
    lift: Lift, at: LiftedEquation, spans: Spans, sizes: list[Three]
) -> list[SlicePart | None]:
    """The parts of the basic index, by entry; None for a new axis.

    spans  of the indexed axes
    sizes  of these axes at the three lengths
    """
    indices = [e.static[0] for e in (at.e, at.small, at.actual)]
    kinds = {tuple([p.__class__ for p in index]) for index in indices}
    if len(kinds) > 1:
        raise Differs(f"another index at {at.e.line}")
    axes = iter(zip(spans, sizes, strict=True))
    return [
        None if entries[0] is None else _part(lift, entries, *next(axes))
        for entries in zip(*indices, strict=True)
    ]


def _part(lift: Lift, entries: Three, span: Span | None, sizes: Three) -> SlicePart:
    large, small, actual = entries
    if is_whole(entries, sizes):
        return SlicePart(large, sizes[0], span, whole=True)
    if span is not None and span.outer != 1:
        lift.refuse("takes a part of an axis that joins others with the dynamic one", APART)
    if large.__class__ is int:
        same = large == small == actual
        return SlicePart(large, sizes[0], moved=None if same else np.asarray(actual))
    left = lift.between(small[1], large[1])
    count = large[1] if left is None else left.size(lift.actual.length)
    if actual[1] != count:
        raise Differs(f"a slice of {actual[1]} elements, where {count} were to be expected")
    begins = {(start, step) for start, _, step in entries}
    places = None if len(begins) == 1 else actual[0] + actual[2] * np.arange(count)
    return SlicePart(large, sizes[0], left, moved=places)


def is_whole(entries: Three, sizes: Three) -> bool:
    """Whether the whole axis is taken at all three lengths."""
    return all([p == (0, n, 1) for p, n in zip(entries, sizes, strict=True)])


def _sizes(lift: Lift, x: int) -> list[Three]:
    """The sizes of an operand's axes at the three lengths."""
    lengths = [t.length for t in (lift.large, lift.small, lift.actual)]
    shape = lift.aval(x).shape
    return [
        tuple([n if s is None else s.size(m) for m in lengths])
        for n, s in zip(shape, lift.of(x), strict=True)
    ]


@rule("slice_")
def _slice(lift: Lift, at: LiftedEquation) -> Made:
    (x,), spans = at.e.inputs, lift.of(at.e.inputs[0])
    parts = _parts(lift, at, spans, _sizes(lift, x))
    old = iter(spans)
    kept: list[Span | None] = []  # the spans after the entries that do not depend on the length
    moved: list[tuple[int, SlicePart]] = []
    for p in parts:
        before = None if p is None else next(old)
        if p is not None and p.moved is not None:
            moved.append((len(kept), p))
            kept.append(before)
        elif p is None or not p.gone:
            kept.append(None if p is None else p.span)
    if not moved:
        return lift.keep(at, [tuple(kept)])
    x = lift.emit("slice_", x, _direct(parts), spans=tuple(kept))
    for k, p in reversed(moved):
        x = _without(lift, x, p, k) if p.gone else take_positions(lift, x, p.moved, k, p.span)
    return [(x, lift.spans[x])]


def _direct(parts: list[SlicePart | None]) -> tuple:
    """The basic index with whole axes for the entries that depend on the length."""
    return tuple(
        [
            None if p is None else p.entry if p.moved is None else (0, p.size, 1)  # all of it
            for p in parts
        ]
    )


def _without(lift: Lift, x: int, p: SlicePart, axis: int) -> int:
    """Take one position of an axis, and remove the axis."""
    spans = (*lift.spans[x][:axis], *lift.spans[x][axis + 1 :])
    return lift.emit("take", x, lift.number(p.moved), axis, spans=spans)


@rule("unslice")
def _unslice(lift: Lift, at: LiftedEquation) -> Made:
    """The transpose of a slice: the padding of its operand is set to zero first."""
    (x,), shapes = at.e.inputs, [e.static[1] for e in (at.e, at.small, at.actual)]
    sizes = list(zip(*shapes, strict=True))
    spans = _spans_around(lift, at, lift.of(x), sizes)
    parts = _parts(lift, at, spans, sizes)
    put, axis, around = lift.mask_padding(x, 0), 0, iter(spans)
    for p in parts:
        span = None if p is None else next(around)
        if p is not None and p.moved is not None:
            put = _scatter(lift, put, p, axis, span)
        axis += p is None or not p.gone or p.moved is not None
    made = lift.emit("unslice", put, _direct(parts), tuple(shapes[0]), spans=spans)
    return [(made, spans)]


def _spans_around(lift: Lift, at: LiftedEquation, given: Spans, sizes: list[Three]) -> Spans:
    """The spans of the array that a slice is put into: the slice's own along whole axes."""
    entries = list(zip(*[e.static[0] for e in (at.e, at.small, at.actual)], strict=False))
    own, axes, found = iter(given), iter(sizes), []
    for ps in entries:
        span = None if ps[0].__class__ is int else next(own)
        if ps[0] is not None:
            n = next(axes)
            found.append(span if is_whole(ps, n) else lift.between(n[1], n[0]))
    return tuple(found)


def _scatter(lift: Lift, x: Operand, p: SlicePart, axis: int, span: Span | None) -> int:
    """Put x at positions that depend on the length, along a new axis or one of its own."""
    old = lift.of(x)
    if p.gone:
        index, rest = lift.number(p.moved), old[axis:]
    else:
        index, rest = lift.positions(p.moved, lift.aval(x).shape[axis]), old[axis + 1 :]
    return lift.emit("segment_sum", x, index, axis, p.size, spans=(*old[:axis], span, *rest))


@rule("slice_set")
def _slice_set(lift: Lift, at: LiftedEquation) -> Made:
    """Write a slice: the whole dynamic axis, or positions that do not depend on the length."""
    x, v = at.e.inputs
    parts = _parts(lift, at, lift.of(x), _sizes(lift, x))
    for p in parts:
        if p is not None and (p.moved is not None or (p.span is not None and not p.whole)):
            lift.refuse("writes to places that depend on the length", "use wf.where")
    places = tuple([None if p is None else p.span for p in parts if p is None or not p.gone])
    merge_spans(lift, [places, lift.of(v)])
    return lift.keep(at, [lift.of(x)])
