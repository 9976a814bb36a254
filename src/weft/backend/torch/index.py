"""PyTorch's names and dtypes fixed for the shape and index rows."""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import torch

from .types import Array, Axes, Index, Operand, Shape

_HALF = (torch.float16, torch.bfloat16)
_UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
_INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, *_UNSIGNED)


def reshape(x: Array, shape: Shape) -> Array:
    return x.reshape(shape)


def permute(x: Array, axes: Axes) -> Array:
    return x.permute(axes)


def copy(x: Array) -> Array:
    return x.clone()


def sum(x: Array, axes: Axes, keepdims: bool) -> Array:
    if x.dtype in _UNSIGNED:  # two's complement: the sum's bits are those of signed integers
        x = x.view(torch.int64) if x.dtype == torch.uint64 else x.to(torch.int64)
        return sum(x, axes, keepdims).view(torch.uint64)
    if not axes:  # torch reads no axes as all of them
        return x.clone() if x.is_floating_point() or x.is_complex() else x.to(torch.int64)
    return torch.sum(x, axes, keepdims)


@lru_cache(maxsize=1024)
def _key(index: Index) -> tuple[tuple[int | slice | None, ...], Axes]:
    """torch's own key of a basic index, and the axes to reverse, which torch's keys cannot."""
    key: list[Any] = []
    backwards, axis = [], 0
    for p in index:
        if p.__class__ is int:
            key.append(p)
            continue
        if p is None:
            key.append(None)
        else:
            start, count, step = p  # type: ignore[misc]
            if step < 0:
                start, step = start + (count - 1) * step, -step
                backwards.append(axis)
            key.append(slice(start, start + count * step, step))
        axis += 1
    return tuple(key), tuple(backwards)


def slice_(x: Array, index: Index) -> Array:
    key, backwards = _key(index)
    return x[key].flip(backwards) if backwards else x[key]


def unslice(x: Array, index: Index, shape: Shape, fill: complex = 0) -> Array:
    key, backwards = _key(index)
    out = x.new_full(shape, fill)
    out[key] = x.flip(backwards) if backwards else x
    return out


def slice_set(x: Array, v: Operand, index: Index) -> Array:
    return write_slice(x.clone(), v, index)


def write_slice(x: Array, v: Operand, index: Index) -> Array:
    """v written into x itself."""
    key, backwards = _key(index)
    if not isinstance(v, torch.Tensor):
        x[key].fill_(v)  # assigned, it would be a tensor in the host's memory first
        return x
    x[key] = v.expand(x[key].shape).flip(backwards) if backwards else v
    return x


def add_slice(x: Array, v: Array, index: Index) -> None:
    """v added to x at a basic index, in place."""
    key, backwards = _key(index)
    x[key] += v.flip(backwards) if backwards else v


def roll(x: Array, shifts: Axes, axes: Axes) -> Array:
    return torch.roll(x, shifts, axes) if axes and x.numel() else x.clone()


def windows(x: Array, size: int, step: int, axis: int) -> Array:
    return x.unfold(axis, size, step)


def overlap_add(x: Array, step: int, axis: int, n: int) -> Array:
    shape = (*x.shape[:axis], n, *x.shape[axis + 1 : -1])
    wide = x.float() if x.dtype in _HALF else x
    return torch.ops.aten.unfold_backward(wide, shape, axis, x.shape[-1], step).to(x.dtype)


def as_index(i: Any, like: Array) -> torch.Tensor:
    """Foreign indices as an array beside `like`."""
    own = i if isinstance(i, torch.Tensor) else np.ascontiguousarray(i)
    return torch.as_tensor(own, device=like.device)


def _indices(i: Array, n: int) -> torch.Tensor:
    """Indices of an axis of length n as nonnegative ones.

    On the CPU raises if one is out of range. On a GPU that check would synchronise: there the
    kernel that uses the index aborts instead.
    """
    if i.dtype not in _INTEGERS:
        raise TypeError(f"indices of dtype {i.dtype}")
    i = i.long()
    if i.device.type == "cpu" and i.numel():
        low, high = (int(b) for b in torch.aminmax(i))
        if low < -n or high >= n:
            raise IndexError(f"index {high if high >= n else low} is out of range for length {n}")
        if low >= 0:
            return i
    return torch.where(i < 0, i + n, i)


