"""Torch's reductions of masked tensors, spelled by `where` and our reductions."""

import math

import weft as wf

from .reductions import _axis


def _filled(x, mask, value):
    return x if mask is None else wf.where(mask, x, value)


def _some(y, x, mask, dim, keepdim=False):
    """Torch compares only where something was not masked, and puts zeros elsewhere."""
    if mask is None:
        return y
    mask = wf.broadcast_to(mask, x.shape)
    return wf.where(wf.any(mask, axis=_axis(dim), keepdims=keepdim), y, 0.0)


def reduction(name, identity, wrapped=True):
    def reduce(x, dim=None, *, keepdim=False, dtype=None, mask=None):
        x = x if dtype is None else x.astype(dtype)
        y = getattr(wf, name)(_filled(x, mask, identity), axis=_axis(dim), keepdims=keepdim)
        return _some(y, x, mask, dim, keepdim) if wrapped else y

    return reduce


def mean(x, dim=None, *, keepdim=False, dtype=None, mask=None):
    x = x if dtype is None else x.astype(dtype)
    how = {"axis": _axis(dim), "keepdims": keepdim}
    if mask is None:
        return wf.mean(x, **how)
    count = wf.sum(wf.broadcast_to(mask, x.shape).astype(x.dtype), **how)
    return _some(wf.sum(_filled(x, mask, 0.0), **how) / count, x, mask, dim, keepdim)


def running(name, identity):
    def run(x, dim, *, dtype=None, mask=None):
        x = x if dtype is None else x.astype(dtype)
        y = getattr(wf, name)(_filled(x, mask, identity), axis=dim)
        return _filled(y, mask, 0.0)

    return run


def softmax(name):
    def normalise(x, dim, *, dtype=None, mask=None):
        x = x if dtype is None else x.astype(dtype)
        return _filled(getattr(wf, name)(_filled(x, mask, -math.inf), axis=dim), mask, 0.0)

    return normalise


SPELLINGS = {
    "masked.amax": reduction("amax", -math.inf),
    "masked.amin": reduction("amin", math.inf),
    "masked.cumprod": running("cumprod", 1.0),
    "masked.cumsum": running("cumsum", 0.0),
    "masked.log_softmax": softmax("log_softmax"),
    "masked.logsumexp": reduction("logsumexp", -math.inf),
    "masked.mean": mean,
    "masked.prod": reduction("prod", 1.0, wrapped=False),
    "masked.softmax": softmax("softmax"),
    "masked.sum": reduction("sum", 0.0, wrapped=False),
}
