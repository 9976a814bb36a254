"""The registry of a GPU's routines: makers by the names of their rows."""

from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from ....graph.graph import Equation, Graph, Literal
from ...ir.views import View
from .routine import GridRoutine

# From an equation and its operands' views: the routine, or the reason why there is none.
Maker = Callable[[Graph, Mapping[int, View], Equation], GridRoutine | str]
_MAKERS: dict[str, Maker] = {}
# The names of the rows that have routines.
ROWS: Collection[str] = _MAKERS.keys()
Function = TypeVar("Function", bound=Maker)


def grid(*rows: str) -> Callable[[Function], Function]:
    """Register a function as the maker of routines for rows.

    The arrays among an equation's inputs are the operands, in order; its outputs are the results.
    """

    def enter(function: Function) -> Function:
        _MAKERS.update(dict.fromkeys(rows, function))
        return function

    return enter


def readable(e: Equation, position: int, view: View) -> bool:
    """Whether the routine of an equation reads an input in place."""
    return view.contiguous


def routine_of(graph: Graph, views: Mapping[int, View], e: Equation) -> GridRoutine | str | None:
    """The routine of an equation, the reason why it has none, or None if its row has no routines.

    Devices do not matter.
    """
    maker = _MAKERS.get(e.op.name)
    if maker is None:
        return None
    for k, x in enumerate(e.inputs):
        if isinstance(x, Literal):
            return "its operands are Python's numbers"
        if not readable(e, k, views[x]):
            return "its operands are not laid out row by row"
    return maker(graph, views, e)
