"""Expansions of cross-entropy: a class is selected by comparing it with all classes."""

import numpy as np

from ...core import dtypes
from ...graph.graph import Literal
from .expand import column, expands, log_total, wide
from .indices import in_range
from .rewriting import Builder


def _guard_classes(b: Builder, classes: int, n: int) -> int:
    """The classes, guarded: each is from 0 to n − 1."""
    message = f"cross_entropy: class {{first}} of {n}; expected 0 to {n - 1}"
    return in_range(b, classes, 0, n, message)


def _is_class(b: Builder, classes: int, n: int) -> int:
    """The one-hot mask of classes among n; words are half of what is read for every row."""
    if b.dtype(classes) == dtypes.int64 and n <= np.iinfo(np.int32).max:
        # A class that does not exist must not become one that does.
        near = b.emit("minimum", b.emit("maximum", classes, Literal(-1)), Literal(n))
        classes = b.emit("cast", near, dtypes.int32)
    every = np.arange(n, dtype=b.dtype(classes))
    return b.emit("equal", column(b, classes), b.constant(every))


def _last(b: Builder, x: int) -> tuple[int]:
    return (len(b.shape(x)) - 1,)


def _without_last(b: Builder, x: int) -> int:
    return b.emit("reshape", x, b.shape(x)[:-1])


@expands("cross_entropy")
def _cross_entropy(b: Builder, x, classes, smoothing, dtype):
    n = b.shape(x)[-1]
    if isinstance(classes, Literal) or n > np.iinfo(b.dtype(classes)).max:
        return None
    x, classes = wide(b, x), _guard_classes(b, classes, n)
    axes = _last(b, x)
    top, shifted, log = log_total(b, x, axes, finite=False)
    chosen = b.emit("where", _is_class(b, classes, n), shifted, Literal(0.0))
    chosen = b.emit("sum", chosen, _last(b, chosen), True)
    if smoothing:
        chosen = b.emit("multiply", chosen, Literal(1.0 - smoothing))
        mean = b.emit("multiply", b.emit("sum", shifted, axes, True), Literal(smoothing / n))
        chosen = b.emit("add", chosen, mean)
    loss = b.emit("subtract", log, chosen)
    return tuple([_without_last(b, y) for y in (loss, *_round_with_rest(b, top, log))])


def _round_with_rest(b: Builder, top: int, log: int) -> tuple[int, int]:
    """top + log, rounded, and the rounding error."""
    lse = b.emit("add", log, top)
    return lse, b.emit("subtract", log, b.emit("subtract", lse, top))


def _weighted_shares(b: Builder, x: int, lse, rest, weight) -> int:
    """weight·softmax(x), the softmax by lse; exact zeros where the weight is zero."""
    y = b.emit("subtract", b.emit("subtract", x, column(b, lse)), column(b, rest))
    return b.emit("strong_product", b.emit("exp", y), column(b, weight))


def _sum(b: Builder, g, h) -> "int | Literal":
    """g + h, where either may be Python's zero."""
    for zero, other in ((g, h), (h, g)):
        if isinstance(zero, Literal) and zero.value == 0:
            return other
    return b.emit("add", g, h)


@expands("cross_entropy_gradient")
def _cross_entropy_gradient(b: Builder, g, h, lse, rest, x, classes, smoothing):
    n = b.shape(x)[-1]
    if isinstance(g, Literal) or n > np.iinfo(b.dtype(classes)).max:
        return None
    g, h, lse, rest, x = (wide(b, v) for v in (g, h, lse, rest, x))
    classes = _guard_classes(b, classes, n)
    part = _weighted_shares(b, x, lse, rest, _sum(b, g, h))
    if smoothing:
        even = b.emit("multiply", column(b, g), Literal(smoothing / n))
        part = b.emit("subtract", part, even)
    picked = b.emit("multiply", column(b, g), Literal(1.0 - smoothing)) if smoothing else None
    picked = b.emit(
        "where", _is_class(b, classes, n), column(b, g) if picked is None else picked, Literal(0.0)
    )
    return b.emit("subtract", part, picked)


@expands("soft_cross_entropy")
def _soft_cross_entropy(b: Builder, x, q, dtype):
    x, q = wide(b, x), wide(b, q)
    top, shifted, log = log_total(b, x, _last(b, x), finite=False)
    part = b.emit("strong_product", b.emit("subtract", shifted, log), q)
    loss = b.emit("negative", b.emit("sum", part, _last(b, part), True))
    return tuple([_without_last(b, y) for y in (loss, *_round_with_rest(b, top, log))])


@expands("soft_cross_entropy_gradient")
def _soft_cross_entropy_gradient(b: Builder, g, h, lse, rest, x, q):
    if isinstance(g, Literal):
        return None
    g, h, lse, rest, x, q = (wide(b, v) for v in (g, h, lse, rest, x, q))
    total = b.emit("sum", q, _last(b, q), False)
    weight = _sum(b, b.emit("multiply", g, total), h)
    part = _weighted_shares(b, x, lse, rest, weight)
    return b.emit("subtract", part, b.emit("multiply", column(b, g), q))


def _counts(b: Builder, classes: int, ignored: int) -> "int | None":
    """Which classes are not the ignored one; None if no class can be that."""
    info = np.iinfo(b.dtype(classes))
    if not info.min <= ignored <= info.max:
        return None
    return b.emit("not_equal", classes, Literal(ignored))


@expands("mean_nll")
def _mean_nll(b: Builder, logs, classes, ignored):
    n = b.shape(logs)[-1]
    if n > np.iinfo(b.dtype(classes)).max:
        return None
    counts = _counts(b, classes, ignored)
    if counts is None:
        return None
    logs, safe = wide(b, logs), b.emit("where", counts, classes, Literal(0))
    here = _is_class(b, _guard_classes(b, safe, n), n)
    here = b.emit("logical_and", here, column(b, counts))
    chosen = b.emit("where", here, logs, Literal(0.0))
    axes = (len(b.shape(chosen)) - 2, len(b.shape(chosen)) - 1)
    total = b.emit("sum", chosen, axes, False)
    number = b.emit("sum", b.emit("cast", counts, b.dtype(logs)), _last(b, counts), False)
    number = b.emit("maximum", b.emit("broadcast_to", number, b.shape(total)), Literal(1.0))
    return b.emit("divide", b.emit("negative", total), number), number


@expands("nll_gradient")
def _nll_gradient(b: Builder, g, classes, ignored, n):
    if isinstance(g, Literal) or n > np.iinfo(b.dtype(classes)).max:
        return None
    counts = _counts(b, classes, ignored)
    if counts is None:
        return None
    here = b.emit("logical_and", _is_class(b, classes, n), column(b, counts))
    along = column(b, column(b, b.emit("negative", g)))
    return b.emit("where", here, along, Literal(0.0))
