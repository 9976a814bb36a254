"""Masked cotangents: the branch that `where` does not take gets exact zeros, through compositions.

The pull-back of `where` sends a cotangent together with a mask of where it may differ from zero.
While a cotangent has a mask, its products with partials are set to zero outside of the mask by
`where`, even if the partial is infinite or NaN there. Inside they are bit for bit the unmasked
ones, and they are differentiable again, with the same mask. Rows that move elements move the mask
too. Contractions and other rows that mix elements drop it, and so does a sum with an unmasked
cotangent.
"""

from typing import Any

from ...core.backends import BACKENDS
from ...core.node import Leaf, Node
from ...core.op import MOVES, Jvp, LinearRule, Op, Partials
from ...core.types import Array
from ...core.value import HIGHER
from ...ops.batching import pointwise
from ...ops.elementwise import where
from ...ops.logic import logical_and, logical_not, logical_or, not_equal
from ...ops.structural import broadcast_to, cast, unbroadcast
from .rules import Parents, Patch, Pull, partial_terms, pull_linear, zero_cotangent


class Masked:
    """A cotangent that is zero where `open`, a boolean array of its shape, is false."""

    __slots__ = ("g", "open")
    g: Array
    open: Array

    def __init__(self, g: Array, open: Array):
        self.g, self.open = g, open


def close_mask(c: Array, open: Array) -> Array:
    """c, with an exact zero wherever the mask is false."""
    if c.__class__ in HIGHER or open.__class__ in HIGHER:
        return where(open, c, 0)
    return BACKENDS[c.__class__].zero_where_zero(c, open)


def _fit_mask(open, shape):
    """The mask of a cotangent that is summed over the axes along which it was broadcast."""
    return open if open.shape == shape else not_equal(unbroadcast(open, shape), 0)


def _part(c, open, parent):
    """A parent's cotangent with its mask; a leaf needs none."""
    return c if parent.__class__ is Leaf else Masked(c, _fit_mask(open, tuple(parent.shape)))


_pull_where = pull_linear(where.op.rule)  # type: ignore[arg-type]  # it is Linear


def pull_where(
    parents: Parents, node: Node, g: Array, saved: tuple[Any, ...], open: Array | None = None
) -> Any:
    """The cotangents of both branches, masked by the condition and by the mask of g."""
    found = _pull_where(parents, node, g, saved)
    taken = saved[1]
    if tuple(taken.shape) != tuple(node.shape):
        taken = broadcast_to(taken, tuple(node.shape))
    for i, p in ((1, parents[1]), (2, parents[2])):
        if p is not None and p.__class__ is not Leaf:
            own = taken if i == 1 else logical_not(taken)
            found[i] = _part(found[i], own if open is None else logical_and(own, open), p)
    return found


def _pull_partials(rule: Partials) -> Pull:
    """The masked pull-back of an elementwise row: products are masked before they are summed."""
    terms = partial_terms(rule)
    bounded = [not callable(d) for d in rule.d]

    def pull(parents, node, g, saved, open):
        found = []
        for term, constant, p in zip(terms, bounded, parents, strict=True):
            if p is None:
                found.append(None)
                continue
            c = term(node, g, saved)
            if c is None:  # the derivative is zero
                c = zero_cotangent(p, g)
            elif not constant:
                c = close_mask(c, open)
            found.append(_part(c if c.shape == p.shape else unbroadcast(c, p.shape), open, p))
        return found

    return pull


def _pull_pointwise(plain):
    """The masked pull-back of another pointwise row: its cotangents have the mask of g."""

    def pull(parents, node, g, saved, open):
        found = zip(plain(parents, node, g, saved), parents, strict=True)
        return [None if c is None or p is None else _part(c, open, p) for c, p in found]

    return pull


def _pull_closed(plain):
    """The masked pull-back of a pointwise row of one argument with a `Jvp` rule."""

    def pull(parents, node, g, saved, open):
        (c,), (p,) = plain(parents, node, g, saved), parents
        if p is None:
            return (None,)
        return (_part(zero_cotangent(p, g) if c is None else close_mask(c, open), open, p),)

    return pull


def _pull_moves(plain):
    """The masked pull-back of a row that moves elements: the mask is moved too, as numbers."""

    def pull(parents, node, g, saved, open):
        found = plain(parents, node, g, saved)
        further = tuple([None if p.__class__ is Leaf else p for p in parents])
        if further.count(None) == len(further):
            return found
        moved = plain(further, node, cast(open, node.dtype), saved)
        return [
            c if p is None else Masked(_whole(c, p), not_equal(_whole(m, p), 0))
            for c, m, p in zip(found, moved, further, strict=True)
        ]

    return pull


def _whole(c, parent):
    return c.whole(parent.shape) if c.__class__ is Patch else c


def masked_pull(op: Op, plain: Pull) -> Pull:
    """(parents, node, g, saved, open) -> cotangents, for a row whose plain pull-back is given."""
    rule = op.rule
    if op is where.op:
        return pull_where
    moves = op.moves in MOVES or op.moves == "sums"
    if op.pulls_mask or (moves and op.batch is not pointwise):
        return _pull_moves(plain)
    if isinstance(rule, Partials):
        return _pull_partials(rule)
    if op.batch is pointwise and isinstance(rule, LinearRule):
        return _pull_pointwise(plain)
    if op.batch is pointwise and isinstance(rule, Jvp) and op.arity == 1:
        return _pull_closed(plain)
    return lambda parents, node, g, saved, open: plain(parents, node, g, saved)


def join_mask(masks: dict[Leaf | Node, Array], node: Leaf | Node, c: Array | Masked) -> Array:
    """A further cotangent of a node, without its mask, which is united with the one in `masks`.

    An unmasked cotangent removes the node's mask.
    """
    have = masks.get(node)
    if c.__class__ is not Masked:
        if have is not None:
            masks[node] = None
        return c
    if have is BLANK:
        masks[node] = c.open
    elif have is not None:
        masks[node] = logical_or(have, c.open)
    return c.g


# The mask of a cotangent that is zero because the derivative is: the empty mask of a union.
BLANK = object()
