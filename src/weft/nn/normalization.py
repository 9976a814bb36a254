"""Normalisations with their weights and running statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import errors
from ..arrays.arguments import as_tensor
from ..arrays.inplace import copy_
from ..arrays.make import ones, tensor, zeros
from ..core import dtypes
from ..core.settings import current
from ..transform.checkpoint.replayed import replaying
from . import functional as F
from . import init
from .making import parameter, sizes
from .module import Module

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike, Device, DTypeLike, PerAxis


def _reset(module: Module) -> None:
    """Set the weight to 1 and the bias to 0, where there are any."""
    if module.weight is not None:
        init.ones_(module.weight)
    if module.bias is not None:
        init.zeros_(module.bias)


class _RunningNorm(Module):
    """Channels with weight and bias, and running statistics of the batches."""

    axes: tuple[int, ...]  # numbers of axes that an input may have
    weight: Any  # a Parameter or None
    bias: Any  # a Parameter or None
    running_mean: Tensor | Any  # these are None without `track_running_stats`
    running_var: Tensor | Any
    num_batches_tracked: Tensor | Any

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        device: Device | None,
        dtype: DTypeLike | None,
        bias: bool,
    ):
        super().__init__()
        sizes(type(self).__name__, num_features=num_features)
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        shape = (num_features,)
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        for name, has in (("weight", affine), ("bias", affine and bias)):
            self.register_parameter(name, parameter(shape, **made) if has else None)
        track = track_running_stats
        self.register_buffer("running_mean", zeros(shape, **made) if track else None)
        self.register_buffer("running_var", ones(shape, **made) if track else None)
        count = tensor(0, dtype=dtypes.int64, device=device) if track else None
        self.register_buffer("num_batches_tracked", count)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Begin the statistics anew: mean 0, variance 1, no batches.

        >>> import weft as wf
        >>> layer = wf.nn.BatchNorm1d(2)
        >>> y = layer(wf.ones((3, 2)))
        >>> layer.reset_running_stats()
        >>> layer.running_mean.tolist(), layer.num_batches_tracked.item()
        ([0.0, 0.0], 0)
        """
        if self.track_running_stats:
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            copy_(self.num_batches_tracked, 0)

    def reset_parameters(self) -> None:
        """Set the weight to 1, the bias to 0, and begin the statistics anew.

        >>> import weft as wf
        >>> layer = wf.nn.BatchNorm1d(2)
        >>> layer.reset_parameters()
        >>> layer.weight.tolist(), layer.bias.tolist()
        ([1.0, 1.0], [0.0, 0.0])
        """
        self.reset_running_stats()
        _reset(self)

    def _check(self, x: Tensor, channel_axis: int) -> None:
        name, n = type(self).__name__, self.num_features
        if x.ndim not in self.axes:
            raise errors.ShapeError(
                f"{name}: input of shape {x.shape}, expected {' or '.join(map(str, self.axes))} "
                "axes"
            )
        if x.shape[channel_axis] != n and (self.affine or self.track_running_stats):
            raise errors.ShapeError(
                f"{name}: input of shape {x.shape} has {x.shape[channel_axis]} channels, expected "
                f"{n}"
            )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_RunningNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ):
        how = eps, momentum, affine, track_running_stats, device, dtype, bias
        super().__init__(num_features, *how)

    def forward(self, input: ArrayLike) -> Tensor:
        x = as_tensor(input)
        self._check(x, 1)
        follow = self.training and self.track_running_stats
        share = self._count() if follow else 0.0
        kept = (self.running_mean, self.running_var) if follow or not self.training else (None,) * 2
        own = self.training or self.running_mean is None
        mean, variance = kept
        return F.batch_norm(x, mean, variance, self.weight, self.bias, own, share, self.eps)

    def _count(self) -> float | Tensor:
        """Count a batch; returns its weight in the statistics, as a tensor while tracing."""
        if not replaying():
            copy_(self.num_batches_tracked, self.num_batches_tracked + 1)
        if self.momentum is not None:
            return self.momentum
        if current.get().staging is not None:
            return 1 / self.num_batches_tracked.to(dtypes.float64)
        return 1 / self.num_batches_tracked.item()


