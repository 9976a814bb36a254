"""Which equations of a graph have emitters."""

from collections.abc import Sequence
from typing import Any

from ...core.aval import Aval
from ...graph.graph import Equation, Graph, Literal
from .convert import SUPPORTED
from .scalar import MIXED, TypedValue, has_emitter, why_unsupported, working_dtype


def avals_of(graph: Graph, e: Equation) -> list[Aval]:
    """The avals of an equation's operands, and of its first output."""
    inputs = [graph.avals[i] for i in e.inputs if isinstance(i, int)]
    return [*inputs, graph.avals[e.outputs[0]]]


def why_not_held(avals: Sequence[Aval]) -> str:
    """Why kernels do not hold some values; empty if they do."""
    strange = [a.dtype for a in avals if a.dtype not in SUPPORTED]
    return f"kernels do not hold {strange[0]}" if strange else ""


def why_no_emitter(graph: Graph, e: Equation) -> str:
    """Why kernels do not compute an elementwise row for these dtypes; empty if they do."""
    if not has_emitter(e.op.name):
        return "no kernel computes it"
    operands = operands_of(graph, e)
    if any(isinstance(x, complex) or x is None for x in operands):
        return "a number is complex"
    if all(not isinstance(x, TypedValue) for x in operands):
        return "its operands are Python's numbers"
    if e.op.name in MIXED:
        return ""
    working = working_dtype(e.op, operands, graph.avals[e.outputs[0]].dtype)
    return why_unsupported(e.op.name, e.static, working)


def operands_of(graph: Graph, e: Equation) -> list[Any]:
    """Operands as emitters take them, without their values."""
    return [
        i.value if isinstance(i, Literal) else TypedValue(None, graph.avals[i].dtype)  # type: ignore[arg-type]
        for i in e.inputs
    ]
