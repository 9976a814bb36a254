"""Modules that only arrange elements: other shapes, borders and channels."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from .. import errors
from ..arrays.arguments import as_tensor
from ..core.aval import axis_in
from ..ops.structural import reshape
from . import functional as F
from .making import per_axis, sizes
from .module import Module

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike, PerAxis
    from .functional.patches import Border
    from .functional.resampling import Resampling


class Flatten(Module):
    """The axes from `start_dim` to `end_dim` as one.

    start_dim, end_dim  the first and the last of them; negative ones count from the end

    >>> import weft as wf
    >>> wf.nn.Flatten()(wf.ones((5, 2, 3))).shape
    (5, 6)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: ArrayLike) -> Tensor:
        x = as_tensor(input)
        shape = x.shape or (1,)
        first, last = (axis_in("Flatten", d, len(shape)) for d in (self.start_dim, self.end_dim))
        if first > last:
            raise errors.AxisError(
                f"Flatten: start_dim={self.start_dim} comes after end_dim={self.end_dim} in "
                f"{x.shape}; exchange them"
            )
        inside = prod(shape[first : last + 1])
        return reshape(x, (*shape[:first], inside, *shape[last + 1 :]))

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """The axis `dim` as several.

    dim               the axis
    unflattened_size  the lengths in its place, of which one may be −1: what is left

    >>> import weft as wf
    >>> wf.nn.Unflatten(1, (2, -1))(wf.ones((5, 6))).shape
    (5, 2, 3)
    """

    def __init__(self, dim: int, unflattened_size: tuple[int, ...]):
        super().__init__()
        self.dim = dim
        self.unflattened_size: tuple[int, ...] = tuple(unflattened_size)
        if self.unflattened_size.count(-1) > 1 or min(self.unflattened_size, default=0) < -1:
            raise errors.ArgumentError(
                f"Unflatten: unflattened_size={unflattened_size}, expected sizes, one of them -1 "
                "at most"
            )

    def forward(self, input: ArrayLike) -> Tensor:
        x = as_tensor(input)
        axis, inside = axis_in("Unflatten", self.dim, x.ndim), self.unflattened_size
        n, known = x.shape[axis], prod(k for k in inside if k != -1)
        if -1 in inside and known and n % known == 0:
            inside = tuple(n // known if k == -1 else k for k in inside)
        if prod(inside) != n or -1 in inside:
            raise errors.ShapeError(
                f"Unflatten: axis {self.dim} of {x.shape} as {self.unflattened_size}; their "
                f"product must be {n}"
            )
        return reshape(x, (*x.shape[:axis], *inside, *x.shape[axis + 1 :]))

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"


class PixelShuffle(Module):
    """(…, C·r², H, W) as (…, C, H·r, W·r): channels become pixels.

    upscale_factor  r

    >>> import weft as wf
    >>> wf.nn.PixelShuffle(2)(wf.ones((8, 3, 3))).shape
    (2, 6, 6)
    """

    def __init__(self, upscale_factor: int):
        super().__init__()
        sizes("PixelShuffle", upscale_factor=upscale_factor)
        self.upscale_factor = upscale_factor

    def forward(self, input: ArrayLike) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """(…, C, H·r, W·r) as (…, C·r², H, W): pixels become channels.

    downscale_factor  r

    >>> import weft as wf
    >>> wf.nn.PixelUnshuffle(2)(wf.ones((2, 6, 6))).shape
    (8, 3, 3)
    """

    def __init__(self, downscale_factor: int):
        super().__init__()
        sizes("PixelUnshuffle", downscale_factor=downscale_factor)
        self.downscale_factor = downscale_factor

    def forward(self, input: ArrayLike) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class Unfold(Module):
    """The windows of images (N, C, H, W) as columns (N, C·kernel, windows).

    kernel_size  the size of a window: a number or two
    dilation     the distance of elements in a window
    padding      how many zeros come at the ends
    stride       how far apart windows begin

    >>> import weft as wf
    >>> wf.nn.Unfold(2)(wf.ones((1, 3, 4, 4))).shape
    (1, 12, 9)
    """

    def __init__(
        self, kernel_size: PerAxis, dilation: PerAxis = 1, padding: PerAxis = 0, stride: PerAxis = 1
    ):
        super().__init__()
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: ArrayLike) -> Tensor:
        return F.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, "
            f"stride={self.stride}"
        )


class Fold(Module):
    """Columns added up into images: the transpose of `Unfold`.

    output_size                             the height and width of the images
    kernel_size, dilation, padding, stride  those of the `Unfold` that it transposes

    >>> import weft as wf
    >>> wf.nn.Fold((4, 4), 2)(wf.ones((1, 12, 9))).shape
    (1, 3, 4, 4)
    """

    def __init__(
        self,
        output_size: PerAxis,
        kernel_size: PerAxis,
        dilation: PerAxis = 1,
        padding: PerAxis = 0,
        stride: PerAxis = 1,
    ):
        super().__init__()
        self.output_size = output_size
        self.kernel_size = kernel_size
        self.dilation = dilation
        self.padding = padding
        self.stride = stride

    def forward(self, input: ArrayLike) -> Tensor:
        how = self.kernel_size, self.dilation, self.padding, self.stride
        return F.fold(input, self.output_size, *how)

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, "
            f"dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
        )


