"""What the CPU computes natively: which rows are kernels for which dtypes, and which routines."""

from collections.abc import Mapping

import numpy as np

from ...graph.graph import Equation, Graph
from ..emit.equations import avals_of, why_no_emitter, why_not_held
from ..ir.routine import Routine
from ..ir.views import View
from .blas import PRODUCT_DTYPES
from .routines.table import MAKERS, routine_of


class Computes:
    """Kernels in LLVM IR, and routines."""

    product_dtypes: tuple[np.dtype, ...] = PRODUCT_DTYPES

    def supports(self, graph: Graph, e: Equation) -> str:
        avals = avals_of(graph, e)
        reason = why_not_held(avals) or _why_elsewhere(avals)
        if reason or e.op.folds or e.op.moves == "parts":
            return reason
        return why_no_emitter(graph, e)

    def routine(self, graph: Graph, views: Mapping[int, View], e: Equation) -> Routine | str | None:
        return routine_of(graph, views, e) if e.op.name in MAKERS else None


def _why_elsewhere(avals) -> str:
    return next((f"it is on {a.device}" for a in avals if a.device != "cpu"), "")
