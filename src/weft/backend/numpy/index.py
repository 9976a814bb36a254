"""NumPy's names and dtypes fixed for the shape and index rows."""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ...core.dtypes import HALF
from ..shared import blas
from .types import Array, Axes, Index, Operand, Shape

# Up to this size filling fresh memory is faster than the view of np.broadcast_to.
_SMALL = 8192
# Between these sizes BLAS sums along an axis faster; above, its threads may have to wait.
_BLAS_FROM, _BLAS_TO = 4096, 1 << 20
# From this size on BLAS wakes its threads, which then spin for a while.
_BLAS_SHARES = 1 << 17
# Up to this size `dot` is done before `reduce` has parsed its arguments.
_BY_HAND = 512
# From this size on: BLAS sums blocks of _SHORT, NumPy the sums of the blocks.
_BY_BLOCKS = 16384
_EVERY = [tuple(range(ndim)) for ndim in range(65)]
_SHORT, _LONG = 1024, 65536


def _is_half(x: Array) -> bool:
    return x.itemsize == 2 and x.dtype in HALF


def reshape(x: Array, shape: Shape) -> Array:
    return x.reshape(shape)


def permute(x: Array, axes: Axes) -> Array:
    return x.transpose(axes)


@lru_cache(maxsize=256)
def _backwards(ndim: int, axes: tuple[int, ...]) -> tuple[slice, ...]:
    """The key that reverses these axes; `np.flip` takes ten times as long to build it."""
    steps = [1] * ndim
    for a in axes:
        steps[a] = -1
    return tuple([slice(None, None, step) for step in steps])


def flip(x: Array, axes: Axes) -> Array:
    return x[_backwards(x.ndim, axes)]


def copy(x: Array) -> Array:
    return x.copy()


def broadcast_to(x: Array, shape: Shape) -> Array:
    if x.ndim > len(shape) or prod(shape) > _SMALL:
        return np.broadcast_to(x, shape)
    out = np.empty(shape, x.dtype)
    out[...] = x
    return out


_add: Any = np.add  # its stub knows keywords only


@lru_cache(maxsize=64)
def _ones(n: int, dtype: np.dtype) -> np.ndarray:
    return np.ones(n, dtype)


def sum(x: Array, axes: Axes, keepdims: bool) -> Array:
    if x.itemsize == 2 and x.dtype in HALF:
        return _add.reduce(x, axes, np.float32, None, keepdims).astype(x.dtype)
    n = x.size
    if (n <= _BY_HAND or n >= _BY_BLOCKS) and axes == _EVERY[x.ndim] and x.dtype.char in "fd":
        flat = x if x.ndim == 1 else x.ravel()
        total = flat.dot(_ones(n, x.dtype)) if n <= _BY_HAND else _sum_by_blocks(flat)
        return total.reshape((1,) * x.ndim) if keepdims else total
    if _BLAS_FROM <= n <= _BLAS_TO and x.dtype.char in "fd" and x.flags.c_contiguous:
        k = len(axes)
        if 0 < k < x.ndim:
            ones = (1,) * k if keepdims else ()
            if axes == tuple(range(k)) and prod(x.shape[:k]) <= _LONG:
                return _sum_of_rows(x, k).reshape(ones + x.shape[k:])
            if axes == tuple(range(x.ndim - k, x.ndim)) and prod(x.shape[-k:]) <= _SHORT:
                return _sum_in_rows(x, k).reshape(x.shape[:-k] + ones)
            if axes == (0, *range(2, x.ndim)) and prod(x.shape[2:]) <= _SHORT:
                # Over images and places, for a bias of channels.
                return _add.reduce(sum(x, axes[1:], keepdims), 0, None, None, keepdims)
    return _add.reduce(x, axes, None, None, keepdims)


def _sum_by_blocks(flat: Array) -> Array:
    """The sum of a long line: as exact as NumPy's, which adds by pairs, in half the time."""
    n = flat.size // _SHORT * _SHORT
    ones, rest = _ones(_SHORT, flat.dtype), flat[n:]
    return _add.reduce(flat[:n].reshape(-1, _SHORT).dot(ones)) + rest.dot(ones[: rest.size])


