"""The registry of routines: makers by the names of their rows."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from ....graph.graph import Equation, Graph, Literal
from ...ir.views import View
from .routine import NativeRoutine

# From an equation and its operands' views: the routine, or the reason why there is none.
Maker = Callable[[Graph, Mapping[int, View], Equation], NativeRoutine | str]
MAKERS: dict[str, Maker] = {}
# By rows: whether an operand may be a strided view. Others are copied first if not contiguous.
Taste = Callable[[Equation, int, View], bool]
STRIDED: dict[str, Taste] = {}
Function = TypeVar("Function", bound=Maker)


def native(*rows: str, strided: Taste | None = None) -> Callable[[Function], Function]:
    """Register a function as the maker of routines for rows.

    The arrays among an equation's inputs are the operands, in order; its outputs are the results.
    `strided(equation, position, view)`: whether the routine reads that input in place.
    """

    def enter(function: Function) -> Function:
        MAKERS.update(dict.fromkeys(rows, function))
        if strided is not None:
            STRIDED.update(dict.fromkeys(rows, strided))
        return function

    return enter


def readable(e: Equation, position: int, view: View) -> bool:
    """Whether the routine of an equation reads an input in place."""
    taste = STRIDED.get(e.op.name)
    return view.contiguous if taste is None else taste(e, position, view)


def routine_of(graph: Graph, views: Mapping[int, View], e: Equation) -> NativeRoutine | str:
    """The routine that computes an equation; otherwise the reason why there is none."""
    maker = MAKERS.get(e.op.name)
    if maker is None:
        return "no kernel computes it"
    for k, x in enumerate(e.inputs):
        if isinstance(x, Literal):
            continue
        if graph.avals[x].device != "cpu":
            return f"it is on {graph.avals[x].device}"
        if not readable(e, k, views[x]):
            return "its operands are not laid out row by row"
    return maker(graph, views, e)
