"""Batch norm by one kernel of an array's backend, and running statistics that follow it there."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

from numpy import ndarray

from ...arrays.arguments import as_tensor
from ...arrays.inplace import own_memories
from ...core import dtypes
from ...core.backends import BACKENDS, is_guarded
from ...core.call_several import first_recorded
from ...core.node import Severed
from ...core.recording import record_outputs, track
from ...core.settings import GENERAL, Settings, current
from ...core.value import GROUND, wrap
from ...ops.native_batch_norm import native_batch_norm
from ...transform.checkpoint.replayed import replaying

if TYPE_CHECKING:
    import numpy as np

    from ...arrays.tensor import Tensor

# The statistics are only looked at.
_batch_normed = first_recorded(native_batch_norm)


def is_native(x: Tensor) -> bool:
    """Whether what is kept is what PyTorch's kernels want; compiled programs fuse the other."""
    return x.device != "cpu" and current.get().staging is None


def normed_by_kernel(
    x: Tensor, weight: Any, bias: Any, eps: float
) -> tuple[Tensor, Tensor, Tensor] | None:
    """(y, mean, rate) of (N, C, …) by one kernel; None where there is none."""
    if weight is None or bias is None or not is_native(x):
        return None
    w, b = as_tensor(weight), as_tensor(bias)
    rx, rw, rb = x._data, w._data, b._data
    wide = _dtype_of_statistics(rx.dtype, rw.dtype, rb.dtype, rx.shape[1:2], rw.shape, rb.shape)
    return None if wide is None else _batch_normed(x, w, b, eps, wide)


@lru_cache(maxsize=1024)
def _dtype_of_statistics(
    x: Any, w: Any, b: Any, channels: Any, weights: Any, biases: Any
) -> np.dtype | None:
    """The dtype of mean and rate; None if a kernel takes no arrays of these dtypes and shapes."""
    own, others = dtypes.canonical(x), (dtypes.canonical(w), dtypes.canonical(b))
    wide = dtypes.accumulator(own)
    fit = others in ((own, own), (wide, wide)) and tuple(channels) == tuple(weights)
    return wide if fit and tuple(weights) == tuple(biases) else None


def normed_and_followed(
    x: Tensor, running: tuple[Any, Any], weight: Any, bias: Any, momentum: Any, eps: float
) -> Tensor | None:
    """x normalised by a kernel that lets running statistics follow, too; None: take several."""
    if x._data.__class__ is ndarray:
        return None
    settings, given = current.get(), (x, weight, bias, *running)
    if not _keeps_kernels(settings) or type(momentum) is not float or replaying():
        return None
    raws = []
    for a in given:
        if a.__class__ not in GROUND:
            return None
        raws.append(a._data)
    kind = raws[0].__class__
    nodes = [a._node for a in given]
    if is_guarded(kind) or nodes[3] is not None or nodes[4] is not None:
        return None
    device = raws[0].device
    if any([r.__class__ is not kind or r.device != device for r in raws[1:]]):
        return None
    wide = _dtype_of_all(*[r.dtype for r in raws], *[r.shape for r in raws])
    if wide is None or any([n.__class__ is Severed for n in nodes]):
        return None
    return _follow_at_once(given, settings, momentum, eps, wide)


def _keeps_kernels(settings: Settings) -> bool:
    """Whether the settings change at most what becomes of saved values, not what is computed."""
    if settings.way_uncast is not GENERAL:
        return True
    casts = settings.autocast is not None and bool(settings.autocast.columns)
    return not (settings.anomaly or settings.staging is not None or casts)


def _follow_at_once(
    given: tuple[Any, ...], settings: Settings, momentum: float, eps: float, wide: np.dtype
) -> Tensor | None:
    held = own_memories(given[3:])
    raws = [a._data for a in given[:3]]
    kernel = BACKENDS[raws[0].__class__].following_batch_norm
    try:
        outs = [wrap(z) for z in kernel(*raws, *held, momentum, eps, wide)]
    except Exception:
        return None  # the other path explains
    parents: Any = tuple([a._node for a in given[:3]])
    if not settings.grad or parents == (None, None, None):
        return outs[0]
    if settings.way_uncast is GENERAL:  # saved values are packed
        track(native_batch_norm.op, outs, parents, raws, (eps, wide), settings)
    else:
        record_outputs(native_batch_norm.op, outs, parents, raws, (eps, wide), (0,))
    return outs[0]


@lru_cache(maxsize=1024)
def _dtype_of_all(
    x: Any, w: Any, b: Any, mean: Any, variance: Any, size: Any, *lines: Any
) -> np.dtype | None:
    """`_dtype_of_statistics`, if running ones fit, too, and a batch has a variance."""
    if len(size) < 2:
        return None
    wide = _dtype_of_statistics(x, w, b, size[1:2], *lines[:2])
    if wide is None or not prod(size) or prod(size) == size[1]:
        return None
    own = [dtypes.canonical(t) for t in (w, mean, variance)]
    return wide if own == [wide] * 3 and set(map(tuple, lines)) == {tuple(size[1:2])} else None


def follow_by_kernel(
    x: Tensor,
    running: tuple[Tensor | None, Tensor | None],
    mean: Any,
    rate: Any,
    momentum: Any,
    eps: float,
) -> bool:
    """Whether running statistics followed a batch's by the kernels of their backend."""
    ours = [r for r in running if r is not None]
    if not ours or replaying():
        return not ours
    if type(momentum) is not float or mean.__class__ not in GROUND:
        return False
    raw = mean._data
    kind, device = (raw.__class__, raw.dtype, raw.shape), raw.device
    for r in ours:
        if r.__class__ not in GROUND or r._node is not None:
            return False
        own = r._data
        if (own.__class__, own.dtype, own.shape) != kind or own.device != device:
            return False
    held = iter(own_memories(ours))
    mean_there, variance_there = (None if r is None else next(held) for r in running)
    given = raw, rate._data, momentum, eps
    BACKENDS[raw.__class__].follow_statistics(x._data, mean_there, variance_there, *given)
    return True
