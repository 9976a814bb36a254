"""Expansions of rearrangements: rolls as two pieces, triangles as masks."""

import numpy as np

from ...graph.graph import Literal
from .expand import expands
from .rewriting import Builder

# Most elements of a mask that is stored as a constant.
MASK = 1 << 22


@expands("roll")
def _roll(b: Builder, x, shifts, axes):
    for shift, axis in zip(shifts, axes, strict=True):
        shape = b.shape(x)
        n = shape[axis]
        if shift % n:
            cut = n - shift % n
            pieces = [_narrow(b, x, axis, cut, n), _narrow(b, x, axis, 0, cut)]
            x = b.emit("concat", pieces, axis, (n - cut, n))
    return x


def _narrow(b: Builder, x: int, axis: int, start: int, stop: int) -> int:
    """x[start:stop] along an axis."""
    index = [(0, n, 1) for n in b.shape(x)]
    index[axis] = (start, stop - start, 1)
    return b.emit("slice_", x, tuple(index))


@expands("tril")
def _lower(b: Builder, x, k):
    rows, columns = b.shape(x)[-2:]
    return _mask(b, x, np.tri(rows, columns, k, dtype=bool))


@expands("triu")
def _upper(b: Builder, x, k):
    rows, columns = b.shape(x)[-2:]
    return _mask(b, x, ~np.tri(rows, columns, k - 1, dtype=bool))


def _mask(b: Builder, x: int, mask: np.ndarray):
    return b.emit("where", b.constant(mask), x, Literal(0)) if mask.size <= MASK else None
