"""PyTorch's kernels of cross-entropy: a chunk of lines at a time, few calls for each."""

import numpy as np
import torch

from ..shared.crossentropy import LogitLines
from . import namespace as torch_
from .neural import checked_classes
from .types import Array, Operand

_aten = torch.ops.aten
_nll, _nll_backward = _aten.nll_loss_forward.default, _aten.nll_loss_backward.default
_HALF = (torch.float16, torch.bfloat16)
# Logits of a chunk on a GPU, where calls cost more than memory: half a gigabyte in float32, half
# or less of what PyTorch's own loss takes for as many logits.
_ON_GPU = 1 << 27


def cross_entropy(
    x: Array, classes: Array, smoothing: float, dtype: np.dtype
) -> tuple[Array, Array, Array]:
    """lse - (1 - s)·x[class] - s·mean(x) for each line, lse and its rest."""
    it = LogitLines(torch_, x, classes)
    classes = checked_classes(it.line(classes), it.n)
    chunks = _chunks(it) or [slice(None)]
    parts = [_losses(it.x[rows], classes[rows], smoothing) for rows in chunks]
    loss, lse, rest = map(torch.cat, zip(*parts, strict=True)) if parts[1:] else parts[0]
    return it.reshape(loss), it.reshape(lse, dtype=dtype), it.reshape(rest, dtype=dtype)


def _chunks(it: LogitLines) -> list[slice]:
    """The lines of each chunk."""
    if not it.x.is_cuda:
        return it.chunks()
    step = max(1, _ON_GPU // it.n)
    return [slice(k, min(k + step, it.count)) for k in range(0, it.count, step)]


def _losses(x: Array, classes: Array, smoothing: float) -> tuple[Array, Array, Array]:
    logs = _log_softmax(x)
    top, log = x.amax(1).to(logs.dtype), -logs.amax(1)
    loss = _aten.nll_loss_forward(logs, classes, None, 0, -1)[0]
    if smoothing:
        loss = loss * (1 - smoothing) - logs.sum(1) * (smoothing / x.shape[1])
    lse = top + log
    return loss, lse, log - (lse - top)


def _log_softmax(x: Array) -> Array:
    """In float32 for half types."""
    if x.is_cuda and x.dtype is torch.float16:  # the only dtype that ATen widens
        return _aten._log_softmax(x, 1, True)
    return torch.log_softmax(x.float() if x.dtype in _HALF else x, 1)


def cross_entropy_gradient(
    g: Operand, h: Operand, lse: Array, rest: Array, x: Array, classes: Array, smoothing: float
) -> Array:
    """(g + h)·softmax(x) - g·((1 - s)·one_hot(class) + s/n)."""
    it = LogitLines(torch_, x, g, h, lse, rest, classes)
    classes = checked_classes(it.line(classes), it.n)
    g, h, lse, rest = map(it.wide_line, (g, h, lse, rest))
    g = g if isinstance(g, torch.Tensor) else torch.full_like(lse, g)
    lines, chunks = (it.x, g, g + h, lse, rest, classes), _chunks(it)
    if len(chunks) <= 1:
        return it.reshape(_gradient(smoothing, *lines).to(it.x.dtype), it.n)
    out = torch.empty_like(it.x)
    for rows in chunks:
        out[rows] = _gradient(smoothing, *[v[rows] for v in lines])  # cast as it is written
    return it.reshape(out, it.n)


def _gradient(
    smoothing: float, x: Array, g: Array, weight: Array, lse: Array, rest: Array, classes: Array
) -> Array:
    """The gradient of some lines, in the dtype of lse, which is wide."""
    part = (x - lse[:, None]).exp_()
    part *= (weight * torch.exp(-rest))[:, None]
    part.masked_fill_((weight == 0)[:, None], 0)
    if smoothing:
        part -= g[:, None] * (smoothing / x.shape[1])
    return part.scatter_add_(1, classes[:, None], (g * (smoothing - 1))[:, None])


def mean_nll(logs: Array, classes: Array, ignored: int) -> tuple[Array, Array]:
    """−Σ logs[line, class]/n over the n lines whose class is not the ignored one, and n or 1."""
    classes = classes.long()
    if logs.ndim > 2 or classes.ndim > 1:
        return _mean_of_stack(logs, classes, ignored)
    try:
        total, n = _nll(logs, classes, None, 2, ignored)
    except IndexError:  # ATen checks them on the CPU
        checked_classes(classes[classes != ignored], logs.shape[1])
        raise
    n.clamp_(min=1)
    return total / n, n


def _mean_of_stack(logs: Array, classes: Array, ignored: int) -> tuple[Array, Array]:
    """`mean_nll` for each of several sets of lines."""
    counts = classes != ignored
    safe = checked_classes(classes.masked_fill(~counts, 0), logs.shape[-1])
    shape = torch.broadcast_shapes(logs.shape[:-1], classes.shape)
    places = safe.expand(shape)[..., None]
    picked = logs.expand(*shape, -1).gather(-1, places)[..., 0].masked_fill(~counts, 0)
    n = counts.expand(shape).sum(-1).clamp_(min=1).to(logs.dtype)
    return -picked.sum(-1) / n, n


def nll_gradient(g: Array, classes: Array, ignored: int, width: int) -> Array:
    """−g at the classes that are not the ignored one, else 0."""
    classes = classes.long()
    if not g.ndim and classes.ndim == 1:
        like = g.new_empty((len(classes), width))  # of which ATen reads the shape only
        return _nll_backward(g, like, classes, None, 2, ignored, g)
    g, classes = torch.broadcast_tensors(g[..., None], classes)
    unread = classes == ignored
    places, values = classes.masked_fill(unread, 0), (-g).masked_fill(unread, 0)
    return g.new_zeros((*g.shape, width)).scatter_(-1, places[..., None], values[..., None])
