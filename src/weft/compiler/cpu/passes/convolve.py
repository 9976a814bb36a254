"""Convolutions and pools as the routines take them: half types in float32, weights in parts.

Half types are multiplied and accumulated in float32, as the backend's kernels do, and rounded once.
The gradient of the weights is computed in parts; their sum fuses with what follows. A single window
over the whole array is a fold.
"""

import numpy as np

from ....core import dtypes
from ....core.aval import Aval
from ....core.op import Op
from ....graph.graph import Equation, Graph, Literal
from ...passes.rewriting import Builder, Replacement, rewrite
from ..routines.convolve import plain, weights_of

_CONVOLUTIONS = {"convolution", "convolution_biased", "convolution_transposed"}
_POOLS = {"max_pool", "pool_pick", "pool_put", "sum_pool", "spread_pool"}
_ROWS = {*_CONVOLUTIONS, *_POOLS, "convolution_weight"}


def _parts_shape(x: Aval, y: Aval, *static) -> Aval:
    *how, made = static
    routine = weights_of(x, y, x.like(made), *how)
    assert not isinstance(routine, str), routine
    return x.like(routine.results[0].shape)


def _parts(xp, x, y, *static) -> np.ndarray:
    """Everything in the first part: what native code computes, up to the order of sums."""
    *how, made = static
    parts = np.zeros(_parts_shape(Aval(x.shape, x.dtype), Aval(y.shape, y.dtype), *static).shape)
    (_, groups, ins, taps, _), outs = parts.shape, made[0] // how[-1]
    w = xp.convolution_weight(x, y, *how).reshape(groups, outs, ins, taps)
    parts[0, ..., :outs] = w.transpose(0, 2, 3, 1)
    return parts.astype(x.dtype)


# (part, group, channel, tap, output channel) of the gradient of the weights; its last static
# parameter is the shape of the weights. Not a row of the table: no user program has it.
PARTS = Op(name="convolution_parts", compute=_parts, shape=_parts_shape, rule=None, arity=2)


def windows(graph: Graph) -> Graph:
    """The graph with convolutions and pools as the routines take them."""
    return rewrite(graph, _rule, _ROWS)


def _rule(b: Builder, e: Equation) -> Replacement:
    if any(isinstance(x, Literal) or b.aval(x).device != "cpu" for x in e.inputs):
        return None
    before = [b.dtype(x) for x in e.inputs]
    if any(dtypes.is_complex(d) for d in before) or any(0 in b.shape(x) for x in e.inputs):
        return None
    half = any(d in dtypes.HALF for d in before)
    avals = [_wider(b.aval(x)) for x in e.inputs]
    if not _is_native(e, avals):
        return None
    if e.op.name == "convolution_weight":
        made = _weight(b, e, *avals)
    elif e.op.name in ("sum_pool", "spread_pool") and not half:
        made = (_fold if e.op.name == "sum_pool" else _spread)(b, e.inputs[0], *e.static)
    else:
        made = b.emit(e.op, *_widen_operands(b, e), *e.static) if half else None
    if made is None:
        return None
    made = made if isinstance(made, tuple) else (made,)
    found = zip(made, (b.graph.avals[i].dtype for i in e.outputs), strict=True)
    return tuple(x if b.dtype(x) == d else b.emit("cast", x, d) for x, d in found)


def _wider(aval: Aval) -> Aval:
    return aval.like(dtype=dtypes.float32) if aval.dtype in dtypes.HALF else aval


def _widen_operands(b: Builder, e: Equation) -> list[int]:
    """The operands, with half types in float32."""
    return [b.emit("cast", x, dtypes.float32) if b.dtype(x) in dtypes.HALF else x for x in e.inputs]


def _is_native(e: Equation, avals: list[Aval]) -> bool:
    """Whether a routine takes arrays of this kind; it may still refuse the rest."""
    if e.op.name in _POOLS:
        return len(e.static[0]) <= 2
    return not plain(avals)


def _weight(b: Builder, e: Equation, x: Aval, y: Aval) -> int | None:
    made = e.op.shape(x, y, *e.static)
    if isinstance(weights_of(x, y, made, *e.static), str):
        return None
    parts = b.emit(PARTS, *_widen_operands(b, e), *e.static, made.shape)
    parts = b.emit("sum", parts, (0,), False)
    groups, ins, taps, padded = b.shape(parts)
    outs = made.shape[0] // groups
    if outs < padded:
        whole = [(0, n, 1) for n in (groups, ins, taps)]
        parts = b.emit("slice_", parts, (*whole, (0, outs, 1)))
    return b.emit("reshape", b.emit("permute", parts, (0, 3, 1, 2)), made.shape)


def _fold(b: Builder, x: int, kernel, stride, padding) -> int | None:
    cut = len(b.shape(x)) - len(kernel)
    if tuple(kernel) != b.shape(x)[cut:] or any(p != (0, 0) for p in map(tuple, padding)):
        return None
    return b.emit("sum", x, tuple(range(cut, len(b.shape(x)))), True)


def _spread(b: Builder, y: int, kernel, stride, padding) -> int | None:
    cut = len(b.shape(y)) - len(kernel)
    if set(b.shape(y)[cut:]) != {1} or any(p != (0, 0) for p in map(tuple, padding)):
        return None
    return b.emit("broadcast_to", y, (*b.shape(y)[:cut], *kernel))
