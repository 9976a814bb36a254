"""What becomes of each equation: part of a kernel, a matrix product, a view, a library call."""

from enum import Enum

import numpy as np

from ...core import dtypes
from ...graph.graph import Equation, Graph, Literal
from ..cpu.routines.table import MAKERS, routine_of
from ..emit.convert import SUPPORTED, is_float
from ..emit.integers import BOOLEAN
from ..emit.integers import EMITTERS as INTEGER
from ..emit.reals import EMITTERS as REAL
from ..emit.scalar import MIXED, Number, has_emitter, working_dtype
from ..ir.gemm import ACCUMULATE, is_product
from ..ir.views import View


class Kind(Enum):
    """What an equation becomes."""

    POINT = "elementwise, in a kernel"
    FOLD = "a fold, in a kernel"
    PRODUCT = "a product of matrices"
    PARTS = "arrays side by side"
    GUARD = "a check"
    VIEW = "other strides of the same memory"
    NATIVE = "a routine"
    LIBRARY = "the backend's kernel"


# The folds by their rows.
FOLDS = {"sum": "sum", "mean": "mean", "prod": "prod", "amax": "max", "amin": "min"}
FOLDS |= {"any": "any", "all": "all"}
PARTS = ("concat", "stack", "unslice", "slice_set", "pad")


def kind_of(graph: Graph, views: dict[int, View], e: Equation) -> tuple[Kind, str]:
    """What an equation becomes; and of a library call, why."""
    avals = [graph.avals[i] for i in e.inputs if not isinstance(i, Literal)]
    out = graph.avals[e.outputs[0]]
    if e.op.name == "guard":
        return Kind.GUARD, ""
    if e.op.name == ACCUMULATE:
        return Kind.PRODUCT, ""
    if views[e.outputs[0]].root != e.outputs[0]:
        return Kind.VIEW, ""
    if len(avals) == len(e.inputs) and is_product(e, avals):
        return Kind.PRODUCT, ""
    if e.op.name in MAKERS:
        made = routine_of(graph, views, e)
        return (Kind.LIBRARY, made) if isinstance(made, str) else (Kind.NATIVE, "")
    reason = _unsupported([*avals, out])
    if reason:
        return Kind.LIBRARY, reason
    if e.op.name in FOLDS:
        return (Kind.FOLD, "") if _folds(avals[0], e) else (Kind.LIBRARY, "a fold of nothing")
    if e.op.name in PARTS:
        return _parts(graph, e)
    if not has_emitter(e.op.name):
        return Kind.LIBRARY, "no kernel computes it"
    reason = _no_emitter(graph, e, out.dtype)
    return (Kind.LIBRARY, reason) if reason else (Kind.POINT, "")


def _unsupported(avals) -> str:
    for a in avals:
        if a.dtype not in SUPPORTED:
            return f"kernels do not hold {a.dtype}"
        if a.device != "cpu":
            return f"it is on {a.device}"
    return ""


def _folds(x, e: Equation) -> bool:
    sizes = [x.shape[a] for a in e.static[0]]
    return any(n != 1 for n in sizes) and not (0 in sizes and e.op.name in ("amax", "amin"))


def _parts(graph: Graph, e: Equation) -> tuple[Kind, str]:
    """Parts that have the dtype of the whole are copied by kernels."""
    own = graph.avals[e.outputs[0]].dtype
    plain = all(not isinstance(i, Literal) and graph.avals[i].dtype == own for i in e.inputs)
    return (Kind.PARTS, "") if plain else (Kind.LIBRARY, "its parts are of several dtypes")


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
