"""Casts moved across slices and concatenations, so that what is stored between is narrow.

A kernel reads a slice of an array in memory, and writes a part of one to it. An array that is cast
to a wider dtype and then sliced is sliced first; parts that are put side by side and then cast to
a narrower dtype are cast first.
"""

from math import prod

from ...graph.graph import Equation, Graph, Literal
from .rewriting import Builder, Replacement, rewrite

# Views that have all elements of their operand.
_WHOLE = ("reshape", "permute")


def narrow(graph: Graph) -> Graph:
    """The graph with casts where arrays are narrow."""
    rows = {e.op.name for e in graph.equations}
    if "cast" not in rows or not rows & {"slice_", "stack", "concat"}:
        return graph
    sliced = _sliced(graph)

    def rule(b: Builder, e: Equation) -> Replacement:
        return _slice_first(b, e) if e.outputs[0] in sliced else _cast_parts(b, e)

    return rewrite(graph, rule, ("slice_", "cast"))


def _sliced(graph: Graph) -> set[int]:
    """The slices of wide arrays that nothing else reads, and that are not more than the whole."""
    readers: dict[int, list[Equation]] = {}
    for e in graph.equations:
        for i in e.inputs:
            if not isinstance(i, Literal):
                readers.setdefault(i, []).append(e)
    found: set[int] = set()
    for e in graph.equations:
        if e.op.name == "cast" and _widens(graph, e):
            slices = _only_slices(graph, e.outputs[0], readers)
            sizes = [prod(graph.avals[x].shape) for x in (*slices, *e.outputs)]
            if sum(sizes[:-1]) <= sizes[-1]:
                found.update(slices)
    return found


def _only_slices(graph: Graph, x: int, readers: dict[int, list[Equation]]) -> list[int]:
    """The slices of a value, or of views of all of it; none if anything else reads it."""
    slices, todo = [], [x]
    while todo:
        x = todo.pop()
        found = readers.get(x, [])
        if x in graph.outputs or any(e.op.name not in (*_WHOLE, "slice_") for e in found):
            return []
        for e in found:
            (slices if e.op.name == "slice_" else todo).append(e.outputs[0])
    return slices


def _widens(graph: Graph, e: Equation) -> bool:
    (x,), (y,) = e.inputs, e.outputs
    if isinstance(x, Literal):
        return False
    return graph.avals[x].dtype.itemsize < graph.avals[y].dtype.itemsize


def _views(b: Builder, x: int) -> tuple[int, list[Equation]]:
    """The value that another one has all elements of, and the views between, the last one first."""
    views = []
    while (e := b.made_by(x, *_WHOLE)) is not None:
        views.append(e)
        x = e.inputs[0]
    return x, views


def _repeat(b: Builder, x: int, views: list[Equation]) -> int:
    for e in reversed(views):
        x = b.emit(e.op, x, *e.static)
    return x


def _slice_first(b: Builder, e: Equation) -> Replacement:
    x, views = _views(b, e.inputs[0])
    cast = b.made_by(x, "cast")
    if cast is None:
        return None
    part = b.emit("slice_", _repeat(b, cast.inputs[0], views), *e.static)
    return (b.emit("cast", part, *cast.static),)


def _cast_parts(b: Builder, e: Equation) -> Replacement:
    """A concatenation of casts, if nothing but the cast reads what is cast."""
    if e.op.name != "cast" or isinstance(e.inputs[0], Literal):
        return None
    source, views = _views(b, e.inputs[0])
    joined = b.made_by(source, "stack", "concat")
    between = [e.inputs[0], *(v.inputs[0] for v in views)]
    if joined is None or any(b.uses[x] != 1 for x in between):
        return None
    own, (target,) = b.dtype(source), e.static
    if target.itemsize >= own.itemsize or any(b.dtype(x) != own for x in joined.inputs):
        return None
    parts = [b.emit("cast", x, target) for x in joined.inputs]
    return (_repeat(b, b.emit(joined.op, parts, *joined.static), views),)
