"""torch's pools under the rows' names, with padding that may differ at the two ends.

Arrays are (..., *size), results (..., *counts). Taps are numbered in the order of memory.
"""

from functools import lru_cache
from math import prod

import numpy as np
import torch
from torch.nn import functional

from ..shared.window_sizes import counts_of, size_of, tap_dtype
from .convolve import in_float32, pad
from .types import Array, Function, Padding, Sizes

_LARGEST = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}


def _lines(x: Array, axes: int) -> Array:
    """(..., *size) as (lines, 1, *size)."""
    k = x.ndim - axes
    return x.reshape(prod(x.shape[:k]), 1, *x.shape[k:])


def _check(x: Array, axes: int) -> tuple[int, ...]:
    """The axes in front."""
    if x.ndim < axes:
        raise ValueError("too few axes")  # the row's shape rule says so
    return tuple(x.shape[: x.ndim - axes])


def _raw(dtype: np.dtype) -> torch.dtype:
    return torch.uint8 if dtype.itemsize == 1 else torch.int64


def _along(n: int, axis: int, axes: int, step: int, device: torch.device) -> Array:
    """0, step, 2·step, ... along one of the last axes."""
    return (torch.arange(n, device=device) * step).reshape(-1, *(1,) * (axes - 1 - axis))


def _to_taps(places: Array, size: Sizes, kernel: Sizes, stride: Sizes, dilation: Sizes) -> Array:
    """Flat positions in the padded array as taps."""
    taps = torch.zeros_like(places)
    for axis, (n, k, s, d) in enumerate(zip(size, kernel, stride, dilation, strict=True)):
        at = places // prod(size[axis + 1 :]) % n
        first = _along(places.shape[axis - len(size)], axis, len(size), s, places.device)
        taps = taps * k + (at - first) // d
    return taps


def _to_places(taps: Array, size: Sizes, kernel: Sizes, stride: Sizes, dilation: Sizes) -> Array:
    """The inverse of `_to_taps`."""
    taps = taps.long()
    places = torch.zeros_like(taps)
    for axis, (n, k, s, d) in enumerate(zip(size, kernel, stride, dilation, strict=True)):
        at = taps // prod(kernel[axis + 1 :]) % k * d
        first = _along(taps.shape[axis - len(size)], axis, len(size), s, taps.device)
        places = places * n + at + first
    return places


def max_pool(
    x: Array, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> tuple[Array, Array]:
    lead = _check(x, len(kernel))
    wide = pad(_lines(x, len(kernel)), padding, -torch.inf)
    size = tuple(wide.shape[2:])
    counts = _counts(size, kernel, stride, dilation)
    if not x.numel():
        empty = x.new_empty((*lead, *counts))
        return empty, empty.to(_raw(tap_dtype(kernel)))
    y, places = _LARGEST[len(kernel)](wide, kernel, stride, 0, dilation, False, True)
    taps = _to_taps(places, size, kernel, stride, dilation).to(_raw(tap_dtype(kernel)))
    return y.reshape(*lead, *counts), taps.reshape(*lead, *counts)


@lru_cache(maxsize=256)
def _counts(size: Sizes, kernel: Sizes, stride: Sizes, dilation: Sizes) -> tuple[int, ...]:
    return counts_of(size, kernel, stride, ((0, 0),) * len(size), dilation)


def pool_pick(
    x: Array, taps: Array, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> Array:
    axes = len(kernel)
    lead = _check(x, axes)
    wide = pad(_lines(x, axes), padding)
    size = tuple(wide.shape[2:])
    if tuple(taps.shape) != (*lead, *_counts(size, kernel, stride, dilation)):
        raise ValueError("taps do not fit")  # the row's shape rule says how
    places = _to_places(_lines(taps, axes), size, kernel, stride, dilation)
    n = wide.shape[0]
    picked = wide.reshape(n, prod(size)).gather(1, places.reshape(n, prod(places.shape[2:])))
    return picked.reshape(taps.shape)


def pool_put(
    y: Array, taps: Array, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> Array:
    axes = len(kernel)
    lead = _check(y, axes)
    if taps.shape != y.shape:
        raise ValueError("taps do not fit")  # the row's shape rule says how
    counts = tuple(y.shape[len(lead) :])
    size = size_of(counts, kernel, stride, ((0, 0),) * axes, dilation)
    places = _to_places(_lines(taps, axes), size, kernel, stride, dilation)
    n, count = prod(lead), prod(counts)
    summed = torch.float32 if y.dtype in (torch.float16, torch.bfloat16) else y.dtype
    out = torch.zeros((n, prod(size)), dtype=summed, device=y.device)
    out.scatter_add_(1, places.reshape(n, count), y.reshape(n, count).to(summed))
    wide = out.to(y.dtype).reshape(*lead, *size)
    return pad(wide, [(-a, -b) for a, b in padding])


def _by_parts(kernel: Function) -> Function:
    """A linear kernel of real arrays for complex ones, and for half precision."""
    real = in_float32(kernel)

    def compute(x, *how):
        if not x.is_complex():
            return real(x, *how)
        return torch.complex(real(x.real, *how), real(x.imag, *how))

    return compute  # type: ignore[return-value]


def _in_space(kernel: Sizes, stride: Sizes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Windows over three axes: torch's only pools that take any divisor and lie in space."""
    missing = (1,) * (3 - len(kernel))
    return (*missing, *kernel), (*missing, *stride)


@_by_parts
def sum_pool(x: Array, kernel: Sizes, stride: Sizes, padding: Padding) -> Array:
    lead, axes = _check(x, len(kernel)), len(kernel)
    wide = pad(_lines(x, axes), padding)
    counts = _counts(tuple(wide.shape[2:]), kernel, stride, (1,) * axes)
    if not x.numel():
        return x.new_zeros((*lead, *counts))
    space = wide.reshape(wide.shape[0], 1, *(1,) * (3 - axes), *wide.shape[2:])
    y = functional.avg_pool3d(space, *_in_space(kernel, stride), divisor_override=1)
    return y.reshape(*lead, *counts)


@_by_parts
def spread_pool(y: Array, kernel: Sizes, stride: Sizes, padding: Padding) -> Array:
    lead, axes = _check(y, len(kernel)), len(kernel)
    counts = tuple(y.shape[len(lead) :])
    size = size_of(counts, kernel, stride, ((0, 0),) * axes, (1,) * axes)
    if not y.numel():
        return y.new_zeros((*lead, *size_of(counts, kernel, stride, padding, (1,) * axes)))
    missing = (1,) * (3 - axes)
    space = y.reshape(prod(lead), 1, *missing, *counts)
    like = y.new_empty((prod(lead), 1, *missing, *size))
    how = *_in_space(kernel, stride), (0, 0, 0), False, True, 1
    wide = torch.ops.aten.avg_pool3d_backward(space, like, *how)
    return pad(wide.reshape(*lead, *size), [(-a, -b) for a, b in padding])
