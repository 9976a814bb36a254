"""Rows: basic indexing, by integers, slices and new axes.

A basic index is written out in full, with one entry for each axis: an int, a slice as (start,
count, step), or None for a new axis. Unlike Python's slices (before 3.12) it is hashable, and it
determines the shape of its result.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import TypeAlias

from ..core.aval import Aval, Shape
from ..core.op import Caller
from ..core.types import Array
from ..errors import BatchingError, IndexingError, ShapeError
from .batching import Stated
from .rows import linear
from .samples import structural as samples

# A basic index: for each axis an element or (start, count, step); None is a new axis.
Entry: TypeAlias = int | tuple[int, int, int] | None
Index: TypeAlias = tuple[Entry, ...]


def span(s: slice, n: int) -> tuple[int, int, int]:
    """A Python slice of an axis of length n as (start, count, step)."""
    if s.start is None and s.stop is None and s.step is None:
        return 0, n, 1
    try:
        start, stop, step = s.indices(n)
    except BatchingError:
        raise
    except (TypeError, ValueError) as e:
        raise IndexingError(f"index: {e}") from None
    count = len(range(start, stop, step))
    return (start, count, step) if count else (0, 0, 1)


def everything(shape: Iterable[int]) -> Index:
    """The basic index that takes all of an array."""
    return tuple([(0, n, 1) for n in shape])


def indexed_shape(index: Index) -> tuple[int, ...]:
    """The shape of the elements at a basic index."""
    return tuple([1 if p is None else p[1] for p in index if not isinstance(p, int)])


def _check(name: str, index, shape) -> None:
    """Raise unless `index` is one of an array of this shape."""
    entries = [p for p in index if p is not None]
    if len(entries) != len(shape):
        raise IndexingError(
            f"{name}: {len(entries)} entries for the shape {shape}; give one an axis"
        )
    for axis, (p, n) in enumerate(zip(entries, shape, strict=True)):
        reached = (p,) if isinstance(p, int) else (p[0], p[0] + (p[1] - 1) * p[2]) if p[1] else ()
        for i in reached:
            if not 0 <= i < n:
                raise IndexingError(f"{name}: {i} is out of range for axis {axis} of length {n}")


def _slice_shape(x: Aval, index) -> Aval:
    _check("slice", index, x.shape)
    return x.like(indexed_shape(index))


def _unslice_shape(x: Aval, index, shape) -> Aval:
    _check("unslice", index, shape)
    if x.shape != indexed_shape(index):
        raise ShapeError(f"unslice: got {x.shape}, the index takes {indexed_shape(index)}")
    return x.like(shape)


slice_: Caller = linear(
    "slice_",
    reads="",
    shape=_slice_shape,
    transpose=[lambda g, x, index: unslice(g, index, x.shape)],
    moves="strides",
    views="always",
    batch=Stated(lambda size, index: (((0, size, 1), *index),)),
    sample=samples("slices"),
)

# Zeros of `shape` with x at the index.
unslice: Caller = linear(
    "unslice",
    reads="",
    shape=_unslice_shape,
    transpose=[lambda g, x, index, shape: slice_(g, index)],
    moves="parts",
    batch=Stated(lambda size, index, shape: (((0, size, 1), *index), (size, *shape))),
    sample=samples("unslices"),
)


@lru_cache(maxsize=1024)
def along(shape: Shape, axis: int, entry: Entry) -> Index:
    """The basic index that takes `entry` on one axis and all of the others."""
    return (*everything(shape[:axis]), entry, *everything(shape[axis + 1 :]))


def narrow(x: Array, axis: int, start: int, stop: int) -> Array:
    """x[start:stop] along an axis; 0 ≤ start ≤ stop ≤ length."""
    return slice_(x, along(x.shape, axis, (start, stop - start, 1)))
