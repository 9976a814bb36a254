"""Which routines compute the rows of pooling."""

from math import prod

import numpy as np

from ....backend.shared.window_sizes import tap_dtype
from ....graph.graph import Literal
from ..lanes import ELEMENT
from .convolve import both
from .pool import Pool, Unpool
from .registry import native
from .routine import NativeRoutine
from .windows import Side, transposed_sides

_MOST_TAPS = 256
_LARGEST = 2**30  # rows are indexed by 32 bits
_KINDS = {"max_pool": "max", "sum_pool": "sum", "pool_pick": "pick"}
_UNDONE = {"pool_put": "put", "spread_pool": "spread"}


def _why_refused(graph, e) -> str:
    """Why no routine computes an equation; empty if one does."""
    if any(isinstance(x, Literal) for x in e.inputs):
        return "its operands are Python's numbers"
    avals = [graph.avals[x] for x in (*e.inputs, *e.outputs)]
    if avals[0].dtype not in ELEMENT:
        return f"routines do not pool {avals[0].dtype}"
    kernel = e.static[0]
    if len(kernel) > 2 or not kernel:
        return f"it is along {len(kernel)} axes"
    if prod(kernel) > _MOST_TAPS:
        return f"its windows have more than {_MOST_TAPS} taps"
    if any(0 in a.shape for a in avals):
        return "it is empty"
    if max(a.shape[-1] for a in avals) > _LARGEST:
        return "its axes are too long"
    taps = graph.avals[e.inputs[-1]]
    if len(e.inputs) == 2 and taps.dtype != tap_dtype(kernel):
        return f"its taps are {taps.dtype}"
    return ""


def _how(e) -> tuple:
    """Kernel, stride, padding, dilation, for two axes."""
    kernel, stride, padding, *more = e.static
    dilation = more[0] if more else (1,) * len(kernel)
    return both(kernel, 1), both(stride, 1), both(padding, (0, 0)), both(dilation, 1)


def _planes(aval, axes: int) -> tuple[int, tuple[int, int]]:
    """The number of planes, and their size."""
    cut = len(aval.shape) - axes
    return prod(aval.shape[:cut]), both(aval.shape[cut:], 1)  # type: ignore[return-value]


@native(*_KINDS)
def _pool(graph, views, e) -> NativeRoutine | str:
    reason = _why_refused(graph, e)
    if reason:
        return reason
    axes, (kernel, stride, padding, dilation) = len(e.static[0]), _how(e)
    x = graph.avals[e.inputs[0]]
    planes, size = _planes(x, axes)
    _, counts = _planes(graph.avals[e.outputs[0]], axes)
    hows = zip(size, counts, stride, dilation, padding, kernel, strict=True)
    down, across = (Side(n, p, s, d, a, k) for n, p, s, d, (a, _), k in hows)
    number = tap_dtype(e.static[0])
    return Pool(_KINDS[e.op.name], x.dtype, number, planes, (down, across))


@native(*_UNDONE)
def _unpool(graph, views, e) -> NativeRoutine | str:
    reason = _why_refused(graph, e)
    if reason:
        return reason
    axes, (kernel, stride, padding, dilation) = len(e.static[0]), _how(e)
    y = graph.avals[e.inputs[0]]
    planes, counts = _planes(y, axes)
    _, size = _planes(graph.avals[e.outputs[0]], axes)
    hows = zip(counts, size, kernel, stride, dilation, padding, strict=True)
    rows, columns = (tuple(transposed_sides(p, n, k, s, d, a)) for p, n, k, s, d, (a, _) in hows)
    number: np.dtype = tap_dtype(e.static[0])
    how = (planes, size, counts, rows, columns, kernel[1])
    return Unpool(_UNDONE[e.op.name], y.dtype, number, *how)
