"""Index checks: a guard raises the errors that a routine cannot."""

from math import prod

import numpy as np

from ...core import dtypes
from ...graph.graph import Literal
from .expand import column, expands
from .guard import WITHIN, checked_row
from .rewriting import Builder


def in_range(b: Builder, i: int, low: int, n: int, message: str) -> int:
    """The indices, guarded: each is from `low` to n − 1. The message is as `WITHIN` takes it."""
    if _is_within(b, i, low, n):
        return i
    limits, tests = np.iinfo(b.dtype(i)), []
    if limits.min < low:
        tests.append(b.emit("greater_equal", i, Literal(low)))
    if limits.max >= n:
        tests.append(b.emit("less", i, Literal(n)))
    if not tests:
        return i
    fits = tests[0] if len(tests) == 1 else b.emit("logical_and", *tests)
    axes = tuple(range(len(b.shape(i))))
    flag = b.emit("all", fits, axes, False) if axes else fits
    return b.emit(WITHIN, i, flag, i, message, low, n)


def _is_within(b: Builder, i: int, low: int, n: int) -> bool:
    """Whether a guard has checked the indices already."""
    e = b.made_by(i, "guard", "reshape")
    while e is not None and e.op.name == "reshape":
        e = b.made_by(e.inputs[0], "guard", "reshape")
    if e is None or e.op is not WITHIN or e.inputs[0] != e.inputs[2]:
        return False
    _, least, size = e.static
    return low <= least and size <= n


def _from_either_end(b: Builder, called: str, i, n: int):
    """Indices of an axis of length n; negative ones count from its end."""
    return in_range(b, i, -n, n, f"{called}: index {{index}} is out of range for length {n}")


@expands("take")
def _take(b: Builder, x, i, axis):
    if isinstance(x, Literal) or isinstance(i, Literal):
        return None
    return b.emit(checked_row("take"), x, _from_either_end(b, "take", i, b.shape(x)[axis]), axis)


@expands("take_along_axis")
def _take_along(b: Builder, x, i, axis):
    i = _from_either_end(b, "take_along_axis", i, b.shape(x)[axis])
    return b.emit(checked_row("take_along_axis"), x, i, axis)


@expands("segment_sum")
def _segment_sum(b: Builder, x, i, axis, size):
    return _sum_at(b, "segment_sum", x, _from_either_end(b, "index", i, size), axis, size)


@expands("scatter_sum")
def _scatter_sum(b: Builder, x, i, axis, size):
    return _sum_at(b, "scatter_sum", x, _from_either_end(b, "scatter_sum", i, size), axis, size)


def _sum_at(b: Builder, row: str, x, i, axis: int, size: int):
    """Half types are accumulated in float32, as the backend does."""
    terms = b.emit("cast", x, dtypes.float32) if b.dtype(x) in dtypes.HALF else x
    return b.emit(checked_row(row), terms, i, axis, size)


@expands("index_put")
def _index_put(b: Builder, x, i, v, axis):
    """Broadcast the value to the shape of the indexed places, unless it is one number."""
    shape, dtype = b.shape(x), b.dtype(x)
    i = _from_either_end(b, "index", i, shape[axis])
    if isinstance(v, Literal):
        v = b.constant(np.asarray(v.value, dtype))
    if b.dtype(v) != dtype:
        v = b.emit("cast", v, dtype)
    whole = (*shape[:axis], *b.shape(i), *shape[axis + 1 :])
    if prod(b.shape(v)) != 1 and b.shape(v) != whole:
        v = b.emit("broadcast_to", v, whole)
    return b.emit(checked_row("index_put"), x, i, v, axis)


@expands("last_writes")
def _last_writes(b: Builder, i, size):
    return b.emit(checked_row("last_writes"), _from_either_end(b, "last_writes", i, size), size)


# -- indices, computed elementwise -----------------------------------------------------------


def _count_from_start(b: Builder, called: str, i, n: int) -> int:
    """Indices as int64, all counted from the start."""
    i = b.emit("cast", _from_either_end(b, called, i, n), dtypes.int64)
    return b.emit("where", b.emit("less", i, Literal(0)), b.emit("add", i, Literal(n)), i)


@expands("ravel_index")
def _ravel_index(b: Builder, arrays, sizes):
    if any(isinstance(i, Literal) for i in arrays):
        return None
    total = None
    for i, n in zip(arrays, sizes, strict=True):
        at = _count_from_start(b, "index", i, n)
        if total is not None:
            at = b.emit("add", b.emit("multiply", total, Literal(n)), at)
        total = at
    return total


@expands("along_positions")
def _along_positions(b: Builder, i, axis, shape, called):
    if isinstance(i, Literal):
        return None
    total, stride = _count_from_start(b, called, i, shape[axis]), 1
    own = b.shape(i)
    for a in reversed(range(len(shape))):
        if a == axis and stride != 1:
            total = b.emit("multiply", total, Literal(stride))
        stride *= shape[a]
    stride = 1
    for a in reversed(range(len(shape))):
        if a != axis and own[a] > 1:
            steps = np.arange(own[a], dtype=np.int64) * stride
            steps = steps.reshape((-1,) + (1,) * (len(shape) - 1 - a))
            total = b.emit("add", total, b.constant(steps))
        stride *= shape[a]
    return total


@expands("one_hot")
def _one_hot(b: Builder, i, n, dtype):
    if isinstance(i, Literal) or n > np.iinfo(b.dtype(i)).max:
        return None
    i = in_range(b, i, 0, n, f"one_hot: classes {{low}} to {{high}} are not all in 0 to {n - 1}")
    every = b.constant(np.arange(n, dtype=b.dtype(i)))
    same = b.emit("equal", column(b, i), every)
    return b.emit("cast", same, dtypes.canonical(dtype))
