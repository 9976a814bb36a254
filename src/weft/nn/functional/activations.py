"""Activations, under PyTorch's names and arguments; nothing is done in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ... import errors
from ...arrays import activations as shared
from ...arrays.arguments import as_tensor, axis_of
from ...core import dtypes
from ...core.autocast import HALF, computed_in
from ...ops import activate, reduce
from ...ops.complex_ import abs_
from ...ops.elementwise import clip, expm1, where
from ...ops.elementwise import expit as _expit
from ...ops.elementwise import relu as _relu
from ...ops.elementwise import tanh as _tanh
from ...ops.logic import greater, less, logical_and
from ...ops.structural import cast, reshape, split

if TYPE_CHECKING:
    from ...arrays.tensor import Tensor
    from ...arrays.types import ArrayLike, DTypeLike


def relu(input: ArrayLike) -> Tensor:
    """max(x, 0); its derivative at 0 is 0, and it keeps a mask.

    input  an array or a number; the function is applied to each element

    >>> import weft as wf
    >>> wf.nn.functional.relu([-1.0, 2.0]).tolist()
    [0.0, 2.0]
    """
    return _relu(as_tensor(input))


def relu6(input: ArrayLike) -> Tensor:
    """min(max(x, 0), 6); its derivative at 0 and at 6 is 0.

    input  an array or a number; the function is applied to each element

    >>> import weft as wf
    >>> wf.nn.functional.relu6([-1.0, 2.0, 8.0]).tolist()
    [0.0, 2.0, 6.0]
    """
    return _limit(as_tensor(input), 0.0, 6.0)


def _limit(x, low: float, high: float):
    """x limited to [low, high], flat at the limits: `clip` has the slope 1 there, PyTorch 0."""
    inside = logical_and(greater(x, low), less(x, high))
    return where(inside, x, clip(x, low, high).detach())


def leaky_relu(input: ArrayLike, negative_slope: float = 0.01) -> Tensor:
    """x where it is positive, negative_slope·x elsewhere.

    input           an array or a number; the function is applied to each element
    negative_slope  the factor below 0; also the derivative at 0

    >>> import weft as wf
    >>> wf.nn.functional.leaky_relu([-2.0, 3.0], 0.5).tolist()
    [-1.0, 3.0]
    """
    return shared.leaky_relu(input, negative_slope)


@computed_in(HALF)
def prelu(input: ArrayLike, weight: ArrayLike) -> Tensor:
    """x where it is positive, weight·x elsewhere.

    input   an array
    weight  one number, or one for each channel (axis 1)

    >>> import weft as wf
    >>> wf.nn.functional.prelu([[-2.0, -2.0, 3.0]], [0.5, 0.25, 0.5]).tolist()
    [[-1.0, -0.5, 3.0]]
    """
    x, weight = as_tensor(input), as_tensor(weight)
    channels = x.shape[1] if x.ndim > 1 else 1
    if weight.size not in (1, channels) or weight.ndim > 1:
        raise errors.ShapeError(
            f"prelu: weight of shape {weight.shape} for input of shape {x.shape}; expected one "
            f"number or {channels}, one for each channel"
        )
    each = weight.size > 1
    weight = reshape(weight, (channels, *(1,) * (x.ndim - 2)) if each else ())
    return where(greater(x, 0), x, x * weight)


def elu(input: ArrayLike, alpha: float = 1.0) -> Tensor:
    """x where it is positive, alpha·(eˣ − 1) elsewhere.

    input  an array or a number; the function is applied to each element
    alpha  minus the limit at −∞

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.functional.elu([-1.0, 2.0]).tolist()]
    [-0.6321, 2.0]
    """
    return shared.elu(input, alpha)


def selu(input: ArrayLike) -> Tensor:
    """1.0507·(x where it is positive, 1.6733·(eˣ − 1) elsewhere).

    input  an array or a number; the function is applied to each element

    Activations keep mean 0 and variance 1 (Klambauer et al. 2017).

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.functional.selu([-1.0, 1.0]).tolist()]
    [-1.1113, 1.0507]
    """
    return shared.elu(input, 1.6732632423543772) * 1.0507009873554805


def celu(input: ArrayLike, alpha: float = 1.0) -> Tensor:
    """max(x, 0) + min(0, alpha·(exp(x/alpha) − 1)), whose derivative is continuous.

    input  an array or a number; the function is applied to each element
    alpha  minus the limit at −∞

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.functional.celu([-2.0, 2.0], alpha=2.0).tolist()]
    [-1.2642, 2.0]
    """
    if not alpha:
        raise errors.ArgumentError("celu: alpha=0, but x is divided by alpha; give another number")
    x = as_tensor(input)
    return where(greater(x, 0), x, alpha * expm1(clip(x, None, 0.0) / alpha))


def gelu(input: ArrayLike, approximate: str = "none") -> Tensor:
    """x·Φ(x) with the normal distribution function Φ; keeps x only.

    input        an array or a number; the function is applied to each element
    approximate  "none", or "tanh" for ½x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.functional.gelu([0.0, 1.0]).tolist()]
    [0.0, 0.8413]
    """
    return shared.gelu(input, approximate)


def silu(input: ArrayLike) -> Tensor:
    """x·σ(x) with σ(x) = 1/(1 + e⁻ˣ), also called swish; keeps x only.

    input  an array or a number; the function is applied to each element

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.functional.silu([0.0, 1.0]).tolist()]
    [0.0, 0.7311]
    """
    return shared.silu(input)


swish = silu


def mish(input: ArrayLike) -> Tensor:
    """x·tanh(log(1 + eˣ)), which is x from 40 on.

    input  an array or a number; the function is applied to each element

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.functional.mish([0.0, 1.0]).tolist()]
    [0.0, 0.8651]
    """
    x = as_tensor(input)
    z = clip(x, -1000.0, 40.0)  # so that no product with a derivative of 0 overflows
    return where(greater(x, 40.0), x, z * _tanh(activate.softplus(z)))


def softplus(input: ArrayLike, beta: float = 1.0, threshold: float | None = None) -> Tensor:
    """log(1 + exp(beta·x))/beta.

    input      an array or a number; the function is applied to each element
    beta       how sharp the bend is
    threshold  where beta·x is larger the result is x. Nothing overflows without it; PyTorch's
               default of 20 differs from that by less than 3e-9

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.functional.softplus([0.0, 100.0]).tolist()]
    [0.6931, 100.0]
    """
    if not beta:
        raise errors.ArgumentError(
            "softplus: beta=0, but the result is divided by beta; give another number"
        )
    x = as_tensor(input)
    scaled = x if beta == 1 else x * beta
    y = activate.softplus(scaled)
    y = y if beta == 1 else y / beta
    return y if threshold is None else where(greater(scaled, threshold), x, y)


def softsign(input: ArrayLike) -> Tensor:
    """x/(1 + |x|).

    input  an array or a number; the function is applied to each element

    >>> import weft as wf
    >>> wf.nn.functional.softsign([-1.0, 3.0]).tolist()
    [-0.5, 0.75]
    """
    x = as_tensor(input)
    return x / (1 + abs_(x))


def hardtanh(input: ArrayLike, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x limited to [min_val, max_val]; its derivative at the limits is 0.

    input             an array or a number; the function is applied to each element
    min_val, max_val  the limits

    >>> import weft as wf
    >>> wf.nn.functional.hardtanh([-2.0, 0.5, 2.0]).tolist()
    [-1.0, 0.5, 1.0]
    """
    if not min_val <= max_val:
        raise errors.ArgumentError(
            f"hardtanh: min_val={min_val}, max_val={max_val}; expected min_val ≤ max_val"
        )
    return _limit(as_tensor(input), float(min_val), float(max_val))


