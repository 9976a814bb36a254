"""Copies: an explicit `copy` equation wherever strides do not suffice.

A reshape that strides cannot express, an operand that a product or a routine cannot read, and an
output that is an input, a constant, a part of another value or a repeated output: each gets a copy,
which fuses like any other elementwise equation. Schedules rely on them: every target runs both
passes, and no later pass removes copies.
"""

from collections.abc import Callable, Collection
from functools import partial
from math import prod

import numpy as np

from ...core.op import TABLE
from ...core.origin import origin
from ...graph.graph import Equation, Graph, Literal
from ..ir.gemm import is_product, readable
from ..ir.views import View, as_view, viewer
from .rewriting import Builder, Replacement, rewrite

Reads = Callable[[Equation, int, View], bool]


def copies(
    graph: Graph, routines: Collection[str], reads: Reads, dtypes: Collection[np.dtype]
) -> Graph:
    """The graph with `copy` wherever a value needs memory of its own.

    routines  the rows that the target computes by routines
    reads     (equation, position, view): whether the routine reads that operand in place
    dtypes    those that the target multiplies
    """
    look: Callable[[int], View] | None = None

    def view(b: Builder, x: int) -> View:
        nonlocal look
        look = look or viewer(b.graph, b.definitions)
        return look(x)

    def lies(b: Builder, e: Equation, k: int) -> bool:
        x = e.inputs[k]
        return isinstance(x, Literal) or reads(e, k, view(b, x))

    def rule(b: Builder, e: Equation) -> Replacement:
        if e.op.name == "reshape" and as_view({e.inputs[0]: view(b, e.inputs[0])}, e) is None:
            return (b.emit("reshape", b.emit("copy", e.inputs[0]), *e.static),)
        # A product precedes a routine of its row.
        if is_product(e, [b.aval(x) for x in e.inputs], dtypes):
            return _copy_operands(b, e, [readable(view(b, x), k) for k, x in enumerate(e.inputs)])
        if e.op.name in routines:
            return _copy_operands(b, e, [lies(b, e, k) for k in range(len(e.inputs))])
        return None

    return rewrite(graph, rule, {"reshape", "matmul", *routines})


def _copy_operands(b: Builder, e: Equation, fit: list[bool]) -> Replacement:
    """The equation with copies of the operands that it cannot read in place."""
    if all(fit):
        return None
    pairs = zip(e.inputs, fit, strict=True)
    operands = [x if ok else b.emit("copy", x) for x, ok in pairs]
    made = e.op.call(partial(b.emit, e.op), operands, e.static)
    return made if isinstance(made, tuple) else (made,)


def apart(graph: Graph) -> Graph:
    """The graph with outputs that share no memory with inputs, constants or each other."""
    view = viewer(graph, {i: e for e in graph.equations for i in e.outputs})
    taken = {*graph.inputs, *graph.constants}
    shared = []
    for k, i in enumerate(graph.outputs):
        v = view(i)
        size = prod(graph.avals[v.root].shape)
        whole = v.contiguous and v.offset == 0 and prod(v.shape) == size
        if v.root in taken or not whole:
            shared.append(k)
        else:
            taken.add(v.root)
    if not shared:
        return graph
    return _with_copies(graph, shared)


def _with_copies(graph: Graph, positions: list[int]) -> Graph:
    made = Graph(
        list(graph.avals), graph.inputs, graph.constants, list(graph.equations), list(graph.outputs)
    )
    where = {i: e.origin for e in graph.equations for i in e.outputs}
    for k in positions:
        i = graph.outputs[k]
        new = made.new(graph.avals[i])
        made.equations.append(Equation(TABLE["copy"], (i,), (), (new,), where.get(i) or origin()))
        made.outputs[k] = new
    return made
