"""How rows that move elements treat an axis with padding."""

from math import prod

import numpy as np

from ...graph.graph import Literal
from ...graph.guard import GUARD
from .lift import At, Differs, Lift, Made
from .rules import MASK, merged, rule, same_static
from .spans import Span, joined

_APART = "keep the dynamic axis apart, or in front of what it is joined with"


@rule("reshape")
def _reshape(lift: Lift, at: At) -> Made:
    (x,), out = at.e.inputs, at.e.outputs[0]
    shape, grown = lift.large.graph.avals[out].shape, lift.grown(out)
    if x in lift.uniform:
        lift.uniform.add(out)
        return lift.keep(at, [grown])
    new = [n if s is None else s for n, s in zip(shape, grown, strict=True)]
    spans = joined(lift.of(x), lift.aval(x).shape, new)
    if spans is None:
        lift.refuse(
            f"of {lift.aval(x).shape} to {shape} takes the dynamic axis apart, or joins two", _APART
        )
    return lift.keep(at, [spans])


@rule("permute")
def _permute(lift: Lift, at: At) -> Made:
    same_static(lift, at)
    (x,), (axes,) = at.e.inputs, at.e.static
    return lift.keep(at, [tuple([lift.of(x)[a] for a in axes])])


@rule("broadcast_to")
def _broadcast(lift: Lift, at: At) -> Made:
    (x,), out = at.e.inputs, at.e.outputs[0]
    if lift.is_uniform(x):
        lift.uniform.add(out)
        return lift.keep(at, [lift.grown(out)])
    given, grown = lift.of(x), lift.grown(out)
    own = (*(None,) * (len(grown) - len(given)), *given)
    lift.even.update(
        [(out, a) for a in range(-len(grown), 0) if grown[a] is not None and own[a] is None]
    )
    return lift.keep(at, [tuple([g if s is None else s for g, s in zip(grown, own, strict=True)])])


@rule("stack")
def _stack(lift: Lift, at: At) -> Made:
    same_static(lift, at)
    spans, axis = merged(lift, [lift.of(x) for x in at.e.inputs]), at.e.static[0]
    return lift.keep(at, [(*spans[:axis], None, *spans[axis:])])


@rule("tril", "triu")
def _triangle(lift: Lift, at: At) -> Made:
    """What is kept depends on the positions, which padding does not change."""
    same_static(lift, at)
    (x,) = at.e.inputs
    if any([s is not None and not s.plain for s in lift.of(x)[-2:]]):
        lift.refuse("goes along an axis that joins others with the dynamic one", _APART)
    return lift.keep(at, [lift.of(x)])


@rule("concat")
def _concat(lift: Lift, at: At) -> Made:
    axis = at.e.static[0]
    spans = [lift.of(x) for x in at.e.inputs]
    own = [k for k, s in enumerate(spans) if s[axis] is not None]
    others = merged(lift, [(*s[:axis], None, *s[axis + 1 :]) for s in spans])
    if not own:
        same_static(lift, at)
        return lift.keep(at, [others])
    if len(own) > 1 or not spans[own[0]][axis].plain:
        lift.refuse("joins arrays along the dynamic axis, of which only one may be dynamic", _APART)
    sizes = [lift.aval(x).shape[axis] for x in at.e.inputs]
    before, after = sum(sizes[: own[0]]), sum(sizes[own[0] + 1 :])
    old = spans[own[0]][axis]
    new = Span(1, old.offset + before + after, 1)
    kept = (*others[:axis], new, *others[axis + 1 :])
    made = lift.keep(at, [kept])
    if not after:
        return made
    lift.spans[made[0][0]] = kept
    end = before + old.size(lift.actual.length)
    last = before + old.size(lift.large.length)
    places = np.r_[:end, last : last + after]
    return [_taken(lift, made[0][0], places, axis, new)]


def _taken(lift: Lift, x: int, places: np.ndarray, axis: int, span: Span | None) -> tuple:
    """What lies at these positions of an axis, which has this span afterwards."""
    size = len(places) if span is None else span.size(lift.large.length)
    index = lift.positions(places, size)
    spans = (*lift.spans[x][:axis], span, *lift.spans[x][axis + 1 :])
    return lift.emit("take", x, index, axis, spans=spans), spans


