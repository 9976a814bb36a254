"""Rows: random numbers as functions of a stream's key and counter, for compiled programs.

The first argument is (key, position, nonce) as uint64, or several of them: a draw for each. Eager
draws call the same functions of `backend.variates` without going through a row.
"""

from collections.abc import Callable

import numpy as np

from ..backend.shared import variates
from ..core import dtypes
from ..core.aval import Aval, broadcast
from ..core.counter import POSITIONS, WORDS_PER_BLOCK, ReservedBlocks
from ..core.op import Caller
from ..core.types import Array, Namespace, Raw
from ..errors import ShapeError
from .batching import spread
from .elementwise import add
from .rows import row_without_derivative
from .samples import draws as samples


def _draw(words: list[int]) -> ReservedBlocks:
    key, position, nonce = words
    return ReservedBlocks(key, nonce * POSITIONS + position)


def _draw_each(
    xp: Namespace, state: Raw, sizes: tuple[int, ...], dtype: np.dtype, one: Callable[..., Raw]
) -> Raw:
    """`one(target, draw, k)` for the state, or for each of several in turn."""
    at, lead = xp.random_target(xp.device_of(state)), tuple(state.shape[:-1])
    streams = state.reshape((-1, 3)).tolist()
    if not streams:
        return xp.full((*lead, *sizes), 0, dtype, xp.device_of(state))
    each = [one(at, _draw(words), k) for k, words in enumerate(streams)]
    return xp.stack(each, 0).reshape((*lead, *sizes)) if lead else each[0]


def state_after(state: Array, words: int) -> Array:
    """The state of a stream after a draw of `words` words."""
    blocks = -(-words // WORDS_PER_BLOCK)
    return add(state, np.array([0, blocks, 0], np.uint64))


def _sizes(shape) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _batch(call, size, mapped, args, static):
    """Each element has its own stream, so they are drawn one by one."""
    parts = [a if m else spread(a, size) for a, m in zip(args, mapped, strict=True)]
    return call(*parts, *static)


def _check(name: str, state: Aval) -> None:
    if state.shape[-1:] != (3,) or state.dtype != dtypes.uint64:
        raise ShapeError(
            f"{name}: streams' states of {state.dtype}{list(state.shape)}, expected uint64[…, 3]"
        )


def _row(name: str, make, dtype=None):
    """A row that computes `make(target, draw, shape, …)`; dtype None: the next parameter."""

    def compute(xp, state, shape, *how):
        kind = how[0] if dtype is None else dtype
        sizes = _sizes(shape)
        return _draw_each(xp, state, sizes, kind, lambda at, draw, _: make(at, draw, shape, *how))

    def shape(state: Aval, shape, *how) -> Aval:
        _check(name, state)
        sizes = (*state.shape[:-1], *_sizes(shape))
        return state.like(sizes, how[0] if dtype is None else dtype)

    return row_without_derivative(
        name, shape=shape, compute=compute, batch=_batch, sample=samples(name)
    )


draw_uniform: Caller = _row("draw_uniform", variates.uniform)
draw_normal: Caller = _row("draw_normal", variates.normal)
draw_integers: Caller = _row("draw_integers", variates.integers)
draw_below: Caller = _row("draw_below", variates.below, dtypes.bool_)
draw_order: Caller = _row("draw_order", variates.order, dtypes.int64)


def _below_each_shape(state: Aval, threshold: Aval, shape) -> Aval:
    _check("draw_below_each", state)
    own = threshold.shape[len(state.shape) - 1 :]
    if broadcast("draw_below_each", own, shape) != tuple(shape):
        raise ShapeError(f"draw_below_each: thresholds of {threshold.shape} for {shape}")
    return state.like((*state.shape[:-1], *shape), dtypes.bool_)


def _below_each(xp, state, threshold, shape):
    own = tuple(threshold.shape[len(state.shape) - 1 :])
    limits = threshold.reshape((-1, *own)) if len(state.shape) > 1 else [threshold]

    def one(at, draw, k):
        return variates.below(at, draw, shape, limits[k])

    return _draw_each(xp, state, shape, dtypes.bool_, one)


# Each element below a threshold of its own.
draw_below_each: Caller = row_without_derivative(
    "draw_below_each",
    shape=_below_each_shape,
    arity=2,
    compute=_below_each,
    batch=_batch,
    sample=samples("draw_below_each"),
)
