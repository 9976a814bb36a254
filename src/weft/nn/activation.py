"""Activations as modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from .. import errors
from ..arrays.arguments import as_tensor
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
    """max(x, 0); its derivative at 0 is 0.

    >>> import weft as wf
    >>> wf.nn.ReLU()(wf.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """

    def forward(self, input: ArrayLike) -> Tensor:
        return F.relu(input)


class ReLU6(Module):
    """min(max(x, 0), 6); its derivative at 0 and at 6 is 0.

    >>> import weft as wf
    >>> wf.nn.ReLU6()(wf.tensor([-1.0, 2.0, 8.0])).tolist()
    [0.0, 2.0, 6.0]
    """

    def forward(self, input: ArrayLike) -> Tensor:
        return F.relu6(input)


class LeakyReLU(_Shaped):
    """x where it is positive, negative_slope·x elsewhere.

    negative_slope  the factor below 0; also the derivative at 0

    >>> import weft as wf
    >>> wf.nn.LeakyReLU(0.5)(wf.tensor([-2.0, 3.0])).tolist()
    [-1.0, 3.0]
    """

    def __init__(self, negative_slope: float = 0.01):
        super().__init__(negative_slope=negative_slope)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.leaky_relu(input, self.negative_slope)


class PReLU(Module):
    """x where it is positive, weight·x elsewhere; the weight is trained.

    num_parameters  1, or the number of channels, which are axis 1
    init            what the weight is at first
    device, dtype   of the weight

    >>> import weft as wf
    >>> layer = wf.nn.PReLU()
    >>> layer(wf.tensor([-4.0, 2.0])).tolist(), layer.weight.shape
    ([-1.0, 2.0], (1,))
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
        """Set the weight to its first value, `init`.

        >>> import weft as wf
        >>> layer = wf.nn.PReLU(init=0.5)
        >>> layer.reset_parameters()
        >>> layer.weight.tolist()
        [0.5]
        """
        init.constant_(self.weight, self.init)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class ELU(_Shaped):
    """x where it is positive, alpha·(eˣ − 1) elsewhere.

    alpha  minus the limit at −∞

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.ELU()(wf.tensor([-1.0, 2.0])).tolist()]
    [-0.6321, 2.0]
    """

    def __init__(self, alpha: float = 1.0):
        super().__init__(alpha=alpha)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.elu(input, self.alpha)


class SELU(Module):
    """1.0507·(x where it is positive, 1.6733·(eˣ − 1) elsewhere).

    Mean 0 and variance 1 are stable under it (Klambauer et al. 2017).

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.SELU()(wf.tensor([-1.0, 1.0])).tolist()]
    [-1.1113, 1.0507]
    """

    def forward(self, input: ArrayLike) -> Tensor:
        return F.selu(input)


class CELU(_Shaped):
    """max(x, 0) + min(0, alpha·(exp(x/alpha) − 1)), whose derivative is continuous.

    alpha  minus the limit at −∞

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.CELU(2.0)(wf.tensor([-2.0, 2.0])).tolist()]
    [-1.2642, 2.0]
    """

    def __init__(self, alpha: float = 1.0):
        super().__init__(alpha=alpha)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.celu(input, self.alpha)


class GELU(_Shaped):
    """x·Φ(x) with the normal distribution function Φ.

    approximate  "none", or "tanh" for ½x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.GELU()(wf.tensor([0.0, 1.0])).tolist()]
    [0.0, 0.8413]
    """

    def __init__(self, approximate: Literal["none", "tanh"] = "none"):
        super().__init__(approximate=one_of("GELU", "approximate", approximate, ("none", "tanh")))

    def forward(self, input: ArrayLike) -> Tensor:
        return F.gelu(input, self.approximate)


class SiLU(Module):
    """x·σ(x) with σ(x) = 1/(1 + e⁻ˣ). Also called `Swish`.

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.SiLU()(wf.tensor([0.0, 1.0])).tolist()]
    [0.0, 0.7311]
    """

    def forward(self, input: ArrayLike) -> Tensor:
        return F.silu(input)


Swish = SiLU


class Mish(Module):
    """x·tanh(log(1 + eˣ)).

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.Mish()(wf.tensor([0.0, 1.0])).tolist()]
    [0.0, 0.8651]
    """

    def forward(self, input: ArrayLike) -> Tensor:
        return F.mish(input)


class Softplus(_Shaped):
    """log(1 + exp(beta·x))/beta.

    beta       how sharp the bend is
    threshold  where beta·x is larger the result is x

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.Softplus()(wf.tensor([0.0, 100.0])).tolist()]
    [0.6931, 100.0]
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        super().__init__(beta=beta, threshold=threshold)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)


class Softsign(Module):
    """x/(1 + |x|).

    >>> import weft as wf
    >>> wf.nn.Softsign()(wf.tensor([-1.0, 3.0])).tolist()
    [-0.5, 0.75]
    """

    def forward(self, input: ArrayLike) -> Tensor:
        return F.softsign(input)


class Sigmoid(Module):
    """σ(x) = 1/(1 + e⁻ˣ).

    >>> import weft as wf
    >>> wf.nn.Sigmoid()(wf.tensor([0.0, 100.0])).tolist()
    [0.5, 1.0]
    """

    def forward(self, input: ArrayLike) -> Tensor:
        return F.sigmoid(input)


class LogSigmoid(Module):
    """log σ(x) = −log(1 + e⁻ˣ), without underflow.

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.LogSigmoid()(wf.tensor([0.0, -100.0])).tolist()]
    [-0.6931, -100.0]
    """

    def forward(self, input: ArrayLike) -> Tensor:
        return F.logsigmoid(input)


class Tanh(Module):
    """The hyperbolic tangent (eˣ − e⁻ˣ)/(eˣ + e⁻ˣ).

    >>> import weft as wf
    >>> wf.nn.Tanh()(wf.tensor([0.0, 100.0])).tolist()
    [0.0, 1.0]
    """

    def forward(self, input: ArrayLike) -> Tensor:
        return F.tanh(input)


class Tanhshrink(Module):
    """x − tanh x.

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.Tanhshrink()(wf.tensor([0.0, 1.0])).tolist()]
    [0.0, 0.2384]
    """

    def forward(self, input: ArrayLike) -> Tensor:
        return F.tanhshrink(input)


class Hardtanh(_Shaped):
    """x limited to [min_val, max_val]; its derivative at the limits is 0.

    min_val, max_val  the limits

    >>> import weft as wf
    >>> wf.nn.Hardtanh()(wf.tensor([-2.0, 0.5, 2.0])).tolist()
    [-1.0, 0.5, 1.0]
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0):
        super().__init__(min_val=min_val, max_val=max_val)
        if not min_val < max_val:
            raise errors.ArgumentError(
                f"Hardtanh: min_val={min_val}, max_val={max_val}; expected min_val < max_val"
            )

    def forward(self, input: ArrayLike) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val)


