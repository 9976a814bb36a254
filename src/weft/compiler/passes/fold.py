"""Constant folding: equations over constants are computed at compile time."""

from math import prod
from typing import Any

import numpy as np

from ...core.aval import Aval
from ...core.backends import BACKENDS, KERNELS
from ...core.dispatch import beside_bfloat16
from ...errors import WeftError
from ...graph.graph import Equation, Graph, Literal
from ...graph.structured import inner_graphs
from ..ir.repeated import stored_part
from .rewriting import Builder, Replacement, rewrite

# A constant larger than this, and than its operands, stays an equation.
LARGE = 1 << 16
# Rows beside comparisons that accept Python numbers in place of any of their arrays.
ARITHMETIC = frozenset(
    (
        *("add", "subtract", "multiply", "divide", "maximum", "minimum", "where", "pow"),
        *("strong_product", "strong_quotient"),
    )
)


def fold(graph: Graph) -> Graph:
    """The graph with equations over constants computed, and Python numbers for 0-d constants."""

    if not graph.constants:
        return graph

    def rule(builder: Builder, e: Equation) -> Replacement:
        if builder.graph.constants.keys().isdisjoint(e.inputs) or any(inner_graphs(e.static)):
            return None
        made = tuple(graph.avals[i] for i in e.outputs)
        known = [_known_value(builder, i) for i in e.inputs]
        if e.op.name == "guard":  # an error belongs to the call, if the equation is reached at all
            return (e.inputs[0],) if known[1] is not None and bool(known[1]) else None
        own = e.op.foreign or e.op.collective
        if any(isinstance(v, np.ndarray) for v in known) and not own:
            if all(v is not None for v in known) and not _grows(known, made):
                try:
                    return _compute(builder, e, known, made)
                except WeftError:  # like a guard's: an error of the call, if reached
                    return None
            return _with_numbers(builder, e, known, made)
        return None

    return rewrite(graph, rule)


def _known_value(builder: Builder, i: "int | Literal") -> Any:
    """A literal's number or a constant's array; None for a computed value."""
    return i.value if isinstance(i, Literal) else builder.graph.constants.get(i)


def _grows(known: list, made: tuple[Aval, ...]) -> bool:
    """Whether results are large, and larger than the constants that they come from."""
    size = sum(prod(a.shape) * a.dtype.itemsize for a in made)
    return size > max(LARGE, sum(v.nbytes for v in known if isinstance(v, np.ndarray)))


def _compute(builder: Builder, e: Equation, known: list, made: tuple) -> tuple[int, ...]:
    """The results as constants, by the backend's kernel, in the row's dtype."""
    kernel, known = KERNELS[e.op][np.ndarray], list(beside_bfloat16(e.op, known))
    with BACKENDS[np.ndarray].quiet():
        z = e.op.call(kernel, known, e.static)
        zs = [BACKENDS[np.ndarray].whole(v) for v in ((z,) if e.op.outputs == 1 else z)]
        zs = [v.astype(a.dtype, copy=False) for v, a in zip(zs, made, strict=True)]
    return tuple(builder.constant(v) for v in zs)


def _with_numbers(builder: Builder, e: Equation, known: list, made: tuple) -> Replacement:
    """An equation with Python numbers for constants of one number, if the result type stays."""
    if not (e.op.compares or e.op.name in ARITHMETIC):
        return None
    inputs = tuple(
        Literal(v.item(0)) if isinstance(v, np.ndarray) and _is_number(v) else i
        for i, v in zip(e.inputs, known, strict=True)
    )
    if inputs == e.inputs or e.op.shape(*map(builder.aval, inputs), *e.static) != made[0]:
        return None
    return (builder.emit(e.op, *inputs, *e.static),)


def _is_number(v: np.ndarray) -> bool:
    """Whether all elements equal one number that Python can represent."""
    if not v.size or v.dtype.kind not in "biuf":
        return False
    v = stored_part(v)
    if v.size == 1:
        return True
    bits = np.ascontiguousarray(v).reshape(-1).view(f"V{v.dtype.itemsize}")
    return bool((bits == bits[0]).all())
