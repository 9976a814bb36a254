"""Which routines compute the rows of convolution."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import TypeVar

from ....core.aval import Aval
from ....graph.graph import Equation, Graph, Literal
from ...ir.views import View
from ..lanes import ELEMENT
from .correlate import Correlation, Part
from .depthwise import ChannelWeights
from .items import cut_of
from .registry import native
from .routine import NativeRoutine
from .weigh import MOST_TAPS, Weights
from .windows import Side, transposed_sides

T = TypeVar("T")
_LARGEST = 2**30  # rows are indexed by 32 bits


def plain(avals: Sequence[Aval]) -> str:
    """Why routines do not take these arrays for a convolution; empty if they do."""
    dtypes = {a.dtype for a in avals}
    if len(dtypes) != 1 or not dtypes <= ELEMENT.keys():
        return f"routines do not convolve {', '.join(sorted(map(str, dtypes)))}"
    if len(avals[0].shape) > 4:
        return f"it is along {len(avals[0].shape) - 2} axes"
    if 0 in avals[0].shape[1:] or 0 in avals[1].shape[1:] or not avals[1].shape[0]:
        return "it is empty"
    if max(prod(a.shape[2:]) for a in avals[:2]) > _LARGEST:
        return "its axes are too long"
    return ""


def both(values: Sequence[T], missing: T) -> tuple[T, T]:
    """Two axes: a single spatial axis gets one of length 1 before it."""
    return (missing, *values) if len(values) == 1 else tuple(values)  # type: ignore[return-value]


@native("convolution", "convolution_biased")
def _convolution(graph: Graph, views: Mapping[int, View], e: Equation) -> NativeRoutine | str:
    if any(isinstance(x, Literal) for x in e.inputs):
        return "its operands are Python's numbers"
    avals = [graph.avals[x] for x in e.inputs]
    reason = plain(avals)
    if reason:
        return reason
    (x, w), (stride, padding, dilation, groups) = avals[:2], e.static
    made = graph.avals[e.outputs[0]].shape
    size, kernel, counts = (both(a, 1) for a in (x.shape[2:], w.shape[2:], made[2:]))
    if _is_pointwise(kernel, stride, padding):
        size = counts = (1, prod(size))
    hows = zip(
        *(size, counts, both(stride, 1), both(dilation, 1), both(padding, (0, 0)), kernel),
        strict=True,
    )
    part = tuple(Side(n, p, s, d, a, k) for n, p, s, d, (a, _), k in hows)
    return _refuse_large_windows(
        Correlation(
            *(x.dtype, x.shape[0], groups, w.shape[0] // groups, w.shape[1], size, counts),
            *(kernel, False, len(avals) == 3, (part,)),  # type: ignore[arg-type]
        )
    )


def _is_pointwise(
    kernel: Sequence[int], stride: Sequence[int], padding: Sequence[tuple[int, int]]
) -> bool:
    """Whether every window is one element."""
    moved = any(s != 1 for s in stride) or any(p != (0, 0) for p in map(tuple, padding))
    return set(kernel) == {1} and not moved


@native("convolution_transposed")
def _transposed_routine(
    graph: Graph, views: Mapping[int, View], e: Equation
) -> NativeRoutine | str:
    if any(isinstance(x, Literal) for x in e.inputs):
        return "its operands are Python's numbers"
    avals = [graph.avals[x] for x in e.inputs]
    reason = plain(avals)
    if reason:
        return reason
    (y, w), (stride, padding, dilation, groups) = avals, e.static
    made = graph.avals[e.outputs[0]].shape
    if 0 in made[1:]:
        return "it is empty"
    counts, kernel, size = (both(a, 1) for a in (y.shape[2:], w.shape[2:], made[2:]))
    if _is_pointwise(kernel, stride, padding):
        size = counts = (1, prod(size))
    hows = zip(
        *(counts, size, kernel, both(stride, 1), both(dilation, 1), both(padding, (0, 0))),
        strict=True,
    )
    rows, columns = (transposed_sides(p, n, k, s, d, a) for p, n, k, s, d, (a, _) in hows)
    parts: tuple[Part, ...] = tuple((r, c) for r in rows for c in columns)
    return _refuse_large_windows(
        Correlation(
            *(y.dtype, y.shape[0], groups, w.shape[1], w.shape[0] // groups, counts, size),
            *(kernel, True, False, parts),
        )
    )


def _refuse_large_windows(routine: Correlation) -> NativeRoutine | str:
    if any(routine.try_tiles(part) is None for part in routine.parts):
        return "its windows are too large"
    return routine


def weights_of(
    x: Aval,
    y: Aval,
    made: Aval,
    stride: Sequence[int],
    padding: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    groups: int,
) -> Weights | ChannelWeights | str:
    """The routine of a gradient of weights, from the avals of both arrays and of the weights."""
    reason = plain([x, y])
    if reason:
        return reason
    size, counts, kernel = (both(a.shape[2:], 1) for a in (x, y, made))
    if prod(kernel) > MOST_TAPS:
        return f"it has more than {MOST_TAPS} taps"
    if _is_pointwise(kernel, stride, padding):
        size = counts = (1, prod(size))
    hows = zip(
        *(size, counts, both(stride, 1), both(dilation, 1), both(padding, (0, 0)), kernel),
        strict=True,
    )
    down, across = (Side(n, p, s, d, a, k) for n, p, s, d, (a, _), k in hows)
    outs, ins = y.shape[1] // groups, x.shape[1] // groups
    alone = ChannelWeights(x.dtype, x.shape[0], groups, (down, across))
    if (outs, ins) == (1, 1) and alone.tiles is not None:
        return alone
    if cut_of((down, across), outs, ins, x.shape[0], x.dtype) is None:
        return "its windows are too large"
    return Weights(x.dtype, x.shape[0], groups, outs, ins, (down, across))


@native("convolution_weight")
def _weight(graph, views, e) -> NativeRoutine | str:
    """The rows that the expansion in parts left: the reason why it did."""
    avals = [graph.avals[i] for i in (*e.inputs, *e.outputs)]
    made = weights_of(*avals, *e.static)
    return made if isinstance(made, str) else "it is empty"


@native("convolution_parts")
def _parts(graph, views, e) -> NativeRoutine | str:
    x, y = (graph.avals[i] for i in e.inputs)
    *static, made = e.static
    return weights_of(x, y, x.like(made), *static)
