"""Adaptive and global pools: a given number of windows for any input size."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays.arguments import as_tensor
from ...arrays.make import asarray
from ...core import dtypes
from ...core.settings import exactly
from ...errors import ShapeError
from ...ops import order, pool, reduce
from ...ops.contract import matmul
from ...ops.index import take
from ...ops.positions import index_like
from ...ops.structural import cast, reshape
from .pooling import indices_of
from .windows import Sizes, each, layout

if TYPE_CHECKING:
    from ...arrays.tensor import Tensor
    from ...arrays.types import ArrayLike
    from .windows import OutputSize


def _targets(name: str, x, output_size, axes: int) -> tuple[Sizes, Sizes]:
    """The lengths of the input's pooled axes and of the result's; None leaves an axis as it is."""
    size = layout(name, x, axes)
    if 0 in size:
        raise ShapeError(
            f"{name}: an input of shape {tuple(x.shape)}; expected at least one element along each "
            "axis that is pooled"
        )
    given = output_size if isinstance(output_size, (tuple, list)) else [output_size] * axes
    given = list(given) * axes if len(given) == 1 else given
    filled = [n if g is None else g for g, n in zip(given, size, strict=False)]
    return size, each(name, "output_size", [*filled, *given[axes:]], axes, 1)


def _bounds(n: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Where windows of an axis start and end: neighbours overlap where n is no multiple."""
    i = np.arange(count)
    return i * n // count, -(-(i + 1) * n // count)


def _averages(n: int, count: int) -> np.ndarray:
    """The matrix that maps an axis to its windows' means."""
    (first, last), at = _bounds(n, count), np.arange(n)
    inside = (at >= first[:, None]) & (at < last[:, None])
    return inside / (last - first)[:, None]


