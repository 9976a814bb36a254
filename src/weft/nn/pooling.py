"""Pooling as modules: the largest elements or the means of windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import functional as F
from .module import Module

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike, PerAxis
    from .functional.windows import OutputSize


class _PoolLayer(Module):
    """Windows of `kernel_size`, every `stride` elements; None: one beside the other."""

    def __init__(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None,
        padding: PerAxis,
        ceil_mode: bool,
        **options: PerAxis | None,
    ):
        super().__init__()
        self.kernel_size = kernel_size
        self.padding = padding
        self.stride: PerAxis = kernel_size if stride is None else stride
        self.ceil_mode = ceil_mode
        vars(self).update(options)
        self._options: tuple[str, ...] = ("kernel_size", "stride", "padding", *options, "ceil_mode")

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self._options)


class _MaxPool(_PoolLayer):
    axes: int

    def __init__(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        dilation: PerAxis = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ):
        super().__init__(kernel_size, stride, padding, ceil_mode, dilation=dilation)
        self.return_indices = return_indices

    def forward(self, input: ArrayLike) -> Any:
        function = getattr(F, f"max_pool{self.axes}d")
        how = self.kernel_size, self.stride, self.padding, self.dilation
        return function(input, *how, self.ceil_mode, self.return_indices)


class MaxPool1d(_MaxPool):
    """The largest element of each window of (N, C, L) or (C, L).

    kernel_size     how many elements a window has
    stride          how far apart windows begin; None: kernel_size
    padding         how much is added at both ends, where no maximum is found
    dilation        the distance of a window's elements
    return_indices  whether to return the indices of the maxima along the axis too
    ceil_mode       whether windows may begin inside and end beyond the border

    >>> import weft as wf
    >>> wf.nn.MaxPool1d(2)(wf.tensor([[1.0, 3.0, 2.0, 0.0]])).tolist()
    [[3.0, 2.0]]
    """

    axes = 1


class MaxPool2d(_MaxPool):
    """The largest element of each window of images (N, C, H, W) or (C, H, W).

    kernel_size     how many elements a window has: a number or two
    stride          how far apart windows begin; None: kernel_size
    padding         how much is added at both ends, where no maximum is found
    dilation        the distance of a window's elements
    return_indices  whether to return the flat (row-major) indices of the maxima too
    ceil_mode       whether windows may begin inside and end beyond the border

    >>> import weft as wf
    >>> wf.nn.MaxPool2d(2)(wf.ones((1, 4, 4))).shape
    (1, 2, 2)
    """

    axes = 2


class MaxPool3d(_MaxPool):
    """The largest element of each window of volumes (N, C, D, H, W) or (C, D, H, W).

    kernel_size     how many elements a window has: a number or three
    stride          how far apart windows begin; None: kernel_size
    padding         how much is added at both ends, where no maximum is found
    dilation        the distance of a window's elements
    return_indices  whether to return the flat (row-major) indices of the maxima too
    ceil_mode       whether windows may begin inside and end beyond the border

    >>> import weft as wf
    >>> wf.nn.MaxPool3d(2)(wf.ones((1, 4, 4, 4))).shape
    (1, 2, 2, 2)
    """

    axes = 3


class AvgPool1d(_PoolLayer):
    """The mean of each window of (N, C, L) or (C, L).

    kernel_size        the size of a window
    stride             how far apart windows begin; None: kernel_size
    padding            how many zeros come at the ends
    ceil_mode          whether last windows may reach over the end
    count_include_pad  whether the zeros of the padding count as elements

    >>> import weft as wf
    >>> wf.nn.AvgPool1d(2)(wf.ones((1, 4))).shape
    (1, 2)
    """

    def __init__(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        super().__init__(
            kernel_size, stride, padding, ceil_mode, count_include_pad=count_include_pad
        )

    def forward(self, input: ArrayLike) -> Tensor:
        how = self.kernel_size, self.stride, self.padding, self.ceil_mode
        return F.avg_pool1d(input, *how, self.count_include_pad)


class _AvgPool(_PoolLayer):
    axes: int

    def __init__(
        self,
        kernel_size: PerAxis,
        stride: PerAxis | None = None,
        padding: PerAxis = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ):
        more = {"count_include_pad": count_include_pad, "divisor_override": divisor_override}
        super().__init__(kernel_size, stride, padding, ceil_mode, **more)

    def forward(self, input: ArrayLike) -> Tensor:
        function = getattr(F, f"avg_pool{self.axes}d")
        how = self.kernel_size, self.stride, self.padding, self.ceil_mode
        return function(input, *how, self.count_include_pad, self.divisor_override)


class AvgPool2d(_AvgPool):
    """The mean of each window of images (N, C, H, W) or (C, H, W).

    kernel_size        the size of a window: a number or two
    stride             how far apart windows begin; None: kernel_size
    padding            how many zeros come at the ends
    ceil_mode          whether last windows may reach over the end
    count_include_pad  whether the zeros of the padding count as elements
    divisor_override   what sums are divided by in place of their number of elements

    >>> import weft as wf
    >>> wf.nn.AvgPool2d(2)(wf.ones((1, 4, 4))).shape
    (1, 2, 2)
    """

    axes = 2


class AvgPool3d(_AvgPool):
    """The mean of each window of volumes (N, C, D, H, W) or (C, D, H, W).

    kernel_size        the size of a window: a number or three
    stride             how far apart windows begin; None: kernel_size
    padding            how many zeros come at the ends
    ceil_mode          whether last windows may reach over the end
    count_include_pad  whether the zeros of the padding count as elements
    divisor_override   what sums are divided by in place of their number of elements

    >>> import weft as wf
    >>> wf.nn.AvgPool3d(2)(wf.ones((1, 4, 4, 4))).shape
    (1, 2, 2, 2)
    """

    axes = 3


class _Adaptive(Module):
    """As many windows as `output_size` says; None in it leaves an axis as it is."""

    axes: int

    def __init__(self, output_size: OutputSize):
        super().__init__()
        self.output_size = output_size

    def forward(self, input: ArrayLike) -> Tensor:
        return getattr(F, f"adaptive_avg_pool{self.axes}d")(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_Adaptive):
    """The mean of each of `output_size` windows, which cover the input evenly.

    Of (N, C, L) or (C, L).

    output_size  how many windows

    >>> import weft as wf
    >>> wf.nn.AdaptiveAvgPool1d(1)(wf.ones((2, 4))).shape
    (2, 1)
    """

    axes = 1


class AdaptiveAvgPool2d(_Adaptive):
    """The mean of each of `output_size` windows, which cover the input evenly.

    Of images (N, C, H, W) or (C, H, W).

    output_size  how many windows: a number or two; None leaves an axis as it is

    >>> import weft as wf
    >>> wf.nn.AdaptiveAvgPool2d(1)(wf.ones((2, 4, 4))).shape
    (2, 1, 1)
    """

    axes = 2


class AdaptiveAvgPool3d(_Adaptive):
    """The mean of each of `output_size` windows, which cover the input evenly.

    Of volumes (N, C, D, H, W) or (C, D, H, W).

    output_size  how many windows: a number or three; None leaves an axis as it is

    >>> import weft as wf
    >>> wf.nn.AdaptiveAvgPool3d(1)(wf.ones((2, 4, 4, 4))).shape
    (2, 1, 1, 1)
    """

    axes = 3


class _AdaptiveMax(_Adaptive):
    def __init__(self, output_size: OutputSize, return_indices: bool = False):
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: ArrayLike) -> Any:
        function = getattr(F, f"adaptive_max_pool{self.axes}d")
        return function(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMax):
    """The largest element of each of `output_size` windows, which cover the input evenly.

    Of (N, C, L) or (C, L).

    output_size     how many windows
    return_indices  whether to return the indices of the maxima along the axis too

    >>> import weft as wf
    >>> wf.nn.AdaptiveMaxPool1d(1)(wf.ones((2, 4))).shape
    (2, 1)
    """

    axes = 1


class AdaptiveMaxPool2d(_AdaptiveMax):
    """The largest element of each of `output_size` windows, which cover the input evenly.

    Of images (N, C, H, W) or (C, H, W).

    output_size     how many windows: a number or two; None leaves an axis as it is
    return_indices  whether to return the flat (row-major) indices of the maxima too

    >>> import weft as wf
    >>> wf.nn.AdaptiveMaxPool2d(1)(wf.ones((2, 4, 4))).shape
    (2, 1, 1)
    """

    axes = 2


class AdaptiveMaxPool3d(_AdaptiveMax):
    """The largest element of each of `output_size` windows, which cover the input evenly.

    Of volumes (N, C, D, H, W) or (C, D, H, W).

    output_size     how many windows: a number or three; None leaves an axis as it is
    return_indices  whether to return the flat (row-major) indices of the maxima too

    >>> import weft as wf
    >>> wf.nn.AdaptiveMaxPool3d(1)(wf.ones((2, 4, 4, 4))).shape
    (2, 1, 1, 1)
    """

    axes = 3
