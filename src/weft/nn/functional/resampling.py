"""Interpolation: images resampled to another size."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, inf
from typing import TYPE_CHECKING, Literal

import numpy as np

from ...arrays.arguments import as_tensor
from ...arrays.make import asarray
from ...core import dtypes
from ...errors import ArgumentError, ShapeError
from ...ops import arrange
from ...ops.index import take
from ...ops.positions import index_like
from ...ops.structural import cast
from .adaptive import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from .windows import Sizes, each

if TYPE_CHECKING:
    from ...arrays.tensor import Tensor
    from ...arrays.types import ArrayLike, PerAxis

# By name; the linear modes are of one, two and three axes.
Resampling = Literal["nearest", "nearest-exact", "area", "linear", "bilinear", "trilinear"]

_AREA = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}
_LINEAR = {"linear": 1, "bilinear": 2, "trilinear": 3}
_NEAREST = ("nearest", "nearest-exact")


def _new_size(size: Sizes, target, factor, recompute: bool | None) -> tuple[Sizes, list]:
    """The size to interpolate to, and the scale of each axis; None: the ratio of the sizes."""
    name, axes = "interpolate", len(size)
    if (target is None) == (factor is None):
        raise ArgumentError(f"{name}: give either size or scale_factor, not both")
    if target is not None:
        if recompute:
            raise ArgumentError(f"{name}: recompute_scale_factor needs a scale_factor, not a size")
        return each(name, "size", target, axes, 1), [None] * axes
    factors = list(factor) if isinstance(factor, (tuple, list)) else [factor] * axes
    if len(factors) != axes or not all(0 < f < inf for f in factors):
        raise ArgumentError(
            f"{name}: scale_factor {factor}; expected one positive number, or {axes}"
        )
    found = tuple([floor(n * f) for n, f in zip(size, factors, strict=True)])
    if 0 in found:
        raise ArgumentError(
            f"{name}: scale_factor {factor} would make {found} of {size}; give a larger one"
        )
    return found, [None] * axes if recompute else [float(f) for f in factors]


def _nearest(n: int, m: int, scale: float | None, exact: bool) -> np.ndarray:
    """The source index in an axis of n for each of m, computed in PyTorch's single precision."""
    if scale is None and not exact and m in (n, 2 * n):
        return np.arange(m) * n // m
    ratio = np.float32(n / m if scale is None else 1 / scale)
    at = np.arange(m, dtype=np.float32) + np.float32(0.5 if exact else 0)
    return np.minimum((at * ratio).astype(np.int64), n - 1)


def _pick(x, axis: int, m: int, scale: float | None, exact: bool):
    n = x.shape[axis]
    source = _nearest(n, m, scale, exact)
    if m % n == 0 and np.array_equal(source, np.arange(m) * n // m):
        return arrange.repeat(x, m // n, axis)  # whose transpose is a plain sum
    return take(x, index_like(x, source), axis)


def _blend(x, axis: int, m: int, scale: float | None, align: bool):
    """x interpolated linearly along an axis."""
    n = x.shape[axis]
    if m == n:  # whatever the scale
        return x
    if align:
        at = np.arange(m) * ((n - 1) / (m - 1) if m > 1 else 0.0)
    else:
        ratio = n / m if scale is None else 1 / scale
        at = np.maximum((np.arange(m) + 0.5) * ratio - 0.5, 0.0)
    low = np.minimum(at.astype(np.int64), n - 1)
    high = np.minimum(low + 1, n - 1)
    share = (at - low).reshape(-1, *(1,) * (len(x.shape) - 1 - axis))
    share = asarray(share, dtype=x.dtype, device=x.device)
    below, above = (take(x, index_like(x, i), axis) for i in (low, high))
    return below + share * (above - below)


def interpolate(
    input: ArrayLike,
    size: PerAxis | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: Resampling = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
) -> Tensor:
    """(N, C, and one to three axes) with these axes resampled.

    input                   (N, C, L), (N, C, H, W) or (N, C, D, H, W)
    size                    the lengths of the axes, or one for all
    scale_factor            what lengths are multiplied by, in place of `size`
    mode                    "nearest", "nearest-exact", "area", or by the number of axes
                            "linear", "bilinear" or "trilinear"
    align_corners           whether the corners' elements keep their values, of the linear modes
    recompute_scale_factor  whether positions go by the ratio of lengths, not by `scale_factor`

    >>> import weft as wf
    >>> x = wf.tensor([[[0.0, 1.0]]])
    >>> wf.nn.functional.interpolate(x, 3, mode="linear", align_corners=True).tolist()
    [[[0.0, 0.5, 1.0]]]
    """
    x = as_tensor(input)
    axes = len(x.shape) - 2
    if axes not in (1, 2, 3):
        raise ShapeError(
            f"interpolate: an input of shape {tuple(x.shape)}; expected (N, C, and one to three "
            "axes)"
        )
    if mode not in (*_NEAREST, "area") and _LINEAR.get(mode) != axes:
        fitting = next(m for m, k in _LINEAR.items() if k == axes)
        raise ArgumentError(
            f"interpolate: mode={mode!r} for an input of {axes + 2} axes; expected 'nearest', "
            f"'nearest-exact', 'area' or {fitting!r}"
        )
    if align_corners is not None and mode not in _LINEAR:
        raise ArgumentError(
            f"interpolate: align_corners has no meaning in mode {mode!r}; leave it out"
        )
    target, scales = _new_size(tuple(x.shape[2:]), size, scale_factor, recompute_scale_factor)
    if mode == "area":
        return _AREA[axes](x, target)
    return _resample(x, target, scales, mode, bool(align_corners))


def _resample(x, target: Sizes, scales: list, mode: str, align: bool):
    wide = cast(x, dtypes.float32) if x.dtype in dtypes.HALF and mode in _LINEAR else x
    y = wide
    for axis, (m, scale) in enumerate(zip(target, scales, strict=True), 2):
        if mode in _LINEAR:
            y = _blend(y, axis, m, scale, align)
        else:
            y = _pick(y, axis, m, scale, mode == "nearest-exact")
    return cast(y, x.dtype) if wide is not x else y


def upsample(
    input: ArrayLike,
    size: PerAxis | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: Resampling = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate` under its older name.

    input          (N, C, L), (N, C, H, W) or (N, C, D, H, W)
    size           the lengths of the axes, or one for all
    scale_factor   what lengths are multiplied by, in place of `size`
    mode           "nearest" or another of `interpolate`
    align_corners  whether the corners' elements keep their values, of the linear modes

    >>> import weft as wf
    >>> wf.nn.functional.upsample([[[1.0, 2.0]]], scale_factor=2).tolist()
    [[[1.0, 1.0, 2.0, 2.0]]]
    """
    return interpolate(input, size, scale_factor, mode, align_corners)
