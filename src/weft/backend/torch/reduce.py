"""PyTorch's names and dtypes fixed for the reductions and the ordering rows."""

from collections.abc import Callable
from functools import wraps
from math import inf
from math import prod as product

import torch

from ...core.dtypes import default_float
from .types import Array, Axes, Function

_UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
_HALF = (torch.float16, torch.bfloat16)
_INT64_MIN = -(2**63)


def _floating(fn: Function) -> Function:
    """`fn` on floats: integers become the default float, half types are computed in float32."""

    @wraps(fn)
    def call(x, *static):
        x = _as_floating(x)
        if x.dtype in _HALF:
            return fn(x.float(), *static).to(x.dtype)
        return fn(x, *static)

    return call  # type: ignore[return-value]


def _as_floating(x: Array) -> Array:
    """x; integers in the default float."""
    if x.is_floating_point() or x.is_complex():
        return x
    return x.to(getattr(torch, default_float().name))


def _accumulate(fn: Function) -> Function:
    """`fn`, with half types in float32, integers in 64 bits and unsigned ones kept so."""

    @wraps(fn)
    def call(x, *static):
        if x.dtype in _HALF:
            return fn(x.float(), *static).to(x.dtype)
        if x.dtype in _UNSIGNED:  # two's complement: sums and products have the same bits
            return fn(_as_int64(x), *static).view(torch.uint64)
        return fn(x, *static)

    return call  # type: ignore[return-value]


def _as_int64(x: Array) -> Array:
    return x.view(torch.int64) if x.dtype == torch.uint64 else x.to(torch.int64)


def _comparable(x: Array) -> Array:
    """x in a dtype that torch compares and sorts, in the same order."""
    if x.is_complex():
        raise TypeError("complex numbers have no order")
    if x.dtype == torch.uint64:
        return x.view(torch.int64) ^ _INT64_MIN
    if x.dtype in (torch.uint16, torch.uint32):
        return x.to(torch.int64)
    return x.to(torch.uint8) if x.dtype == torch.bool else x


def _restore(y: Array, dtype: torch.dtype) -> Array:
    """What `_comparable` made of an array of `dtype`, turned back."""
    if dtype == torch.uint64:
        return (y ^ _INT64_MIN).view(torch.uint64)
    return y.to(dtype)


@_floating
def mean(x: Array, axes: Axes, keepdims: bool) -> Array:
    return torch.mean(x, axes, keepdim=keepdims) if axes else x.clone()


@_floating
def var(x: Array, axes: Axes, keepdims: bool, correction: float) -> Array:
    freedom = product([x.shape[a] for a in axes]) - correction
    if axes and freedom > 0 and x.numel():
        return torch.var(x, axes, correction=correction, keepdim=keepdims)
    # Where there is nothing to divide by torch warns.
    d = (x - mean(x, axes, True)).abs() ** 2
    return (torch.sum(d, axes, keepdim=keepdims) if axes else d) / max(freedom, 0)


@_floating
def std(x: Array, axes: Axes, keepdims: bool, correction: float) -> Array:
    return torch.sqrt(var(x, axes, keepdims, correction))


@_accumulate
def product_over(x: Array, axes: Axes, keepdims: bool) -> Array:
    if not x.is_floating_point() and not x.is_complex():
        x = x.to(torch.int64)
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, axis, keepdim=keepdims)
    return x if axes else x.clone()


def _extreme(fn: Callable[..., Array], x: Array, axes: Axes, keepdims: bool) -> Array:
    if not axes:  # to torch, no axes are all of them
        return x.clone()
    return _restore(fn(_comparable(x), axes, keepdim=keepdims), x.dtype)


def amax(x: Array, axes: Axes, keepdims: bool) -> Array:
    return _extreme(torch.amax, x, axes, keepdims)


def amin(x: Array, axes: Axes, keepdims: bool) -> Array:
    return _extreme(torch.amin, x, axes, keepdims)


def argmax(x: Array, axis: int, keepdims: bool) -> Array:
    return torch.argmax(_comparable(x), axis, keepdim=keepdims)


def argmin(x: Array, axis: int, keepdims: bool) -> Array:
    return torch.argmin(_comparable(x), axis, keepdim=keepdims)


def any(x: Array, axes: Axes, keepdims: bool) -> Array:
    x = x != 0
    return torch.any(x, axes, keepdim=keepdims) if axes else x


def all(x: Array, axes: Axes, keepdims: bool) -> Array:
    x = x != 0
    return torch.all(x, axes, keepdim=keepdims) if axes else x