@rule("flip", "roll")
def _turned(lift: Lift, at: At) -> Made:
    """Along the dynamic axis a call's own positions change places, and padding stays behind."""
    (x,), spans = at.e.inputs, lift.of(at.e.inputs[0])
    if at.name == "flip":
        same_static(lift, at)
        entries = [(a, None) for a in at.e.static[0]]
    else:
        entries = list(zip(at.actual.static[1], at.actual.static[0], strict=True))
        if at.actual.static[1] != at.e.static[1] or at.small.static[1] != at.e.static[1]:
            lift.refuse("goes along other axes at other lengths", MASK)
    still = [(a, s) for a, s in entries if spans[a] is None]
    if at.name == "roll" and still and not at.fixed:
        lift.refuse("moves elements by a number that depends on the length", MASK)
    if at.name == "flip" and still:
        x = lift.emit("flip", x, tuple([a for a, _ in still]), spans=spans)
    elif still:
        x = lift.emit(
            "roll", x, *map(tuple, zip(*[(s, a) for a, s in still], strict=True)), spans=spans
        )
    for axis, shift in entries:
        if spans[axis] is None:
            continue
        if not spans[axis].plain:
            lift.refuse("goes along an axis that joins others with the dynamic one", _APART)
        count = spans[axis].size(lift.actual.length)
        places = np.arange(count)[::-1] if shift is None else np.roll(np.arange(count), shift)
        x, _ = _taken(lift, x, places, axis, spans[axis])
    return [(x, spans)]


@rule("pad")
def _pad(lift: Lift, at: At) -> Made:
    """The margin behind the dynamic axis begins in the padding, which gets its value."""
    same_static(lift, at)
    (x,), (widths, value) = at.e.inputs, at.e.static
    spans = list(lift.of(x))
    grown = [a for a, s in enumerate(spans) if s is not None and widths[a] != (0, 0)]
    for a in grown:
        if not spans[a].plain:
            lift.refuse("goes along an axis that joins others with the dynamic one", _APART)
        spans[a] = Span(1, spans[a].offset + sum(widths[a]), 1)
    return lift.keep(at, [tuple(spans)], [lift.masked(x, value, grown)])


# -- slices --------------------------------------------------------------------------------------


def _entries(lift: Lift, at: At) -> list[tuple]:
    """The basic index at the three lengths, entry by entry: (large, small, actual)."""
    indices = [e.static[0] for e in (at.e, at.small, at.actual)]
    if len({len(i) for i in indices}) > 1:
        raise Differs(f"another index at {at.e.line}")
    found = list(zip(*indices, strict=True))
    if any([len({p.__class__ for p in ps}) > 1 for ps in found]):
        raise Differs(f"another index at {at.e.line}")
    return found


class _Entry:
    """What a slice takes of one axis.

    span   of the axis that it leaves; None: it is always as long, or there is none
    moved  the positions, where they depend on the length; None: they do not
    """

    def __init__(self, lift: Lift, ps: tuple, span: Span | None, sizes: tuple[int, int, int]):
        large, small, actual = ps
        self.moved: np.ndarray | None = None
        self.span, self.gone = None, large.__class__ is int
        if not self.gone and all([p == (0, n, 1) for p, n in zip(ps, sizes, strict=True)]):
            self.span, self.whole = span, True
            return
        self.whole = False
        if span is not None and span.outer != 1:
            lift.refuse("takes a part of an axis that joins others with the dynamic one", _APART)
        same = large == small == actual
        if self.gone:
            self.moved = None if same else np.asarray(actual)
            return
        self.span = lift.between(small[1], large[1])
        wanted = large[1] if self.span is None else self.span.size(lift.actual.length)
        if actual[1] != wanted:
            raise Differs(f"a slice of {actual[1]} elements, where {wanted} were to be expected")
        begins = {(p[0], p[2]) for p in ps}
        if len(begins) > 1:
            self.moved = actual[0] + actual[2] * np.arange(actual[1])


def _sizes(lift: Lift, index: int, axis: int) -> tuple[int, int, int]:
    graphs = (lift.large.graph, lift.small.graph, lift.actual.graph)
    return tuple([g.avals[index].shape[axis] for g in graphs])  # type: ignore[return-value]


