"""The registry of routines: makers by the names of their rows."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from ....graph.graph import Equation, Graph, Literal
from ...ir.views import View
from .routine import GridRoutine

# From an equation and its operands' views: the routine, or the reason why there is none.
Maker = Callable[[Graph, Mapping[int, View], Equation], GridRoutine | str]
MAKERS: dict[str, Maker] = {}
Function = TypeVar("Function", bound=Maker)


def grid(*rows: str) -> Callable[[Function], Function]:
    """Register a function as the maker of routines for rows."""

    def enter(function: Function) -> Function:
        MAKERS.update(dict.fromkeys(rows, function))
        return function

    return enter


def readable(e: Equation, position: int, view: View) -> bool:
    """Whether the routine of an equation reads an input in place."""
    return view.contiguous


def routine_of(graph: Graph, views: Mapping[int, View], e: Equation) -> GridRoutine | str | None:
    """The routine of an equation, or why there is none; None for a row without routines."""
    maker = MAKERS.get(e.op.name)
    if maker is None:
        return None
    for k, x in enumerate(e.inputs):
        if not isinstance(x, Literal) and not readable(e, k, views[x]):
            return "its operands are not laid out row by row"
    return maker(graph, views, e)
