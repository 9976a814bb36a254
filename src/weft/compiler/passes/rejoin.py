"""Slices of an array that are concatenated again: the array itself."""

from collections.abc import Sequence
from math import prod

from ..ir.views import View, viewer
from .rewriting import Builder

_LOOKS = ("slice_", "permute", "reshape")


def rejoin(b: Builder, parts: Sequence[int], axis: int, stacked: bool) -> int | None:
    """The array that parts were sliced from, if concatenated they are all of it in its order."""
    root = _root(b, parts[0])
    if root is None or any(_root(b, p) != root for p in parts[1:]):
        return None
    view = viewer(b.graph, b.definitions)
    whole = _join_views([view(p) for p in parts], axis, stacked)
    if whole is None or whole.root != root or whole.offset or not whole.contiguous:
        return None
    if prod(whole.shape) != prod(b.shape(root)):
        return None
    return root if b.shape(root) == whole.shape else b.emit("reshape", root, whole.shape)


def _root(b: Builder, x: int) -> int | None:
    """The root that a part was sliced from; None if it is not a part."""
    found = None
    while (e := b.made_by(x, *_LOOKS)) is not None:
        found = x = e.inputs[0]
    return found


def _join_views(parts: Sequence[View], axis: int, stacked: bool) -> View | None:
    """Adjacent views as one view; None if they are not adjacent."""
    if stacked:
        parts = [_with_axis(p, axis) for p in parts]
    first = parts[0]
    if len(parts) < 2:
        return None
    far = parts[1].offset - first.offset
    step, rest = divmod(far, first.shape[axis]) if first.shape[axis] else (0, 1)
    if rest:
        return None
    at = first.offset
    for p in parts:
        strides = [step if a == axis else s for a, s in enumerate(first.strides)]
        same = all(s == t or n == 1 for s, t, n in zip(strides, p.strides, p.shape, strict=True))
        if p.offset != at or not same:
            return None
        at += p.shape[axis] * step
    shape, strides = list(first.shape), list(first.strides)
    shape[axis], strides[axis] = sum(p.shape[axis] for p in parts), step
    return View(first.root, tuple(shape), tuple(strides), first.offset)


def _with_axis(p: View, axis: int) -> View:
    """A view with a new axis of length 1."""
    shape, strides = list(p.shape), list(p.strides)
    shape.insert(axis, 1)
    strides.insert(axis, 0)
    return View(p.root, tuple(shape), tuple(strides), p.offset)