def _sum_of_rows(x: Array, k: int) -> Array:
    """The sum over k leading axes. NumPy too adds row to row, but BLAS in less time."""
    rows = prod(x.shape[:k])
    return _by_one(_ones(rows, x.dtype), x.reshape(rows, -1), x.size)


def _sum_in_rows(x: Array, k: int) -> Array:
    """The sum over k trailing axes. NumPy adds by pairs, which pays only in long rows."""
    length = prod(x.shape[-k:])
    return _by_one(x.reshape(-1, length), _ones(length, x.dtype), x.size)


def _by_one(a: Array, b: Array, size: int) -> Array:
    """a @ b by the calling thread."""
    if size < _BLAS_SHARES:
        return a @ b
    # This computes the gradient of a layer's bias, between kernels whose threads need the cores.
    with blas.alone():
        return a @ b


@lru_cache(maxsize=1024)
def _key(index: Index) -> tuple[int | slice | None, ...]:
    """NumPy's own key of a basic index."""
    return tuple(map(_entry, index))


def _entry(p: Any) -> int | slice | None:
    if p is None or p.__class__ is int:
        return p
    start, count, step = p
    stop = start + count * step
    return slice(start, stop if stop >= 0 else None, step)


def slice_(x: Array, index: Index) -> Array:
    return x[_key(index)]


def unslice(x: Array, index: Index, shape: Shape, fill: complex = 0) -> Array:
    nothing = fill == 0 and not np.signbit(fill.real)
    out = np.zeros(shape, x.dtype) if nothing else np.full(shape, fill, x.dtype)
    out[_key(index)] = x
    return out


def slice_set(x: Array, v: Operand, index: Index) -> Array:
    return write_slice(np.array(x), v, index)


def write_slice(x: Array, v: Operand, index: Index) -> Array:
    """v written into x itself."""
    x[_key(index)] = v
    return x


def add_slice(x: Array, v: Operand, index: Index) -> None:
    """v added to x at a basic index, in place."""
    x[_key(index)] += v


def _matrices(x: Array) -> Array:
    if x.ndim < 2:
        raise ValueError(f"{x.ndim} axes")
    return x


def tril(x: Array, k: int) -> Array:
    return np.tril(_matrices(x), k)


def triu(x: Array, k: int) -> Array:
    return np.triu(_matrices(x), k)


def windows(x: Array, size: int, step: int, axis: int) -> Array:
    count = (x.shape[axis] - size) // step + 1
    if size < 1 or step < 1 or count < 1:
        raise ValueError(f"windows of {size} by steps of {step} along {x.shape[axis]}")
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :], size)
    strides = [s * step if i == axis else s for i, s in enumerate(x.strides)]
    return as_strided(x, shape, (*strides, x.strides[axis]), writeable=False)


def overlap_add(x: Array, step: int, axis: int, n: int) -> Array:
    count, size = x.shape[axis], x.shape[-1]
    kind = np.float32 if _is_half(x) else x.dtype
    out = np.zeros((*x.shape[:axis], n, *x.shape[axis + 1 : -1]), kind)
    target, source = np.moveaxis(out, axis, 0), np.moveaxis(x, axis, 0)
    if size <= count:
        for j in range(size):
            target[j : j + (count - 1) * step + 1 : step] += source[..., j]
    else:
        for k in range(count):
            target[k * step : k * step + size] += np.moveaxis(source[k], -1, 0)
    return out.astype(x.dtype, copy=False)


def as_index(i: Any, like: Array) -> np.ndarray:
    """Foreign indices as an array beside `like`."""
    return np.asarray(i)


def _integers(i: Array) -> np.ndarray:
    if i.dtype.kind not in "iu":
        raise TypeError(f"indices of dtype {i.dtype}")
    return i.astype(np.intp, copy=False)


def _indices(i: Array, n: int) -> np.ndarray:
    """Indices of an axis of length n as flat nonnegative ones; raises if one is out of range."""
    flat = np.ascontiguousarray(_integers(i)).reshape(-1)
    if not flat.size or flat.view(np.uintp).max() < n:  # without a sign, negative is large
        return flat
    low, high = flat.min(), flat.max()
    if low < -n or high >= n:
        raise IndexError(f"index {high if high >= n else low} is out of range for length {n}")
    return np.where(flat < 0, flat + n, flat)


