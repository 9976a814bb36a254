"""Public activations that the whole library shares; all are made of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import errors
from ..ops import activate, elementwise
from .arguments import as_tensor

if TYPE_CHECKING:
    from .tensor import Tensor
    from .types import ArrayLike


def sigmoid(x: ArrayLike, /) -> Tensor:
    """The logistic function σ(x) = 1/(1 + e⁻ˣ), from 0 to 1.

    x  an array or a number; the function is applied to each element

    >>> import weft as wf
    >>> wf.sigmoid([0.0, 100.0]).tolist()
    [0.5, 1.0]
    """
    return elementwise.expit(as_tensor(x))


def softplus(x: ArrayLike, /) -> Tensor:
    """log(1 + eˣ), without overflow: a smooth max(x, 0).

    x  an array or a number; the function is applied to each element

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.softplus([0.0, 100.0]).tolist()]
    [0.6931, 100.0]
    """
    return activate.softplus(as_tensor(x))


def silu(x: ArrayLike, /) -> Tensor:
    """x·σ(x) with σ(x) = 1/(1 + e⁻ˣ). Also spelled swish.

    x  an array or a number; the function is applied to each element

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.silu([0.0, 1.0]).tolist()]
    [0.0, 0.7311]
    """
    return activate.silu(as_tensor(x))


swish = silu


def gelu(x: ArrayLike, /, approximate: str = "none") -> Tensor:
    """x·Φ(x) with the normal distribution function Φ.

    x            an array or a number; the function is applied to each element
    approximate  "none", or "tanh" for ½x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.gelu([0.0, 1.0]).tolist()]
    [0.0, 0.8413]
    """
    if approximate not in ("none", "tanh"):
        raise errors.ArgumentError(f"gelu: approximate={approximate!r}, expected 'none' or 'tanh'")
    return (activate.gelu_tanh if approximate == "tanh" else activate.gelu)(as_tensor(x))


def leaky_relu(x: ArrayLike, /, negative_slope: float = 0.01) -> Tensor:
    """x where it is positive, negative_slope·x elsewhere.

    x               an array or a number; the function is applied to each element
    negative_slope  the factor below 0; also the derivative at 0

    >>> import weft as wf
    >>> wf.leaky_relu([-2.0, 3.0], negative_slope=0.5).tolist()
    [-1.0, 3.0]
    """
    x = as_tensor(x)
    return elementwise.where(x > 0, x, x * negative_slope)


def elu(x: ArrayLike, /, alpha: float = 1.0) -> Tensor:
    """x where it is positive, alpha·(eˣ − 1) elsewhere.

    x      an array or a number; the function is applied to each element
    alpha  minus the limit at −∞

    >>> import weft as wf
    >>> [round(v, 4) for v in wf.elu([-1.0, 2.0]).tolist()]
    [-0.6321, 2.0]
    """
    x = as_tensor(x)
    below = elementwise.expm1(elementwise.clip(x, None, 0.0))  # above, it would overflow
    return elementwise.where(x > 0, x, alpha * below)
