"""Attention for native code: results with all heads of a position side by side.

For one projection to queries, keys and values, the gradients are the parts of one array.
"""

import numpy as np

from ....core import dtypes
from ....core.op import Op
from ....graph.graph import Literal
from ...passes.expand import Expansion
from ...passes.heads import ATTENTION, GRADIENT, by_heads, gradient_shapes, gradients
from ...passes.rewriting import Builder
from ..routines.heads import NATIVE


def _wide(b: Builder, *arrays):
    """Half types in float32, as the backend computes them."""
    return [
        b.emit("cast", x, dtypes.float32)
        if not isinstance(x, Literal) and b.dtype(x) in dtypes.HALF
        else x
        for x in arrays
    ]


def _is_native(b: Builder, q, k, v, mask, seeds, p) -> bool:
    """Whether there is a routine for these dtypes."""
    if p and (isinstance(seeds, Literal) or b.dtype(seeds) != dtypes.int64 or p >= 1):
        return False
    arrays = [x for x in (q, k, v, mask) if not isinstance(x, Literal)]
    known = [b.dtype(x) in NATIVE for x in (q, k, v)]
    kinds = {b.dtype(x) for x in arrays} - {dtypes.bool_}
    plain = mask.value is True if isinstance(mask, Literal) else True
    return all(known) and len(kinds) == 1 and plain


def _attention(b: Builder, q, k, v, mask, seeds, causal, scale, p, dtype):
    q, k, v, mask = _wide(b, q, k, v, mask)
    if not _is_native(b, q, k, v, mask, seeds, p):
        return None
    args = (causal, float(scale), float(p), b.dtype(q))
    out, lse = b.emit(ATTENTION, q, k, v, mask, seeds if p else Literal(0), *args)
    return by_heads(b, out), lse


def _together_shape(*args):
    first, *_ = gradient_shapes(*args)
    *lead, heads, width = first.shape
    return first.like((*lead, 3, heads, width))


TOGETHER = Op(
    name="attention_gradient_together",
    compute=lambda xp, *args: np.stack(gradients(xp, *args), -3),
    shape=_together_shape,
    rule=None,
    arity=9,
)


def _attention_gradient(b: Builder, g, h, out, lse, q, k, v, mask, seeds, causal, scale, p):
    g, h, out, lse, q, k, v, mask = _wide(b, g, h, out, lse, q, k, v, mask)
    if not _is_native(b, q, k, v, mask, seeds, p) or not _alike(b, g, h, out, lse, q):
        return None
    args = (g, h, out, lse, q, k, v, mask, seeds if p else Literal(0))
    args += (causal, float(scale), float(p))
    made = GRADIENT.shape(*map(b.aval, args[:9]), *args[9:])
    if len({a.shape for a in made}) > 1:
        return tuple(by_heads(b, d) for d in b.emit(GRADIENT, *args))
    whole = b.emit(TOGETHER, *args)
    *sizes, _, heads, width = b.shape(whole)
    index = [(0, n, 1) for n in sizes]
    parts = [(*index, i, (0, heads, 1), (0, width, 1)) for i in range(3)]
    return tuple(by_heads(b, b.emit("slice_", whole, part)) for part in parts)


def _alike(b: Builder, g, h, out, lse, q) -> bool:
    """Whether all cotangents are arrays of one dtype; that of the logarithms may be zero."""
    none = isinstance(h, Literal)
    if (none and h.value != 0) or any(isinstance(x, Literal) for x in (g, out, lse)):
        return False
    arrays = (g, out, lse, q) if none else (g, h, out, lse, q)
    return len({b.dtype(x) for x in arrays}) == 1


EXPANSIONS: dict[str, Expansion] = {
    "attention": _attention,
    "attention_gradient": _attention_gradient,
}