@rule("slice_")
def _slice(lift: Lift, at: At) -> Made:
    (x,), spans = at.e.inputs, lift.of(at.e.inputs[0])
    direct, moved, out, axis = [], [], [], 0
    for ps in _entries(lift, at):
        if ps[0] is None:
            direct.append(None)
            out.append(None)
            continue
        sizes = tuple(
            [
                n if (s := spans[axis]) is None else s.size(t.length)
                for t, n in zip(
                    (lift.large, lift.small, lift.actual),
                    [lift.aval(x).shape[axis]] * 3,
                    strict=True,
                )
            ]
        )
        entry = _Entry(lift, ps, spans[axis], sizes)
        if entry.moved is not None:
            moved.append((len(out), entry))
            direct.append((0, sizes[0], 1))
            out.append(spans[axis])
        else:
            direct.append(ps[0])
            if not entry.gone:
                out.append(entry.span)
        axis += 1
    if not moved:
        return lift.keep(at, [tuple(out)])
    x = lift.emit("slice_", x, tuple(direct), spans=tuple(out))
    for k, entry in reversed(moved):
        if entry.gone:
            index = lift.number(entry.moved)
            rest = (*lift.spans[x][:k], *lift.spans[x][k + 1 :])
            x = lift.emit("take", x, index, k, spans=rest)
        else:
            x, _ = _taken(lift, x, entry.moved, k, entry.span)
    return [(x, lift.spans[x])]


@rule("unslice")
def _unslice(lift: Lift, at: At) -> Made:
    """The transpose of a slice: padding of what is put there is zero first."""
    (x,), shapes = at.e.inputs, [e.static[1] for e in (at.e, at.small, at.actual)]
    given, x = lift.of(x), lift.masked(x, 0)
    direct, out, axis, k = [], [], 0, 0
    for ps in _entries(lift, at):
        if ps[0] is None:
            direct.append(None)
            k += 1
            continue
        sizes = tuple([shape[axis] for shape in shapes])
        old = None if ps[0].__class__ is int else given[k]
        span = old if _is_whole(ps, sizes) else lift.between(sizes[1], sizes[0])
        entry = _Entry(lift, ps, span, sizes)
        if entry.moved is None:
            direct.append(ps[0])
            k += not entry.gone
        else:
            x = _scattered(lift, x, entry, k, sizes[0], span)
            given = lift.spans[x]
            direct.append((0, sizes[0], 1))
            k += 1
        out.append(span)
        axis += 1
    return [
        (lift.emit("unslice", x, tuple(direct), tuple(shapes[0]), spans=tuple(out)), tuple(out))
    ]


def _is_whole(ps: tuple, sizes: tuple) -> bool:
    return all([p == (0, n, 1) for p, n in zip(ps, sizes, strict=True)])


def _scattered(lift: Lift, x: int, entry: _Entry, k: int, size: int, span: Span | None) -> int:
    """x put at positions that depend on the length, along a new axis or along one that it has."""
    old = lift.spans[x]
    if entry.gone:
        index, rest = lift.number(entry.moved), old[k:]
    else:
        count = lift.aval(x).shape[k]
        index, rest = lift.positions(entry.moved, count), old[k + 1 :]
    return lift.emit("segment_sum", x, index, k, size, spans=(*old[:k], span, *rest))


@rule("slice_set")
def _slice_set(lift: Lift, at: At) -> Made:
    """Writing a part: all of the dynamic axis, or positions that are the same at all lengths."""
    x, v = at.e.inputs
    spans, places, axis = lift.of(x), [], 0
    for ps in _entries(lift, at):
        if ps[0] is None:
            places.append(None)
            continue
        sizes = [
            n if (s := spans[axis]) is None else s.size(t.length)
            for t, n in zip(
                (lift.large, lift.small, lift.actual), [lift.aval(x).shape[axis]] * 3, strict=True
            )
        ]
        entry = _Entry(lift, ps, spans[axis], tuple(sizes))
        if entry.moved is not None or (entry.span is not None and not entry.whole):
            lift.refuse("writes to places that depend on the length", "use wf.where")
        if not entry.gone:
            places.append(entry.span)
        axis += 1
    if not isinstance(v, Literal):
        merged(lift, [tuple(places), lift.of(v)])
    return lift.keep(at, [spans])


