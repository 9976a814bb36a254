"""Products in half precision whose rows begin at odd addresses: padded to whole accesses.

Tensor cores are fed by accesses of 16 bytes. Where the rows of a matrix are not a multiple of that,
a product takes several times as long, so its operands are padded with zeros, and the result is a
part of a larger one.
"""

from math import prod

from ...core import dtypes
from ...graph.graph import Equation, Graph
from ..ir.gemm import is_product
from ..passes.rewriting import Builder, Replacement, rewrite

# Numbers of an access; the least length that is padded, and the least flops of the product.
ACCESS, LENGTH, FLOPS = 8, 256, 1 << 33


def pad_products(graph: Graph) -> Graph:
    """The graph with padded operands of some products."""
    return rewrite(graph, _pad, ("matmul",))


def _pad(b: Builder, e: Equation) -> Replacement:
    left, right = e.inputs
    avals = [b.aval(x) for x in e.inputs]
    if not is_product(e, avals, dtypes.HALF) or avals[0].ndim < 2 or avals[1].ndim != 2:
        return None
    *lead, m, k = avals[0].shape
    n = avals[1].shape[1]
    if 2 * prod(lead) * m * k * n < FLOPS:
        return None
    if lead:  # as one matrix, which other products may read, too
        m = prod(lead) * m
        source = b.made_by(left, "reshape")
        same = source is not None and b.shape(source.inputs[0]) == (m, k)
        left = source.inputs[0] if source and same else b.emit("reshape", left, (m, k))
    across = [_turned(b, x) is not None for x in (left, right)]
    rows = _missing(m) if across[0] else 0
    terms = _missing(k) if not across[0] or across[1] else 0
    columns = _missing(n)
    if not rows + terms + columns:
        return None
    made = b.emit("matmul", _padded(b, left, rows, terms), _padded(b, right, terms, columns))
    made = b.emit("slice_", made, ((0, m, 1), (0, n, 1))) if rows + columns else made
    return (b.emit("reshape", made, (*avals[0].shape[:-1], n)) if lead else made,)


def _missing(n: int) -> int:
    """How many numbers a row lacks."""
    return -n % ACCESS if n >= LENGTH else 0


def _turned(b: Builder, x: int) -> int | None:
    """The matrix whose transpose an operand is."""
    e = b.made_by(x, "permute")
    return e.inputs[0] if e is not None and e.static[0] == (1, 0) else None


def _padded(b: Builder, x: int, below: int, behind: int) -> int:
    """A matrix with zeros below its rows and behind its columns; a transpose stays one."""
    if not below + behind:
        return x
    source = _turned(b, x)
    if source is not None:
        return b.emit("permute", _padded(b, source, behind, below), (1, 0))
    return b.emit("pad", x, ((0, below), (0, behind)), 0)
