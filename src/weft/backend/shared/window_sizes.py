"""Sizes that fit together: of an array, of windows that slide over it, and of their results.

Along each axis, windows of `kernel` elements that are `dilation` apart start every `stride`
elements of the axis padded by (before, after), either of which may be negative, and the last one
ends where the padding ends. So any two of the array's size, the kernel's and the number of
windows give the third.
"""

from math import prod

import numpy as np

from ...errors import ShapeError
from .types import Padding, Sizes


def counts_of(
    size: Sizes, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> tuple[int, ...]:
    """How many windows there are along each axis; they must end where the padded axis ends."""
    found = []
    for n, k, s, (a, b), d in zip(size, kernel, stride, padding, dilation, strict=True):
        steps, rest = divmod(n + a + b - d * (k - 1) - 1, s)
        if rest or steps < 0 or k < 1:
            raise ShapeError(
                f"windows of {k} (dilation {d}) by steps of {s} do not end with an axis of {n} "
                f"padded by {a} and {b}; change the padding after it"
            )
        found.append(steps + 1)
    return tuple(found)


def size_of(
    counts: Sizes, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> tuple[int, ...]:
    """The size of the array whose windows, so many of them, end where its padding ends."""
    axes = zip(counts, kernel, stride, padding, dilation, strict=True)
    return tuple([(p - 1) * s + d * (k - 1) + 1 - a - b for p, k, s, (a, b), d in axes])


def kernel_of(
    size: Sizes, counts: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> tuple[int, ...]:
    """The size of windows, so many of which end where the padding of an array of `size` ends."""
    found = []
    for n, p, s, (a, b), d in zip(size, counts, stride, padding, dilation, strict=True):
        steps, rest = divmod(n + a + b - (p - 1) * s - 1, d)
        if rest or steps < 0 or p < 1:
            raise ShapeError(
                f"no windows with dilation {d}, {p} of them by steps of {s}, end with an axis of "
                f"{n} padded by {a} and {b}"
            )
        found.append(steps + 1)
    return tuple(found)


def tap_dtype(kernel: Sizes) -> np.dtype:
    """The dtype of the numbers of a window's taps: bytes, if there are not too many."""
    return np.dtype(np.uint8 if prod(kernel) <= 256 else np.int64)


def first_inside(
    count: int, kernel: int, stride: int, before: int, dilation: int
) -> tuple[int, ...]:
    """By window along an axis, the first tap that is not before the array; else the last one."""
    return tuple(
        [min(max(-((i * stride - before) // dilation), 0), kernel - 1) for i in range(count)]
    )


def first_taps(
    counts: Sizes, kernel: Sizes, stride: Sizes, padding: Padding, dilation: Sizes
) -> np.ndarray:
    """By window, the number of the tap that is `first_inside` along every axis."""
    taps = np.zeros((1,) * len(counts), np.int64)
    axes = zip(counts, kernel, stride, padding, dilation, strict=True)
    for k, (p, n, s, (a, _), d) in enumerate(axes):
        along = np.array(first_inside(p, n, s, a, d), np.int64)
        taps = taps * n + along.reshape(-1, *(1,) * (len(counts) - 1 - k))
    return taps.astype(tap_dtype(kernel))
