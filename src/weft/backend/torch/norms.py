"""PyTorch's kernels of normalisations: ATen's fused ones where axes and weight are theirs."""

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import torch

from . import namespace as torch_
from .types import Array, Axes

_HALF = (torch.float16, torch.bfloat16)
_aten = torch.ops.aten
_layer_norm_backward = _aten.native_layer_norm_backward.default
_group_norm_backward = _aten.native_group_norm_backward.default
_batch_norm_backward = _aten.native_batch_norm_backward.default
_ALL = [True, True, True]


@lru_cache(maxsize=1024)
def _kind(shape: torch.Size, weight: torch.Size, axes: Axes) -> str:
    """Which norm it is: of layers, of groups (N, G, C/G, …), or none of ATen's."""
    ndim, core = len(shape), len(weight)
    if axes == tuple(range(ndim - core, ndim)) and shape[ndim - core :] == weight:
        return "layer"
    if not prod(shape) or core != ndim - 1:
        return ""
    if ndim == 4 and axes == (2, 3) and weight == (*shape[1:3], 1):
        return "group"
    return ""


def native_norm(
    x: Array, w: Array, b: Array, axes: Axes, eps: float, dtype: np.dtype
) -> tuple[Array, Array, Array]:
    """(x − mean)/√(variance + eps)·w + b over axes, the mean, and 1/√(variance + eps)."""
    own, raw, kind = x.dtype, torch_.raw_dtype(dtype), _kind(x.shape, w.shape, axes)
    if own is not w.dtype or own in _HALF:
        x, w, b = _as_taken(kind, w.dtype, x, w, b)
    out, mean, rate = _FORWARD[kind](x, w, b, axes, eps)
    if own is raw:
        return out, mean, rate
    return out.to(own), mean.to(raw), rate.to(raw)


def native_norm_gradient(
    g: Array, x: Array, mean: Array, rate: Array, w: Array, axes: Axes
) -> tuple[Array, ...]:
    """The cotangents of x, the weight and the bias."""
    own, weights, kind = x.dtype, w.dtype, _kind(x.shape, w.shape, axes)
    wide = torch.float32 if own in _HALF else own
    if mean.dtype is not wide:
        mean, rate = mean.to(wide), rate.to(wide)
    if own is not weights or own in _HALF:
        x, g, w = _as_taken(kind, weights, x, g, w)
    found = _BACKWARD[kind](g, x, mean.contiguous(), rate.contiguous(), w, axes)
    if own is weights is wide:
        return found
    dx, dw, db = found
    return dx.to(own), dw.to(weights), db.to(weights)


def _as_taken(kind: str, weights: torch.dtype, x: Array, *others: Array) -> tuple[Array, ...]:
    """Arrays in dtypes that ATen's kernel takes, and of which it sums half types in float32."""
    if x.is_cuda and x.dtype in _HALF:
        if kind in ("layer", "batch") and weights is x.dtype:
            return x, *others
        if kind == "batch" and weights is torch.float32:
            return x, *others
    wide = torch.float32 if x.dtype in _HALF else x.dtype
    return x.to(wide), *[v.to(wide) for v in others]


def _by_layer(x: Array, w: Array, b: Array, axes: Axes, eps: float) -> tuple[Array, ...]:
    return torch.native_layer_norm(x, w.shape, w, b, eps)


def _by_layer_back(g: Array, x: Array, mean: Array, rate: Array, w: Array, axes: Axes) -> Any:
    return _layer_norm_backward(g, x, w.shape, mean, rate, w, w, _ALL)


def _line(w: Array) -> Array:
    """One number for each channel, as ATen reads them."""
    if w.ndim == 1 and w.is_contiguous():
        return w
    return w.reshape(-1).contiguous()


def _by_group(x: Array, w: Array, b: Array, axes: Axes, eps: float) -> tuple[Array, ...]:
    n, groups, each, size = x.shape
    flat, sizes = x.reshape(n, groups * each, size).contiguous(), (n, groups * each, size, groups)
    out, mean, rate = torch.native_group_norm(flat, _line(w), _line(b), *sizes, eps)
    statistics = (n, groups, 1, 1)
    return out.reshape(x.shape), mean.reshape(statistics), rate.reshape(statistics)


def _by_group_back(g: Array, x: Array, mean: Array, rate: Array, w: Array, axes: Axes) -> Any:
    n, groups, each, size = x.shape
    sizes = n, groups * each, size
    along, flat = (v.reshape(sizes).contiguous() for v in (g, x))
    given = (mean.reshape(n, groups), rate.reshape(n, groups), _line(w), *sizes, groups)
    dx, dw, db = _group_norm_backward(along, flat, *given, _ALL)
    return dx.reshape(x.shape), dw.reshape(w.shape), db.reshape(w.shape)


def native_batch_norm(
    x: Array, w: Array, b: Array, eps: float, dtype: np.dtype
) -> tuple[Array, ...]:
    """(x − mean)/√(variance + eps)·w + b of each channel, the mean, and 1/√(variance + eps)."""
    if not w.numel():  # no channels: ATen divides by their number
        raw = torch_.raw_dtype(dtype)
        return x.clone(), w.to(raw), b.to(raw)
    return following_batch_norm(x, w, b, None, None, 0.0, eps, dtype)