class BatchNorm1d(_BatchNorm):
    """(x − mean)/√(variance + eps)·weight + bias for each channel of (N, C) or (N, C, L).

    num_features         the number of channels C
    eps                  what is added to the variance
    momentum             the share of a new batch in the running statistics; None: all batches
                         count alike
    affine               whether there are a weight and, with `bias`, a bias, one number a
                         channel
    track_running_stats  whether evaluation uses running statistics; else those of its input
    device, dtype        of parameters and statistics
    bias                 whether there is a bias

    In training the statistics are those of the batch, the variance divided by n; the running
    variance takes it divided by n − 1.

    >>> import weft as wf
    >>> layer = wf.nn.BatchNorm1d(2)
    >>> y = layer(wf.tensor([[1.0, 0.0], [3.0, 4.0]]))
    >>> y.detach().round().tolist(), layer.num_batches_tracked.item()
    ([[-1.0, -1.0], [1.0, 1.0]], 1)
    """

    axes: tuple[int, ...] = (2, 3)


class BatchNorm2d(_BatchNorm):
    """(x − mean)/√(variance + eps)·weight + bias for each channel of images (N, C, H, W).

    num_features         the number of channels C
    eps                  what is added to the variance
    momentum             the share of a new batch in the running statistics; None: all batches
                         count alike
    affine               whether there are a weight and, with `bias`, a bias, one number a
                         channel
    track_running_stats  whether evaluation uses running statistics; else those of its input
    device, dtype        of parameters and statistics
    bias                 whether there is a bias

    In training the statistics are those of the batch, the variance divided by n; the running
    variance takes it divided by n − 1.

    >>> import weft as wf
    >>> wf.nn.BatchNorm2d(3)(wf.randn((2, 3, 4, 4))).shape
    (2, 3, 4, 4)
    """

    axes: tuple[int, ...] = (4,)


class BatchNorm3d(_BatchNorm):
    """(x − mean)/√(variance + eps)·weight + bias for each channel of volumes (N, C, D, H, W).

    num_features         the number of channels C
    eps                  what is added to the variance
    momentum             the share of a new batch in the running statistics; None: all batches
                         count alike
    affine               whether there are a weight and, with `bias`, a bias, one number a
                         channel
    track_running_stats  whether evaluation uses running statistics; else those of its input
    device, dtype        of parameters and statistics
    bias                 whether there is a bias

    In training the statistics are those of the batch, the variance divided by n; the running
    variance takes it divided by n − 1.

    >>> import weft as wf
    >>> wf.nn.BatchNorm3d(3)(wf.randn((2, 3, 4, 4, 4))).shape
    (2, 3, 4, 4, 4)
    """

    axes: tuple[int, ...] = (5,)


class _InstanceNorm(_RunningNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ):
        how = eps, momentum, affine, track_running_stats, device, dtype, bias
        super().__init__(num_features, *how)

    def forward(self, input: ArrayLike) -> Tensor:
        x = as_tensor(input)
        alone = x.ndim == self.axes[0]
        self._check(x, 0 if alone else 1)
        own = self.training or not self.track_running_stats
        share = 0.0 if self.momentum is None else self.momentum
        how = self.running_mean, self.running_var, self.weight, self.bias, own, share, self.eps
        return F.instance_norm(x[None], *how)[0] if alone else F.instance_norm(x, *how)


class InstanceNorm1d(_InstanceNorm):
    """(x − mean)/√(variance + eps)·weight + bias for each channel of each element.

    Of (N, C, L) or (C, L).

    num_features         the number of channels C
    eps                  what is added to the variance
    momentum             the share of a new batch in the running statistics; None: all batches
                         count alike
    affine               whether there are a weight and, with `bias`, a bias, one number a
                         channel
    track_running_stats  whether evaluation uses running statistics; else those of its input
    device, dtype        of parameters and statistics
    bias                 whether there is a bias

    >>> import weft as wf
    >>> wf.nn.InstanceNorm1d(2, eps=0.0)(wf.tensor([[1.0, 3.0], [2.0, 6.0]])).tolist()
    [[-1.0, 1.0], [-1.0, 1.0]]
    """

    axes: tuple[int, ...] = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """(x − mean)/√(variance + eps)·weight + bias for each channel of each element.

    Of images (N, C, H, W) or (C, H, W).

    num_features         the number of channels C
    eps                  what is added to the variance
    momentum             the share of a new batch in the running statistics; None: all batches
                         count alike
    affine               whether there are a weight and, with `bias`, a bias, one number a
                         channel
    track_running_stats  whether evaluation uses running statistics; else those of its input
    device, dtype        of parameters and statistics
    bias                 whether there is a bias

    >>> import weft as wf
    >>> wf.nn.InstanceNorm2d(3)(wf.randn((2, 3, 4, 4))).shape
    (2, 3, 4, 4)
    """

    axes: tuple[int, ...] = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """(x − mean)/√(variance + eps)·weight + bias for each channel of each element.

    Of volumes (N, C, D, H, W) or (C, D, H, W).

    num_features         the number of channels C
    eps                  what is added to the variance
    momentum             the share of a new batch in the running statistics; None: all batches
                         count alike
    affine               whether there are a weight and, with `bias`, a bias, one number a
                         channel
    track_running_stats  whether evaluation uses running statistics; else those of its input
    device, dtype        of parameters and statistics
    bias                 whether there is a bias

    >>> import weft as wf
    >>> wf.nn.InstanceNorm3d(3)(wf.randn((2, 3, 4, 4, 4))).shape
    (2, 3, 4, 4, 4)
    """

    axes: tuple[int, ...] = (4, 5)


