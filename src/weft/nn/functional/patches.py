"""Pixels rearranged: shuffled between channels and space, padded, cut into patches."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Literal

from ...arrays.arguments import as_tensor
from ...core.aval import integer_in
from ...errors import ArgumentError, ShapeError
from ...ops import arrange
from ...ops.slicing import slice_, unslice
from ...ops.structural import permute, reshape
from .windows import Sizes, each, reach

if TYPE_CHECKING:
    from ...arrays.tensor import Tensor
    from ...arrays.types import ArrayLike, PerAxis


def pixel_shuffle(input: ArrayLike, upscale_factor: int) -> Tensor:
    """(…, C·r², H, W) as (…, C, H·r, W·r): channels become pixels.

    input           an array with at least three axes
    upscale_factor  r

    >>> import weft as wf
    >>> wf.nn.functional.pixel_shuffle([[[1.0]], [[2.0]], [[3.0]], [[4.0]]], 2).tolist()
    [[[1.0, 2.0], [3.0, 4.0]]]
    """
    x, r = as_tensor(input), integer_in("pixel_shuffle", "upscale_factor", upscale_factor)
    if len(x.shape) < 3 or r < 1 or x.shape[-3] % (r * r):
        raise ShapeError(
            f"pixel_shuffle: an input of shape {tuple(x.shape)} and upscale_factor={r}; expected "
            f"(…, C·{r}², H, W) and a positive factor"
        )
    *lead, c, h, w = x.shape
    k = len(lead)
    apart = reshape(x, (*lead, c // (r * r), r, r, h, w))
    mixed = permute(apart, (*range(k), k, k + 3, k + 1, k + 4, k + 2))
    return reshape(mixed, (*lead, c // (r * r), h * r, w * r))


def pixel_unshuffle(input: ArrayLike, downscale_factor: int) -> Tensor:
    """(…, C, H·r, W·r) as (…, C·r², H, W): pixels become channels.

    input             an array with at least three axes
    downscale_factor  r

    >>> import weft as wf
    >>> wf.nn.functional.pixel_unshuffle([[[1.0, 2.0], [3.0, 4.0]]], 2).tolist()
    [[[1.0]], [[2.0]], [[3.0]], [[4.0]]]
    """
    x, r = as_tensor(input), integer_in("pixel_unshuffle", "downscale_factor", downscale_factor)
    if len(x.shape) < 3 or r < 1 or x.shape[-1] % r or x.shape[-2] % r:
        raise ShapeError(
            f"pixel_unshuffle: an input of shape {tuple(x.shape)} and downscale_factor={r}; "
            f"expected (…, C, H·{r}, W·{r}) and a positive factor"
        )
    *lead, c, h, w = x.shape
    k = len(lead)
    apart = reshape(x, (*lead, c, h // r, r, w // r, r))
    mixed = permute(apart, (*range(k), k, k + 2, k + 4, k + 1, k + 3))
    return reshape(mixed, (*lead, c * r * r, h // r, w // r))


# The padding.
Border = Literal["constant", "reflect", "replicate", "circular"]

_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def pad(
    input: ArrayLike,
    pad: Sequence[int],
    mode: Border = "constant",
    value: float | None = None,
) -> Tensor:
    """PyTorch's padding: (before, after) of the last axis, then of the last but one, and so on.

    input  an array
    pad    an even number of widths
    mode   "constant" (where negative widths cut off), "reflect", "replicate" or "circular"
    value  the margins of mode constant; None: 0

    >>> import weft as wf
    >>> wf.nn.functional.pad([[1.0, 2.0]], (1, 2)).tolist()
    [[0.0, 1.0, 2.0, 0.0, 0.0]]
    """
    x, given = as_tensor(input), [integer_in("pad", "pad", p) for p in pad]
    if len(given) % 2 or len(given) > 2 * len(x.shape):
        raise ArgumentError(
            f"pad: {len(given)} widths for the shape {tuple(x.shape)}; give (before, after) for "
            "as many of the last axes as are to be padded"
        )
    pairs = list(zip(given[::2], given[1::2], strict=True))[::-1]
    pairs = [(0, 0)] * (len(x.shape) - len(pairs)) + pairs
    if mode == "constant":
        return _pad(x, pairs, 0.0 if value is None else value)
    if mode not in _MODES or value is not None:
        raise ArgumentError(
            f"pad: mode {mode!r}{'' if value is None else ' with a value'}; expected 'constant', "
            "or without a value 'reflect', 'replicate' or 'circular'"
        )
    for n, widths in zip(x.shape, pairs, strict=True):
        _check_widths(n, widths, mode)
    return arrange.pad_by(x, tuple(pairs), _MODES[mode])


def _check_widths(n: int, widths: tuple[int, int], mode: str) -> None:
    """Refuse reflections and wraps that are wider than the axis."""
    most = {"reflect": n - 1, "circular": n}.get(mode, max(widths))
    if min(widths) < 0 or max(widths) > max(most, 0):
        raise ArgumentError(
            f"pad: widths {widths} for an axis of {n} in mode {mode!r}; expected 0 to {most}"
        )


def _pad(x, pairs, value):
    ends = zip(x.shape, pairs, strict=True)
    kept = [(max(0, -a), n + min(a, 0) + min(b, 0)) for n, (a, b) in ends]
    if any(count < 0 for _, count in kept):
        raise ArgumentError(f"pad: widths {pairs} cut more off than {tuple(x.shape)} has; cut less")
    if any(a < 0 or b < 0 for a, b in pairs):
        x = slice_(x, tuple([(first, count, 1) for first, count in kept]))
    return arrange.pad(x, tuple([(max(a, 0), max(b, 0)) for a, b in pairs]), value)


def _patches(name: str, size: Sizes, kernel, dilation, padding, stride):
    """(kernel, dilation, padding, stride, spans, counts) of two axes."""
    kernel = each(name, "kernel_size", kernel, 2, 1)
    dilation = each(name, "dilation", dilation, 2, 1)
    padding = each(name, "padding", padding, 2, 0)
    stride = each(name, "stride", stride, 2, 1)
    spans = reach(kernel, dilation)
    counts = []
    for n, p, span, s in zip(size, padding, spans, stride, strict=True):
        if n + 2 * p < span:
            raise ShapeError(
                f"{name}: patches span {span} elements, an axis of {n} padded by {p} has "
                f"{n + 2 * p}; pad more, or take a smaller kernel or dilation"
            )
        counts.append((n + 2 * p - span) // s + 1)
    return kernel, dilation, padding, stride, spans, tuple(counts)


def _dealt(lead, kernel: Sizes, dilation: Sizes) -> tuple:
    """The basic index of the elements that dilated patches have, in patches without gaps."""
    ends = [(0, k, d) for k, d in zip(kernel, dilation, strict=True)]
    return (*[(0, n, 1) for n in lead], *ends)


def unfold(
    input: ArrayLike,
    kernel_size: PerAxis,
    dilation: PerAxis = 1,
    padding: PerAxis = 0,
    stride: PerAxis = 1,
) -> Tensor:
    """The patches of images as columns: (N, C·kernel, patches).

    input        (N, C, H, W) or (C, H, W)
    kernel_size  the size of a patch: a number or two
    dilation     the distance of elements in a patch
    padding      how many zeros come at the ends
    stride       how far apart patches begin

    >>> import weft as wf
    >>> wf.nn.functional.unfold([[[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]], 2).tolist()
    [[[1.0, 2.0], [2.0, 3.0], [4.0, 5.0], [5.0, 6.0]]]
    """
    x = as_tensor(input)
    if len(x.shape) not in (3, 4):
        raise ShapeError(f"unfold: an input of shape {tuple(x.shape)}; expected (N, C, H, W)")
    if len(x.shape) == 3:
        y = unfold(reshape(x, (1, *x.shape)), kernel_size, dilation, padding, stride)
        return reshape(y, tuple(y.shape[1:]))
    how = _patches("unfold", tuple(x.shape[2:]), kernel_size, dilation, padding, stride)
    kernel, dilation, padding, stride, spans, counts = how
    n, c = x.shape[:2]
    x = arrange.pad(x, ((0, 0), (0, 0), *[(p, p) for p in padding]), 0.0)
    for k in (0, 1):
        x = arrange.windows(x, spans[k], stride[k], 2 + k)
    x = slice_(x, _dealt((n, c, *counts), kernel, dilation))
    return reshape(permute(x, (0, 1, 4, 5, 2, 3)), (n, c * prod(kernel), prod(counts)))


def fold(
    input: ArrayLike,
    output_size: PerAxis,
    kernel_size: PerAxis,
    dilation: PerAxis = 1,
    padding: PerAxis = 0,
    stride: PerAxis = 1,
) -> Tensor:
    """The transpose of `unfold`: patches added up where they came from.

    input                                   (N, C·kernel, patches) or (C·kernel, patches)
    output_size                             the height and width of the images (N, C,
                                            *output_size)
    kernel_size, dilation, padding, stride  those of the `unfold` that it transposes

    >>> import weft as wf
    >>> columns = wf.nn.functional.unfold(wf.ones((1, 1, 2, 3)), 2)
    >>> wf.nn.functional.fold(columns, (2, 3), 2).tolist()
    [[[[1.0, 2.0, 1.0], [1.0, 2.0, 1.0]]]]
    """
    x = as_tensor(input)
    if len(x.shape) == 2:
        y = fold(reshape(x, (1, *x.shape)), output_size, kernel_size, dilation, padding, stride)
        return reshape(y, tuple(y.shape[1:]))
    size = each("fold", "output_size", output_size, 2, 1)
    how = _patches("fold", size, kernel_size, dilation, padding, stride)
    kernel, dilation, padding, stride, spans, counts = how
    if len(x.shape) != 3 or x.shape[1] % prod(kernel) or x.shape[2] != prod(counts):
        raise ShapeError(
            f"fold: an input of shape {tuple(x.shape)}; expected (N, C·{prod(kernel)}, "
            f"{prod(counts)}) for patches of {kernel} in {size}"
        )
    n, c = x.shape[0], x.shape[1] // prod(kernel)
    x = permute(reshape(x, (n, c, *kernel, *counts)), (0, 1, 4, 5, 2, 3))
    x = unslice(x, _dealt((n, c, *counts), kernel, dilation), (n, c, *counts, *spans))
    for k in (1, 0):
        x = arrange.overlap_add(x, stride[k], 2 + k, size[k] + 2 * padding[k])
    inner = [(p, m, 1) for p, m in zip(padding, size, strict=True)]
    return slice_(x, ((0, n, 1), (0, c, 1), *inner))
