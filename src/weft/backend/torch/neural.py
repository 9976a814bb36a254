"""PyTorch's kernels of the neural rows."""

from functools import wraps
from typing import Any

import numpy as np
import torch

from ..shared import attention as shared
from ..shared import crossentropy as _crossentropy
from . import namespace as torch_
from .attention import attend, attend_gradient
from .types import Array, Axes, Function, Operand, Shape

_HALF = (torch.float16, torch.bfloat16)
_aten = torch.ops.aten


gelu = torch.nn.functional.gelu


# Products of a cotangent with the slopes of activations, in one pass.


def gelu_product(t: Array, y: Array | None, x: Array) -> Array:
    return _aten.gelu_backward(t, x)


def gelu_tanh_product(t: Array, y: Array | None, x: Array) -> Array:
    return _aten.gelu_backward(t, x, approximate="tanh")


def silu_product(t: Array, y: Array | None, x: Array) -> Array:
    return _aten.silu_backward(t, x)


def expit_product(t: Array, y: Array, x: Array | None) -> Array:
    return _aten.sigmoid_backward(t, y)


def tanh_product(t: Array, y: Array, x: Array | None) -> Array:
    return _aten.tanh_backward(t, y)


def gelu_slope(x: Array) -> Array:
    return _aten.gelu_backward(torch.ones_like(x), x)


def gelu_tanh(x: Array) -> Array:
    return torch.nn.functional.gelu(x, approximate="tanh")


def gelu_tanh_slope(x: Array) -> Array:
    return _aten.gelu_backward(torch.ones_like(x), x, approximate="tanh")


silu = torch.nn.functional.silu


def silu_slope(x: Array) -> Array:
    return _aten.silu_backward(torch.ones_like(x), x)


def softplus(x: Array) -> Array:
    # torch's own answers x beyond 20, which is not exact in float64.
    return torch.logaddexp(x, torch.zeros((), dtype=x.dtype, device=x.device))


def masked_scale(x: Array, mask: Array, scale: float) -> Array:
    return x * mask * scale


def scale_shift(x: Array, w: Operand, b: Operand) -> Array:
    return torch.addcmul(b, x, w) if isinstance(b, torch.Tensor) else x * w + b


def _in_single(fn: Function) -> Function:
    """`fn` with half types computed in float32, and the results cast back."""

    @wraps(fn)
    def call(x, *rest):
        if x.dtype not in _HALF:
            return fn(x, *rest)
        y = fn(x.float(), *(a.float() if isinstance(a, torch.Tensor) else a for a in rest))
        return tuple(a.to(x.dtype) for a in y) if type(y) is tuple else y.to(x.dtype)

    return call  # type: ignore[return-value]


def _wide(x: Array) -> Array:
    return x.float() if x.dtype in _HALF else x


def standardise(x: Array, axes: Axes, eps: float, dtype: np.dtype) -> tuple[Array, Array, Array]:
    y, mean, variance = _standardise(_wide(x), axes, eps)
    raw = torch_.raw_dtype(dtype)
    return y.to(x.dtype), mean.to(raw), variance.to(raw)


def _standardise(x: Array, axes: Axes, eps: float) -> tuple[Array, Array, Array]:
    if x.numel():
        variance, mean = torch.var_mean(x, axes, correction=0, keepdim=True)
    else:  # of which torch warns
        variance = mean = torch.mean(x, axes, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + eps), mean, variance


def root_mean_square(x: Array, axes: Axes, eps: float, dtype: np.dtype) -> tuple[Array, Array]:
    wide = _wide(x)
    square = torch.mean(wide * wide, axes, keepdim=True)
    y = wide * torch.rsqrt(square + eps)
    return y.to(x.dtype), square.to(torch_.raw_dtype(dtype))


@_in_single
def projection(g: Array, y: Array, axes: Axes, centred: bool) -> Array:
    z = torch.addcmul(g, y, torch.mean(g * y, axes, keepdim=True), value=-1)
    return z - torch.mean(g, axes, keepdim=True) if centred else z


def layer_norm(
    x: Array, w: Array, b: Array, eps: float, dtype: np.dtype
) -> tuple[Array, Array, Array]:
    y, _, variance = _standardise(_wide(x), _last(x, w), eps)
    out = torch.addcmul(_wide(b), y, _wide(w))
    return out.to(x.dtype), y.to(x.dtype), variance.to(torch_.raw_dtype(dtype))


@_in_single
def layer_norm_gradient(
    g: Array, y: Array, variance: Array, w: Array, eps: float
) -> tuple[Array, Array, Array]:
    dx = projection(g * w, y, _last(y, w), True) * torch.rsqrt(variance + eps)
    lines = (-1, *w.shape) if y.numel() else (0, *w.shape)
    return dx, (g * y).reshape(lines).sum(0), g.reshape(lines).sum(0)


def _last(x: Array, w: Array) -> tuple[int, ...]:
    """The axes of x that w has."""
    return tuple(range(x.ndim - w.ndim, x.ndim))


