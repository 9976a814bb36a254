"""Expansions of draws that compare or order random words."""

import numpy as np

from ...backend.shared import variates
from ...core import dtypes
from ...core.aval import Aval
from ...core.counter import POSITIONS, ReservedBlocks
from ...core.op import Op
from ...graph.graph import Literal
from .expand import expands
from .guard import prepared_row
from .rewriting import Builder


def _words(xp, state, shape, wide):
    """Random words, or pairs of them, in int64: a draw per stream."""
    lead, at = state.shape[:-1], xp.random_target("cpu")
    each = []
    for key, position, nonce in state.reshape((-1, 3)).tolist():
        draw = ReservedBlocks(key, nonce * POSITIONS + position)
        sizes = (*shape[:-1], 2 * shape[-1]) if wide else shape
        words = np.asarray(variates.bits(at, draw, sizes))
        each.append(words[..., ::2] | (words[..., 1::2] << 32) if wide else words)
    return np.stack(each).reshape((*lead, *shape))


def _shape(state: Aval, shape, wide) -> Aval:
    return state.like((*state.shape[:-1], *shape), dtypes.int64)


WORDS = Op(name="draw_words", compute=_words, shape=_shape, rule=None, arity=1)


@expands("draw_below_each")
def _below_each(b: Builder, state, threshold, shape):
    if isinstance(threshold, Literal):
        return None
    lead = b.shape(state)[:-1]
    own = b.shape(threshold)[len(lead) :]
    words = b.emit(WORDS, state, tuple(shape), False)
    aligned = (*lead, *(1,) * (len(shape) - len(own)), *own)
    if b.shape(threshold) != aligned:
        threshold = b.emit("reshape", threshold, aligned)
    return b.emit("less", b.emit("cast", words, dtypes.float64), threshold)


@expands("draw_order")
def _order(b: Builder, state, n):
    words = b.emit(WORDS, state, (n,), True)
    return b.emit(prepared_row("argsort"), words, len(b.shape(words)) - 1, False)