def _lengths(name: str, shape: PerAxis) -> tuple[int, ...]:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    sizes(name, **{f"normalized_shape[{i}]": n for i, n in enumerate(shape)})
    return shape


class LayerNorm(Module):
    """(x − mean)/√(variance + eps)·weight + bias over the last axes.

    normalized_shape    the lengths of the axes that are averaged over, or one number
    eps                 what is added to the variance
    elementwise_affine  whether there are a weight and, with `bias`, a bias for each element
    bias                whether there is a bias
    device, dtype       of the parameters

    >>> import weft as wf
    >>> wf.nn.LayerNorm(2, eps=0.0)(wf.tensor([1.0, 3.0])).tolist()
    [-1.0, 1.0]
    """

    weight: Any  # a Parameter or None
    bias: Any  # a Parameter or None

    def __init__(
        self,
        normalized_shape: PerAxis,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
    ):
        super().__init__()
        self.normalized_shape: tuple[int, ...] = _lengths("LayerNorm", normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        for name, has in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            made = parameter(self.normalized_shape, device, dtype) if has else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to 1 and the bias to 0.

        >>> import weft as wf
        >>> layer = wf.nn.LayerNorm(2)
        >>> layer.reset_parameters()
        >>> layer.weight.tolist(), layer.bias.tolist()
        ([1.0, 1.0], [0.0, 0.0])
        """
        _reset(self)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, "
            f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """x/√(mean(x²) + eps)·weight over the last axes.

    normalized_shape    the lengths of the axes that are averaged over, or one number
    eps                 None: the rounding unit of the input's dtype
    elementwise_affine  whether there is a weight for each element
    device, dtype       of the weight

    >>> import weft as wf
    >>> wf.nn.RMSNorm(4, eps=0.0)(wf.tensor([3.0, 3.0, 3.0, -3.0])).tolist()
    [1.0, 1.0, 1.0, -1.0]
    """

    weight: Any  # a Parameter or None

    def __init__(
        self,
        normalized_shape: PerAxis,
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
    ):
        super().__init__()
        self.normalized_shape: tuple[int, ...] = _lengths("RMSNorm", normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        shape = self.normalized_shape
        weight = parameter(shape, device, dtype) if elementwise_affine else None
        self.register_parameter("weight", weight)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to 1.

        >>> import weft as wf
        >>> layer = wf.nn.RMSNorm(2)
        >>> layer.reset_parameters()
        >>> layer.weight.tolist()
        [1.0, 1.0]
        """
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"
        )


class GroupNorm(Module):
    """(x − mean)/√(variance + eps)·weight + bias for each group of channels of (N, C, …).

    num_groups     how many groups the channels are divided into
    num_channels   the number of channels C
    eps            what is added to the variance
    affine         whether there are a weight and, with `bias`, a bias, one number a channel
    device, dtype  of the parameters
    bias           whether there is a bias

    >>> import weft as wf
    >>> wf.nn.GroupNorm(2, 4, eps=0.0)(wf.tensor([[1.0, 3.0, 2.0, 6.0]])).tolist()
    [[-1.0, 1.0, -1.0, 1.0]]
    """

    weight: Any  # a Parameter or None
    bias: Any  # a Parameter or None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
        *,
        bias: bool = True,
    ):
        super().__init__()
        sizes("GroupNorm", num_groups=num_groups, num_channels=num_channels)
        if num_channels % num_groups:
            raise errors.ArgumentError(
                f"GroupNorm: {num_channels} channels in {num_groups} groups; num_groups must "
                "divide num_channels"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        for name, has in (("weight", affine), ("bias", affine and bias)):
            made = parameter((num_channels,), device, dtype) if has else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to 1 and the bias to 0.

        >>> import weft as wf
        >>> layer = wf.nn.GroupNorm(1, 2)
        >>> layer.reset_parameters()
        >>> layer.weight.tolist(), layer.bias.tolist()
        ([1.0, 1.0], [0.0, 0.0])
        """
        _reset(self)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"
