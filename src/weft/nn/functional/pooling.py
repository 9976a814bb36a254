"""Pools: windows reduced to their largest element or to their mean."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays.arguments import as_tensor
from ...arrays.make import asarray
from ...core import dtypes
from ...core.aval import integer_in
from ...errors import ArgumentError
from ...ops import pool
from ...ops.index import take
from ...ops.positions import index_like
from ...ops.structural import cast
from .windows import Padding, Sizes, each, exact, layout, reach, rounded_up

if TYPE_CHECKING:
    from ...arrays.tensor import Tensor
    from ...arrays.types import ArrayLike, PerAxis


def _geometry(name, size, kernel, stride, padding, dilation, ceil_mode):
    """(kernel, stride, padding, dilation) of all axes, the padding exact."""
    axes = len(size)
    kernel = each(name, "kernel_size", kernel, axes, 1)
    none = stride is None or (not isinstance(stride, int) and not len(stride))
    stride = kernel if none else each(name, "stride", stride, axes, 1)
    sides = each(name, "padding", padding, axes, 0)
    dilation = each(name, "dilation", dilation, axes, 1)
    spans = reach(kernel, dilation)
    for p, span in zip(sides, spans, strict=True):
        if p > span // 2:
            raise ArgumentError(
                f"{name}: padding {p} for windows that span {span}; expected at most {span // 2}, "
                "half of it, so that no window lies in the padding"
            )
    fit = rounded_up if ceil_mode else exact
    pads = fit(name, size, spans, stride, tuple([(p, p) for p in sides]))
    return kernel, stride, pads, dilation


def indices_of(
    taps: Any, size: Sizes, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> Any:
    """The places that taps have in arrays of `size`, all axes in one line."""
    axes = len(size)
    taps, total = cast(taps, dtypes.int64), 0
    grid = np.indices(kernel).reshape(axes, -1)
    counts = taps.shape[-axes:]
    for k in range(axes):
        within = take(index_like(taps, grid[k] * dilation[k]), taps, 0)
        first = np.arange(counts[k]) * stride[k] - padding[k][0]
        at = within + index_like(taps, first.reshape(-1, *(1,) * (axes - 1 - k)))
        total = total + at * prod(size[k + 1 :])
    return total


def _max_pool(
    name: str, axes: int, x: ArrayLike, kernel, stride, padding, dilation, ceil_mode, return_indices
) -> Any:
    x = as_tensor(x)
    size = layout(name, x, axes)
    how = _geometry(name, size, kernel, stride, padding, dilation, ceil_mode)
    y, taps = pool.max_pool(x, *how)
    return (y, indices_of(taps, size, *how)) if return_indices else y


def max_pool1d(
    input: ArrayLike,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | Any:
    """The largest element of each window of (N, C, L) or (C, L).

    input           (N, C, L) or (C, L)
    kernel_size     how many elements a window has
    stride          how far apart windows begin; None: kernel_size
    padding         elements added before and after, which never are the largest
    dilation        the distance of elements in a window
    ceil_mode       whether a last window may reach over the end
    return_indices  whether to return the indices of the maxima along the axis too

    The gradient goes to the largest element; of equal ones, the first counts.

    >>> import weft as wf
    >>> wf.nn.functional.max_pool1d([[1.0, 3.0, 2.0, 0.0]], 2).tolist()
    [[3.0, 2.0]]
    """
    how = kernel_size, stride, padding, dilation, ceil_mode, return_indices
    return _max_pool("max_pool1d", 1, input, *how)


def max_pool2d(
    input: ArrayLike,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | Any:
    """The largest element of each window of images.

    input           (N, C, H, W) or (C, H, W)
    kernel_size     how many elements a window has along each axis: a number or two
    stride          how far apart windows begin; None: kernel_size
    padding         elements added at both ends, which never are the largest
    dilation        the distance of elements in a window
    ceil_mode       whether last windows may reach over the end
    return_indices  whether to return the flat (row-major) indices of the maxima too

    >>> import weft as wf
    >>> wf.nn.functional.max_pool2d([[[1.0, 2.0], [3.0, 4.0]]], 2).tolist()
    [[[4.0]]]
    """
    how = kernel_size, stride, padding, dilation, ceil_mode, return_indices
    return _max_pool("max_pool2d", 2, input, *how)


def max_pool3d(
    input: ArrayLike,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    dilation: PerAxis = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | Any:
    """The largest element of each window of volumes.

    input           (N, C, D, H, W) or (C, D, H, W)
    kernel_size     how many elements a window has along each axis: a number or three
    stride          how far apart windows begin; None: kernel_size
    padding         elements added at both ends, which never are the largest
    dilation        the distance of elements in a window
    ceil_mode       whether last windows may reach over the end
    return_indices  whether to return the flat (row-major) indices of the maxima too

    >>> import weft as wf
    >>> wf.nn.functional.max_pool3d(wf.ones((1, 2, 2, 2)), 2).tolist()
    [[[[1.0]]]]
    """
    how = kernel_size, stride, padding, dilation, ceil_mode, return_indices
    return _max_pool("max_pool3d", 3, input, *how)


def _divisors(size, kernel, stride, pads, sides, include: bool) -> list[np.ndarray]:
    """How many elements windows have along each axis: of the array, or of its padding too."""
    found = []
    for n, k, s, (a, b), p in zip(size, kernel, stride, pads, sides, strict=True):
        first = np.arange((n + a + b - k) // s + 1) * s - a
        last = np.minimum(first + k, n + p)
        inside = np.minimum(last, n) - np.maximum(first, 0)
        found.append(last - first if include else inside)
    return found


def _mean(total, counts: list[np.ndarray]):
    """Sums over windows, divided by how many elements they have."""
    if all(len(set(c.tolist())) == 1 for c in counts):
        return total / float(prod([int(c[0]) for c in counts]))
    divisor = counts[0].astype(np.float64)
    for c in counts[1:]:
        divisor = divisor[..., None] * c
    return total / asarray(divisor, dtype=total.dtype, device=total.device)


def _avg_pool(name, axes, x, kernel, stride, padding, ceil_mode, include, divisor):
    x = as_tensor(x)
    size = layout(name, x, axes)
    kernel, stride, pads, _ = _geometry(name, size, kernel, stride, padding, 1, ceil_mode)
    if divisor is not None and integer_in(name, "divisor_override", divisor) == 0:
        raise ArgumentError(f"{name}: divisor_override 0; expected another number, or None")
    # In half precision the sums could overflow where their means do not.
    wide = cast(x, dtypes.float32) if x.dtype in dtypes.HALF else x
    total = pool.sum_pool(wide, kernel, stride, pads)
    if divisor is not None:
        y = total / float(divisor)
    else:
        sides = each(name, "padding", padding, axes, 0)
        y = _mean(total, _divisors(size, kernel, stride, pads, sides, include))
    return cast(y, x.dtype) if wide is not x else y


def avg_pool1d(
    input: ArrayLike,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window of (N, C, L) or (C, L).

    input              (N, C, L) or (C, L)
    kernel_size        the length of a window
    stride             how far apart windows begin; None: kernel_size
    padding            zeros added before and after
    ceil_mode          whether a last window may reach over the end
    count_include_pad  whether padding counts in the mean

    >>> import weft as wf
    >>> wf.nn.functional.avg_pool1d([[1.0, 3.0, 2.0, 4.0]], 2).tolist()
    [[2.0, 3.0]]
    """
    how = kernel_size, stride, padding, ceil_mode, count_include_pad, None
    return _avg_pool("avg_pool1d", 1, input, *how)


