"""Public activations that the whole library shares; all are made of rows."""

from .. import errors
from ..ops import elementwise, special
from .arguments import boxed


def sigmoid(x, /):
    """1 / (1 + exp(−x))."""
    return elementwise.expit(boxed(x))


def softplus(x, /):
    """log(1 + exp(x)), without overflow."""
    x = boxed(x)
    return elementwise.logaddexp(x, x * 0)


def silu(x, /):
    """x·sigmoid(x), also called swish."""
    x = boxed(x)
    return x * elementwise.expit(x)


swish = silu


def gelu(x, /, approximate: str = "none"):
    """x·Φ(x) with the normal distribution function Φ; or its tanh approximation."""
    x = boxed(x)
    if approximate not in ("none", "tanh"):
        raise errors.ArgumentError(f"gelu: approximate {approximate!r}, expected 'none' or 'tanh'")
    if approximate == "tanh":
        return 0.5 * x * (1 + elementwise.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + special.erf(x * 0.7071067811865476))


def leaky_relu(x, /, negative_slope: float = 0.01):
    """x where it is positive, negative_slope·x elsewhere."""
    x = boxed(x)
    return elementwise.where(x > 0, x, x * negative_slope)


def elu(x, /, alpha: float = 1.0):
    """x where it is positive, alpha·(exp(x) − 1) elsewhere."""
    x = boxed(x)
    return elementwise.where(x > 0, x, alpha * elementwise.expm1(x))
