"""Common subexpression elimination: equal equations are computed once."""

from collections.abc import Hashable

import numpy as np

from ...core.exact import exact
from ...graph.graph import Equation, Graph, Literal
from ...graph.structured import communicates
from ..ir.repeated import stored_part
from .rewriting import Builder, Replacement, rewrite


def key_of(e: Equation) -> Hashable | None:
    """The key that equal equations share; None if the parameters cannot be compared."""
    key = e.op, e.inputs, e.static and exact(e.static)
    try:
        hash(key)
    except TypeError:  # a static parameter that is a list or an array
        return None
    return key


def common(graph: Graph) -> Graph:
    """The graph with one equation in place of equal ones, and one of equal constants."""
    found: dict[Hashable, tuple[int, ...]] = {}

    def rule(builder: Builder, e: Equation) -> Replacement:
        key = None if e.op.foreign or communicates(e) else key_of(e)
        if key is None:
            return None
        if key in found:
            return found[key]
        found[key] = e.outputs
        return None

    return rewrite(_merge_constants(graph), rule)


def _merge_constants(graph: Graph) -> Graph:
    """Merge constants with the same bytes, dtype and shape."""
    alike: dict[tuple, list[int]] = {}
    for i, value in graph.constants.items():
        if isinstance(value, np.ndarray):
            alike.setdefault((value.dtype, value.shape), []).append(i)
    same: dict[int, int] = {}
    for some in alike.values():
        if len(some) > 1:
            same |= _first_equal({i: graph.constants[i] for i in some})
    if all(i == j for i, j in same.items()):
        return graph

    def renamed(i):
        return i if isinstance(i, Literal) else same.get(i, i)

    equations = [e._replace(inputs=tuple(map(renamed, e.inputs))) for e in graph.equations]
    constants = {i: v for i, v in graph.constants.items() if same.get(i, i) == i}
    outputs = [same.get(i, i) for i in graph.outputs]
    return Graph(graph.avals, graph.inputs, constants, equations, outputs)


def _first_equal(constants: dict[int, np.ndarray]) -> dict[int, int]:
    """The first of the constants with the same bytes as each, all of one dtype and shape."""
    stored = {i: stored_part(x) for i, x in constants.items()}
    if len({x.shape for x in stored.values()}) > 1:
        stored = constants
    first: dict[bytes, int] = {}
    return {i: first.setdefault(x.tobytes(), i) for i, x in stored.items()}
