"""Public activations that the whole library shares; all are made of rows."""

from .. import errors
from ..ops import activate, elementwise
from .arguments import boxed


def sigmoid(x, /):
    """1 / (1 + exp(−x))."""
    return elementwise.expit(boxed(x))


def softplus(x, /):
    """log(1 + exp(x)), without overflow."""
    return activate.softplus(boxed(x))


def silu(x, /):
    """x·sigmoid(x), also called swish."""
    return activate.silu(boxed(x))


swish = silu


def gelu(x, /, approximate: str = "none"):
    """x·Φ(x) with the normal distribution function Φ; or its tanh approximation."""
    if approximate not in ("none", "tanh"):
        raise errors.ArgumentError(f"gelu: approximate {approximate!r}, expected 'none' or 'tanh'")
    return (activate.gelu_tanh if approximate == "tanh" else activate.gelu)(boxed(x))


def leaky_relu(x, /, negative_slope: float = 0.01):
    """x where it is positive, negative_slope·x elsewhere."""
    x = boxed(x)
    return elementwise.where(x > 0, x, x * negative_slope)


def elu(x, /, alpha: float = 1.0):
    """x where it is positive, alpha·(exp(x) − 1) elsewhere."""
    x = boxed(x)
    below = elementwise.expm1(elementwise.clip(x, None, 0.0))  # above, it would overflow
    return elementwise.where(x > 0, x, alpha * below)
