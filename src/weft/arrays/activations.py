"""Public activations that the whole library shares; all are made of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import errors
from ..ops import activate, elementwise
from .arguments import boxed

if TYPE_CHECKING:
    from .tensor import Tensor
    from .types import ArrayLike


def sigmoid(x: ArrayLike, /) -> Tensor:
    """1 / (1 + exp(−x))."""
    return elementwise.expit(boxed(x))


def softplus(x: ArrayLike, /) -> Tensor:
    """log(1 + exp(x)), without overflow."""
    return activate.softplus(boxed(x))


def silu(x: ArrayLike, /) -> Tensor:
    """x·sigmoid(x), also called swish."""
    return activate.silu(boxed(x))


swish = silu


def gelu(x: ArrayLike, /, approximate: str = "none") -> Tensor:
    """x·Φ(x) with the normal distribution function Φ; or its tanh approximation."""
    if approximate not in ("none", "tanh"):
        raise errors.ArgumentError(f"gelu: approximate {approximate!r}, expected 'none' or 'tanh'")
    return (activate.gelu_tanh if approximate == "tanh" else activate.gelu)(boxed(x))


def leaky_relu(x: ArrayLike, /, negative_slope: float = 0.01) -> Tensor:
    """x where it is positive, negative_slope·x elsewhere."""
    x = boxed(x)
    return elementwise.where(x > 0, x, x * negative_slope)


def elu(x: ArrayLike, /, alpha: float = 1.0) -> Tensor:
    """x where it is positive, alpha·(exp(x) − 1) elsewhere."""
    x = boxed(x)
    below = elementwise.expm1(elementwise.clip(x, None, 0.0))  # above, it would overflow
    return elementwise.where(x > 0, x, alpha * below)
