"""Matrix products with a short inner axis, at which BLAS is slow, as rows of their own."""

from ....core.op import TABLE, Op
from ....graph.graph import Equation, Graph
from ...ir.gemm import sizes_of
from ...passes.rewriting import Builder, Replacement, rewrite
from ..blas import PRODUCT_DTYPES

# The most multiplications per element of the result, the least elements of the result,
# and the least length of its rows.
INNER, ELEMENTS, ROW = 8, 4096, 32

THIN = Op(
    name="thin_product",
    compute=lambda xp, a, b: xp.matmul(a, b),
    shape=lambda a, b: TABLE["matmul"].shape(a, b),
    rule=None,
    arity=2,
)


def thin(graph: Graph) -> Graph:
    """The graph with `thin_product` in place of some products."""

    def rule(b: Builder, e: Equation) -> Replacement:
        sizes = sizes_of(e, [b.aval(x) for x in e.inputs], PRODUCT_DTYPES)
        if sizes is None:
            return None
        m, k, n = sizes
        if k > INNER or m * n < ELEMENTS or n < ROW:
            return None
        return (b.emit(THIN, *e.inputs),)

    return rewrite(graph, rule, ("matmul",))
