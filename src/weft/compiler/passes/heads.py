"""Attention whose results have all heads of a position side by side: (…, length, heads, width).

Networks concatenate heads that way, so the consumer reads them in place.
"""

from typing import Any

from ...core.aval import Aval
from ...core.op import TABLE, Op
from .rewriting import Builder


def _by_positions(a: Aval) -> Aval:
    *lead, heads, length, width = a.shape
    return a.like((*lead, length, heads, width))


def _attend_shape(*args: Any) -> tuple[Aval, Aval]:
    out, lse = TABLE["attention"].shape(*args)
    return _by_positions(out), lse


def _attend(xp: Any, *args: Any) -> tuple[Any, Any]:
    out, lse = xp.attention(*args)
    return out.swapaxes(-3, -2), lse


def gradient_shapes(*args: Any) -> tuple[Aval, ...]:
    """The shapes of the cotangents of queries, keys and values."""
    return tuple(map(_by_positions, TABLE["attention_gradient"].shape(*args)))


def gradients(xp: Any, *args: Any) -> tuple[Any, ...]:
    return tuple(d.swapaxes(-3, -2) for d in xp.attention_gradient(*args))


ATTENTION = Op(
    name="attention_by_positions",
    compute=_attend,
    shape=_attend_shape,
    rule=None,
    arity=5,
    outputs=2,
)

GRADIENT = Op(
    name="attention_gradient_by_positions",
    compute=gradients,
    shape=gradient_shapes,
    rule=None,
    arity=9,
    outputs=3,
)


def by_heads(b: Builder, x: int) -> int:
    """The result as the rows of the table have it: (…, heads, length, width)."""
    order = list(range(len(b.shape(x))))
    order[-3], order[-2] = order[-2], order[-3]
    return b.emit("permute", x, tuple(order))
