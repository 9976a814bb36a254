"""Reductions over ranks: those that an engine's library adds up, and those in the order of ranks.

Arrays of half precision are added in float32 and rounded once, while two bytes per element are
sent. Extremes of floats propagate NaN.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core import dtypes
from ..core.backends import BACKENDS
from ..core.communicator import Reduction
from .engine import Engine

_INTEGERS = frozenset({dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64})
_INEXACT = frozenset({dtypes.float32, dtypes.float64, *dtypes.COMPLEX})
# What engines' libraries reduce; they have one order, which is theirs.
NATIVE: dict[str, frozenset[np.dtype]] = {
    "sum": _INTEGERS | _INEXACT | {dtypes.uint32, dtypes.uint64},
    "max": _INTEGERS,
    "min": _INTEGERS,
}
# PyTorch does not add these on GPUs.
_UNKNOWN_TO_GPUS = frozenset({dtypes.uint16, dtypes.uint32, dtypes.uint64})
# An array of at most so many bytes is gathered whole, which takes one collective instead of two.
_WHOLE = 4096


def _native(dtype: np.dtype, kind: Reduction, ordered: bool) -> bool:
    return dtype in NATIVE[kind] and not (ordered and dtype in _INEXACT)


def all_reduce(
    engine: Engine, x: Any, kind: Reduction = "sum", out: Any = None, *, ordered: bool = False
) -> Any:
    """Elementwise over all ranks' arrays; with `ordered`, floats are added in rank order."""
    xp = BACKENDS[type(x)]
    if _native(xp.dtype_of(x), kind, ordered):
        return engine.all_reduce(x, kind) if out is None else engine.all_reduce(x, kind, out)
    y = _in_rank_order(engine, x, kind)
    if out is None:
        return y
    xp.overwrite(out, y)
    return out


def reduce_scatter(engine: Engine, x: Any) -> Any:
    """Of x of shape (size, …), this rank's row of the sum over ranks, which is in rank order.

    As many bytes are sent as libraries send for it; gloo sends twice as many.
    """
    host, back = _computable(x)
    return back(fold(engine.all_to_all(host), "sum"))


def lies_on_gpu(x: Any) -> bool:
    """Whether an array lies in a GPU's memory."""
    return BACKENDS[type(x)].device_of(x).startswith("cuda")


def _computable(x: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The array where all dtypes can be added, and what makes a result one like x."""
    xp = BACKENDS[type(x)]
    device = xp.device_of(x)
    if lies_on_gpu(x) and xp.dtype_of(x) not in _UNKNOWN_TO_GPUS:
        return x, lambda y: y
    return xp.to_numpy(x), lambda y: xp.adopt(y, device)


def _in_rank_order(engine: Engine, x: Any, kind: Reduction) -> Any:
    """Each rank adds up a part of all ranks' arrays, in their order, and sends it to all."""
    x, back = _computable(x)
    xp = BACKENDS[type(x)]
    if not engine.size > 1 or not xp.nbytes(x):
        return back(xp.copy(x))
    if xp.nbytes(x) <= _WHOLE:
        return back(fold(engine.all_gather(x), kind))
    flat = x.reshape(-1)
    count = flat.shape[0]
    padded = xp.empty((-(-count // engine.size) * engine.size,), xp.dtype_of(x), xp.device_of(x))
    padded[:count] = flat
    padded[count:] = 0
    part = fold(engine.all_to_all(padded.reshape(engine.size, -1)), kind)
    return back(engine.all_gather(part).reshape(-1)[:count].reshape(x.shape))


def fold(rows: Any, kind: Reduction) -> Any:
    """((x₀ + x₁) + x₂) + … of the rows of an array, or their extremes, as a new array."""
    xp = BACKENDS[type(rows)]
    dtype, shape = xp.dtype_of(rows), rows.shape[1:]
    half = kind == "sum" and dtype in dtypes.HALF
    first, *others = rows.reshape(rows.shape[0], math.prod(shape))
    with xp.quiet():
        total = xp.cast(first, dtypes.float32) if half else xp.copy(first)
        for row in others:
            if kind == "sum":
                total += row
            else:
                total = xp.maximum(total, row) if kind == "max" else xp.minimum(total, row)
        return (xp.cast(total, dtype) if half else total).reshape(shape)


def of_rows(every: np.ndarray, rank: int, collective: str, *rest: Any) -> np.ndarray:
    """What a collective makes of all ranks' arrays, of shape (size, …), on one rank."""
    if collective == "all_reduce":
        return fold(every, *rest)
    if collective == "reduce_scatter":
        return fold(every[:, rank], "sum")
    if collective == "broadcast":
        return np.array(every[rest[0]])
    return every.copy()
