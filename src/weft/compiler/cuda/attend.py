"""Attention for a GPU: results with all heads of a position side by side.

PyTorch's kernels give results in the order of the queries' memory. So this is for queries that are
parts of one projection, with their axes swapped. What these kernels do not take (dropout) stays
the row that it is. Masks and groups of heads are the same to them: see `backend.torch.attention`.
"""

from typing import Any

from ...core import dtypes
from ...core.op import Op
from ...graph.graph import Literal
from ..passes.expand import Expansion
from ..passes.heads import ATTENTION, GRADIENT, by_heads
from ..passes.rewriting import Builder

_DTYPES = (*dtypes.HALF, dtypes.float32)


def _is_plain(b: Builder, q: Any, *others: Any, p: float) -> bool:
    """Whether there are kernels for a call, as far as that is known here, on such queries."""
    arrays = (q, *others)
    if p or any([isinstance(x, Literal) for x in arrays]):
        return False
    turned = b.made_by(q, "permute")
    if turned is None:
        return False
    *_, heads, length, _width = turned.static[0]
    return length < heads and {b.dtype(x) for x in arrays} <= set(_DTYPES)


def _attention(b: Builder, q, k, v, mask, seeds, *static):
    if not _is_plain(b, q, k, v, p=static[2]):
        return None
    out, lse = b.emit(ATTENTION, q, k, v, mask, seeds, *static)
    return by_heads(b, out), lse


def _attention_gradient(b: Builder, g, h, out, lse, q, k, v, mask, seeds, *static):
    if not _is_plain(b, q, k, v, g, out, lse, p=static[2]):
        return None
    made = b.emit(GRADIENT, g, h, out, lse, q, k, v, mask, seeds, *static)
    return tuple(by_heads(b, d) for d in made)


EXPANSIONS: dict[str, Expansion] = {
    "attention": _attention,
    "attention_gradient": _attention_gradient,
}


def derived(row: str) -> Op:
    """The row that one of the table's becomes here."""
    return {"attention": ATTENTION, "attention_gradient": GRADIENT}[row]
