"""Max pooling moved before monotone rows, and sums over unpooled windows.

max_pool(relu(x)) = relu(max_pool(x)), over fewer elements. The tap that a window selects differs
only where the whole window is ≤ 0, and there the gradient is zero for any tap: so taps may change
if they only direct gradients that are cut off at x ≤ 0. And the sum of the numbers that windows put
into an array is the sum of the numbers.
"""

from collections import defaultdict

from ...graph.graph import Equation, Graph, Literal
from .rewriting import Builder, Replacement, rewrite


def pooling(graph: Graph) -> Graph:
    """The graph with relu after max_pool, and sums over windows' numbers."""
    swapped, gated = _find_pools(graph)
    pooled: dict[int, int] = {}  # by taps of the old graph: the largest elements before relu

    def rule(b: Builder, e: Equation) -> Replacement:
        if e.op.name == "max_pool" and e.outputs[1] in swapped:
            values, taps = b.emit(e.op, swapped[e.outputs[1]], *e.static)
            pooled[taps] = values
            return b.emit("relu", values), taps
        if e.op.name == "pool_put" and e.outputs[0] in gated:
            positive = b.emit("greater", pooled[e.inputs[1]], Literal(0))
            return (b.emit(e.op, b.emit("gate", e.inputs[0], positive), e.inputs[1], *e.static),)
        if e.op.name == "gate" and e.outputs[0] in gated:
            return (e.inputs[0],)
        return _sum(b, e) if e.op.name == "sum" else None

    return rewrite(graph, rule, {"max_pool", "pool_put", "gate", "sum"} if swapped else _PUT)


_PUT = {"sum"}


def _find_pools(graph: Graph) -> tuple[dict[int, int], set[int]]:
    """By taps, the array before relu of pools that may be swapped; and the values they gate.

    The latter are the results of `pool_put` and of the gates after them.
    """
    if not any(e.op.name == "max_pool" for e in graph.equations):
        return {}, set()
    made = {i: e for e in graph.equations for i in e.outputs}
    readers: dict[int, list[Equation]] = defaultdict(list)
    for e in graph.equations:
        for i in e.inputs:
            if not isinstance(i, Literal):
                readers[i].append(e)
    kept, swapped, gated = set(graph.outputs), {}, set()
    for e in graph.equations:
        before = made.get(e.inputs[0]) if e.op.name == "max_pool" else None
        if before is None or before.op.name != "relu" or e.outputs[1] in kept:
            continue
        after = _gates(e, before.inputs[0], made, readers, kept)
        if after is not None:
            swapped[e.outputs[1]] = before.inputs[0]
            gated |= after
    return swapped, gated


def _gates(pool: Equation, x: int, made: dict, readers: dict, kept: set[int]) -> set[int] | None:
    """What a pool's taps put and the gates after, if x > 0 gates all of it; None otherwise."""
    found: set[int] = set()
    for put in readers[pool.outputs[1]]:
        if put.op.name != "pool_put" or put.static != pool.static or put.outputs[0] in kept:
            return None
        for gate in readers[put.outputs[0]]:
            flag = made.get(gate.inputs[1]) if gate.op.name == "gate" else None
            if flag is None or gate.inputs[0] != put.outputs[0]:
                return None
            if flag.op.name != "greater" or flag.inputs != (x, Literal(0)):
                return None
            found |= {put.outputs[0], gate.outputs[0]}
    return found


def _sum(b: Builder, e: Equation) -> Replacement:
    """The sum of what windows put, over at least the axes that they slide along."""
    axes, keepdims = e.static
    put = b.made_by(e.inputs[0], "pool_put")
    if put is None or b.made_by(put.inputs[1], "max_pool") is None:
        return None
    kernel, _, padding, *_ = put.static
    rank = len(b.shape(e.inputs[0]))
    covered = set(range(rank - len(kernel), rank)) <= set(axes)
    inside = all(a <= 0 and c <= 0 for a, c in padding)
    if not covered or not inside:
        return None
    return (b.emit(e.op, put.inputs[0], axes, keepdims),)
