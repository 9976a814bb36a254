"""Scaled and accumulated products: α·a·b, and x + α·a·b in x's memory.

So a sum of many products (the gradient of a weight that is used often, say) takes one array. Only
products that nothing else reads are scaled or accumulated into.
"""

import math
from collections.abc import Collection

import numpy as np

from ...core.op import TABLE, Op
from ...graph.graph import Equation, Graph, Literal
from ..ir.gemm import ACCUMULATE, SCALED, is_product
from .rewriting import Builder, Replacement, rewrite


def _product(a, b, alpha: float = 1.0):
    return TABLE["matmul"].shape(a, b)


SCALED_PRODUCT = Op(
    SCALED,
    compute=lambda xp, a, b, alpha: xp.matmul(a, b) * alpha,
    shape=_product,
    rule=None,
    arity=2,
)
SUM_OF_PRODUCTS = Op(
    ACCUMULATE,
    compute=lambda xp, x, a, b, alpha: x + xp.matmul(a, b) * alpha,
    shape=lambda x, a, b, alpha: x,
    rule=None,
    arity=3,
)
PRODUCTS = ("matmul", SCALED)


def products(graph: Graph, dtypes: Collection[np.dtype]) -> Graph:
    """The graph with scales and sums fused into products.

    dtypes  those that the target multiplies
    """
    if not any(e.op.name == "matmul" for e in graph.equations):
        return graph

    def rule(b: Builder, e: Equation) -> Replacement:
        return (
            _scale_product(b, e, dtypes) if e.op.name == "multiply" else _add_product(b, e, dtypes)
        )

    return rewrite(graph, rule, ("multiply", "add"))


def _alone(
    b: Builder, x: "int | Literal", dtypes: Collection[np.dtype], *rows: str
) -> Equation | None:
    """The equation of one of these rows that computes x, if x is a product with one reader.

    Its result is then only x, with memory of its own.
    """
    made = b.made_by(x, *rows)
    if made is None or isinstance(x, Literal) or b.uses[x] > 1:
        return None
    return made if is_product(made, [b.aval(i) for i in made.inputs], dtypes) else None


def _scale_product(b: Builder, e: Equation, dtypes: Collection[np.dtype]) -> Replacement:
    """α·(a·b); not for α = 0: a routine may give zeros then, where 0·∞ is nan."""
    for x, number in (e.inputs, e.inputs[::-1]):
        made = _alone(b, x, dtypes, *PRODUCTS)
        if made is None or not isinstance(number, Literal) or b.aval(x) != _of(b, e):
            continue
        alpha = number.value * (made.static[0] if made.static else 1.0)
        if isinstance(number.value, (int, float)) and math.isfinite(alpha) and alpha:
            return (b.emit(SCALED_PRODUCT, *made.inputs, float(alpha)),)
    return None


def _add_product(b: Builder, e: Equation, dtypes: Collection[np.dtype]) -> Replacement:
    """x + α·a·b, where x is a product, or a sum of products."""
    for x, y in (e.inputs, e.inputs[::-1]):
        made = _alone(b, y, dtypes, *PRODUCTS)
        before = _alone(b, x, dtypes, *PRODUCTS, ACCUMULATE)
        if made is None or before is None or x == y:
            continue
        if b.aval(x) == b.aval(y):
            alpha = made.static[0] if made.static else 1.0
            return (b.emit(SUM_OF_PRODUCTS, x, *made.inputs, alpha),)
    return None


def _of(b: Builder, e: Equation):
    return b.graph.avals[e.outputs[0]]
