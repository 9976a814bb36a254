"""The rules of a well-formed graph; tests check them after every pass that changes one."""

from ..core.aval import Aval
from ..core.backends import PYTHON_SCALARS
from ..core.value import aval_of
from .graph import Equation, Graph, Literal
from .structured import inner_graphs


class MalformedGraph(AssertionError):
    """A graph that breaks a rule: a defect of this package, never of the user's program."""


def verify(graph: Graph) -> None:
    """Raise `MalformedGraph` unless every rule holds.

    Each value is assigned once and before its use; every equation's types are those that the
    row's shape rule infers; inputs, constants and outputs are values of the graph. The same holds
    for the bodies of loops and branches.
    """
    known: set[int] = set()
    for i in (*graph.inputs, *graph.constants):
        _assign(graph, known, i, "an input or constant")
    for i, value in graph.constants.items():
        if aval_of(value) != graph.avals[i]:
            raise MalformedGraph(f"constant v{i} is {aval_of(value)}, typed {graph.avals[i]}")
    for e in graph.equations:
        _check_equation(graph, known, e)
        for body in inner_graphs(e.static):
            verify(body)
        for i in e.outputs:
            _assign(graph, known, i, e.op.name)
    for i in graph.outputs:
        if i not in known:
            raise MalformedGraph(f"output v{i} is never assigned")


def _assign(graph: Graph, known: set[int], i: int, by: str) -> None:
    if not 0 <= i < len(graph.avals):
        raise MalformedGraph(f"{by} assigns v{i}, of {len(graph.avals)} values")
    if i in known:
        raise MalformedGraph(f"{by} assigns v{i} a second time")
    known.add(i)


def _check_equation(graph: Graph, known: set[int], e: Equation) -> None:
    avals = []
    for i in e.inputs:
        if isinstance(i, Literal):
            if type(i.value) not in PYTHON_SCALARS:
                raise MalformedGraph(f"{e.op.name}: a {type(i.value).__name__} as a literal")
            avals.append(aval_of(i.value))
        elif i not in known:
            raise MalformedGraph(f"{e.op.name} uses v{i} before it is assigned")
        else:
            avals.append(graph.avals[i])
    if e.op.arity is not None and len(e.inputs) != e.op.arity:
        raise MalformedGraph(f"{e.op.name}: {len(e.inputs)} operands, expected {e.op.arity}")
    if len(e.outputs) != e.op.outputs:
        raise MalformedGraph(f"{e.op.name}: {len(e.outputs)} results, expected {e.op.outputs}")
    inferred = e.op.call(e.op.shape, avals, e.static)
    inferred = inferred if isinstance(inferred, tuple) else (inferred,)
    for i, aval in zip(e.outputs, inferred, strict=True):
        if not _fits(aval, graph.avals[i]):
            raise MalformedGraph(f"{e.op.name}: v{i} is typed {graph.avals[i]}, inferred {aval}")


def _fits(inferred: Aval, typed: Aval) -> bool:
    """Whether two avals are equal, where -1 stands for a length that depends on values."""
    if inferred.dtype != typed.dtype or len(inferred.shape) != len(typed.shape):
        return False
    return all(a in (b, -1) for a, b in zip(inferred.shape, typed.shape, strict=True))
