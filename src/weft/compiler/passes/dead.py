"""Dead code elimination: equations and constants that no output and no other process needs."""

from ...graph.graph import Graph, Literal
from ...graph.structured import communicates


def dead(graph: Graph) -> Graph:
    """The graph without unused equations and constants; inputs stay, read or not."""
    live, kept = set(graph.outputs), []
    for e in reversed(graph.equations):
        if live.intersection(e.outputs) or communicates(e):
            kept.append(e)
            live.update(i for i in e.inputs if not isinstance(i, Literal))
    constants = {i: v for i, v in graph.constants.items() if i in live}
    return Graph(graph.avals, graph.inputs, constants, kept[::-1], graph.outputs)