class Hardsigmoid(Module):
    """min(max(x + 3, 0), 6)/6.

    >>> import weft as wf
    >>> wf.nn.Hardsigmoid()(wf.tensor([-4.0, 0.0, 4.0])).tolist()
    [0.0, 0.5, 1.0]
    """

    def forward(self, input: ArrayLike) -> Tensor:
        return F.hardsigmoid(input)


class Hardswish(Module):
    """x·min(max(x + 3, 0), 6)/6.

    >>> import weft as wf
    >>> wf.nn.Hardswish()(wf.tensor([0.0, 3.0, 4.0])).tolist()
    [0.0, 3.0, 4.0]
    """

    def forward(self, input: ArrayLike) -> Tensor:
        return F.hardswish(input)


class Hardshrink(_Shaped):
    """x where |x| > lambd, 0 elsewhere.

    lambd  the threshold

    >>> import weft as wf
    >>> wf.nn.Hardshrink()(wf.tensor([-1.0, 0.25, 2.0])).tolist()
    [-1.0, 0.0, 2.0]
    """

    def __init__(self, lambd: float = 0.5):
        super().__init__(lambd=lambd)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.hardshrink(input, self.lambd)


class Softshrink(_Shaped):
    """x moved towards 0 by lambd, and not past it.

    lambd  how far

    >>> import weft as wf
    >>> wf.nn.Softshrink()(wf.tensor([-1.0, 0.25, 2.0])).tolist()
    [-0.5, 0.0, 1.5]
    """

    def __init__(self, lambd: float = 0.5):
        super().__init__(lambd=lambd)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.softshrink(input, self.lambd)


