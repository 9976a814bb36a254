"""Convolutions, plain and transposed, with their weights."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import TYPE_CHECKING, Literal, get_args

from .. import errors
from ..arrays.arguments import as_tensor
from . import functional as F
from . import init
from .making import one_of, parameter, per_axis, sizes
from .module import Module

if TYPE_CHECKING:
    from ..arrays.parameter import Parameter
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike, Device, DTypeLike, PerAxis

Borders = Literal["zeros", "reflect", "replicate", "circular"]
_BORDERS: tuple[str, ...] = get_args(Borders)


class _Convolution(Module):
    """What convolutions have in common; the subclasses say along how many axes they run."""

    axes: int
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: PerAxis,
        stride: PerAxis,
        dilation: PerAxis,
        groups: int,
    ):
        super().__init__()
        name = type(self).__name__
        sizes(name, in_channels=in_channels, out_channels=out_channels, groups=groups)
        if in_channels % groups or out_channels % groups:
            raise errors.ArgumentError(
                f"{name}: {in_channels} channels to {out_channels} in {groups} groups; groups must "
                "divide both"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.groups = groups
        self.kernel_size: tuple[int, ...] = per_axis(name, "kernel_size", kernel_size, self.axes)
        self.stride: tuple[int, ...] = per_axis(name, "stride", stride, self.axes)
        self.dilation: tuple[int, ...] = per_axis(name, "dilation", dilation, self.axes)
        for what in ("kernel_size", "stride", "dilation"):
            sizes(name, **{f"{what}[{i}]": n for i, n in enumerate(getattr(self, what))})

    def _weights(
        self,
        shape: tuple[int, ...],
        bias: bool,
        device: Device | None,
        dtype: DTypeLike | None,
    ) -> None:
        self.weight: Parameter = parameter((*shape, *self.kernel_size), device, dtype)
        have = parameter((self.out_channels,), device, dtype) if bias else None
        self.register_parameter("bias", have)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new values: uniform in ±1/√(numbers that an output is summed from).

        >>> import weft as wf
        >>> layer = wf.nn.Conv1d(4, 2, 4)
        >>> layer.reset_parameters()
        >>> wf.max(wf.abs(layer.weight)).item() <= 0.25
        True
        """
        bound = 1 / sqrt(prod(self.weight.shape[1:]))
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def _show(self, **more: object) -> str:
        options = {"padding": ((0,) * self.axes), "dilation": (1,) * self.axes} | {"groups": 1}
        shown = {n: getattr(self, n) for n in options if getattr(self, n) != options[n]} | more
        parts = [f"{self.in_channels}", f"{self.out_channels}", f"kernel_size={self.kernel_size}"]
        parts += [f"stride={self.stride}", *(f"{n}={v!r}" for n, v in shown.items())]
        return ", ".join(parts + ([] if self.bias is not None else ["bias=False"]))


