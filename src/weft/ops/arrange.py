"""Rows: padding, repeating, windows, diagonals and triangles."""

from collections.abc import Sequence
from functools import lru_cache
from math import isfinite
from typing import Any

import numpy as np

from ..core.aval import Aval, Shape, axis_in
from ..core.dtypes import check_holds, kind
from ..core.op import Caller
from ..core.types import Array
from ..errors import ArgumentError, ShapeError
from .batching import Along, Stacked, Stated
from .index import take
from .positions import index_like
from .rows import general, linear
from .samples import structural as samples
from .slicing import Index, everything, slice_, unslice
from .structural import broadcast_to, moveaxis, reshape


def _inner(shape: Shape, widths: Sequence[tuple[int, int]]) -> Index:
    """The basic index of what lies between the widths."""
    return tuple([(a, n - a - b, 1) for n, (a, b) in zip(shape, widths, strict=True)])


def _padded_shape(shape, widths) -> tuple[int, ...]:
    return tuple([n + a + b for n, (a, b) in zip(shape, widths, strict=True)])


def _check_widths(shape, widths) -> None:
    if len(widths) != len(shape) or any(a < 0 or b < 0 for a, b in widths):
        raise ArgumentError(
            f"pad: widths {widths} for the shape {tuple(shape)}; give (before, after) ≥ 0 for "
            "each axis"
        )


def _check_value(dtype, value) -> None:
    """Refuse a padding value that the dtype cannot represent."""
    if value.__class__ is float and kind(dtype) in ("signed integer", "unsigned integer"):
        if not isfinite(value):
            raise ArgumentError(f"pad: {value} around {dtype}: give an integer")
        value = int(value)
    check_holds("pad", dtype, value)


def _pad_shape(x: Aval, widths, value) -> Aval:
    _check_widths(x.shape, widths)
    _check_value(x.dtype, value)
    return x.like(_padded_shape(x.shape, widths))


def _pad(xp, x, widths, value):
    shape = _padded_shape(x.shape, widths)
    _check_value(xp.dtype_of(x), value)
    return xp.unslice(x, _inner(shape, widths), shape, value)


pad: Caller = general(
    "pad",
    reads="",
    compute=_pad,
    shape=_pad_shape,
    push=lambda tangents, y, x, widths, value: pad(tangents[0], widths, 0),
    pull=lambda g, y, x, widths, value: (slice_(g, _inner(g.shape, widths)),),
    arity=1,
    moves="parts",
    batch=Stated(lambda size, widths, value: (((0, 0), *widths), value)),
    sample=samples("pads"),
)


@lru_cache(maxsize=256)
def _source(n: int, width: tuple[int, int], mode: Any) -> np.ndarray:
    """Which element of an axis of length n each element of the padded axis repeats."""
    return np.pad(np.arange(n), width, mode)


def pad_by(x: Array, widths: Sequence[tuple[int, int]], mode: str) -> Array:
    """x with its edges continued: mode is edge, reflect, symmetric or wrap, as in NumPy."""
    _check_widths(x.shape, widths)
    if mode not in ("edge", "reflect", "symmetric", "wrap"):
        raise ArgumentError(f"pad: mode {mode!r}, expected edge, reflect, symmetric or wrap")
    for axis, width in enumerate(widths):
        if any(width):
            if not x.shape[axis]:
                raise ShapeError(f"pad: axis {axis} of {tuple(x.shape)} is empty: mode {mode!r}")
            x = take(x, index_like(x, _source(x.shape[axis], tuple(width), mode)), axis)
    return x


def tile(x: Array, reps: tuple[int, ...]) -> Array:
    """x repeated as a whole, reps[k] times along axis k."""
    ndim = max(len(reps), len(x.shape))
    shape = (1,) * (ndim - len(x.shape)) + tuple(x.shape)
    reps = (1,) * (ndim - len(reps)) + tuple(reps)
    pairs = tuple(zip(reps, shape, strict=True))
    apart = reshape(x, tuple(k for n in shape for k in (1, n)))
    whole = broadcast_to(apart, tuple(k for pair in pairs for k in pair))
    return reshape(whole, tuple(r * n for r, n in pairs))


def repeat(x: Array, repeats: Any, axis: int) -> Array:
    """Each element along an axis repeated, `repeats` times or as often as an array says."""
    n = x.shape[axis_in("repeat", axis, len(x.shape))]
    if isinstance(repeats, int):
        lead, rest = tuple(x.shape[:axis]), tuple(x.shape[axis + 1 :])
        spread = broadcast_to(reshape(x, (*lead, n, 1, *rest)), (*lead, n, repeats, *rest))
        return reshape(spread, (*lead, n * repeats, *rest))
    counts = np.asarray(repeats)
    if counts.shape not in ((n,), (1,)):
        raise ShapeError(f"repeat: {counts.shape} counts for an axis of length {n}")
    source = np.repeat(np.arange(n), counts)
    return take(x, index_like(x, source), axis)


