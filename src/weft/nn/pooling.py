"""Pooling as modules: the largest elements or the means of windows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import functional as F
from .module import Module

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike, PerAxis
    from .functional.windows import OutputSize


class _Pool(Module):
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


class _MaxPool(_Pool):
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

    dilation        the distance of a window's elements
    return_indices  also return where they are
    ceil_mode       windows may begin inside and end beyond the border

    >>> import weft as wf
    >>> wf.nn.MaxPool1d(2)(wf.tensor([[1.0, 3.0, 2.0, 0.0]])).tolist()
    [[3.0, 2.0]]
    """

    axes = 1


class MaxPool2d(_MaxPool):
    """`MaxPool1d` of images."""

    axes = 2


class MaxPool3d(_MaxPool):
    """`MaxPool1d` of volumes."""

    axes = 3


class AvgPool1d(_Pool):
    """The mean of each window of (N, C, L) or (C, L).

    count_include_pad  whether the zeros of the padding count as elements
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


class _AvgPool(_Pool):
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
    """`AvgPool1d` of images; `divisor_override` stands for the number of elements."""

    axes = 2


class AvgPool3d(_AvgPool):
    """`AvgPool2d` of volumes."""

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
    """The means of `output_size` windows, which cover (N, C, L) or (C, L) evenly."""

    axes = 1


class AdaptiveAvgPool2d(_Adaptive):
    """`AdaptiveAvgPool1d` of images."""

    axes = 2


class AdaptiveAvgPool3d(_Adaptive):
    """`AdaptiveAvgPool1d` of volumes."""

    axes = 3


class _AdaptiveMax(_Adaptive):
    def __init__(self, output_size: OutputSize, return_indices: bool = False):
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: ArrayLike) -> Any:
        function = getattr(F, f"adaptive_max_pool{self.axes}d")
        return function(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMax):
    """The largest elements of `output_size` windows; also where they are, if `return_indices`."""

    axes = 1


class AdaptiveMaxPool2d(_AdaptiveMax):
    """`AdaptiveMaxPool1d` of images."""

    axes = 2


class AdaptiveMaxPool3d(_AdaptiveMax):
    """`AdaptiveMaxPool1d` of volumes."""

    axes = 3
