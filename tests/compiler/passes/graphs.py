"""Graphs for the tests of passes: traced, and as text without types."""

import re

import numpy as np

import weft as wf
from weft.graph.graph import Graph
from weft.graph.verify import verify
from weft.transform.modes.trace import trace_of

from ..schedules import by_rows, compare

X = np.linspace(-1.5, 2.0, 12, dtype=np.float32).reshape(3, 4)
Y = np.linspace(0.5, 3.0, 12, dtype=np.float32).reshape(3, 4)
ROW = np.linspace(-1.0, 1.0, 4, dtype=np.float32)


def traced(f, *arrays) -> Graph:
    """The graph of a function at some arrays."""
    return trace_of("f", f, [wf.asarray(a) for a in arrays], tuple).trace


def lines(graph: Graph) -> list[str]:
    """The equations and the outputs, without types; values are counted as they appear.

    v0, v1, … are the inputs and then the results, c0, c1, … the constants.
    """
    names = {f"v{i}": f"v{k}" for k, i in enumerate(graph.inputs)}
    for e in graph.equations:
        found = [i for i in e.inputs if i in graph.constants and f"v{i}" not in names]
        start = sum(name[0] == "c" for name in names.values())
        names |= {f"v{i}": f"c{start + k}" for k, i in enumerate(dict.fromkeys(found))}
        start = sum(name[0] == "v" for name in names.values())
        names |= {f"v{i}": f"v{start + k}" for k, i in enumerate(e.outputs)}
    text = [re.sub(r":\w+\[[\d,]*\]", "", line) for line in str(graph).splitlines()]
    text = [line for line in text if not line.startswith(("inputs", "const"))]
    return [re.sub(r"\bv\d+\b", lambda m: names[m[0]], line) for line in text]


def check(pass_, f, *arrays, before: list[str] | None = None, after: list[str]) -> Graph:
    """A pass makes of a function's graph what it should, of the same values, well formed."""
    graph = traced(f, *arrays)
    if before is not None:
        assert lines(graph) == before
    made = pass_(graph)
    verify(made)
    assert lines(made) == after, "\n".join(lines(made))
    compare(by_rows(made, arrays), by_rows(graph, arrays), units=16)
    return made