def avg_pool2d(
    input: ArrayLike,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of images.

    input              (N, C, H, W) or (C, H, W)
    kernel_size        the size of a window: a number or two
    stride             how far apart windows begin; None: kernel_size
    padding            zeros put at the ends
    ceil_mode          whether last windows may reach over the end
    count_include_pad  whether padding counts in the mean
    divisor_override   what sums are divided by in place of their number of elements

    >>> import weft as wf
    >>> wf.nn.functional.avg_pool2d([[[1.0, 2.0], [3.0, 4.0]]], 2).tolist()
    [[[2.5]]]
    """
    how = kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    return _avg_pool("avg_pool2d", 2, input, *how)


def avg_pool3d(
    input: ArrayLike,
    kernel_size: PerAxis,
    stride: PerAxis | None = None,
    padding: PerAxis = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window of volumes.

    input              (N, C, D, H, W) or (C, D, H, W)
    kernel_size        the size of a window: a number or three
    stride             how far apart windows begin; None: kernel_size
    padding            zeros put at the ends
    ceil_mode          whether last windows may reach over the end
    count_include_pad  whether padding counts in the mean
    divisor_override   what sums are divided by in place of their number of elements

    >>> import weft as wf
    >>> wf.nn.functional.avg_pool3d(wf.ones((1, 2, 2, 2)), 2).tolist()
    [[[[1.0]]]]
    """
    how = kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    return _avg_pool("avg_pool3d", 3, input, *how)