def _on(axis: int, i: Array) -> tuple[slice | Array, ...]:
    return (slice(None),) * axis + (i,)


def take(x: Array, i: Array, axis: int) -> Array:
    i = _integers(i)
    try:
        # np.take copies all of an array that is not contiguous.
        return x.take(i, axis) if x.flags.c_contiguous else x[_on(axis, i)]
    except IndexError:
        _indices(i, x.shape[axis])  # its error names no axis: that may be a batch's
        raise


def segment_sum(x: Array, i: Array, axis: int, size: int) -> Array:
    k, lead, rest = i.size, x.shape[:axis], x.shape[axis + i.ndim :]
    rows = x.reshape(prod(lead), k, prod(rest)).transpose(1, 0, 2).reshape(k, prod(lead + rest))
    if _is_half(x):
        rows = rows.astype(np.float32)
    total = _added_rows(rows, _indices(i, size), size).reshape(size, prod(lead), prod(rest))
    total = total.transpose(1, 0, 2).reshape((*lead, size, *rest))
    return total.astype(x.dtype, copy=False)


def _added_rows(rows: Array, i: Array, size: int) -> Array:
    """Zeros with row k of `rows` added to row i[k]."""
    k, m = rows.shape
    if m >= 4 and k * m >= 8192 and rows.dtype.kind in "fc":
        from scipy.sparse import csc_array

        chosen = np.ones(k, rows.dtype), i, np.arange(k + 1)
        return csc_array(chosen, shape=(size, k)) @ rows
    out = np.zeros(size * m, rows.dtype)
    if m != 1:
        i = (i[:, None] * m + np.arange(m)).reshape(-1)
    np.add.at(out, i, rows.reshape(-1))
    return out


def index_put(x: Array, i: Array, v: Operand, axis: int) -> Array:
    return write_index(np.array(x, order="C"), i, v, axis)


def write_index(x: Array, i: Array, v: Operand, axis: int) -> Array:
    """v written into x itself, in the order of the indices: the last write wins."""
    if np.ndim(v) and i.ndim != 1:
        v = np.broadcast_to(v, (*x.shape[:axis], *i.shape, *x.shape[axis + 1 :]))
        v = v.reshape((*x.shape[:axis], i.size, *x.shape[axis + 1 :]))
    x[_on(axis, _indices(i, x.shape[axis]))] = v
    return x


def last_writes(i: Array, size: int) -> Array:
    flat = _indices(i, size)
    at = np.arange(flat.size)
    last = np.zeros(size, np.intp)
    last[flat] = at
    return (last[flat] == at).reshape(i.shape)


def _positions(i: Array, axis: int, shape: Shape) -> np.ndarray:
    """Indices along an axis as positions in a flat array of `shape`."""
    at = _indices(i, shape[axis]).reshape(i.shape)
    stride = 1
    total: Operand = 0
    for a in reversed(range(len(shape))):
        if a != axis:
            step = np.arange(i.shape[a]) * stride
            total = total + step.reshape((-1,) + (1,) * (len(shape) - 1 - a))
        else:
            total = total + at * stride
        stride *= shape[a]
    return total


def take_along_axis(x: Array, i: Array, axis: int) -> Array:
    return x.reshape(-1).take(_positions(i, axis, x.shape))


def scatter_sum(x: Array, i: Array, axis: int, size: int) -> Array:
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    out = np.zeros(prod(shape), np.float32 if _is_half(x) else x.dtype)
    np.add.at(out, _positions(i, axis, shape).reshape(-1), x.astype(out.dtype).reshape(-1))
    return out.reshape(shape).astype(x.dtype, copy=False)


def along_positions(i: Array, axis: int, shape: Shape) -> Array:
    return _positions(i, axis, shape)


def ravel_index(arrays: Sequence[Array], sizes: Shape) -> Array:
    total: Operand = 0
    for i, n in zip(arrays, sizes, strict=True):
        total = total * n + _indices(i, n).reshape(i.shape)
    return total


def one_hot(i: Array, n: int, dtype: np.dtype) -> Array:
    if i.size and (i.min() < 0 or i.max() >= n):
        raise IndexError(f"classes {i.min()} to {i.max()} are not all in 0 to {n - 1}")
    return (i[..., None] == np.arange(n)).astype(dtype)
