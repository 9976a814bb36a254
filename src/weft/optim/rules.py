"""Update rules, element by element: pure functions of raw arrays or tensors.

A rule takes the parameter p, its gradient g and its state, and gives the new parameter and the new
state. It is written with operators and rows of the table, so that NumPy's and PyTorch's arrays,
tensors, and the registers of `program` share one code.

Adam and its kin keep their moments as discounted sums, m = Σ β₁ᵏg and v = Σ β₂ᵏg². An average is
1 − β times as large, and that factor goes into the numbers of a step, not through the arrays.
PyTorch's own kernels take averages, so that eager steps on its arrays keep those (`walk.is_fused`).
"""

from collections.abc import Callable
from typing import Any

from ..core.backends import BACKENDS
from ..ops.complex_ import sign
from ..ops.elementwise import maximum, sqrt, where

Array = Any  # a raw array of some backend, a tensor, or a register of `program`
Arrays = tuple[Array, ...]
Number = Any  # a number; in a compiled step, host scalars that change at each call are tensors


def sgd(
    p: Array, g: Array, b: Array = None, *, lr: Number, momentum: float, dampening: float,
    nesterov: bool, weight_decay: float, maximize: bool, t: Number
) -> Arrays:  # fmt: skip
    """Gradient descent; b is the momentum, which begins with its first gradient, at t = 1."""
    g = penalise(p, g, weight_decay, maximize)
    if b is None:
        return (p - g * lr,)
    kept = b
    b = choose(t == 1, lambda: g, lambda: kept * momentum + g * (1.0 - dampening))
    return p - (g + b * momentum if nesterov else b) * lr, b


def adam(
    p: Array, g: Array, m: Array, v: Array, u: Array = None, *, lr: Number, beta1: float,
    beta2: float, eps: float, weight_decay: float, maximize: bool, t: Number
) -> Arrays:  # fmt: skip
    """Adam; the decay is an L2 penalty. u is the largest v so far (AMSGrad)."""
    g = penalise(p, g, weight_decay, maximize)
    m, v = _moments(g, m, v, beta1, beta2)
    return _normalised_step(p, m, v, u, lr, eps, *averaging(beta1, beta2, t))


def adamw(
    p: Array, g: Array, m: Array, v: Array, u: Array = None, *, lr: Number, beta1: float,
    beta2: float, eps: float, weight_decay: float, correct_bias: bool, maximize: bool, t: Number
) -> Arrays:  # fmt: skip
    """Adam with decoupled weight decay."""
    m, v = _moments(-g if maximize else g, m, v, beta1, beta2)
    scales = averaging(beta1, beta2, t if correct_bias else None)
    return _normalised_step(_decay(p, lr, weight_decay), m, v, u, lr, eps, *scales)


def nadam(
    p: Array, g: Array, m: Array, v: Array, *, lr: Number, beta1: float, beta2: float, eps: float,
    weight_decay: float, momentum_decay: float, decoupled_weight_decay: bool, maximize: bool,
    t: Number, mu_product: Number
) -> Arrays:  # fmt: skip
    """Adam with Nesterov momentum; `mu_product` is the product of all μ up to this step's."""
    g = penalise(p, g, 0.0 if decoupled_weight_decay else weight_decay, maximize)
    m, v = _moments(g, m, v, beta1, beta2)
    now, following = (nadam_mu(beta1, momentum_decay, s) for s in (t, t + 1))
    ahead = g * (lr * (1.0 - now) / (1.0 - mu_product))
    behind = m * (lr * (1.0 - beta1) * following / (1.0 - mu_product * following))
    p = _decay(p, lr, weight_decay) if decoupled_weight_decay else p
    return p - (ahead + behind) / (sqrt(v) * averaging(beta1, beta2, t)[1] ** 0.5 + eps), m, v


def nadam_mu(beta1: float, momentum_decay: float, t: Number) -> Number:
    """NAdam's momentum at step t."""
    return beta1 * (1.0 - 0.5 * 0.96 ** (t * momentum_decay))


def radam(
    p: Array, g: Array, m: Array, v: Array, *, lr: Number, beta1: float, beta2: float, eps: float,
    weight_decay: float, decoupled_weight_decay: bool, maximize: bool, t: Number
) -> Arrays:  # fmt: skip
    """Adam whose variance is rectified, and not used while it is not to be trusted."""
    g = penalise(p, g, 0.0 if decoupled_weight_decay else weight_decay, maximize)
    m, v = _moments(g, m, v, beta1, beta2)
    scale1, scale2 = averaging(beta1, beta2, t)
    largest = 2.0 / (1.0 - beta2) - 1.0
    # The length of the moving average, approximately.
    length = largest - 2.0 * t * beta2**t / (1.0 - beta2**t)
    p = _decay(p, lr, weight_decay) if decoupled_weight_decay else p

    def rectify() -> Array:
        rectified = (length - 4.0) * (length - 2.0) * largest
        rectified /= (largest - 4.0) * (largest - 2.0) * length
        root = (1.0 - beta2) ** 0.5
        step = lr * scale1 * (rectified / scale2) ** 0.5
        return p - m / (sqrt(v) + eps / root) * step

    return choose(length <= 5.0, lambda: p - m * (lr * scale1), rectify), m, v


