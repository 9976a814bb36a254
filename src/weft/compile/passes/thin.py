"""Products of matrices with a short inner axis, at which BLAS is slow, as rows of their own."""

from ...core.op import TABLE, Op
from ...graph.graph import Equation, Graph, Literal
from ..gemm import is_product
from .rewriting import Builder, Replacement, rewritten

# So many multiplications for each element of the result at most, of which there are at least so
# many, in rows of at least so many.
INNER, ELEMENTS, ROW = 8, 4096, 32

THIN = Op(
    name="thin_product",
    compute=lambda xp, a, b: xp.matmul(a, b),
    shape=lambda a, b: TABLE["matmul"].shape(a, b),
    rule=None,
    arity=2,
)


def thin(graph: Graph) -> Graph:
    """The graph with `thin_product` in the place of some products."""

    def rule(b: Builder, e: Equation) -> Replacement:
        if any(isinstance(x, Literal) for x in e.inputs):
            return None
        avals = [b.aval(x) for x in e.inputs]
        if not is_product(e, avals) or [a.ndim for a in avals] != [2, 2]:
            return None
        (m, k), n = avals[0].shape, avals[1].shape[1]
        if k > INNER or m * n < ELEMENTS or n < ROW:
            return None
        return (b.emit(THIN, *e.inputs),)

    return rewritten(graph, rule, ("matmul",))
