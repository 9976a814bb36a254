"""Views: values of a graph that are other values' memory, read with other strides."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any

from ...core.aval import Shape
from ...core.record import record
from ...graph.graph import Equation, Graph, Literal
from .schedule import lies_in_rows, row_major


@record
class View:
    """A value as strides into `root`, which is contiguous row by row."""

    root: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def contiguous(self) -> bool:
        return lies_in_rows(self.shape, self.strides)


def views_of(graph: Graph) -> dict[int, View]:
    """The view of each value of a graph; a value with memory of its own is its own root."""
    found: dict[int, View] = {}
    for i in (*graph.inputs, *graph.constants):
        found[i] = own(graph, i)
    for e in graph.equations:
        view = as_view(found, e)
        for i in e.outputs:
            found[i] = view or own(graph, i)
    return found


def viewer(graph: Graph, definitions: Mapping[int, Equation]) -> Callable[[int], View]:
    """A function from a value to its view, computed on demand; `definitions` are by results."""
    known: dict[int, View] = {}

    def view(x: int) -> View:
        if x not in known:
            e, looked = definitions.get(x), None
            if e is not None and e.op.name in LOOKS and not isinstance(e.inputs[0], Literal):
                looked = LOOKS[e.op.name](view(e.inputs[0]), *e.static)
            known[x] = looked or own(graph, x)
        return known[x]

    return view


def own(graph: Graph, i: int) -> View:
    """The view of a root: the whole of its own memory."""
    shape = graph.avals[i].shape
    return View(i, shape, row_major(shape))


def as_view(known: dict[int, View], e: Equation) -> View | None:
    """The result of an equation as a view of its operand; None if it needs memory of its own."""
    look = LOOKS.get(e.op.name)
    if look is None or isinstance(e.inputs[0], Literal):
        return None
    return look(known[e.inputs[0]], *e.static)


def _permute(v: View, axes: Shape) -> View:
    return replace(
        v, shape=tuple(v.shape[a] for a in axes), strides=tuple(v.strides[a] for a in axes)
    )


def _spread(v: View, shape: Shape) -> View:
    new = len(shape) - len(v.shape)
    pairs = zip(v.shape, v.strides, shape[new:], strict=True)
    strides = [s if n == wide else 0 for n, s, wide in pairs]
    return replace(v, shape=tuple(shape), strides=((0,) * new + tuple(strides)))


def _slice(v: View, index: tuple[int | tuple[int, int, int] | None, ...]) -> View:
    shape, strides, offset, axis = [], [], v.offset, 0
    for p in index:
        if p is None:
            shape.append(1)
            strides.append(0)
            continue
        stride = v.strides[axis]
        axis += 1
        if isinstance(p, int):
            offset += p * stride
            continue
        start, count, step = p
        offset += start * stride
        shape.append(count)
        strides.append(step * stride)
    return View(v.root, tuple(shape), tuple(strides), offset if prod(shape) else 0)


def _flip(v: View, axes: Shape) -> View:
    if not prod(v.shape):
        return v
    strides, offset = list(v.strides), v.offset
    for a in axes:
        offset += (v.shape[a] - 1) * strides[a]
        strides[a] = -strides[a]
    return replace(v, strides=tuple(strides), offset=offset)


def _reshape(v: View, shape: Shape) -> View | None:
    """Collapse axes that are contiguous, then split them; None if strides cannot express it."""
    shape = tuple(shape)
    if not prod(shape):
        return View(v.root, shape, row_major(shape))
    old = [(n, s) for n, s in zip(v.shape, v.strides, strict=True) if n != 1]
    strides, at = [], 0
    for axes in _blocks([n for n, _ in old], [n for n in shape if n != 1]):
        lengths, count = axes
        block = old[at : at + count]
        at += count
        if any(s != t * n for (_, s), (n, t) in pairwise(block)):
            return None
        strides += [block[-1][1] * below for below in row_major(lengths)]
    made = iter(strides)
    return replace(v, shape=shape, strides=tuple(0 if n == 1 else next(made) for n in shape))


def _blocks(old: list[int], new: list[int]) -> list[tuple[tuple[int, ...], int]]:
    """Runs of new axes, each with the number of old axes that hold as many elements."""
    found, i, j = [], 0, 0
    while i < len(new):
        start, count = j, 1
        lengths, size, have = [new[i]], new[i], old[j]
        i, j = i + 1, j + 1
        while size != have:
            if size < have:
                lengths.append(new[i])
                size, i = size * new[i], i + 1
            else:
                have, j = have * old[j], j + 1
        count = j - start
        found.append((tuple(lengths), count))
    return found


def _same(v: View, *_static: Any) -> View:
    return v


LOOKS: dict[str, Callable[..., View | None]] = {
    "permute": _permute,
    "broadcast_to": _spread,
    "slice_": _slice,
    "flip": _flip,
    "reshape": _reshape,
    **dict.fromkeys(("alias", "detach", "guard", "later", "accumulate"), _same),
}
