"""ATen's pools under the rows' names, with padding that may differ at the two ends.

Arrays are (..., *size), results (..., *counts). Taps are numbered in the order of memory.
"""

from functools import lru_cache
from math import prod

import numpy as np
import torch

from ..shared.window_sizes import counts_of, size_of, tap_dtype
from .convolve import in_float32, pad
from .types import Array, Function, Padding, Sizes

_aten = torch.ops.aten
_MAX = {2: _aten.max_pool2d_with_indices.default, 3: _aten.max_pool3d_with_indices.default}
_MAX_BACK = _aten.max_pool2d_with_indices_backward.default
_SUM = {2: _aten.avg_pool2d.default, 3: _aten.avg_pool3d.default}
_SUM_BACK = {2: _aten.avg_pool2d_backward.default, 3: _aten.avg_pool3d_backward.default}


def _images(x: Array, axes: int) -> Array:
    """(..., *size) as (images, channels, *size) with two axes of size at least.

    Of arrays that have both axes in front, the memory may be in any order.
    """
    k = x.ndim - axes
    if k != 2:
        x = x.reshape(prod(x.shape[:k]), 1, *x.shape[k:])
    return x.unsqueeze(2) if axes == 1 else x


def _check(x: Array, axes: int) -> tuple[int, ...]:
    """The axes in front."""
    if x.ndim < axes:
        raise ValueError("too few axes")  # the row's shape rule says so
    return tuple(x.shape[: x.ndim - axes])


def _raw(dtype: np.dtype) -> torch.dtype:
    return torch.uint8 if dtype.itemsize == 1 else torch.int64


@lru_cache(maxsize=256)
def _counts(size: Sizes, kernel: Sizes, stride: Sizes, dilation: Sizes) -> tuple[int, ...]:
    return counts_of(size, kernel, stride, ((0, 0),) * len(size), dilation)


def _sizes(x: Array, axes: int, padding: Padding) -> tuple[int, ...]:
    """The padded sizes."""
    own = x.shape[x.ndim - axes :]
    return tuple([n + a + b for n, (a, b) in zip(own, padding, strict=True)])


def _planar(sizes: Sizes, missing: int) -> tuple[int, ...]:
    """Numbers for each axis, of two axes at least."""
    return tuple(sizes) if len(sizes) > 1 else (missing, *sizes)