def hardsigmoid(input: ArrayLike) -> Tensor:
    """min(max(x + 3, 0), 6)/6.

    input  an array or a number; the function is applied to each element

    >>> import weft as wf
    >>> wf.nn.functional.hardsigmoid([-4.0, 0.0, 4.0]).tolist()
    [0.0, 0.5, 1.0]
    """
    return _limit(as_tensor(input) + 3.0, 0.0, 6.0) / 6.0


def hardswish(input: ArrayLike) -> Tensor:
    """x·min(max(x + 3, 0), 6)/6.

    input  an array or a number; the function is applied to each element

    >>> import weft as wf
    >>> wf.nn.functional.hardswish([0.0, 3.0, 4.0]).tolist()
    [0.0, 3.0, 4.0]
    """
    x = as_tensor(input)
    return x * hardsigmoid(x)


def hardshrink(input: ArrayLike, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0.

    input  an array or a number; the function is applied to each element
    lambd  the threshold

    >>> import weft as wf
    >>> wf.nn.functional.hardshrink([-1.0, 0.25, 2.0]).tolist()
    [-1.0, 0.0, 2.0]
    """
    x = as_tensor(input)
    return where(greater(abs_(x), lambd), x, 0.0)


def softshrink(input: ArrayLike, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd, and not past it.

    input  an array or a number; the function is applied to each element
    lambd  how far

    >>> import weft as wf
    >>> wf.nn.functional.softshrink([-1.0, 0.25, 2.0]).tolist()
    [-0.5, 0.0, 1.5]
    """
    if lambd < 0:
        raise errors.ArgumentError(f"softshrink: lambd={lambd}, expected 0 or more")
    x = as_tensor(input)
    return x - clip(x, -float(lambd), float(lambd))


def tanhshrink(input: ArrayLike) -> Tensor:
    """x − tanh x.

    input  an array or a number; the function is applied to each element

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.functional.tanhshrink([0.0, 1.0]).tolist()]
    [0.0, 0.2384]
    """
    x = as_tensor(input)
    return x - _tanh(x)


def threshold(input: ArrayLike, threshold: float, value: float) -> Tensor:
    """x where it is above the threshold, else the value.

    input      an array or a number; the function is applied to each element
    threshold  what x is compared with
    value      what stands where it is not above

    >>> import weft as wf
    >>> wf.nn.functional.threshold([1.0, 2.0, 3.0], 1.5, -1.0).tolist()
    [-1.0, 2.0, 3.0]
    """
    x = as_tensor(input)
    return where(greater(x, threshold), x, float(value))


def sigmoid(input: ArrayLike) -> Tensor:
    """σ(x) = 1/(1 + e⁻ˣ).

    input  an array or a number; the function is applied to each element

    >>> import weft as wf
    >>> wf.nn.functional.sigmoid([0.0, 100.0]).tolist()
    [0.5, 1.0]
    """
    return _expit(as_tensor(input))


def tanh(input: ArrayLike) -> Tensor:
    """The hyperbolic tangent (eˣ − e⁻ˣ)/(eˣ + e⁻ˣ).

    input  an array or a number; the function is applied to each element

    >>> import weft as wf
    >>> wf.nn.functional.tanh([0.0, 100.0]).tolist()
    [0.0, 1.0]
    """
    return _tanh(as_tensor(input))


def logsigmoid(input: ArrayLike) -> Tensor:
    """log σ(x) = −log(1 + e⁻ˣ), without underflow.

    input  an array or a number; the function is applied to each element

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.functional.logsigmoid([0.0, -100.0]).tolist()]
    [-0.6931, -100.0]
    """
    return -activate.softplus(-as_tensor(input))


def softmax(input: ArrayLike, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """exp(xᵢ)/Σ exp(xⱼ) along an axis, without overflow.

    input  an array
    dim    the axis to normalise along
    dtype  what the input is cast to first; None: as it is

    >>> import weft as wf
    >>> wf.nn.functional.softmax([0.0, 0.0]).tolist()
    [0.5, 0.5]
    """
    x = _in(input, dtype)
    return reduce.softmax(x, axis_of("softmax", x, dim))


def softmin(input: ArrayLike, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """exp(−xᵢ)/Σ exp(−xⱼ) along an axis: softmax(−x).

    input  an array
    dim    the axis to normalise along
    dtype  what the input is cast to first; None: as it is

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.functional.softmin([0.0, 1.0]).tolist()]
    [0.7311, 0.2689]
    """
    x = _in(-as_tensor(input), dtype)
    return reduce.softmax(x, axis_of("softmin", x, dim))


def log_softmax(input: ArrayLike, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """xᵢ − log Σ exp(xⱼ) along an axis: log(softmax(x)), accurate where that is small.

    input  an array
    dim    the axis to normalise along
    dtype  what the input is cast to first; None: as it is

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.nn.functional.log_softmax([0.0, 0.0]).tolist()]
    [-0.6931, -0.6931]
    """
    x = _in(input, dtype)
    return reduce.log_softmax(x, axis_of("log_softmax", x, dim))


def _in(x, dtype):
    x = as_tensor(x)
    return x if dtype is None else cast(x, dtypes.canonical(dtype))


def glu(input: ArrayLike, dim: int = -1) -> Tensor:
    """a·σ(b), where a and b are the halves of x along an axis.

    input  an array
    dim    the axis, of even length

    >>> import weft as wf
    >>> wf.nn.functional.glu([1.0, 2.0, 0.0, 100.0]).tolist()
    [0.5, 2.0]
    """
    a, b = _halves("glu", input, dim)
    return a * _expit(b)


def geglu(input: ArrayLike, dim: int = -1, approximate: str = "none") -> Tensor:
    """a·gelu(b), where a and b are the halves of x along an axis.

    input        an array
    dim          the axis, of even length
    approximate  "none" or "tanh", as of `gelu`

    >>> import weft as wf
    >>> wf.nn.functional.geglu([1.0, 2.0, 0.0, 10.0]).tolist()
    [0.0, 20.0]
    """
    a, b = _halves("geglu", input, dim)
    return a * shared.gelu(b, approximate)


def swiglu(input: ArrayLike, dim: int = -1) -> Tensor:
    """a·silu(b), where a and b are the halves of x along an axis.

    input  an array
    dim    the axis, of even length

    >>> import weft as wf
    >>> wf.nn.functional.swiglu([1.0, 2.0, 0.0, 100.0]).tolist()
    [0.0, 200.0]
    """
    a, b = _halves("swiglu", input, dim)
    return a * activate.silu(b)


def _halves(name: str, x, dim: int):
    x = as_tensor(x)
    axis = axis_of(name, x, dim)
    if x.shape[axis] % 2:
        raise errors.ShapeError(
            f"{name}: axis {dim} of {x.shape} has length {x.shape[axis]}, expected an even one, to "
            "split into halves"
        )
    return split(x, (x.shape[axis] // 2,), axis)