def _adaptive_avg(name: str, axes: int, x, output_size):
    x = as_tensor(x)
    input_size, output_counts = _targets(name, x, output_size, axes)
    ndim, sizes = len(x.shape), list(zip(input_size, output_counts, strict=True))
    wide = cast(x, dtypes.float32) if x.dtype in dtypes.HALF else x
    if set(output_counts) == {1}:
        y = reduce.mean(wide, tuple(range(ndim - axes, ndim)), True)
    elif all(n % count == 0 for n, count in sizes):
        window = tuple([n // count for n, count in sizes])
        y = pool.sum_pool(wide, window, window, ((0, 0),) * axes) / float(prod(window))
    else:
        y = wide
        for axis, (n, count) in enumerate(sizes, ndim - axes):
            y = _apply_matrix(_averages(n, count), y, axis) if n != count else y
    return cast(y, x.dtype) if wide is not x else y


@exactly()  # not a layer: the matrix keeps its precision under autocast
def _apply_matrix(matrix: np.ndarray, x, axis: int):
    """Multiply every 1-D slice of x along `axis` by the matrix."""
    lead, rest = tuple(x.shape[:axis]), tuple(x.shape[axis + 1 :])
    m = asarray(matrix, dtype=x.dtype, device=x.device)
    y = matmul(m, reshape(x, (*lead, x.shape[axis], prod(rest))))
    return reshape(y, (*lead, len(matrix), *rest))


def _adaptive_max(
    name: str, axes: int, x: ArrayLike, output_size: OutputSize, return_indices: bool
) -> Any:
    x = as_tensor(x)
    input_size, output_counts = _targets(name, x, output_size, axes)
    lead = tuple(x.shape[: len(x.shape) - axes])
    if set(output_counts) == {1}:
        y, at = order.max_with_indices(reshape(x, (*lead, prod(input_size))), len(lead))
        y, at = reshape(y, (*lead, *output_counts)), reshape(at, (*lead, *output_counts))
        return (y, at) if return_indices else y
    # Windows of different lengths: each is filled up with its last element, which changes
    # neither the maximum nor where it is first found.
    sources, window = [], []
    for n, count in zip(input_size, output_counts, strict=True):
        first, last = _bounds(n, count)
        longest = int((last - first).max())
        sources.append(np.minimum(first[:, None] + np.arange(longest), last[:, None] - 1).ravel())
        window.append(longest)
    filled = x
    for axis, source in enumerate(sources, len(lead)):
        if not np.array_equal(source, np.arange(x.shape[axis])):
            filled = take(filled, index_like(x, source), axis)
    how = tuple(window), tuple(window), ((0, 0),) * axes, (1,) * axes
    y, taps = pool.max_pool(filled, *how)
    if not return_indices:
        return y
    places = indices_of(taps, tuple(map(len, sources)), *how)
    grid: Any = sum(s * prod(input_size[k + 1 :]) for k, s in enumerate(np.ix_(*sources)))
    return y, take(index_like(taps, grid.ravel()), places, 0)


def adaptive_avg_pool1d(input: ArrayLike, output_size: OutputSize) -> Tensor:
    """The mean of each of `output_size` windows along the last axis.

    input        (N, C, L) or (C, L)
    output_size  how many windows; window i goes from ⌊i·L/size⌋ to ⌈(i + 1)·L/size⌉

    >>> import weft as wf
    >>> wf.nn.functional.adaptive_avg_pool1d([[1.0, 2.0, 3.0, 4.0]], 2).tolist()
    [[1.5, 3.5]]
    """
    return _adaptive_avg("adaptive_avg_pool1d", 1, input, output_size)


def adaptive_avg_pool2d(input: ArrayLike, output_size: OutputSize) -> Tensor:
    """The mean of each of `output_size` windows of images, which cover them evenly.

    input        (N, C, H, W) or (C, H, W)
    output_size  how many windows along each axis: a number or two; None leaves an axis as it is

    >>> import weft as wf
    >>> wf.nn.functional.adaptive_avg_pool2d([[[1.0, 2.0], [3.0, 4.0]]], 1).tolist()
    [[[2.5]]]
    """
    return _adaptive_avg("adaptive_avg_pool2d", 2, input, output_size)


def adaptive_avg_pool3d(input: ArrayLike, output_size: OutputSize) -> Tensor:
    """The mean of each of `output_size` windows of volumes, which cover them evenly.

    input        (N, C, D, H, W) or (C, D, H, W)
    output_size  how many windows along each axis: a number or three; None leaves an axis as it
                 is

    >>> import weft as wf
    >>> wf.nn.functional.adaptive_avg_pool3d(wf.ones((1, 4, 4, 4)), (1, 2, 2)).tolist()
    [[[[1.0, 1.0], [1.0, 1.0]]]]
    """
    return _adaptive_avg("adaptive_avg_pool3d", 3, input, output_size)


def adaptive_max_pool1d(
    input: ArrayLike, output_size: OutputSize, return_indices: bool = False
) -> Tensor | Any:
    """The largest element of each of `output_size` windows along the last axis.

    input           (N, C, L) or (C, L)
    output_size     how many windows; window i goes from ⌊i·L/size⌋ to ⌈(i + 1)·L/size⌉
    return_indices  whether their indices are returned too

    >>> import weft as wf
    >>> wf.nn.functional.adaptive_max_pool1d([[1.0, 2.0, 4.0, 3.0]], 2).tolist()
    [[2.0, 4.0]]
    """
    return _adaptive_max("adaptive_max_pool1d", 1, input, output_size, return_indices)


def adaptive_max_pool2d(
    input: ArrayLike, output_size: OutputSize, return_indices: bool = False
) -> Tensor | Any:
    """The largest element of each of `output_size` windows of images, which cover them evenly.

    input           (N, C, H, W) or (C, H, W)
    output_size     how many windows along each axis: a number or two; None leaves an axis as it
                    is
    return_indices  whether their indices, counted along rows, are returned too

    >>> import weft as wf
    >>> wf.nn.functional.adaptive_max_pool2d([[[1.0, 2.0], [3.0, 4.0]]], 1).tolist()
    [[[4.0]]]
    """
    return _adaptive_max("adaptive_max_pool2d", 2, input, output_size, return_indices)


def adaptive_max_pool3d(
    input: ArrayLike, output_size: OutputSize, return_indices: bool = False
) -> Tensor | Any:
    """The largest element of each of `output_size` windows of volumes, which cover them evenly.

    input           (N, C, D, H, W) or (C, D, H, W)
    output_size     how many windows along each axis: a number or three; None leaves an axis as
                    it is
    return_indices  whether their indices, counted along rows, are returned too

    >>> import weft as wf
    >>> wf.nn.functional.adaptive_max_pool3d(wf.ones((1, 4, 4, 4)), (1, 2, 2)).tolist()
    [[[[1.0, 1.0], [1.0, 1.0]]]]
    """
    return _adaptive_max("adaptive_max_pool3d", 3, input, output_size, return_indices)


def _spatial(name: str, x) -> int:
    if len(x.shape) not in (3, 4, 5):
        raise ShapeError(
            f"{name}: an input of shape {tuple(x.shape)}; expected (N, C, and one to three axes)"
        )
    return len(x.shape) - 2


def global_avg_pool(input: ArrayLike) -> Tensor:
    """The mean of each channel of (N, C, …): (N, C, 1, …).

    input  an array with a batch axis, channels, and at least one more axis

    >>> import weft as wf
    >>> wf.nn.functional.global_avg_pool([[[1.0, 3.0], [5.0, 5.0]]]).tolist()
    [[[2.0], [5.0]]]
    """
    x = as_tensor(input)
    return _adaptive_avg("global_avg_pool", _spatial("global_avg_pool", x), x, 1)


def global_max_pool(input: ArrayLike) -> Tensor:
    """The largest element of each channel of (N, C, …): (N, C, 1, …).

    input  an array with a batch axis, channels, and at least one more axis

    >>> import weft as wf
    >>> wf.nn.functional.global_max_pool([[[1.0, 3.0], [5.0, 4.0]]]).tolist()
    [[[3.0], [5.0]]]
    """
    x = as_tensor(input)
    return _adaptive_max("global_max_pool", _spatial("global_max_pool", x), x, 1, False)
