"""Which rows a GPU computes in kernels, for which dtypes, and which calls of others may fail."""

from functools import lru_cache

import numpy as np

from ...core import dtypes
from ...core.op import TABLE, Op
from ...graph.graph import Equation, Graph
from ..emit.code import LLModule
from ..emit.convert import register_type
from ..emit.equations import avals_of, operands_of, why_no_emitter, why_not_held
from ..emit.scalar import MIXED, Static, TypedValue, emit, working_dtype
from .ptx import FEATURES, why_no_ptx

# Those in which matrix products are steps of their own.
PRODUCT_DTYPES = (dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.float16)
# Rows whose calls look at values on the host, and may raise an error for them.
CHECKED = frozenset(
    {
        *("inv", "solve", "triangular_solve", "pinv", "det", "slogdet", "invertible", "cholesky"),
        *("qr", "lu", "expm", "sqrtm", "eigh", "eigvalsh", "eig", "eigvals", "svd", "svdvals"),
        *("logm", "sylvester", "adjugate", "adjugate_tangent", "matrix_rank", "bincount"),
        *("flatnonzero", "unique_values", "unique_all"),
    }
)


def supports(graph: Graph, e: Equation) -> str:
    """Why kernels on a GPU do not compute an equation; empty if they do. Devices do not matter."""
    reason = why_not_held(avals_of(graph, e))
    if reason or e.op.folds or e.op.moves == "parts":
        return reason
    reason = why_no_emitter(graph, e)
    if reason or e.op.name in MIXED:
        return reason
    dtype = graph.avals[e.outputs[0]].dtype
    return why_no_row(e.op.name, e.static, working_dtype(e.op, operands_of(graph, e), dtype))


@lru_cache(maxsize=None)
def why_no_row(row: str, static: Static, working: np.dtype) -> str:
    """Why a row that has an emitter has no form in PTX; empty if it has one."""
    module, arity = LLModule("", FEATURES), TABLE[row].arity
    assert arity is not None
    code = module.function("void", [register_type(working)] * arity, "row")
    emit(code, row, [TypedValue(x, working) for x in code.parameters], static, working)
    return why_no_ptx(module)


def library_fails(op: Op) -> bool:
    """Whether a library call of a row may raise an error: others are only launched."""
    return op.foreign or op.name in CHECKED