def count_nonzero(x: Array, axes: Axes, keepdims: bool) -> Array:
    x = x != 0
    return torch.sum(x, axes, keepdim=keepdims) if axes else x.to(torch.int64)


@_floating
def p_norm(x: Array, axes: Axes, keepdims: bool, p: float) -> Array:
    """(Σ|x|ᵖ)^(1/p)."""
    return torch.linalg.vector_norm(x, p, axes, keepdim=keepdims) if axes else x.abs()


@_floating
def logsumexp(x: Array, axes: Axes, keepdims: bool) -> Array:
    return torch.logsumexp(x, axes, keepdim=keepdims) if axes else x.clone()


def softmax(x: Array, axis: int) -> Array:
    return torch.softmax(_as_floating(x), axis)  # half types are summed in float32


def log_softmax(x: Array, axis: int) -> Array:
    return torch.log_softmax(_as_floating(x), axis)


@_floating
def shares(x: Array, axes: Axes) -> Array:
    if not axes:
        return torch.where(x == -inf, 0, x - x + 1)
    y = torch.logsumexp(x, axes, keepdim=True)
    e = torch.exp(x - torch.where(y == -inf, 0, y))
    total = e.sum(axes, keepdim=True)
    return torch.where(total == 0, 0, e / total)


def softmax_product(t: Array, y: Array, axis: int) -> Array:
    return torch.ops.aten._softmax_backward_data(t, y, axis, y.dtype)


def log_softmax_product(t: Array, y: Array, axis: int) -> Array:
    return torch.ops.aten._log_softmax_backward_data(t, y, axis, y.dtype)


@_accumulate
def cumsum(x: Array, axis: int) -> Array:
    return torch.cumsum(x, axis)


@_accumulate
def cumprod(x: Array, axis: int) -> Array:
    return torch.cumprod(x, axis)


@_floating
def logcumsumexp(x: Array, axis: int) -> Array:
    return torch.logcumsumexp(_comparable(x), axis)


def cummax(x: Array, axis: int) -> tuple[Array, Array]:
    y, index = torch.cummax(_comparable(x), axis)
    return _restore(y, x.dtype), index


def cummin(x: Array, axis: int) -> tuple[Array, Array]:
    y, index = torch.cummin(_comparable(x), axis)
    return _restore(y, x.dtype), index


def sort(x: Array, axis: int, descending: bool) -> Array:
    return _restore(torch.sort(_comparable(x), axis, descending)[0], x.dtype)


def argsort(x: Array, axis: int, descending: bool) -> Array:
    return torch.sort(_comparable(x), dim=axis, descending=descending, stable=True)[1]


def topk(x: Array, k: int, axis: int, largest: bool) -> tuple[Array, Array]:
    # By a stable sort: of equal ones the first come first.
    y, index = torch.sort(_comparable(x), dim=axis, descending=largest, stable=True)
    return _restore(y.narrow(axis, 0, k), x.dtype).clone(), index.narrow(axis, 0, k).clone()


def max_with_indices(x: Array, axis: int) -> tuple[Array, Array]:
    y, index = torch.max(_comparable(x), axis, keepdim=True)
    return _restore(y, x.dtype), index


def min_with_indices(x: Array, axis: int) -> tuple[Array, Array]:
    y, index = torch.min(_comparable(x), axis, keepdim=True)
    return _restore(y, x.dtype), index


def searchsorted(sequence: Array, x: Array, right: bool) -> Array:
    sequence, x = _comparable(sequence).contiguous(), _comparable(x).contiguous()
    return torch.searchsorted(sequence, x, right=right)


def unique_values(x: Array) -> Array:
    return unique_all(x)[0]


def unique_all(x: Array) -> tuple[Array, Array, Array, Array]:
    flat = _comparable(x).reshape(-1)
    values, inverse, counts = torch.unique(flat, return_inverse=True, return_counts=True)
    where = torch.arange(len(flat), device=x.device)
    first = torch.full_like(counts, len(flat)).scatter_reduce(0, inverse, where, "amin")
    return _restore(values, x.dtype), first, inverse.reshape(x.shape), counts


def bincount(x: Array, length: int) -> Array:
    x = _as_int64(x) if x.dtype in _UNSIGNED else x
    return torch.bincount(x, minlength=length)


def extreme_share(x: Array, y: Array, axes: Axes) -> Array:
    mask = torch.logical_or(x == y, torch.isnan(x))
    mask = mask.to(torch.float32 if x.dtype.itemsize == 2 else x.dtype)
    times = mask.sum(dim=axes, keepdim=True) if axes else mask
    return (mask / times).to(x.dtype)