class Threshold(_Shaped):
    """x where it is above the threshold, else the value.

    threshold  what x is compared with
    value      what stands where it is not above

    >>> import weft as wf
    >>> wf.nn.Threshold(1.5, -1.0)(wf.tensor([1.0, 2.0, 3.0])).tolist()
    [-1.0, 2.0, 3.0]
    """

    def __init__(self, threshold: float, value: float):
        super().__init__(threshold=threshold, value=value)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.threshold(input, self.threshold, self.value)


class Softmax(_Shaped):
    """exp(xᵢ)/Σ exp(xⱼ) along an axis, without overflow.

    dim  the axis to normalise along

    >>> import weft as wf
    >>> wf.nn.Softmax()(wf.tensor([0.0, 0.0])).tolist()
    [0.5, 0.5]
    """

    def __init__(self, dim: int = -1):
        super().__init__(dim=dim)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.softmax(input, self.dim)


class Softmin(_Shaped):
    """exp(−xᵢ)/Σ exp(−xⱼ) along an axis: softmax(−x).

    dim  the axis to normalise along

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.Softmin()(wf.tensor([0.0, 1.0])).tolist()]
    [0.7311, 0.2689]
    """

    def __init__(self, dim: int = -1):
        super().__init__(dim=dim)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.softmin(input, self.dim)


class LogSoftmax(_Shaped):
    """xᵢ − log Σ exp(xⱼ) along an axis: log(softmax(x)), accurate where that is small.

    dim  the axis to normalise along

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.LogSoftmax()(wf.tensor([0.0, 0.0])).tolist()]
    [-0.6931, -0.6931]
    """

    def __init__(self, dim: int = -1):
        super().__init__(dim=dim)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.log_softmax(input, self.dim)


class Softmax2d(Module):
    """exp(xᵢ)/Σ exp(xⱼ) over the channels of (N, C, H, W) or (C, H, W).

    >>> import weft as wf
    >>> wf.nn.Softmax2d()(wf.zeros((2, 1, 1))).tolist()
    [[[0.5]], [[0.5]]]
    """

    def forward(self, input: ArrayLike) -> Tensor:
        x = as_tensor(input)
        if x.ndim not in (3, 4):
            raise errors.ShapeError(
                f"Softmax2d: input of shape {x.shape}, expected (N, C, H, W) or (C, H, W)"
            )
        return F.softmax(x, -3)


class GLU(_Shaped):
    """a·σ(b) of the halves a and b along an axis.

    dim  the axis, of even length

    >>> import weft as wf
    >>> wf.nn.GLU()(wf.tensor([1.0, 2.0, 0.0, 100.0])).tolist()
    [0.5, 2.0]
    """

    def __init__(self, dim: int = -1):
        super().__init__(dim=dim)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.glu(input, self.dim)


class GEGLU(_Shaped):
    """a·gelu(b) of the halves a and b along an axis.

    dim          the axis, of even length
    approximate  "none" or "tanh", as of `GELU`

    >>> import weft as wf
    >>> wf.nn.GEGLU()(wf.tensor([1.0, 2.0, 0.0, 10.0])).tolist()
    [0.0, 20.0]
    """

    def __init__(self, dim: int = -1, approximate: Literal["none", "tanh"] = "none"):
        super().__init__(dim=dim, approximate=approximate)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.geglu(input, self.dim, self.approximate)


class SwiGLU(_Shaped):
    """a·silu(b) of the halves a and b along an axis.

    dim  the axis, of even length

    >>> import weft as wf
    >>> wf.nn.SwiGLU()(wf.tensor([1.0, 2.0, 0.0, 100.0])).tolist()
    [0.0, 200.0]
    """

    def __init__(self, dim: int = -1):
        super().__init__(dim=dim)

    def forward(self, input: ArrayLike) -> Tensor:
        return F.swiglu(input, self.dim)