def meshgrid(xs: Sequence[Array], indexing: str = "xy") -> tuple[Array, ...]:
    """The coordinates of a grid: array k holds xs[k] along its own axis."""
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"meshgrid: indexing {indexing!r}, expected 'xy' or 'ij'")
    order = list(range(len(xs)))
    if indexing == "xy" and len(xs) > 1:
        order[:2] = 1, 0
    sizes = [int(np.prod(x.shape)) for x in xs]
    grid = tuple(sizes[k] for k in order)
    lines = [tuple(sizes[k] if j == k else 1 for j in order) for k in range(len(xs))]
    return tuple(broadcast_to(reshape(x, s), grid) for x, s in zip(xs, lines, strict=True))


def _diagonal_index(lead: Sequence[int], rows: int, columns: int, offset: int) -> Index:
    """A matrix's diagonal as an index of its elements in one line."""
    start = offset if offset >= 0 else -offset * columns
    count = min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns)
    return (*everything(lead), (start, count, columns + 1) if count > 0 else (0, 0, 1))


def diagonal(x: Array, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The diagonals of the matrices over two axes, along a new last axis."""
    ndim = len(x.shape)
    if ndim < 2:
        raise ShapeError(f"diagonal: {tuple(x.shape)} has {ndim} axes, expected at least 2")
    if (axis1, axis2) != (ndim - 2, ndim - 1):
        x = moveaxis(x, (axis1, axis2), (ndim - 2, ndim - 1))
    *lead, rows, columns = x.shape
    lines = reshape(x, (*lead, rows * columns))
    return slice_(lines, _diagonal_index(lead, rows, columns, offset))


def diag_embed(x: Array, offset: int = 0) -> Array:
    """Matrices over the last two axes with x on a diagonal and zeros elsewhere."""
    if not x.shape:
        raise ShapeError("diag_embed: a 0-d array has no axis for a diagonal; reshape it to (1,)")
    *lead, count = x.shape
    n = count + abs(offset)
    lines = unslice(x, _diagonal_index(lead, n, n, offset), (*lead, n * n))
    return reshape(lines, (*lead, n, n))


def diagflat(x: Array, offset: int = 0) -> Array:
    """The matrix with all elements of x on a diagonal."""
    return diag_embed(reshape(x, (int(np.prod(x.shape)),)), offset)


def diag(x: Array, offset: int = 0) -> Array:
    """A matrix's diagonal, or the matrix that has a vector as its diagonal."""
    if len(x.shape) not in (1, 2):
        raise ShapeError(f"diag: {tuple(x.shape)} is neither a vector nor a matrix")
    return diag_embed(x, offset) if len(x.shape) == 1 else diagonal(x, offset)


def _triangle(name: str):
    def shape(x: Aval, k: int) -> Aval:
        if x.ndim < 2:
            raise ShapeError(f"{name}: {x.shape} has {x.ndim} axes, expected at least 2")
        return x

    row = linear(
        name,
        reads="",
        shape=shape,
        transpose=[lambda g, x, k: row(g, k)],
        moves="indices",
        batch=Stacked((2,)),
        sample=samples("diagonals"),
    )
    return row


tril: Caller = _triangle("tril")
triu: Caller = _triangle("triu")


def _windows_shape(x: Aval, size: int, step: int, axis: int) -> Aval:
    n = x.shape[axis_in("windows", axis, x.ndim)]
    if not 1 <= size <= n or step < 1:
        raise ArgumentError(
            f"windows: size {size} and step {step} along an axis of length {n}; expected "
            "1 ≤ size ≤ length and step ≥ 1"
        )
    return x.like((*x.shape[:axis], (n - size) // step + 1, *x.shape[axis + 1 :], size))


def _overlap_shape(x: Aval, step: int, axis: int, n: int) -> Aval:
    axis_in("overlap_add", axis, x.ndim - 1)
    _check_windows(x.shape, step, axis, n)
    return x.like((*x.shape[:axis], n, *x.shape[axis + 1 : -1]))


def _check_windows(shape, step: int, axis: int, n: int) -> None:
    count, size = shape[axis], shape[-1]
    if (n - size) // step + 1 != count:
        raise ShapeError(
            f"overlap_add: {count} windows of {size} by steps of {step} for a length of {n}, "
            f"which has {(n - size) // step + 1}"
        )


def _overlap_add(xp, x, step, axis, n):
    _check_windows(x.shape, step, axis, n)
    return xp.overlap_add(x, step, axis, n)


# Overlapping windows of an axis: the axis counts them, a new last axis is their length.
windows: Caller = linear(
    "windows",
    reads="",
    shape=_windows_shape,
    transpose=[lambda g, x, size, step, axis: overlap_add(g, step, axis, x.shape[axis])],
    moves="indices",
    views="always",
    batch=Along((2,)),
    sample=samples("windows"),
)

# The transpose of `windows`: an axis of length n with each window added at its place.
overlap_add: Caller = linear(
    "overlap_add",
    reads="",
    compute=_overlap_add,
    shape=_overlap_shape,
    transpose=[lambda g, x, step, axis, n: windows(g, x.shape[-1], step, axis)],
    moves="sums",
    batch=Along((1,)),
    sample=samples("overlaps"),
)
