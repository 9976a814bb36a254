"""PyTorch's kernels of cross-entropy: a chunk of lines at a time, few calls for each."""

import numpy as np
import torch

from ..shared.crossentropy import LogitLines
from . import namespace as torch_
from .neural import checked_classes
from .types import Array, Operand

_aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)


def cross_entropy(
    x: Array, classes: Array, smoothing: float, dtype: np.dtype
) -> tuple[Array, Array, Array]:
    """lse - (1 - s)·x[class] - s·mean(x) for each line, lse and its rest."""
    it = LogitLines(torch_, x, classes)
    classes = checked_classes(it.line(classes), it.n)
    chunks = it.chunks() or [slice(None)]
    parts = [_losses(it.x[rows], classes[rows], smoothing) for rows in chunks]
    loss, lse, rest = map(torch.cat, zip(*parts, strict=True)) if parts[1:] else parts[0]
    return it.reshape(loss), it.reshape(lse, dtype=dtype), it.reshape(rest, dtype=dtype)


def _losses(x: Array, classes: Array, smoothing: float) -> tuple[Array, Array, Array]:
    logs = _log_softmax(x)
    top, log = x.amax(1).to(logs.dtype), -logs.amax(1)
    loss = _aten.nll_loss_forward(logs, classes, None, 0, -1)[0]
    if smoothing:
        loss = loss * (1 - smoothing) - logs.sum(1) * (smoothing / x.shape[1])
    lse = top + log
    return loss, lse, log - (lse - top)


def _log_softmax(x: Array) -> Array:
    """In float32 for half types, without a copy of them on a GPU."""
    half = x.dtype in _HALF
    if half and x.is_cuda:
        return _aten._log_softmax(x, 1, True)
    return torch.log_softmax(x.float() if half else x, 1)


def cross_entropy_gradient(
    g: Operand, h: Operand, lse: Array, rest: Array, x: Array, classes: Array, smoothing: float
) -> Array:
    """(g + h)·softmax(x) - g·((1 - s)·one_hot(class) + s/n)."""
    it = LogitLines(torch_, x, g, h, lse, rest, classes)
    classes = checked_classes(it.line(classes), it.n)
    g, h, lse, rest = map(it.wide_line, (g, h, lse, rest))
    g = g if isinstance(g, torch.Tensor) else torch.full_like(lse, g)
    lines, chunks = (it.x, g, g + h, lse, rest, classes), it.chunks()
    if len(chunks) <= 1:
        return it.reshape(_gradient(smoothing, *lines), it.n)
    out = torch.empty_like(it.x)
    for rows in chunks:
        out[rows] = _gradient(smoothing, *[v[rows] for v in lines])
    return it.reshape(out, it.n)


def _gradient(
    smoothing: float, x: Array, g: Array, weight: Array, lse: Array, rest: Array, classes: Array
) -> Array:
    part = (x - lse[:, None]).exp_()  # in the dtype of lse, which is wide
    part *= (weight * torch.exp(-rest))[:, None]
    part.masked_fill_((weight == 0)[:, None], 0)
    if smoothing:
        part -= g[:, None] * (smoothing / x.shape[1])
    part.scatter_add_(1, classes[:, None], (g * (smoothing - 1))[:, None])
    return part.to(x.dtype)
