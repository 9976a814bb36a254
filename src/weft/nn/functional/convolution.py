"""Convolutions, plain and transposed, along one, two or three axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ...arrays.arguments import as_tensor
from ...core.autocast import HALF, computed_in
from ...errors import ArgumentError, ShapeError
from ...ops import convolve
from ...ops.structural import reshape
from .windows import Padding, Sizes, each, exact, layout, reach

if TYPE_CHECKING:
    from ...arrays.tensor import Tensor
    from ...arrays.types import ArrayLike, PerAxis


def _padding(name: str, padding, stride: Sizes, spans: Sizes) -> Padding:
    """PyTorch's padding: numbers, "valid" or "same"."""
    if not isinstance(padding, str):
        return tuple([(p, p) for p in each(name, "padding", padding, len(stride), 0)])
    if padding == "valid":
        return ((0, 0),) * len(stride)
    if padding != "same":
        raise ArgumentError(f"{name}: padding {padding!r}; expected numbers, 'valid' or 'same'")
    if set(stride) != {1}:
        raise ArgumentError(
            f"{name}: padding='same' with stride={stride}; the result would have another size: "
            "use stride=1, or give the padding in numbers"
        )
    return tuple([((n - 1) // 2, n // 2) for n in spans])


def _weights(name: str, x, w, axes: int, groups: int, channels: int) -> None:
    """Check that weights fit an input with this many `channels`."""
    got = x.shape[-axes - 1]
    if len(w.shape) != axes + 2:
        raise ShapeError(
            f"{name}: weights of shape {tuple(w.shape)}; expected {axes + 2} axes: two for "
            f"channels and {axes} for the kernel"
        )
    if groups < 1 or got % groups or w.shape[0] % groups:
        raise ShapeError(
            f"{name}: {groups} groups for an input with {got} channels and weights of shape "
            f"{tuple(w.shape)}; groups must divide the channels of both"
        )
    if got != channels:
        raise ShapeError(
            f"{name}: an input with {got} channels; expected {channels} for weights of shape "
            f"{tuple(w.shape)} and groups={groups}"
        )
    if 0 in w.shape[2:]:
        raise ShapeError(
            f"{name}: weights of shape {tuple(w.shape)}; expected at least one element along each "
            "axis of the kernel"
        )


def _bias(name: str, b, channels: int):
    b = as_tensor(b)
    if tuple(b.shape) != (channels,):
        raise ShapeError(
            f"{name}: a bias of shape {tuple(b.shape)}; expected ({channels},), one number for "
            "each channel of the result"
        )
    return b


def _images(x, axes: int):
    """x with a batch axis in front, if it has none."""
    return reshape(x, (1, *x.shape)) if len(x.shape) == axes + 1 else x


def _without(y, x, axes: int):
    """y without the batch axis, if `_images` added one to x."""
    return reshape(y, tuple(y.shape[1:])) if len(x.shape) == axes + 1 else y


def _how(name: str, axes: int, x, w, stride, padding, dilation, groups) -> tuple[Any, ...]:
    """The row's parameters of a convolution, after checking that they fit."""
    size = layout(name, x, axes)
    groups = each(name, "groups", groups, 1, 1)[0]
    stride = each(name, "stride", stride, axes, 1)
    dilation = each(name, "dilation", dilation, axes, 1)
    _weights(name, x, w, axes, groups, w.shape[1] * groups if len(w.shape) > 1 else 0)
    spans = reach(tuple(w.shape[2:]), dilation)
    padding = exact(name, size, spans, stride, _padding(name, padding, stride, spans))
    return stride, padding, dilation, groups


# What `_how` found for shapes and numbers; emptied when there are many.
_FOUND: dict[tuple[Any, ...], tuple[Any, ...]] = {}
_MOST = 1024


def _convolve(name: str, axes: int, x, w: Any, b: Any, stride, padding, dilation, groups):
    x, w = as_tensor(x), as_tensor(w)
    sizes, weights = x.shape, w.shape
    given = (stride, padding, dilation, groups)
    if type(stride) is type(padding) is type(dilation) is type(groups) is int:
        key = (name, sizes, weights, given)
        how = _FOUND.get(key)
        if how is None:
            if len(_FOUND) >= _MOST:
                _FOUND.clear()
            how = _FOUND[key] = _how(name, axes, x, w, *given)
    else:
        how = _how(name, axes, x, w, *given)
    single = len(sizes) == axes + 1
    images = _images(x, axes) if single else x
    if b is None:
        y = convolve.convolution(images, w, *how)
    else:
        y = convolve.convolution_biased(images, w, _bias(name, b, weights[0]), *how)
    return _without(y, x, axes) if single else y


def _convolve_transposed(name: str, axes: int, x, w, b, stride, padding, more, groups, dilation):
    x, w = as_tensor(x), as_tensor(w)
    size = layout(name, x, axes)
    groups = each(name, "groups", groups, 1, 1)[0]
    stride = each(name, "stride", stride, axes, 1)
    dilation = each(name, "dilation", dilation, axes, 1)
    sides = each(name, "padding", padding, axes, 0)
    more = each(name, "output_padding", more, axes, 0)
    _weights(name, x, w, axes, groups, w.shape[0] if w.shape else 0)
    for m, s, d in zip(more, stride, dilation, strict=True):
        if m >= max(s, d):
            raise ArgumentError(
                f"{name}: output_padding {m} with stride {s} and dilation {d}; it must be smaller "
                "than one of these"
            )
    # Elements added at the end of the result are padding that is not cut off there.
    pads = tuple([(p, p - m) for p, m in zip(sides, more, strict=True)])
    spans = reach(tuple(w.shape[2:]), dilation)
    for n, s, span, (a, c) in zip(size, stride, spans, pads, strict=True):
        if (n - 1) * s + span - a - c < 1:
            raise ShapeError(
                f"{name}: an axis of {n} would become one of {(n - 1) * s + span - a - c}; take "
                "less padding or a larger kernel"
            )
    y = convolve.convolution_transposed(_images(x, axes), w, stride, pads, dilation, groups)
    if b is not None:
        channels = w.shape[1] * groups
        y = y + reshape(_bias(name, b, channels), (channels, *(1,) * axes))
    return _without(y, x, axes)


def conv1d(
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: PerAxis = 1,
    padding: PerAxis | Literal["valid", "same"] = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Σ weight · windows of the input, plus a bias: a correlation, the kernel is not reversed.

    input     (N, C, L) or (C, L)
    weight    (O, C / groups, K)
    bias      (O,); None: none
    stride    how far apart windows begin
    padding   how many zeros come before and after: a number, "valid" (none) or "same"
    dilation  the distance of elements in a window
    groups    how many groups the channels are divided into, each with outputs of its own

    >>> import weft as wf
    >>> x = wf.tensor([[[1.0, 2.0, 3.0, 4.0]]])
    >>> wf.nn.functional.conv1d(x, [[[1.0, 10.0]]]).tolist()
    [[[21.0, 32.0, 43.0]]]
    """
    return _convolve("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: PerAxis = 1,
    padding: PerAxis | Literal["valid", "same"] = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Σ weight · windows of images, plus a bias: a correlation, the kernel is not reversed.

    input     (N, C, H, W) or (C, H, W)
    weight    (O, C / groups, K, L)
    bias      (O,); None: none
    stride    how far apart windows begin: a number, or one for each axis
    padding   how many zeros come at the ends: a number, one for each axis, "valid" (none) or
              "same"
    dilation  the distance of elements in a window
    groups    how many groups the channels are divided into, each with outputs of its own

    >>> import weft as wf
    >>> wf.nn.functional.conv2d(wf.ones((1, 3, 3)), wf.ones((1, 1, 2, 2))).tolist()
    [[[4.0, 4.0], [4.0, 4.0]]]
    """
    return _convolve("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: PerAxis = 1,
    padding: PerAxis | Literal["valid", "same"] = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
) -> Tensor:
    """Σ weight · windows of volumes, plus a bias: a correlation, the kernel is not reversed.

    input     (N, C, D, H, W) or (C, D, H, W)
    weight    (O, C / groups, K, L, M)
    bias      (O,); None: none
    stride    how far apart windows begin: a number, or one for each axis
    padding   how many zeros come at the ends: a number, one for each axis, "valid" (none) or
              "same"
    dilation  the distance of elements in a window
    groups    how many groups the channels are divided into, each with outputs of its own

    >>> import weft as wf
    >>> wf.nn.functional.conv3d(wf.ones((1, 2, 2, 2)), wf.ones((1, 1, 2, 2, 2))).tolist()
    [[[[8.0]]]]
    """
    return _convolve("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


@computed_in(HALF, "convolution_transposed")
def conv_transpose1d(
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
) -> Tensor:
    """The transpose of `conv1d` as a linear map of its input, plus a bias.

    input                      (N, C, L) or (C, L)
    weight                     (C, O / groups, K)
    bias                       (O,); None: none
    stride, padding, dilation  those of the `conv1d` that it transposes
    output_padding             how many elements are added at the end of the result
    groups                     how many groups the channels are divided into

    >>> import weft as wf
    >>> x = wf.tensor([[1.0, 2.0]])
    >>> wf.nn.functional.conv_transpose1d(x, [[[1.0, 10.0]]], stride=2).tolist()
    [[1.0, 10.0, 2.0, 20.0]]
    """
    how = stride, padding, output_padding, groups, dilation
    return _convolve_transposed("conv_transpose1d", 1, input, weight, bias, *how)


@computed_in(HALF, "convolution_transposed")
def conv_transpose2d(
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
) -> Tensor:
    """The transpose of `conv2d` as a linear map of its input, plus a bias.

    input                      (N, C, H, W) or (C, H, W)
    weight                     (C, O / groups, K, L)
    bias                       (O,); None: none
    stride, padding, dilation  those of the `conv2d` that it transposes
    output_padding             how many elements the result is longer at the ends
    groups                     how many groups the channels are divided into

    >>> import weft as wf
    >>> wf.nn.functional.conv_transpose2d([[[2.0]]], wf.ones((1, 1, 2, 2))).tolist()
    [[[2.0, 2.0], [2.0, 2.0]]]
    """
    how = stride, padding, output_padding, groups, dilation
    return _convolve_transposed("conv_transpose2d", 2, input, weight, bias, *how)


@computed_in(HALF, "convolution_transposed")
def conv_transpose3d(
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: PerAxis = 1,
    padding: PerAxis = 0,
    output_padding: PerAxis = 0,
    groups: int = 1,
    dilation: PerAxis = 1,
) -> Tensor:
    """The transpose of `conv3d` as a linear map of its input, plus a bias.

    input                      (N, C, D, H, W) or (C, D, H, W)
    weight                     (C, O / groups, K, L, M)
    bias                       (O,); None: none
    stride, padding, dilation  those of the `conv3d` that it transposes
    output_padding             how many elements the result is longer at the ends
    groups                     how many groups the channels are divided into

    >>> import weft as wf
    >>> wf.nn.functional.conv_transpose3d(wf.ones((1, 1, 1, 1)), wf.ones((1, 1, 1, 2, 2))).tolist()
    [[[[1.0, 1.0], [1.0, 1.0]]]]
    """
    how = stride, padding, output_padding, groups, dilation
    return _convolve_transposed("conv_transpose3d", 3, input, weight, bias, *how)
