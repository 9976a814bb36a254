"""The narrowest cut of a program: a smallest set of values that all derivatives pass through.

Values of a cut may depend on each other. x/s with s = |x| is narrow only if both s and what is
computed from x/s are in the cut. So a product of derivatives at a cut treats its values as
independent variables on the side of the outputs.
"""

from collections.abc import Hashable, Iterable
from math import prod
from typing import TypeVar

import numpy as np

from ...core.dtypes import is_complex
from ...graph.graph import Equation, Literal
from ...graph.symbol import Trace
from ..modes.trace import differentiable_outputs

V = TypeVar("V", bound=Hashable)
_MOST_EQUATIONS = 20_000  # beyond this the search would cost more than it can save
ENDLESS = 2**29


def narrowest_cut(trace: Trace, equations: list[Equation]) -> tuple[list[int], int]:
    """The values of a minimum cut between a trace's inputs and outputs, and their total size."""
    sizes = {i: _capacity(trace, i) for i in trace.inputs}
    if len(equations) > _MOST_EQUATIONS:
        return list(sizes), sum(sizes.values())
    arcs = []
    for e in equations:
        moving = [i for i in set(e.inputs) if i.__class__ is not Literal and i in sizes]
        for o in differentiable_outputs(trace, e):
            sizes[o] = _capacity(trace, o)
            arcs += [(i, o) for i in moving]
    cut = minimum_cut(sizes, arcs, trace.inputs, [i for i in trace.outputs if i in sizes])
    return cut, sum(sizes[v] for v in cut)


def _capacity(trace: Trace, i: int) -> int:
    """The elements of a value; complex ones, which real seeds do not span, are never cut."""
    aval = trace.avals[i]
    return ENDLESS if is_complex(aval.dtype) else min(prod(aval.shape), ENDLESS)


def separates(trace: Trace, equations: list[Equation], cut: Iterable[int]) -> bool:
    """Whether every path from a trace's inputs to its outputs goes through a value of the cut."""
    cut = set(cut)
    beyond = set(trace.inputs) - cut
    for e in equations:
        if not beyond.isdisjoint(e.inputs):
            beyond.update(set(differentiable_outputs(trace, e)) - cut)
    return beyond.isdisjoint(trace.outputs)


def minimum_cut(
    sizes: dict[V, int], arcs: Iterable[tuple[V, V]], sources: Iterable[V], sinks: Iterable[V]
) -> list[V]:
    """A smallest set of vertices, by total size, on every path from sources to sinks.

    It is found by maximum flow: each vertex is an arc whose capacity is its size.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_flow

    number = {v: k for k, v in enumerate(sizes)}
    source, sink = 2 * len(number), 2 * len(number) + 1
    through = [(2 * k, 2 * k + 1, sizes[v]) for v, k in number.items()]
    through += [(source, 2 * number[v], ENDLESS) for v in set(sources)]
    through += [(2 * number[v] + 1, sink, ENDLESS) for v in set(sinks)]
    through += [(2 * number[a] + 1, 2 * number[b], ENDLESS) for a, b in set(arcs)]
    tail, head, capacity = map(np.array, zip(*through, strict=True))
    network = csr_array((capacity.astype(np.int32), (tail, head)), (sink + 1, sink + 1))
    flow = maximum_flow(network, source, sink).flow
    reached = _reachable(network - flow, source)
    return [v for v, k in number.items() if reached[2 * k] and not reached[2 * k + 1]]


def _reachable(residual, source: int) -> np.ndarray:
    """Which vertices can be reached from the source through arcs with capacity left."""
    from scipy.sparse.csgraph import breadth_first_order

    residual.data = np.where(residual.data > 0, residual.data, 0)
    residual.eliminate_zeros()
    found = np.zeros(residual.shape[0], bool)
    found[breadth_first_order(residual, source, return_predecessors=False)] = True
    return found