def swap_last(x: Array) -> Array:
    """x with its last two axes exchanged."""
    return x.transpose(-1, -2)


def fill_where(x: Array, mask: Array, value: float) -> None:
    x.masked_fill_(mask, value)


def later(x: Array, shift: int) -> Array:
    """Which columns of x's matrices, shifted by `shift`, lie above the diagonal."""
    all_of_them = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device)
    return all_of_them.triu_(1 - shift)


def row_dots(x: Array, y: Array) -> Array:
    """Σ xy over the last axis."""
    return torch.linalg.vecdot(x, y)


def exp_into(x: Array) -> None:
    x.exp_()


log_or_minus_inf = torch.log


def counting(like: Array, start: int, stop: int) -> Array:
    return torch.arange(start, stop, dtype=torch.int64, device=like.device)


def spread_copy(x: Array, shape: Shape) -> Array:
    return torch.broadcast_to(x, shape).contiguous()


def attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Operand,
    seeds: Operand,
    causal: bool,
    scale: float,
    p: float,
    dtype: np.dtype,
) -> tuple[Array, Array]:
    found = attend(q, k, v, mask, causal, scale, p)
    if found is None:
        return shared.attend(torch_, q, k, v, mask, seeds, causal, scale, p, dtype)
    return found[0], found[1].to(torch_.raw_dtype(dtype))


def attention_gradient(
    g: Array,
    h: Operand,
    out: Array,
    lse: Array,
    q: Array,
    k: Array,
    v: Array,
    mask: Operand,
    seeds: Operand,
    causal: bool,
    scale: float,
    p: float,
) -> tuple[Array, ...]:
    found = None
    if not isinstance(h, torch.Tensor):
        found = attend_gradient(g, out, lse, q, k, v, mask, causal, scale, p)
    if found is None:
        args = (g, h, out, lse, q, k, v, mask, seeds, causal, scale, p)
        return shared.attend_gradient(torch_, *args)
    return found


def attention_mask_gradient(*args: Any) -> Array:
    return shared.attend_mask_gradient(torch_, *args)


def attention_dropout(seeds: Array, rows: int, columns: int, p: float) -> Array:
    return shared.dropout_bits(torch_, seeds, (0, rows), (0, columns), p)


def checked_classes(classes: Array, n: int) -> Array:
    """Classes in [0, n), or an error that names one out of range; not checked on a GPU."""
    classes = classes.long()
    if classes.device.type == "cpu" and classes.numel():
        low, high = (int(b) for b in torch.aminmax(classes))
        if low < 0 or high >= n:
            raise IndexError(f"class {low if low < 0 else high} of {n}; expected 0 to {n - 1}")
    return classes


def log_denominators(x: Array) -> tuple[Array, Array]:
    """The largest element of each line, and log Σ exp less that: its logarithmic softmax."""
    top, place = torch.max(x, 1)
    return top, -torch.log_softmax(x, 1).gather(1, place[:, None])[:, 0]


def pick_classes(x: Array, classes: Array) -> Array:
    """x[k, classes[k]] for each line k."""
    return x.gather(1, classes[:, None])[:, 0]


def add_picked(x: Array, classes: Array, values: Array) -> None:
    x.scatter_add_(1, classes[:, None], values[:, None])


def clear_lines(x: Array, mask: Array) -> None:
    x.masked_fill_(mask[:, None], 0)


def soft_cross_entropy(*args: Any) -> tuple[Array, Array, Array]:
    return _crossentropy.soft_cross_entropy(torch_, *args)


def soft_cross_entropy_gradient(*args: Any) -> Array:
    return _crossentropy.soft_cross_entropy_gradient(torch_, *args)


def rotate(x: Array, turn: Array, interleaved: bool, back: bool) -> Array:
    half = x.shape[-1] // 2
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    c, s = turn[..., :half], -turn[..., half:] if back else turn[..., half:]
    p, q = torch.addcmul(a * c, b, s, value=-1), torch.addcmul(b * c, a, s)
    return torch.stack((p, q), -1).flatten(-2) if interleaved else torch.cat((p, q), -1)


@_in_single
def lstm_cell(z: Array, c: Array) -> tuple[Array, Array, Array]:
    i, f, u, o = z.expand(*torch.broadcast_shapes(z.shape[:-1], c.shape[:-1]), -1).chunk(4, -1)
    gates = torch.cat((torch.sigmoid(i), torch.sigmoid(f), torch.tanh(u), torch.sigmoid(o)), -1)
    i, f, u, o = gates.chunk(4, -1)
    new = f * c + i * u
    return o * torch.tanh(new), new, gates


@_in_single
def gru_cell(x: Array, y: Array, h: Array) -> tuple[Array, Array]:
    (xr, xz, xn), (yr, yz, yn) = x.chunk(3, -1), y.chunk(3, -1)
    r, z = torch.sigmoid(xr + yr), torch.sigmoid(xz + yz)
    n = torch.tanh(xn + r * yn)
    new = n + z * (h - n)
    gates = torch.cat([a.expand(new.shape) for a in (r, z, n)], -1)
    return new, gates