class _Conv(_Convolution):
    """A plain convolution."""

    padding: str | tuple[int, ...]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: PerAxis,
        stride: PerAxis = 1,
        padding: PerAxis | Literal["valid", "same"] = 0,
        dilation: PerAxis = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: Borders = "zeros",
        device: Device | None = None,
        dtype: DTypeLike | None = None,
    ):
        super().__init__(in_channels, out_channels, kernel_size, stride, dilation, groups)
        name = type(self).__name__
        self.padding_mode: Borders = one_of(name, "padding_mode", padding_mode, _BORDERS)
        if isinstance(padding, str):
            self.padding = one_of(name, "padding", padding, ("valid", "same"))
            if padding == "same" and set(self.stride) != {1}:
                raise errors.ArgumentError(
                    f"{name}: padding='same' with stride={stride}; the result would have another "
                    "size: use stride=1, or give the padding in numbers"
                )
        else:
            self.padding = per_axis(name, "padding", padding, self.axes)
            sizes(name, least=0, **{f"padding[{i}]": n for i, n in enumerate(self.padding)})
        self._weights((out_channels, in_channels // groups), bias, device, dtype)

    def forward(self, input: ArrayLike) -> Tensor:
        function = getattr(F, f"conv{self.axes}d")
        how = self.dilation, self.groups
        if self.padding_mode == "zeros":
            return function(input, self.weight, self.bias, self.stride, self.padding, *how)
        x = F.pad(as_tensor(input), self._borders(), self.padding_mode)
        return function(x, self.weight, self.bias, self.stride, 0, *how)

    def _borders(self) -> list[int]:
        """The widths that `pad` takes: the last axis first, before and after."""
        if self.padding == "valid":
            return [0, 0] * self.axes
        if self.padding == "same":
            spans = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=True)]
            pairs = [(n // 2, n - n // 2) for n in spans]
        else:
            pairs = [(int(p), int(p)) for p in self.padding]
        return [n for pair in reversed(pairs) for n in pair]

    def extra_repr(self) -> str:
        zeros = self.padding_mode == "zeros"
        return self._show(**({} if zeros else {"padding_mode": self.padding_mode}))


class Conv1d(_Conv):
    """Σ weight · windows of (N, C, L) or (C, L), plus a bias.

    in_channels, out_channels  C before and after
    kernel_size                the size of a window
    stride                     how far apart windows begin
    padding                    how much comes at the ends, or "valid" (nothing) or "same"
    dilation                   the distance of elements in a window
    groups                     so many groups of channels are convolved apart
    bias                       whether there is a bias
    padding_mode               what is beyond the border: zeros, reflect, replicate or circular
    device, dtype              of the parameters

    Both begin uniform in ±1/√(numbers that an output is summed from).

    >>> import weft as wf
    >>> wf.nn.Conv1d(2, 4, 3, padding=1)(wf.ones((5, 2, 10))).shape
    (5, 4, 10)
    """

    axes = 1


class Conv2d(_Conv):
    """Σ weight · windows of images (N, C, H, W) or (C, H, W), plus a bias.

    in_channels, out_channels  C before and after
    kernel_size                the size of a window: a number, or one for each axis
    stride                     how far apart windows begin
    padding                    how much comes at the ends, or "valid" (nothing) or "same"
    dilation                   the distance of elements in a window
    groups                     so many groups of channels are convolved apart
    bias                       whether there is a bias
    padding_mode               what is beyond the border: zeros, reflect, replicate or circular
    device, dtype              of the parameters

    Both begin uniform in ±1/√(numbers that an output is summed from).

    >>> import weft as wf
    >>> wf.nn.Conv2d(2, 4, 3, padding=1)(wf.ones((5, 2, 6, 6))).shape
    (5, 4, 6, 6)
    """

    axes = 2


class Conv3d(_Conv):
    """Σ weight · windows of volumes (N, C, D, H, W) or (C, D, H, W), plus a bias.

    in_channels, out_channels  C before and after
    kernel_size                the size of a window: a number, or one for each axis
    stride                     how far apart windows begin
    padding                    how much comes at the ends, or "valid" (nothing) or "same"
    dilation                   the distance of elements in a window
    groups                     so many groups of channels are convolved apart
    bias                       whether there is a bias
    padding_mode               what is beyond the border: zeros, reflect, replicate or circular
    device, dtype              of the parameters

    Both begin uniform in ±1/√(numbers that an output is summed from).

    >>> import weft as wf
    >>> wf.nn.Conv3d(2, 4, 3, padding=1)(wf.ones((5, 2, 6, 6, 6))).shape
    (5, 4, 6, 6, 6)
    """

    axes = 3


class _ConvTranspose(_Convolution):
    """A transposed convolution."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: PerAxis,
        stride: PerAxis = 1,
        padding: PerAxis = 0,
        output_padding: PerAxis = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: PerAxis = 1,
        padding_mode: Literal["zeros"] = "zeros",
        device: Device | None = None,
        dtype: DTypeLike | None = None,
    ):
        super().__init__(in_channels, out_channels, kernel_size, stride, dilation, groups)
        name = type(self).__name__
        self.padding_mode: str = one_of(name, "padding_mode", padding_mode, ("zeros",))
        self.padding: tuple[int, ...] = per_axis(name, "padding", padding, self.axes)
        more = per_axis(name, "output_padding", output_padding, self.axes)
        self.output_padding: tuple[int, ...] = more
        sizes(name, least=0, **{f"padding[{i}]": n for i, n in enumerate(self.padding)})
        self._weights((in_channels, out_channels // groups), bias, device, dtype)

    def forward(self, input: ArrayLike, output_size: Sequence[int] | None = None) -> Tensor:
        """The transpose of a convolution; `output_size` picks one of the sizes that lead here."""
        more = self.output_padding
        if output_size is not None:
            more = self._more(as_tensor(input).shape[-self.axes :], tuple(output_size))
        function = getattr(F, f"conv_transpose{self.axes}d")
        how = self.stride, self.padding, more, self.groups, self.dilation
        return function(input, self.weight, self.bias, *how)

    def _more(self, shape: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
        wanted = wanted[-self.axes :]
        parts = zip(shape, self.stride, self.padding, self.dilation, self.kernel_size, strict=True)
        least = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, s, p, d, k in parts]
        most = [n + s - 1 for n, s in zip(least, self.stride, strict=True)]
        fits = len(wanted) == self.axes and all(
            a <= n <= b for a, n, b in zip(least, wanted, most, strict=True)
        )
        if not fits:
            raise errors.ArgumentError(
                f"{type(self).__name__}: output_size {wanted} for an input of {shape}; expected "
                f"{tuple(least)} to {tuple(most)}"
            )
        return tuple(n - a for n, a in zip(wanted, least, strict=True))

    def extra_repr(self) -> str:
        more = self.output_padding
        return self._show(**({"output_padding": more} if any(more) else {}))


class ConvTranspose1d(_ConvTranspose):
    """The transpose of `Conv1d` as a map of its input, plus a bias.

    in_channels, out_channels               C before and after
    kernel_size, stride, padding, dilation  those of the `Conv1d` that it transposes
    output_padding                          how many elements are added at the end of the result
    groups                                  so many groups of channels are convolved apart
    bias                                    whether there is a bias
    padding_mode                            zeros
    device, dtype                           of the parameters

    >>> import weft as wf
    >>> wf.nn.ConvTranspose1d(2, 4, 2, stride=2)(wf.ones((1, 2, 3))).shape
    (1, 4, 6)
    """

    axes = 1


class ConvTranspose2d(_ConvTranspose):
    """The transpose of `Conv2d` as a map of its input, plus a bias.

    in_channels, out_channels               C before and after
    kernel_size, stride, padding, dilation  those of the `Conv2d` that it transposes
    output_padding                          how many elements are added at the end of the result
    groups                                  so many groups of channels are convolved apart
    bias                                    whether there is a bias
    padding_mode                            zeros
    device, dtype                           of the parameters

    >>> import weft as wf
    >>> wf.nn.ConvTranspose2d(2, 4, 2, stride=2)(wf.ones((1, 2, 3, 3))).shape
    (1, 4, 6, 6)
    """

    axes = 2


class ConvTranspose3d(_ConvTranspose):
    """The transpose of `Conv3d` as a map of its input, plus a bias.

    in_channels, out_channels               C before and after
    kernel_size, stride, padding, dilation  those of the `Conv3d` that it transposes
    output_padding                          how many elements are added at the end of the result
    groups                                  so many groups of channels are convolved apart
    bias                                    whether there is a bias
    padding_mode                            zeros
    device, dtype                           of the parameters

    >>> import weft as wf
    >>> wf.nn.ConvTranspose3d(2, 4, 2, stride=2)(wf.ones((1, 2, 3, 3, 3))).shape
    (1, 4, 6, 6, 6)
    """

    axes = 3