# -- by indices ----------------------------------------------------------------------------------


def _placed(lift: Lift, i, span: Span | None):
    """Indices of an axis, so that they count as in the bucket; zeros in their own padding.

    Those of the dynamic axis are counted from the call's end if they are negative, and are
    checked: behind that end there is padding, which the bucket's program would find.
    """
    if span is None or lift.placed.get(i) == span:
        return lift.index(i)
    if not span.plain:
        lift.refuse("takes indices of an axis that joins others with the dynamic one", _APART)
    if lift.padding:
        lift.refuse("takes indices of the dynamic axis in a loop", "take them before the loop")
    i, spans = lift.index(i), lift.of(i)
    end = lift.number(np.asarray(span.size(lift.actual.length), lift.aval(i).dtype))
    back = lift.emit("add", i, end, spans=spans)
    below = lift.emit("less", i, Literal(0), spans=spans)
    i = lift.emit("where", below, back, i, spans=spans)
    low = lift.emit("greater_equal", i, Literal(0), spans=spans)
    fits = lift.emit("logical_and", low, lift.emit("less", i, end, spans=spans), spans=spans)
    fits = lift.masked(fits, True)
    flag = lift.emit("all", fits, tuple(range(len(spans))), False, spans=()) if spans else fits
    return lift.emit(GUARD, i, flag, _OUTSIDE, spans=spans)


_OUTSIDE = "index: an index is out of range for the dynamic axis"


@rule("ravel_index")
def _ravel_index(lift: Lift, at: At) -> Made:
    """Indices of several axes as those of the axes joined, of which one may be dynamic."""
    sizes = list(zip(*[e.static[0] for e in (at.small, at.e)], strict=True))
    spans = [lift.between(*n) for n in sizes]
    given = [_placed(lift, i, s) for i, s in zip(at.e.inputs, spans, strict=True)]
    own = [k for k, s in enumerate(spans) if s is not None]
    if len(own) > 1:
        lift.refuse("joins two axes of dynamic length", _APART)
    if own:
        large = [n for _, n in sizes]
        before, after = prod(large[: own[0]]), prod(large[own[0] + 1 :])
        lift.placed[at.e.outputs[0]] = Span(before, spans[own[0]].offset, after)
    return lift.keep(at, [merged(lift, [lift.of(i) for i in given])], given)


@rule("take")
def _take(lift: Lift, at: At) -> Made:
    same_static(lift, at)
    (x, i), (axis,) = at.e.inputs, at.e.static
    spans = lift.of(x)
    made = (*spans[:axis], *lift.of(i), *spans[axis + 1 :])
    return lift.keep(at, [made], [x, _placed(lift, i, spans[axis])])


@rule("segment_sum")
def _segment_sum(lift: Lift, at: At) -> Made:
    (x, i), (axis, _) = at.e.inputs, at.e.static
    spans, count = lift.of(x), len(lift.of(i))
    over, span = range(axis, axis + count), _sized(lift, at, i)
    made = (*spans[:axis], span, *spans[axis + count :])
    return lift.keep(at, [made], [lift.masked(x, 0, over), _placed(lift, i, span)])


def _sized(lift: Lift, at: At, i) -> Span | None:
    """The span of the axis that numbers are added up along, whose length is a parameter."""
    if i in lift.placed:
        return lift.placed[i]
    if {e.static[0] for e in (at.small, at.e, at.actual)} != {at.e.static[0]}:
        lift.refuse("goes along another axis at other lengths", MASK)
    return lift.between(at.small.static[1], at.e.static[1])


@rule("take_along_axis")
def _take_along(lift: Lift, at: At) -> Made:
    same_static(lift, at)
    (x, i), (axis,) = at.e.inputs, at.e.static
    return lift.keep(at, [lift.of(i)], [x, _placed(lift, i, lift.of(x)[axis])])


@rule("scatter_sum")
def _scatter_sum(lift: Lift, at: At) -> Made:
    (x, i), (axis, _) = at.e.inputs, at.e.static
    spans, span = lift.of(x), _sized(lift, at, i)
    made = (*spans[:axis], span, *spans[axis + 1 :])
    return lift.keep(at, [made], [lift.masked(x, 0, [axis]), _placed(lift, i, span)])
