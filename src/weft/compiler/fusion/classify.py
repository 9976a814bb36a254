"""What each equation lowers to: part of a kernel, a matrix product, a view, a library call."""

from enum import Enum

from ...graph.graph import Equation, Graph, Literal
from ..ir.gemm import ACCUMULATE, is_product
from ..ir.views import View
from ..target import Computing


class UnitKind(Enum):
    """What an equation lowers to."""

    POINT = "elementwise, in a kernel"
    FOLD = "a fold, in a kernel"
    PRODUCT = "a product of matrices"
    PARTS = "arrays side by side"
    GUARD = "a check"
    VIEW = "other strides of the same memory"
    NATIVE = "a routine"
    LIBRARY = "the backend's kernel"


def kind_of(
    graph: Graph, views: dict[int, View], e: Equation, target: Computing
) -> tuple[UnitKind, str]:
    """What an equation lowers to; for a library call, also the reason."""
    avals = [graph.avals[i] for i in e.inputs if not isinstance(i, Literal)]
    if e.op.name == "guard":
        return UnitKind.GUARD, ""
    if e.op.name == ACCUMULATE:
        return UnitKind.PRODUCT, ""
    if views[e.outputs[0]].root != e.outputs[0]:
        return UnitKind.VIEW, ""
    if len(avals) == len(e.inputs) and is_product(e, avals, target.product_dtypes):
        return UnitKind.PRODUCT, ""
    routine = target.routine(graph, views, e)
    if routine is not None:
        return (UnitKind.LIBRARY, routine) if isinstance(routine, str) else (UnitKind.NATIVE, "")
    reason = target.supports(graph, e)
    if reason:
        return UnitKind.LIBRARY, reason
    if e.op.folds:
        return (
            (UnitKind.FOLD, "") if _folds(avals[0], e) else (UnitKind.LIBRARY, "a fold of nothing")
        )
    return _parts(graph, e) if e.op.moves == "parts" else (UnitKind.POINT, "")


def _folds(x, e: Equation) -> bool:
    sizes = [x.shape[a] for a in e.static[0]]
    return any(n != 1 for n in sizes) and not (0 in sizes and e.op.folds in ("max", "min"))


def _parts(graph: Graph, e: Equation) -> tuple[UnitKind, str]:
    """Concatenation: parts that have the dtype of the whole are copied by kernels."""
    own = graph.avals[e.outputs[0]].dtype
    plain = all(not isinstance(i, Literal) and graph.avals[i].dtype == own for i in e.inputs)
    return (UnitKind.PARTS, "") if plain else (UnitKind.LIBRARY, "its parts are of several dtypes")