def following_batch_norm(
    x: Array,
    w: Array,
    b: Array,
    running_mean: Array | None,
    running_variance: Array | None,
    momentum: float,
    eps: float,
    dtype: np.dtype,
) -> tuple[Array, ...]:
    """`native_batch_norm`, which running statistics follow in place; they are of w's dtype."""
    own, raw = x.dtype, torch_.raw_dtype(dtype)
    if own is not w.dtype or own in _HALF:
        x, w, b = _as_taken("batch", w.dtype, x, w, b)
    follow = running_mean, running_variance, True, momentum, eps
    out, mean, rate = torch.native_batch_norm(x, _line(w), _line(b), *follow)
    if out.dtype is own and mean.dtype is raw:
        return out, mean, rate
    return out.to(own), mean.to(raw), rate.to(raw)


def native_batch_norm_gradient(
    g: Array, x: Array, mean: Array, rate: Array, w: Array
) -> tuple[Array, ...]:
    """The cotangents of x, the weight and the bias."""
    own, weights = x.dtype, w.dtype
    if not w.numel():
        return x.clone(), w.clone(), w.clone()
    wide = torch.float32 if own in _HALF else own
    if mean.dtype is not wide:
        mean, rate = mean.to(wide), rate.to(wide)
    if own is not weights or own in _HALF:
        x, g, w = _as_taken("batch", weights, x, g, w)
    given = (_line(w), None, None, _line(mean), _line(rate), True, 0.0)
    dx, dw, db = _batch_norm_backward(g, x, *given, _ALL)
    if dx.dtype is own and dw.dtype is weights:
        return dx, dw, db
    return dx.to(own), dw.to(weights), db.to(weights)


def follow_statistics(
    x: Array,
    running_mean: Array | None,
    running_variance: Array | None,
    mean: Array,
    rate: Array,
    momentum: float,
    eps: float,
) -> None:
    """Let running statistics of channels, axis 1 of x, follow those of a batch, in place."""
    count = x.numel() // x.shape[1]
    if x.is_cuda and running_mean is not None and running_variance is not None:
        given = mean.unsqueeze(0), rate.unsqueeze(0), running_mean, running_variance
        torch.batch_norm_gather_stats(x, *given, momentum, eps, count)
        return
    if running_mean is not None:
        running_mean.lerp_(mean, momentum)
    if running_variance is not None:
        variance = torch.pow(rate, -2).sub_(eps).clamp_(min=0).mul_(count / (count - 1))
        running_variance.lerp_(variance, momentum)


def _by_parts(x: Array, w: Array, b: Array, axes: Axes, eps: float) -> tuple[Array, ...]:
    if x.numel():
        variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
    else:  # of which torch warns
        variance = mean = torch.mean(x, axes, keepdim=True)
    rate = torch.rsqrt(variance + eps)
    return torch.addcmul(b, (x - mean) * rate, w), mean, rate


def _by_parts_back(g: Array, x: Array, mean: Array, rate: Array, w: Array, axes: Axes) -> Any:
    y = (x - mean) * rate
    dx = torch_.projection(g * w, y, axes, True) * rate
    return dx, _fold(g * y, w), _fold(g, w)


def _fold(t: Array, w: Array) -> Array:
    """t summed to the shape of the weight."""
    lead = t.ndim - w.ndim
    axes = (*range(lead), *(lead + k for k, n in enumerate(w.shape) if n == 1))
    return t.sum(axes).reshape(w.shape) if axes else t


_FORWARD = {"layer": _by_layer, "group": _by_group, "": _by_parts}
_BACKWARD = {"layer": _by_layer_back, "group": _by_group_back, "": _by_parts_back}


def native_rms_norm(
    x: Array, w: Array, axes: Axes, eps: float, dtype: np.dtype
) -> tuple[Array, Array]:
    """x/√(mean(x²) + eps)·w over axes, and 1/√(mean(x²) + eps)."""
    own, raw = x.dtype, torch_.raw_dtype(dtype)
    if x.is_cuda and w.dtype is own and _kind(x.shape, w.shape, axes) == "layer":
        out, rate = _aten._fused_rms_norm.default(x, w.shape, w, eps)
        return out, rate.to(raw)
    wide = torch.float32 if own in _HALF else own
    x, w = x.to(wide), w.to(wide)
    rate = torch.rsqrt(torch.mean(x * x, axes, keepdim=True) + eps)
    return (x * rate * w).to(own), rate.to(raw)


def native_rms_norm_gradient(
    g: Array, x: Array, rate: Array, w: Array, axes: Axes
) -> tuple[Array, Array]:
    """The cotangents of x and the weight."""
    own, weights = x.dtype, w.dtype
    wide = torch.float32 if own in _HALF else own
    rate = rate.to(wide)
    if x.is_cuda and weights is own and _kind(x.shape, w.shape, axes) == "layer":
        given = (g.contiguous(), x, w.shape, rate.contiguous(), w)
        return _aten._fused_rms_norm_backward.default(*given, [True, True])
    g, x, w = g.to(wide), x.to(wide), w.to(wide)
    y = x * rate
    dx = torch_.projection(g * w, y, axes, False) * rate
    return dx.to(own), _fold(g * y, w).to(weights)
