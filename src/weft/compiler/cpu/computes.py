"""What the CPU computes by itself: which rows are kernels for which dtypes, and which routines."""

from collections.abc import Mapping

import numpy as np

from ...core import dtypes
from ...graph.graph import Equation, Graph, Literal
from ..emit.convert import SUPPORTED, is_float
from ..emit.integers import BOOLEAN
from ..emit.integers import EMITTERS as INTEGER
from ..emit.reals import EMITTERS as REAL
from ..emit.scalar import MIXED, Number, has_emitter, working_dtype
from ..ir.routine import Routine
from ..ir.views import View
from .routines.table import MAKERS, routine_of


class Computes:
    """Kernels in LLVM's language, and routines."""

    def supports(self, graph: Graph, e: Equation) -> str:
        out = graph.avals[e.outputs[0]]
        reason = _unsupported([*[graph.avals[i] for i in e.inputs if isinstance(i, int)], out])
        if reason or e.op.folds or e.op.moves == "parts":
            return reason
        if not has_emitter(e.op.name):
            return "no kernel computes it"
        return _no_emitter(graph, e, out.dtype)

    def routine(self, graph: Graph, views: Mapping[int, View], e: Equation) -> Routine | str | None:
        return routine_of(graph, views, e) if e.op.name in MAKERS else None


def _unsupported(avals) -> str:
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
    if all(not isinstance(x, Number) for x in operands):
        return "its operands are Python's numbers"
    row = e.op.name
    if row in MIXED:
        return ""
    working = working_dtype(e.op, operands, dtype)
    table = REAL if is_float(working) else BOOLEAN if working == dtypes.bool_ else INTEGER
    finite = row in ("isnan", "isinf", "isfinite")
    if not (finite or row in table) or (row == "nextafter" and working in dtypes.HALF):
        return f"kernels do not compute it for {working}"
    if row == "power_scalar" and table is not REAL and not _is_count(e.static[0]):
        return f"the power is {e.static[0]!r}"
    return ""


def _operand(graph: Graph, i):
    return i.value if isinstance(i, Literal) else Number(None, graph.avals[i].dtype)  # type: ignore[arg-type]


def _is_count(n) -> bool:
    return type(n) is int and n >= 0
