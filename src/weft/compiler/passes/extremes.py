"""Expansions of argmax and argmin: the first index whose element is the extreme."""

import numpy as np

from ...core import dtypes
from ...graph.graph import Literal
from .expand import expands
from .rewriting import Builder


def _find_extreme(b: Builder, x: int, axis: int, row: str) -> tuple[int, int]:
    """The extreme along an axis and its first index, both keeping the axis; NaN is the extreme."""
    n, ndim = b.shape(x)[axis], len(b.shape(x))
    top = b.emit(row, x, (axis,), True)
    hit = b.emit("equal", x, top)
    if b.dtype(x) in dtypes.REAL:
        hit = b.emit("logical_or", hit, b.emit("isnan", x))
    places = np.arange(n, dtype=np.int32).reshape((n, *(1,) * (ndim - 1 - axis)))
    found = b.emit("where", hit, b.constant(places), Literal(n))
    return top, b.emit("cast", b.emit("amin", found, (axis,), True), dtypes.int64)


def _along(b: Builder, x: int, axis: int | None, keepdims: bool, row: str) -> int | None:
    shape = b.shape(x)
    if axis is None:
        x, axis = b.emit("reshape", x, (int(np.prod(shape)),)), 0
        kept = (1,) * len(shape) if keepdims else ()
    else:
        kept = (*shape[:axis], *((1,) if keepdims else ()), *shape[axis + 1 :])
    if b.shape(x)[axis] >= 1 << 31:
        return None
    _, places = _find_extreme(b, x, axis, row)
    return places if b.shape(places) == kept else b.emit("reshape", places, kept)


@expands("argmax")
def _argmax(b: Builder, x, axis, keepdims):
    return _along(b, x, axis, keepdims, "amax")


@expands("argmin")
def _argmin(b: Builder, x, axis, keepdims):
    return _along(b, x, axis, keepdims, "amin")


@expands("max_with_indices")
def _max_with_indices(b: Builder, x, axis):
    return _find_extreme(b, x, axis, "amax") if b.shape(x)[axis] < 1 << 31 else None


@expands("min_with_indices")
def _min_with_indices(b: Builder, x, axis):
    return _find_extreme(b, x, axis, "amin") if b.shape(x)[axis] < 1 << 31 else None
