"""Expansions of composite rows into elementwise rows and reductions, so that they fuse.

Each expansion takes a builder and the row's operands and static parameters, and returns the
results. Values equal the row's to rounding, also at infinities. Half types are computed in float32,
as the backend's kernels do. Empty axes, complex numbers and cases without a rule below are left
unchanged.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf, prod
from typing import Any, TypeVar

from ...core import dtypes
from ...core.aval import reduced_shape
from ...graph.graph import Equation, Graph, Literal
from .rewriting import Builder, Replacement, rewrite

Expansion = Callable[..., Any]
EXPANSIONS: dict[str, Expansion] = {}
Function = TypeVar("Function", bound=Expansion)


def expands(*rows: str) -> Callable[[Function], Function]:
    """Register a function as the expansion of rows: it returns a value, several, or None."""

    def enter(function: Function) -> Function:
        EXPANSIONS.update(dict.fromkeys(rows, function))
        return function

    return enter


def expand(graph: Graph, expansions: Mapping[str, Expansion] = EXPANSIONS) -> Graph:
    """The graph with composite rows expanded."""

    def rule(builder: Builder, e: Equation) -> Replacement:
        expansion = expansions.get(e.op.name)
        avals = [graph.avals[i] for i in e.outputs]
        if expansion is None or not _is_plain(builder, e) or any(0 in a.shape for a in avals):
            return None
        made = e.op.call(partial(expansion, builder), list(e.inputs), e.static)
        if made is None:
            return None
        made = made if isinstance(made, tuple) else (made,)
        return tuple(_fit_aval(builder, x, a) for x, a in zip(made, avals, strict=True))

    return rewrite(graph, rule, expansions)


def _is_plain(b: Builder, e: Equation) -> bool:
    """Whether all arrays are real, on the CPU and not empty."""
    avals = [b.aval(x) for x in e.inputs if not isinstance(x, Literal)]
    return all(not dtypes.is_complex(a.dtype) and prod(a.shape) for a in avals)


def _fit_aval(b: Builder, x: int, aval) -> int:
    """x in the dtype and shape of the value it replaces."""
    x = x if b.dtype(x) == aval.dtype else b.emit("cast", x, aval.dtype)
    return x if b.shape(x) == aval.shape else b.emit("broadcast_to", x, aval.shape)


def wide(b: Builder, x: "int | Literal") -> Any:
    """x in its compute dtype: floats, with half types in float32."""
    if isinstance(x, Literal):
        return x
    dtype = b.dtype(x)
    dtype = dtype if dtypes.is_inexact(dtype) else dtypes.default_float()
    dtype = dtypes.accumulator(dtype)
    return x if b.dtype(x) == dtype else b.emit("cast", x, dtype)


def column(b: Builder, x: "int | Literal") -> "int | Literal":
    """A number per line as a column that broadcasts along the lines; Python numbers stay."""
    return x if isinstance(x, Literal) else b.emit("reshape", x, (*b.shape(x), 1))


def count(b: Builder, x: int, axes: Sequence[int]) -> int:
    return prod(b.shape(x)[a] for a in axes)


def squeeze_axes(b: Builder, y: int, axes: Sequence[int], keepdims: bool) -> int:
    """Drop the axes that a reduction kept, unless `keepdims`."""
    return y if keepdims else b.emit("reshape", y, reduced_shape(b.shape(y), tuple(axes), False))


# -- softmax and its kin ---------------------------------------------------------------------


def _finite_top(b: Builder, x: int, axes) -> int:
    """The largest element, and 0 where that is infinite or NaN."""
    top = b.emit("amax", x, tuple(axes), True)
    return b.emit("where", b.emit("isfinite", top), top, Literal(0.0))


@expands("softmax")
def _softmax(b: Builder, x, axis):
    x = wide(b, x)
    e = b.emit("exp", b.emit("subtract", x, b.emit("amax", x, (axis,), True)))
    return b.emit("divide", e, b.emit("sum", e, (axis,), True))


@expands("shares")
def _shares(b: Builder, x, axes):
    """Softmax over axes; zeros where all of x is −∞."""
    if not axes:
        return None
    x = wide(b, x)
    top = b.emit("amax", x, tuple(axes), True)
    top = b.emit("where", b.emit("equal", top, Literal(-inf)), Literal(0.0), top)
    e = b.emit("exp", b.emit("subtract", x, top))
    total = b.emit("sum", e, tuple(axes), True)
    empty = b.emit("equal", total, Literal(0))
    return b.emit("where", empty, Literal(0.0), b.emit("divide", e, total))


@expands("log_softmax")
def _log_softmax(b: Builder, x, axis):
    x = wide(b, x)
    y = b.emit("subtract", x, b.emit("amax", x, (axis,), True))
    total = b.emit("sum", b.emit("exp", y), (axis,), True)
    return b.emit("subtract", y, b.emit("log", total))


@expands("logsumexp")
def _logsumexp(b: Builder, x, axes, keepdims):
    if not axes:
        return None
    top, _, log = log_total(b, wide(b, x), axes, finite=True)
    return squeeze_axes(b, b.emit("add", log, top), axes, keepdims)


def log_total(b: Builder, x: int, axes: Sequence[int], finite: bool) -> tuple[int, int, int]:
    """m, x − m and log Σ exp(x − m) for the largest element m; they keep the axes.

    finite  whether m is 0 where that is infinite; else all of it is NaN there
    """
    top = _finite_top(b, x, axes) if finite else b.emit("amax", x, tuple(axes), True)
    shifted = b.emit("subtract", x, top)
    total = b.emit("sum", b.emit("exp", shifted), tuple(axes), True)
    return top, shifted, b.emit("log", total)


@expands("softmax_product")
def _softmax_product(b: Builder, t, y, axis):
    t, y = wide(b, t), wide(b, y)
    total = b.emit("sum", b.emit("multiply", t, y), (axis,), True)
    return b.emit("multiply", b.emit("subtract", t, total), y)


@expands("log_softmax_product")
def _log_softmax_product(b: Builder, t, y, axis):
    t, y = wide(b, t), wide(b, y)
    total = b.emit("sum", t, (axis,), True)
    return b.emit("subtract", t, b.emit("multiply", b.emit("exp", y), total))


# -- moments and norms -----------------------------------------------------------------------


@expands("var")
def _variance(b: Builder, x, axes, keepdims, correction) -> int | None:
    x = wide(b, x)
    freedom = count(b, x, axes) - correction
    if freedom <= 0 or not axes:
        return None
    d = b.emit("subtract", x, b.emit("mean", x, tuple(axes), True))
    total = b.emit("sum", b.emit("multiply", d, d), tuple(axes), True)
    return squeeze_axes(b, b.emit("divide", total, Literal(float(freedom))), axes, keepdims)


@expands("std")
def _deviation(b: Builder, x, axes, keepdims, correction):
    variance = _variance(b, x, axes, keepdims, correction)
    return None if variance is None else b.emit("sqrt", variance)


@expands("norm")
def _norm(b: Builder, x, axes, keepdims, p):
    if p != 2 or not axes:
        return None
    x = wide(b, x)
    total = b.emit("sum", b.emit("multiply", x, x), tuple(axes), True)
    return squeeze_axes(b, b.emit("sqrt", total), axes, keepdims)


@expands("count_nonzero")
def _count_nonzero(b: Builder, x, axes, keepdims):
    found = x if b.dtype(x) == dtypes.bool_ else b.emit("not_equal", x, Literal(0))
    return b.emit("sum", found, tuple(axes), keepdims)


@expands("standardise")
def _standardise(b: Builder, x, axes, eps, _dtype):
    x, axes = wide(b, x), tuple(axes)
    mean = b.emit("mean", x, axes, True)
    d = b.emit("subtract", x, mean)
    variance = b.emit("mean", b.emit("multiply", d, d), axes, True)
    return b.emit("multiply", d, _rate(b, variance, eps)), mean, variance


def _rate(b: Builder, variance: int, eps: float) -> int:
    """1/√(variance + eps)."""
    root = b.emit("sqrt", b.emit("add", variance, Literal(float(eps))))
    return b.emit("divide", Literal(1.0), root)


@expands("root_mean_square")
def _root_mean_square(b: Builder, x, axes, eps, _dtype):
    x = wide(b, x)
    square = b.emit("mean", b.emit("multiply", x, x), tuple(axes), True)
    return b.emit("multiply", x, _rate(b, square, eps)), square


@expands("projection")
def _projection(b: Builder, g, y, axes, centred):
    g, y, axes = wide(b, g), wide(b, y), tuple(axes)
    z = b.emit("multiply", y, b.emit("mean", b.emit("multiply", g, y), axes, True))
    if centred:
        z = b.emit("add", z, b.emit("mean", g, axes, True))
    return b.emit("subtract", g, z)


@expands("layer_norm")
def _layer_norm(b: Builder, x, w, bias, eps, dtype):
    axes = range(len(b.shape(x)) - len(b.shape(w)), len(b.shape(x)))
    y, _, variance = _standardise(b, x, axes, eps, dtype)
    scaled = b.emit("multiply", y, wide(b, w))
    return b.emit("add", scaled, wide(b, bias)), y, variance


@expands("layer_norm_gradient")
def _layer_norm_gradient(b: Builder, g, y, variance, w, eps):
    g, y, variance, w = (wide(b, x) for x in (g, y, variance, w))
    cut = len(b.shape(y)) - len(b.shape(w))
    lead, axes = tuple(range(cut)), tuple(range(cut, len(b.shape(y))))
    moved = _projection(b, b.emit("multiply", g, w), y, axes, True)
    dx = b.emit("multiply", moved, _rate(b, variance, eps))
    return dx, b.emit("sum", b.emit("multiply", g, y), lead, False), b.emit("sum", g, lead, False)


@expands("native_norm")
def _native_norm(b: Builder, x, w, bias, axes, eps, dtype):
    y, mean, variance = _standardise(b, x, axes, eps, dtype)
    scaled = b.emit("multiply", y, wide(b, w))
    return b.emit("add", scaled, wide(b, bias)), mean, _rate(b, variance, eps)


@expands("native_batch_norm")
def _native_batch_norm(b: Builder, x, w, bias, eps, dtype):
    axes, line = (0, *range(2, len(b.shape(x)))), b.shape(w)
    w, bias = _channels(b, x, w, bias)
    y, *statistics = _native_norm(b, x, w, bias, axes, eps, dtype)
    return y, *[b.emit("reshape", s, line) for s in statistics]


@expands("native_batch_norm_gradient")
def _native_batch_norm_gradient(b: Builder, g, x, mean, rate, w):
    axes, line = (0, *range(2, len(b.shape(x)))), b.shape(w)
    mean, rate, w = _channels(b, x, mean, rate, w)
    dx, *others = _native_norm_gradient(b, g, x, mean, rate, w, axes)
    return dx, *[b.emit("reshape", d, line) for d in others]


def _channels(b: Builder, x: int, *lines: int) -> list[int]:
    """One number for each channel of (N, C, …), as values that broadcast to x."""
    after = (1,) * (len(b.shape(x)) - 2)
    return [b.emit("reshape", v, (1, *b.shape(v), *after)) for v in lines]


@expands("native_rms_norm")
def _native_rms_norm(b: Builder, x, w, axes, eps, dtype):
    y, square = _root_mean_square(b, x, axes, eps, dtype)
    return b.emit("multiply", y, wide(b, w)), _rate(b, square, eps)


@expands("native_norm_gradient")
def _native_norm_gradient(b: Builder, g, x, mean, rate, w, axes):
    g, x, mean, rate, w = (wide(b, v) for v in (g, x, mean, rate, w))
    y = b.emit("multiply", b.emit("subtract", x, mean), rate)
    dx = b.emit("multiply", _projection(b, b.emit("multiply", g, w), y, axes, True), rate)
    return dx, _fold(b, b.emit("multiply", g, y), w), _fold(b, g, w)


@expands("native_rms_norm_gradient")
def _native_rms_norm_gradient(b: Builder, g, x, rate, w, axes):
    g, x, rate, w = (wide(b, v) for v in (g, x, rate, w))
    y = b.emit("multiply", x, rate)
    dx = b.emit("multiply", _projection(b, b.emit("multiply", g, w), y, axes, False), rate)
    return dx, _fold(b, b.emit("multiply", g, y), w)


def _fold(b: Builder, x: int, w: int) -> int:
    """x summed to the shape of the weight, which broadcasts to it."""
    shape = b.shape(w)
    lead = len(b.shape(x)) - len(shape)
    axes = (*range(lead), *(lead + k for k, n in enumerate(shape) if n == 1))
    return b.emit("reshape", b.emit("sum", x, axes, False), shape)


@expands("convolution_gradient")
def _convolution_gradient(b: Builder, g, x, w, *how):
    dx = b.emit("convolution_transposed", g, w, *how)
    return dx, b.emit("convolution_weight", x, g, *how)


@expands("extreme_share")
def _extreme_share(b: Builder, x, y, axes):
    """1/(number of elements equal to the extreme y, or NaN if y is) at those, else zero."""
    if isinstance(x, Literal) or isinstance(y, Literal) or b.dtype(x) not in dtypes.REAL:
        return None
    same = b.emit("logical_or", b.emit("equal", x, y), b.emit("isnan", x))
    same = b.emit("cast", same, dtypes.accumulator(b.dtype(x)))
    if not axes:
        return same
    times = b.emit("sum", same, tuple(axes), True)
    return b.emit("divide", same, times)