@lru_cache(maxsize=256)
def _sides(
    size: Sizes, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> tuple[int, ...] | None:
    """ATen's padding, the same at both ends, for the same windows; None if there is none.

    It leaves out windows that do not end within, allows half a window, and windows within the array
    are what `_to_taps` tells apart.
    """
    found = []
    for n, k, s, (a, b), d in zip(size, kernel, stride, padding, dilation, strict=True):
        extent = d * (k - 1) + 1
        if not 0 <= 2 * a <= k or extent > n:
            return None
        if (n + 2 * a - extent) // s != (n + a + b - extent) // s:
            return None
        found.append(a)
    return tuple(found)


# -- taps and places -------------------------------------------------------------------------


def _starts(counts: Sizes, size: Sizes, stride: Sizes, before: Sizes, like: Array) -> Array:
    """The flat position of each window's first element, which may be outside of the array."""
    steps = [prod(size[k + 1 :]) for k in range(len(size))]
    first, *others = [
        torch.arange(-a * step, (count * s - a) * step, s * step, device=like.device)
        for count, s, a, step in zip(counts, stride, before, steps, strict=True)
    ]
    for along in others:
        first = first.unsqueeze(-1) + along
    return first


def _blocks(size: Sizes, kernel: Sizes) -> list[tuple[int, int]]:
    """For each axis but the first, from the last on, how many elements of an array there are to one
    step of the axis before it, and how many of a window, once the axes behind it are a window's.
    """
    found, inner = [], 1
    for n, k in zip(size[:0:-1], kernel[:0:-1], strict=True):
        found.append((n * inner, k * inner))
        inner *= k
    return found


def _offsets(size: Sizes, kernel: Sizes, dilation: Sizes, device: torch.device) -> Array:
    """By tap, the flat distance from the window's first element."""
    total = torch.zeros(1, dtype=torch.int64, device=device)
    for n, k, d in zip(size, kernel, dilation, strict=True):
        along = torch.arange(0, k * d, d, device=device)
        total = (total.unsqueeze(-1) * n + along).reshape(-1)
    return total


def _to_taps(
    places: Array,
    lowest: Array,
    size: Sizes,
    kernel: Sizes,
    stride: Sizes,
    dilation: Sizes,
    before: Sizes,
) -> Array:
    """Flat positions in arrays of a size, of which each axis holds a window, as taps.

    lowest  which windows hold −∞ alone: their first tap is given, wherever ATen says they have it
    """
    counts = places.shape[places.ndim - len(size) :]
    away = places.sub_(_starts(counts, size, stride, before, places)).masked_fill_(lowest, 0)
    if len(set(dilation)) == 1:
        taps = away if dilation[0] == 1 else away.div_(dilation[0], rounding_mode="floor")
        for wide, narrow in _blocks(size, kernel):
            taps = taps.sub_(_quotient(taps, wide), alpha=wide - narrow)
        return taps.to(_raw(tap_dtype(kernel)))
    offsets = _offsets(size, kernel, dilation, places.device)
    last = 0
    for n, k, d in zip(size, kernel, dilation, strict=True):
        last = last * n + d * (k - 1)
    taps = torch.arange(len(offsets), device=places.device).to(_raw(tap_dtype(kernel)))
    table = torch.zeros(last + 1, dtype=taps.dtype, device=places.device)
    return _pick(table.scatter_(0, offsets, taps), away)


def _first_taps(
    counts: Sizes, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes, like: Array
) -> Array:
    """`first_taps` of shared/window_sizes.py, made where they are needed."""
    taps = torch.zeros((), dtype=torch.int64, device=like.device)
    for p, n, s, (a, _), d in zip(counts, kernel, stride, padding, dilation, strict=True):
        ahead = torch.arange(a + d - 1, a + d - 1 - p * s, -s, device=like.device)
        along = ahead if d == 1 else ahead.div_(d, rounding_mode="floor")
        taps = (taps * n).unsqueeze(-1) + along.clamp_(0, n - 1)
    return taps.to(like.dtype)


def _to_places(taps: Array, size: Sizes, kernel: Sizes, stride: Sizes, dilation: Sizes) -> Array:
    """The inverse of `_to_taps`, in arrays that are padded."""
    counts = taps.shape[taps.ndim - len(size) :]
    if len(set(dilation)) == 1:
        places = taps.to(torch.int64, copy=True)
        for wide, narrow in reversed(_blocks(size, kernel)):
            places = places.add_(_quotient(places, narrow), alpha=wide - narrow)
        places = places if dilation[0] == 1 else places.mul_(dilation[0])
        return places.add_(_starts(counts, size, stride, (0,) * len(size), taps))
    offsets = _offsets(size, kernel, dilation, taps.device)
    first = _starts(counts, size, stride, (0,) * len(size), taps)
    index = taps.int() if taps.element_size() == 1 else taps.long()
    return _pick(offsets, index).add_(first)


def _quotient(x: Array, n: int) -> Array:
    """⌊x/n⌋."""
    return torch.div(x, n, rounding_mode="floor")


def _pick(table: Array, index: Array) -> Array:
    """table[index], in the order of the index's memory."""
    order = sorted(range(index.ndim), key=index.stride, reverse=True)
    lying = index.permute(order)
    picked = table.index_select(0, lying.reshape(-1)).reshape(lying.shape)
    return picked.permute([order.index(a) for a in range(index.ndim)])


# -- the largest element ---------------------------------------------------------------------


def max_pool(
    x: Array, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> tuple[Array, Array]:
    axes = len(kernel)
    lead, size = _check(x, axes), tuple(x.shape[x.ndim - axes :])
    counts = _counts(_sizes(x, axes, padding), kernel, stride, dilation)
    if not x.numel():
        empty = x.new_empty((*lead, *counts))
        return empty, empty.to(_raw(tap_dtype(kernel)))
    sides, images = _sides(size, kernel, stride, padding, dilation), _images(x, axes)
    if sides is None:
        images = pad(images, padding, -torch.inf)
        size, sides = tuple(images.shape[images.ndim - axes :]), (0,) * axes
    how = (_planar(kernel, 1), _planar(stride, 1), _planar(sides, 0), _planar(dilation, 1))
    y, places = _MAX[max(axes, 2)](images, *how)
    if axes == 1:
        y, places = y.squeeze(2), places.squeeze(2)
    lowest = y == -torch.inf
    taps = _to_taps(places, lowest, size, kernel, stride, dilation, sides)
    if any([a > 0 for a, _ in padding]):
        taps = taps.where(~lowest, _first_taps(counts, kernel, stride, padding, dilation, taps))
    return y.reshape(*lead, *counts), taps.reshape(*lead, *counts)


def pool_pick(
    x: Array, taps: Array, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> Array:
    axes = len(kernel)
    lead = _check(x, axes)
    size = _sizes(x, axes, padding)
    if tuple(taps.shape) != (*lead, *_counts(size, kernel, stride, dilation)):
        raise ValueError("taps do not fit")  # the row's shape rule says how
    places = _to_places(taps, size, kernel, stride, dilation)
    n = prod(lead)
    wide = pad(x.reshape(n, 1, *x.shape[len(lead) :]), padding).reshape(n, prod(size))
    return wide.gather(1, places.reshape(n, taps.numel() // n if n else 0)).reshape(taps.shape)


def pool_put(
    y: Array, taps: Array, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> Array:
    axes = len(kernel)
    lead = _check(y, axes)
    if taps.shape != y.shape:
        raise ValueError("taps do not fit")  # the row's shape rule says how
    counts = tuple(y.shape[len(lead) :])
    size = size_of(counts, kernel, stride, ((0, 0),) * axes, dilation)
    places = _to_places(taps, size, kernel, stride, dilation)
    put = _gathered if _is_gathered(y, axes) else _scattered
    wide = put(y, places, size, (kernel, stride, dilation))
    return pad(wide.reshape(*lead, *size), [(-a, -b) for a, b in padding])


def _is_gathered(y: Array, axes: int) -> bool:
    """Whether ATen has a kernel that looks into all windows of an element."""
    exact = not y.is_cuda or not torch.are_deterministic_algorithms_enabled()
    return axes < 3 and y.is_floating_point() and bool(y.numel()) and exact


def _gathered(y: Array, places: Array, size: Sizes, how: tuple[Sizes, ...]) -> Array:
    axes, own = len(size), y.dtype
    kernel, stride, dilation = (_planar(n, 1) for n in how)
    y, places = _images(y, axes), _images(places, axes)
    y = y if y.is_cuda or own not in (torch.float16, torch.bfloat16) else y.float()
    order = torch.channels_last if _lies_last(y) else torch.contiguous_format
    shape = (*y.shape[:2], *_planar(size, 1))
    like = torch.empty(shape, dtype=y.dtype, device=y.device, memory_format=order)
    return _MAX_BACK(y, like, kernel, stride, (0, 0), dilation, False, places).to(own)


def _lies_last(x: Array) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


def _scattered(y: Array, places: Array, size: Sizes, _how: tuple[Sizes, ...]) -> Array:
    n = prod(y.shape[: y.ndim - len(size)])
    count = y.numel() // n if n else 0
    summed = torch.float32 if y.dtype in (torch.float16, torch.bfloat16) else y.dtype
    out = torch.zeros((n, prod(size)), dtype=summed, device=y.device)
    out.scatter_add_(1, places.reshape(n, count), y.reshape(n, count).to(summed))
    return out.to(y.dtype)


# -- sums ------------------------------------------------------------------------------------


def _by_parts(kernel: Function) -> Function:
    """A linear kernel of real arrays for complex ones, and for half precision."""
    real = in_float32(kernel)

    def compute(x, *how):
        if not x.is_complex():
            return real(x, *how)
        return torch.complex(real(x.real, *how), real(x.imag, *how))

    return compute  # type: ignore[return-value]


@_by_parts
def sum_pool(x: Array, kernel: Sizes, stride: Sizes, padding: Padding) -> Array:
    axes, dense = len(kernel), (1,) * len(kernel)
    lead, size = _check(x, axes), tuple(x.shape[x.ndim - axes :])
    counts = _counts(_sizes(x, axes, padding), kernel, stride, dense)
    if not x.numel():
        return x.new_zeros((*lead, *counts))
    sides, images = _sides(size, kernel, stride, padding, dense), _images(x, axes)
    if sides is None:
        images, sides = pad(images, padding), (0,) * axes
    how = (_planar(kernel, 1), _planar(stride, 1), _planar(sides, 0), False, True, 1)
    return _SUM[max(axes, 2)](images, *how).reshape(*lead, *counts)


@_by_parts
def spread_pool(y: Array, kernel: Sizes, stride: Sizes, padding: Padding) -> Array:
    axes, dense = len(kernel), (1,) * len(kernel)
    lead = _check(y, axes)
    counts = tuple(y.shape[len(lead) :])
    size = size_of(counts, kernel, stride, padding, dense)
    if not y.numel():
        return y.new_zeros((*lead, *size))
    sides = _sides(size, kernel, stride, padding, dense)
    cut = [(0, 0)] * axes if sides else [(-a, -b) for a, b in padding]
    wide = size if sides else size_of(counts, kernel, stride, ((0, 0),) * axes, dense)
    images = _images(y, axes)
    like = images.new_empty((*images.shape[:2], *_planar(wide, 1)))
    how = (_planar(kernel, 1), _planar(stride, 1), _planar(sides or (0,) * axes, 0))
    x = _SUM_BACK[max(axes, 2)](images, like, *how, False, True, 1)
    return pad(x.reshape(*lead, *wide), cut)
