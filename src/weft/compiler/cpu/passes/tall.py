"""Split products with a long inner axis and a small result, so that threads can share them.

Tiles of the result are too few for that. The parts are products of their own, one for each index of
a batch, and are summed: the same bits for any number of threads.
"""

from ....graph.graph import Equation, Graph
from ...ir.gemm import sizes_of
from ...passes.rewriting import Builder, Replacement, rewrite
from ..blas import PRODUCT_DTYPES

# The longest side of the result; the least terms of a part, the least flops of a part,
# and the most parts.
SIDE, TERMS, FLOPS, PARTS = 64, 256, 1 << 21, 16


def tall(graph: Graph) -> Graph:
    """The graph with sums of parts in place of some products."""

    def rule(b: Builder, e: Equation) -> Replacement:
        sizes = sizes_of(e, [b.aval(x) for x in e.inputs], PRODUCT_DTYPES)
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

    return rewrite(graph, rule, ("matmul",))


def parts_of(m: int, n: int, k: int) -> int:
    """The number of parts of a product m×k×n; they have equal length."""
    if not 1 < min(m, n) <= max(m, n) <= SIDE:
        return 1
    most = min(PARTS, k // TERMS, 2 * m * n * k // FLOPS)
    return next((p for p in range(most, 1, -1) if k % p == 0), 1)
