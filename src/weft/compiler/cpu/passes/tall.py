"""Products with a long inner axis and few elements, cut along it, so that threads can share them.

Tiles of the result are too few for that. The parts are products of their own, one for each index
of a batch, and are summed up: the same bits for any number of threads.
"""

from ....graph.graph import Equation, Graph
from ...ir.gemm import sizes_of
from ...passes.rewriting import Builder, Replacement, rewritten

# The result's sides are at most this; a part has at least so many terms, and so many
# multiplications and additions; and there are at most so many parts.
SIDE, TERMS, FLOPS, PARTS = 64, 256, 1 << 21, 16


def tall(graph: Graph) -> Graph:
    """The graph with sums of parts in the place of some products."""

    def rule(b: Builder, e: Equation) -> Replacement:
        sizes = sizes_of(e, [b.aval(x) for x in e.inputs])
        if sizes is None:
            return None
        m, k, n = sizes
        parts = parts_of(m, n, k)
        if parts == 1:
            return None
        cut = b.emit("reshape", e.inputs[0], (m, parts, k // parts))
        left = b.emit("permute", cut, (1, 0, 2))
        right = b.emit("reshape", e.inputs[1], (parts, k // parts, n))
        return (b.emit("sum", b.emit("matmul", left, right), (0,), False),)

    return rewritten(graph, rule, ("matmul",))


def parts_of(m: int, n: int, k: int) -> int:
    """How many parts a product of m×k×n has: they are of one length."""
    if not 1 < min(m, n) <= max(m, n) <= SIDE:
        return 1
    most = min(PARTS, k // TERMS, 2 * m * n * k // FLOPS)
    return next((p for p in range(most, 1, -1) if k % p == 0), 1)