class Upsample(Module):
    """Images (N, C, …) at another size.

    size                    the lengths of the axes, or one for all
    scale_factor            what lengths are multiplied by, in place of `size`
    mode                    nearest, linear, bilinear, trilinear or area, as of `interpolate`
    align_corners           of the linear modes: the middles of the corner elements stay in
                            their places
    recompute_scale_factor  whether the scale is taken from the sizes, which are rounded

    >>> import weft as wf
    >>> wf.nn.Upsample(scale_factor=2)(wf.tensor([[[1.0, 2.0]]])).tolist()
    [[[1.0, 1.0, 2.0, 2.0]]]
    """

    def __init__(
        self,
        size: PerAxis | None = None,
        scale_factor: float | Sequence[float] | None = None,
        mode: Resampling = "nearest",
        align_corners: bool | None = None,
        recompute_scale_factor: bool | None = None,
    ):
        super().__init__()
        self.size = size
        self.scale_factor = scale_factor
        self.mode: Resampling = mode
        self.align_corners = align_corners
        self.recompute_scale_factor = recompute_scale_factor

    def forward(self, input: ArrayLike) -> Tensor:
        how = self.size, self.scale_factor, self.mode, self.align_corners
        return F.interpolate(input, *how, recompute_scale_factor=self.recompute_scale_factor)

    def extra_repr(self) -> str:
        size = f"scale_factor={self.scale_factor}" if self.size is None else f"size={self.size}"
        return f"{size}, mode={self.mode!r}"


class _Pad(Module):
    """Borders of so many axes, in one of the modes of `pad`."""

    axes: int
    mode: Border

    def __init__(self, padding: PerAxis):
        super().__init__()
        self.padding: tuple[int, ...] = per_axis(
            type(self).__name__, "padding", padding, 2 * self.axes
        )

    def forward(self, input: ArrayLike) -> Tensor:
        x = as_tensor(input)
        if self.mode != "constant" and x.ndim not in (self.axes + 1, self.axes + 2):
            raise errors.ShapeError(
                f"{type(self).__name__}: input of shape {x.shape}, expected {self.axes + 1} axes, "
                f"{self.axes + 2} with a batch"
            )
        return F.pad(x, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPad(_Pad):
    mode: Border = "constant"

    def __init__(self, padding: PerAxis, value: float):
        super().__init__(padding)
        self.value = value

    def forward(self, input: ArrayLike) -> Tensor:
        return F.pad(input, self.padding, self.mode, self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: PerAxis):
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_ConstantPad):
    axes = 1


class ConstantPad2d(_ConstantPad):
    axes = 2


class ConstantPad3d(_ConstantPad):
    axes = 3


class ZeroPad1d(_ZeroPad):
    axes = 1


class ZeroPad2d(_ZeroPad):
    axes = 2


class ZeroPad3d(_ZeroPad):
    axes = 3


class _ReflectionPad(_Pad):
    mode: Border = "reflect"


class ReflectionPad1d(_ReflectionPad):
    axes = 1


class ReflectionPad2d(_ReflectionPad):
    axes = 2


class ReflectionPad3d(_ReflectionPad):
    axes = 3


class _ReplicationPad(_Pad):
    mode: Border = "replicate"


class ReplicationPad1d(_ReplicationPad):
    axes = 1


class ReplicationPad2d(_ReplicationPad):
    axes = 2


class ReplicationPad3d(_ReplicationPad):
    axes = 3


class _CircularPad(_Pad):
    mode: Border = "circular"


class CircularPad1d(_CircularPad):
    axes = 1


class CircularPad2d(_CircularPad):
    axes = 2


class CircularPad3d(_CircularPad):
    axes = 3


_PAD = """{what}

padding  how wide, for each axis, the last one first: (before, after); or one number for all{value}

>>> import weft as wf
>>> wf.nn.{name}({padding})({example}
"""


def _document(kinds: Sequence[type[Module]], what: str, ends: str, value: str = "") -> None:
    """Say what the borders of a kind are, for one, two and three axes.

    ends  the elements added before and after [1.0, 2.0, 3.0] by a padding of 1
    """
    before, after = ends.split()
    padding = "1, 9.0" if value else "1"
    example = f"wf.tensor([[1.0, 2.0, 3.0]])).tolist()\n[[{before}, 1.0, 2.0, 3.0, {after}]]"
    for n, kind in enumerate(kinds, 1):
        kind.__doc__ = _PAD.format(
            what=what, value=value, name=kind.__name__, padding=padding, example=example
        )
        example = f"wf.ones((1, {'3, ' * n}3))).shape\n(1, {'5, ' * n}5)"


_document(
    (ConstantPad1d, ConstantPad2d, ConstantPad3d),
    "A border of one value.",
    "9.0 9.0",
    "\nvalue    the value",
)
_document((ZeroPad1d, ZeroPad2d, ZeroPad3d), "A border of zeros.", "0.0 0.0")
_document(
    (ReflectionPad1d, ReflectionPad2d, ReflectionPad3d),
    "A border that mirrors the input at its outermost elements.",
    "2.0 2.0",
)
_document(
    (ReplicationPad1d, ReplicationPad2d, ReplicationPad3d),
    "A border of the outermost elements.",
    "1.0 3.0",
)
_document(
    (CircularPad1d, CircularPad2d, CircularPad3d),
    "A border of what is at the other end.",
    "3.0 1.0",
)
