"""Contractions as matrix products: one `matmul` row, with the rest expanded around it."""

from collections.abc import Collection, Sequence
from math import prod

import numpy as np

from ...graph.graph import Equation, Graph, Literal
from .rewriting import Builder, Replacement, rewrite


def contract(graph: Graph, dtypes: Collection[np.dtype]) -> Graph:
    """The graph with linear layers and contractions of two arrays as `matmul`.

    dtypes  those that the target multiplies
    """

    def rule(builder: Builder, e: Equation) -> Replacement:
        written = RULES.get(e.op.name)
        if written is None or graph.avals[e.outputs[0]].dtype not in dtypes:
            return None
        if any(isinstance(x, Literal) for x in e.inputs):
            return None
        if {builder.dtype(x) for x in e.inputs} != {graph.avals[e.outputs[0]].dtype}:
            return None
        return written(builder, e)

    return rewrite(graph, rule, RULES)


def _linear(b: Builder, e: Equation) -> Replacement:
    """x·Wᵀ, then a separate addition of the bias, which fuses with what follows."""
    x, w, bias = e.inputs
    return (b.emit("add", b.emit("matmul", x, b.emit("permute", w, (1, 0))), bias),)


def _linear_gradient(b: Builder, e: Equation) -> Replacement:
    """g·W, gᵀ·x and Σg; the rows of a batch are rows of one matrix."""
    g, x, w = e.inputs
    lines = prod(b.shape(g)[:-1])
    g2, x2 = (b.emit("reshape", i, (lines, b.shape(i)[-1])) for i in (g, x))
    along = tuple(range(len(b.shape(g)) - 1))
    return (
        b.emit("matmul", g, w),
        b.emit("matmul", b.emit("permute", g2, (1, 0)), x2),
        b.emit("sum", g, along, False) if along else g,
    )


def _einsum(b: Builder, e: Equation) -> Replacement:
    """Labels sorted into batch, rows, columns and summed labels."""
    terms, out = e.static[0].split("->")
    terms = terms.split(",")
    if len(terms) != 2:
        return None
    (x, y), (left, right) = e.inputs, terms
    sizes = dict(zip(left, b.shape(x), strict=True))
    if any(sizes.setdefault(c, n) != n for c, n in zip(right, b.shape(y), strict=True)):
        return None  # an axis of length 1 is broadcast
    x, left = _sum_unused(b, x, left, out + right)
    y, right = _sum_unused(b, y, right, out + left)
    batch = [c for c in out if c in left and c in right]
    rows = [c for c in out if c in left and c not in right]
    columns = [c for c in out if c in right and c not in left]
    inner = [c for c in left if c in right and c not in out]
    a = _matrices(b, x, left, (batch, rows, inner), sizes)
    c = _matrices(b, y, right, (batch, inner, columns), sizes)
    order = [*batch, *rows, *columns]
    z = b.emit("reshape", b.emit("matmul", a, c), tuple(sizes[k] for k in order))
    return (b.emit("permute", z, tuple(order.index(k) for k in out)),)


def _sum_unused(b: Builder, x: int, term: str, needed: str) -> tuple[int, str]:
    """Sum over the axes whose labels nothing else needs."""
    axes = tuple(k for k, c in enumerate(term) if c not in needed)
    if not axes:
        return x, term
    return b.emit("sum", x, axes, False), "".join(c for c in term if c in needed)


def _matrices(b: Builder, x: int, term: str, groups: Sequence[list], sizes: dict) -> int:
    """x with its axes in three groups: the batch, and two that are each collapsed into one axis."""
    order = [c for group in groups for c in group]
    x = b.emit("permute", x, tuple(term.index(c) for c in order))
    batch, first, second = ([sizes[c] for c in group] for group in groups)
    return b.emit("reshape", x, (*batch, prod(first), prod(second)))


RULES = {"linear": _linear, "linear_gradient": _linear_gradient, "einsum": _einsum}