def rmsprop(
    p: Array, g: Array, v: Array, *more: Array, lr: Number, alpha: float, eps: float,
    weight_decay: float, momentum: float, centered: bool, maximize: bool
) -> Arrays:  # fmt: skip
    """RMSprop; `more` holds the mean gradient where centred and the momentum where there is one."""
    g = penalise(p, g, weight_decay, maximize)
    v = v * alpha + g * g * (1.0 - alpha)
    kept, variance = [], v
    if centered:
        mean = more[0] + (g - more[0]) * (1.0 - alpha)
        variance = maximum(v - mean * mean, 0.0)
        kept.append(mean)
    step = g / (sqrt(variance) + eps)
    if momentum:
        step = more[-1] * momentum + step
        kept.append(step)
    return p - step * lr, v, *kept


def adagrad(
    p: Array, g: Array, s: Array, *, lr: Number, lr_decay: float, weight_decay: float, eps: float,
    maximize: bool, t: Number
) -> Arrays:  # fmt: skip
    """Adagrad; s is the sum of squared gradients."""
    g = penalise(p, g, weight_decay, maximize)
    s = s + g * g
    return p - g / (sqrt(s) + eps) * (lr / (1.0 + (t - 1) * lr_decay)), s


def lion(
    p: Array, g: Array, m: Array, *, lr: Number, beta1: float, beta2: float, weight_decay: float,
    maximize: bool
) -> Arrays:  # fmt: skip
    """Lion: the step is the sign of what the momentum would be with beta1."""
    g = -g if maximize else g
    step = sign(m * beta1 + g * (1.0 - beta1)) * lr
    return _decay(p, lr, weight_decay) - step, m * beta2 + g * (1.0 - beta2)


def average(s: Array, p: Array, *, decay: float) -> Arrays:
    """The exponential moving average s of a parameter p."""
    return (s + (p - s) * (1.0 - decay),)


def choose(condition: Any, yes: Callable[[], Array], no: Callable[[], Array]) -> Array:
    """One of two arrays; both are computed where the device decides."""
    if isinstance(condition, bool):
        return yes() if condition else no()
    return where(condition, yes(), no())


def least(a: Number, b: Number) -> Number:
    """The lesser of two numbers, of which the second may be the device's."""
    if hasattr(b, "least"):
        return b.least(a)
    return where(b < a, b, a) if type(b) in BACKENDS else min(a, b)


def largest(a: Number, b: Number) -> Number:
    """The greater of two numbers, of which the second may be the device's."""
    return -least(-a, -b)


def penalise(p: Array, g: Array, weight_decay: float, maximize: bool) -> Array:
    """The gradient of the loss (or of its negative) with an L2 penalty."""
    g = -g if maximize else g
    return g + p * weight_decay if weight_decay else g


def _decay(p: Array, lr: Number, weight_decay: float) -> Array:
    """The parameter after decoupled weight decay."""
    return p * (1.0 - lr * weight_decay) if weight_decay else p


def _moments(g: Array, m: Array, v: Array, beta1: float, beta2: float) -> tuple[Array, Array]:
    return m * beta1 + g, v * beta2 + g * g


def averaging(beta1: float, beta2: float, t: Number | None) -> tuple[Number, Number]:
    """The factors that turn the sums m and v into averages; with t, bias-corrected."""
    if t is None:
        return 1.0 - beta1, 1.0 - beta2
    return (1.0 - beta1) / (1.0 - beta1**t), (1.0 - beta2) / (1.0 - beta2**t)


def _normalised_step(
    p: Array, m: Array, v: Array, u: Array, lr: Number, eps: float, scale1: Number,
    scale2: Number
) -> Arrays:  # fmt: skip
    """p − lr·m̂/(√v̂ + ε), where m̂ = scale1·m and v̂ = scale2·v."""
    root = scale2**0.5
    step = lr * scale1 / root
    if u is None:
        return p - m / (sqrt(v) + eps / root) * step, m, v
    u = maximum(u, v)
    return p - m / (sqrt(u) + eps / root) * step, m, v, u
