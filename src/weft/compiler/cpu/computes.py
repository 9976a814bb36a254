"""What the CPU computes natively: which rows are kernels for which dtypes, and which routines."""

from collections.abc import Mapping

import numpy as np

from ...graph.graph import Equation, Graph, Literal
from ..emit.convert import SUPPORTED
from ..emit.scalar import MIXED, TypedValue, has_emitter, why_unsupported, working_dtype
from ..ir.routine import Routine
from ..ir.views import View
from .routines.table import MAKERS, routine_of


class Computes:
    """Kernels in LLVM IR, and routines."""

    def supports(self, graph: Graph, e: Equation) -> str:
        out = graph.avals[e.outputs[0]]
        reason = _why_unsupported([*[graph.avals[i] for i in e.inputs if isinstance(i, int)], out])
        if reason or e.op.folds or e.op.moves == "parts":
            return reason
        if not has_emitter(e.op.name):
            return "no kernel computes it"
        return _no_emitter(graph, e, out.dtype)

    def routine(self, graph: Graph, views: Mapping[int, View], e: Equation) -> Routine | str | None:
        return routine_of(graph, views, e) if e.op.name in MAKERS else None


def _why_unsupported(avals) -> str:
    for a in avals:
        if a.dtype not in SUPPORTED:
            return f"kernels do not hold {a.dtype}"
        if a.device != "cpu":
            return f"it is on {a.device}"
    return ""


def _no_emitter(graph: Graph, e: Equation, dtype: np.dtype) -> str:
    """Why kernels do not compute an elementwise row for these dtypes; empty if they do."""
    operands = [_operand(graph, i) for i in e.inputs]
    if any(isinstance(x, complex) or x is None for x in operands):
        return "a number is complex"
    if all(not isinstance(x, TypedValue) for x in operands):
        return "its operands are Python's numbers"
    if e.op.name in MIXED:
        return ""
    return why_unsupported(e.op.name, e.static, working_dtype(e.op, operands, dtype))


def _operand(graph: Graph, i):
    return i.value if isinstance(i, Literal) else TypedValue(None, graph.avals[i].dtype)  # type: ignore[arg-type]
