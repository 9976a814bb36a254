"""Update rules of whole parameters: by norm, by rows and columns, by matrix."""

from math import prod

from ..core import dtypes
from ..core.backends import BACKENDS
from ..ops.contract import matmul
from ..ops.elementwise import maximum, sqrt, where
from ..ops.structural import cast, permute, sum_
from .rules import Array, Arrays, Number, averaging, least


def lamb(
    p: Array, g: Array, m: Array, v: Array, *, lr: Number, beta1: float, beta2: float, eps: float,
    weight_decay: float, correct_bias: bool, maximize: bool, t: Number
) -> Arrays:  # fmt: skip
    """LAMB: Adam's direction with weight decay, as long as the parameter."""
    g = -g if maximize else g
    m, v = m * beta1 + g, v * beta2 + g * g
    scale1, scale2 = averaging(beta1, beta2, t if correct_bias else None)
    step = m * scale1 / (sqrt(v * scale2) + eps) + p * weight_decay
    length, norm = _norm(p), _norm(step)
    both = length * norm > 0
    ratio = where(both, length / where(both, norm, 1.0), 1.0)
    return p - step * (ratio * lr), m, v


def adafactor(
    p: Array, g: Array, *state: Array, lr: Number, eps: float | None, eps2: float,
    clip_threshold: float, decay_rate: float, weight_decay: float, scale_parameter: bool,
    relative_step: bool, beta1: float | None, warmup_init: bool, maximize: bool, floor: float,
    t: Number
) -> Arrays:  # fmt: skip
    """Adafactor; the state is rows and columns (or all second moments), then the momentum.

    `floor`, where it is not zero, bounds root second moments from below, as PyTorch does.
    """
    g = -g if maximize else g
    largest = lr if lr is not None else 1e-6 * t if warmup_init else 1e-2
    step = least(largest, t**-0.5) if relative_step else lr
    scaled = maximum(_root_mean_square(p), eps2) * step if scale_parameter else step
    # PyTorch decays by the rate that was set, others by the step that is taken.
    rate: Number = lr if relative_step and lr is not None else scaled
    p = p * (1.0 - rate * weight_decay)
    seconds = state if beta1 is None else state[:-1]
    estimate, seconds = _second_moment(g, seconds, t**decay_rate, eps or 0.0, floor)
    u = g / sqrt(maximum(estimate, floor * floor) if floor else estimate)
    u = u * (scaled / maximum(_root_mean_square(u) * (1.0 / clip_threshold), 1.0))
    if beta1 is None:
        return p - u, *seconds
    u = state[-1] * beta1 + u * (1.0 - beta1)
    return p - u, *seconds, u


def _second_moment(
    g: Array, state: Arrays, weight: Number, eps: float, floor: float
) -> tuple[Array, Arrays]:  # fmt: skip
    """The estimate of g², and the new state: rows and columns, or one array like g."""
    squares = g * g + eps
    if len(state) == 1:
        v = state[0] + (squares - state[0]) * weight
        return v, (v,)
    ndim = len(g.shape)
    rows = state[0] + (_mean(squares, ndim - 1) - state[0]) * weight
    columns = state[1] + (_mean(squares, ndim - 2) - state[1]) * weight
    total = _mean(rows, ndim - 2)
    total = maximum(total, floor) if floor else total
    return rows / total * columns, (rows, columns)


def muon(
    p: Array, g: Array, b: Array, *, lr: Number, weight_decay: float, momentum: float,
    nesterov: bool, ns_coefficients: tuple[float, float, float], eps: float, ns_steps: int,
    adjust_lr_fn: str | None
) -> Arrays:  # fmt: skip
    """Muon: the momentum b made nearly orthogonal, at a rate that fits the matrix's shape."""
    b = b + (g - b) * (1.0 - momentum)
    step = orthogonal(g + (b - g) * momentum if nesterov else b, ns_coefficients, ns_steps, eps)
    rows, columns = p.shape
    if adjust_lr_fn == "match_rms_adamw":
        fitted = lr * 0.2 * max(rows, columns) ** 0.5
    else:
        fitted = lr * max(1.0, rows / max(columns, 1)) ** 0.5
    return p * (1.0 - lr * weight_decay) - cast(step, p.dtype) * fitted, b


def orthogonal(x: Array, coefficients: tuple[float, float, float], steps: int, eps: float) -> Array:
    """x with its singular values moved towards 1 by Newton-Schulz iterations in bfloat16."""
    a, b, c = coefficients
    tall = x.shape[0] > x.shape[1]
    x = _round(permute(x, (1, 0)) if tall else x)
    x = cast(x / maximum(_round(_norm(x)), eps), dtypes.bfloat16)
    for _ in range(steps):
        gram = matmul(x, permute(x, (1, 0)))
        x = _multiply_add(x, a, _multiply_add(gram, b, gram, gram, c), x, 1.0)
    return permute(x, (1, 0)) if tall else x


def _round(x: Array) -> Array:
    """float32 values that bfloat16 can hold."""
    return cast(cast(x, dtypes.bfloat16), dtypes.float32)


def _multiply_add(x: Array, beta: float, a: Array, b: Array, alpha: float) -> Array:
    """beta·x + alpha·ab, rounded to bfloat16 only once, as PyTorch's kernel does it."""
    if type(x) in BACKENDS and BACKENDS[type(x)].name == "torch":
        return BACKENDS[type(x)].addmm(x, a, b, beta=beta, alpha=alpha)
    x, a, b = (cast(m, dtypes.float32) for m in (x, a, b))
    return cast(x * beta + matmul(a, b) * alpha, dtypes.bfloat16)


def _norm(x: Array) -> Array:
    return sqrt(sum_(x * x, tuple(range(len(x.shape))), False))


def _root_mean_square(x: Array) -> Array:
    return _norm(x) * (1.0 / max(prod(x.shape), 1) ** 0.5)


def _mean(x: Array, axis: int) -> Array:
    return sum_(x, (axis,), True) * (1.0 / max(x.shape[axis], 1))