def take(x: Array, i: Array, axis: int) -> Array:
    chosen = x.index_select(axis, _indices(i, x.shape[axis]).reshape(-1))
    return chosen.reshape((*x.shape[:axis], *i.shape, *x.shape[axis + 1 :]))


def segment_sum(x: Array, i: Array, axis: int, size: int) -> Array:
    lead, rest = x.shape[:axis], x.shape[axis + i.ndim :]
    wide = (x.float() if x.dtype in _HALF else x).reshape((*lead, i.numel(), *rest))
    out = wide.new_zeros((*lead, size, *rest))
    return out.index_add_(axis, _indices(i, size).reshape(-1), wide).to(x.dtype)


def _last(flat: Array, size: int) -> torch.Tensor:
    """For each index, the place of its last occurrence."""
    at = torch.arange(flat.numel(), device=flat.device)
    last = torch.zeros(size, dtype=torch.int64, device=flat.device)
    return last.scatter_reduce_(0, flat, at, "amax", include_self=False)[flat]


def index_put(x: Array, i: Array, v: Operand, axis: int) -> Array:
    return write_index(x.clone(), i, v, axis)


def write_index(x: Array, i: Array, v: Operand, axis: int) -> Array:
    """v written into x itself, in the order of the indices: the last write wins."""
    flat = _indices(i, x.shape[axis]).reshape(-1)
    if not isinstance(v, torch.Tensor):
        return x.index_fill_(axis, flat, v)
    v = v.expand((*x.shape[:axis], *i.shape, *x.shape[axis + 1 :]))
    v = v.reshape((*x.shape[:axis], flat.numel(), *x.shape[axis + 1 :]))
    # All writes to a place write its last value, so that their order does not matter.
    return x.index_copy_(axis, flat, v.index_select(axis, _last(flat, x.shape[axis])))


def last_writes(i: Array, size: int) -> Array:
    flat = _indices(i, size).reshape(-1)
    at = torch.arange(flat.numel(), device=flat.device)
    return (_last(flat, size) == at).reshape(i.shape)


def take_along_axis(x: Array, i: Array, axis: int) -> Array:
    return torch.gather(x, axis, _indices(i, x.shape[axis]))


def scatter_sum(x: Array, i: Array, axis: int, size: int) -> Array:
    wide = x.float() if x.dtype in _HALF else x
    out = wide.new_zeros((*x.shape[:axis], size, *x.shape[axis + 1 :]))
    return out.scatter_add_(axis, _indices(i, size), wide).to(x.dtype)


def along_positions(i: Array, axis: int, shape: Shape) -> Array:
    """Indices along an axis as positions in a flat array of `shape`."""
    total: Operand = 0
    stride = 1
    for a in reversed(range(len(shape))):
        step = torch.arange(i.shape[a], device=i.device).reshape((-1,) + (1,) * (i.ndim - 1 - a))
        total = total + (_indices(i, shape[a]) if a == axis else step) * stride
        stride *= shape[a]
    return total


def ravel_index(arrays: Sequence[Array], sizes: Shape) -> Array:
    total: Operand = 0
    inside: Operand = True
    for i, n in zip(arrays, sizes, strict=True):
        i = _indices(i, n)
        total, inside = total * n + i, inside & (i >= 0) & (i < n)
    # Unchecked on a GPU: an index out of range of one axis must stay out of range when flat.
    return torch.where(inside, total, prod(sizes))


def flatnonzero(mask: Array) -> Array:
    return torch.nonzero(mask.reshape(-1)).reshape(-1)


def one_hot(i: Array, n: int, dtype: np.dtype) -> Array:
    from .namespace import raw_dtype

    if i.device.type == "cpu" and i.numel() and (i.min() < 0 or i.max() >= n):
        raise IndexError(f"classes {i.min()} to {i.max()} are not all in 0 to {n - 1}")
    return (i.unsqueeze(-1) == torch.arange(n, device=i.device)).to(raw_dtype(dtype))
