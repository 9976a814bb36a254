"""Activations as modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .. import errors
from ..arrays.arguments import boxed
from . import functional as F
from . import init
from .making import one_of, parameter, sizes
from .module import Module

if TYPE_CHECKING:
    from ..arrays.parameter import Parameter
    from ..arrays.tensor import Tensor
    from ..arrays.types import ArrayLike, Device, DTypeLike


class _Shaped(Module):
    """An activation with numbers that shape it, which are its attributes."""

    def __init__(self, **options: float | str):
        super().__init__()
        vars(self).update(options)
        self._options: tuple[str, ...] = tuple(options)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self._options)


class ReLU(Module):
    """max(x, 0).

    >>> import weft as wf
    >>> wf.nn.ReLU()(wf.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def forward(self, input: ArrayLike) -> Tensor:
        return F.relu(input)


class ReLU6(Module):
    """min(max(x, 0), 6)."""

    def forward(self, input: ArrayLike) -> Tensor:
        return F.relu6(input)


class LeakyReLU(_Shaped):
    """x above 0, `negative_slope`·x below."""

    def __init__(self, negative_slope: float = 0.01):
        super().__init__(negative_slope=negative_slope)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.leaky_relu(input, self.negative_slope)


class PReLU(Module):
    """x above 0, weight·x below; the weight is trained, one for all or one for each channel.

    num_parameters  1, or the number of channels, which are axis 1
    init            what the weight is at first
    """

    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: Device | None = None,
        dtype: DTypeLike | None = None,
    ):
        super().__init__()
        sizes("PReLU", num_parameters=num_parameters)
        self.num_parameters = num_parameters
        self.init = init
        self.weight: Parameter = parameter((num_parameters,), device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the weight to its first value."""
        init.constant_(self.weight, self.init)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class ELU(_Shaped):
    """x above 0, `alpha`·(eˣ − 1) below."""

    def __init__(self, alpha: float = 1.0):
        super().__init__(alpha=alpha)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.elu(input, self.alpha)


class SELU(Module):
    """A scaled `ELU` under which mean 0 and variance 1 are stable (Klambauer et al. 2017)."""

    def forward(self, input: ArrayLike) -> Tensor:
        return F.selu(input)


class CELU(_Shaped):
    """x above 0, `alpha`·(exp(x/alpha) − 1) below."""

    def __init__(self, alpha: float = 1.0):
        super().__init__(alpha=alpha)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.celu(input, self.alpha)


class GELU(_Shaped):
    """x·Φ(x), Φ the normal distribution; `approximate` "none" or "tanh"."""

    def __init__(self, approximate: Literal["none", "tanh"] = "none"):
        super().__init__(approximate=one_of("GELU", "approximate", approximate, ("none", "tanh")))

    def forward(self, input: ArrayLike) -> Tensor:
        return F.gelu(input, self.approximate)


class SiLU(Module):
    """x·σ(x); also called `Swish`."""

    def forward(self, input: ArrayLike) -> Tensor:
        return F.silu(input)


Swish = SiLU


class Mish(Module):
    """x·tanh(log(1 + eˣ))."""

    def forward(self, input: ArrayLike) -> Tensor:
        return F.mish(input)


class Softplus(_Shaped):
    """log(1 + exp(beta·x))/beta; x itself where beta·x is above `threshold`."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        super().__init__(beta=beta, threshold=threshold)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)


class Softsign(Module):
    """x/(1 + |x|)."""

    def forward(self, input: ArrayLike) -> Tensor:
        return F.softsign(input)


class Sigmoid(Module):
    """σ(x) = 1/(1 + e⁻ˣ)."""

    def forward(self, input: ArrayLike) -> Tensor:
        return F.sigmoid(input)


class LogSigmoid(Module):
    """log σ(x)."""

    def forward(self, input: ArrayLike) -> Tensor:
        return F.logsigmoid(input)


class Tanh(Module):
    """tanh x."""

    def forward(self, input: ArrayLike) -> Tensor:
        return F.tanh(input)


class Tanhshrink(Module):
    """x − tanh x."""

    def forward(self, input: ArrayLike) -> Tensor:
        return F.tanhshrink(input)


class Hardtanh(_Shaped):
    """x between `min_val` and `max_val`, which it does not leave."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0):
        super().__init__(min_val=min_val, max_val=max_val)
        if not min_val < max_val:
            raise errors.ArgumentError(
                f"Hardtanh: min_val={min_val}, max_val={max_val}; expected min_val < max_val"
            )

    def forward(self, input: ArrayLike) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val)


class Hardsigmoid(Module):
    """min(max(x + 3, 0), 6)/6."""

    def forward(self, input: ArrayLike) -> Tensor:
        return F.hardsigmoid(input)


class Hardswish(Module):
    """x·min(max(x + 3, 0), 6)/6."""

    def forward(self, input: ArrayLike) -> Tensor:
        return F.hardswish(input)


class Hardshrink(_Shaped):
    """x where |x| > `lambd`, 0 elsewhere."""

    def __init__(self, lambd: float = 0.5):
        super().__init__(lambd=lambd)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.hardshrink(input, self.lambd)


class Softshrink(_Shaped):
    """x moved towards 0 by `lambd`, and not past it."""

    def __init__(self, lambd: float = 0.5):
        super().__init__(lambd=lambd)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.softshrink(input, self.lambd)


class Threshold(_Shaped):
    """x above `threshold`, `value` elsewhere."""

    def __init__(self, threshold: float, value: float):
        super().__init__(threshold=threshold, value=value)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.threshold(input, self.threshold, self.value)


class Softmax(_Shaped):
    """exp(x)/Σ exp(x) along the axis `dim`."""

    def __init__(self, dim: int = -1):
        super().__init__(dim=dim)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.softmax(input, self.dim)


class Softmin(_Shaped):
    """`Softmax` of −x."""

    def __init__(self, dim: int = -1):
        super().__init__(dim=dim)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.softmin(input, self.dim)


class LogSoftmax(_Shaped):
    """log of `Softmax`."""

    def __init__(self, dim: int = -1):
        super().__init__(dim=dim)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.log_softmax(input, self.dim)


class Softmax2d(Module):
    """`Softmax` over the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: ArrayLike) -> Tensor:
        x = boxed(input)
        if x.ndim not in (3, 4):
            raise errors.ShapeError(
                f"Softmax2d: input of shape {x.shape}, expected (N, C, H, W) or (C, H, W)"
            )
        return F.softmax(x, -3)


class GLU(_Shaped):
    """a·σ(b) of the halves a and b along the axis `dim`."""

    def __init__(self, dim: int = -1):
        super().__init__(dim=dim)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.glu(input, self.dim)


class GEGLU(_Shaped):
    """a·gelu(b) of the halves a and b along the axis `dim`."""

    def __init__(self, dim: int = -1, approximate: Literal["none", "tanh"] = "none"):
        super().__init__(dim=dim, approximate=approximate)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.geglu(input, self.dim, self.approximate)


class SwiGLU(_Shaped):
    """a·silu(b) of the halves a and b along the axis `dim`."""

    def __init__(self, dim: int = -1):
        super().__init__(dim=dim)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.swiglu(input, self.dim)
