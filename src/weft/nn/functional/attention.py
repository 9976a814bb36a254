"""Attention and rotary position embeddings."""

from __future__ import annotations

from functools import lru_cache
from math import sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import errors
from ...arrays.arguments import as_tensor, boxed_beside
from ...arrays.make import asarray
from ...arrays.random import randint, stream_for
from ...core import dtypes
from ...core.aval import Shape, broadcast
from ...core.box import BOXES
from ...core.call_several import first_recorded
from ...ops.attend import attention
from ...ops.elementwise import cos, sin, where
from ...ops.logic import isfinite
from ...ops.rotate import rotate as _rotate
from ...ops.slicing import narrow
from ...ops.structural import broadcast_to, cast, concat, reshape

if TYPE_CHECKING:
    from ...arrays.tensor import Tensor
    from ...arrays.types import ArrayLike, Device, DTypeLike
    from ...core.counter import Generator


def scaled_dot_product_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    attn_mask: ArrayLike | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    generator: Generator | None = None,
) -> Tensor:
    """softmax(scale·q·kᵀ + mask)·v for q (…, T, D), k (…, S, D), v (…, S, E).

    query, key, value  q, k and v
    attn_mask          booleans (True: the key is seen) or numbers to be added, of a shape that
                       broadcasts to (…, T, S). A query that sees no key gets zeros, and gives
                       no gradient
    dropout_p          the probability with which a weight is zero; the others are divided by 1
                       − p
    is_causal          query t sees the keys 0 to t
    scale              1/√D if it is None
    enable_gqa         keys and values may have fewer heads (axis −3), each for a group of the
                       queries'
    generator          a `wf.random.Generator` for dropout; None: the default one

    Neither this nor its backward pass makes an array of all T·S pairs: both go tile by tile, and
    what is kept is the arguments, the result and one number a query. Forward mode and second
    derivatives do make one.

    >>> import weft as wf
    >>> q = k = wf.zeros((1, 2, 4))
    >>> wf.nn.functional.scaled_dot_product_attention(q, k, [[[1.0], [3.0]]]).tolist()
    [[[2.0], [2.0]]]
    """
    q, k, v = as_tensor(query), as_tensor(key), as_tensor(value)
    shapes, how = (q.shape, k.shape, v.shape), (dropout_p, bool(is_causal), bool(enable_gqa))
    heads, lead = _fitted(*shapes, attn_mask is not None, *how)
    if any([len(s) < 3 or s[-3] != n for s, n in zip(shapes, heads, strict=True)]):
        q, k, v = (_with_heads(x, n) for x, n in zip((q, k, v), heads, strict=True))
    mask: Any = True
    seeds: Any = 0
    if attn_mask is not None:
        mask = _mask(q, k, attn_mask, lead)
    if dropout_p:
        shape, generator = (*lead, heads[0]), stream_for(_NAME, generator)
        seeds = randint(0, 2**63 - 1, shape, device=q.device, generator=generator)
    dtype = dtypes.accumulator(dtypes.promote_all(x.dtype for x in (q, k, v)))
    scale = 1 / sqrt(shapes[0][-1]) if scale is None else float(scale)
    args = (q, k, v, mask, seeds, bool(is_causal), scale, float(dropout_p), dtype)
    out = _attended(*args)[0]
    return out if max(map(len, shapes)) > 2 else reshape(out, out.shape[1:])


# The logarithms of the denominators are only looked at.
_attended = first_recorded(attention)
_NAME = "scaled_dot_product_attention"


@lru_cache(maxsize=1024)
def _fitted(
    q: Shape, k: Shape, v: Shape, masked: bool, p: float, causal: bool, grouped: bool
) -> tuple[tuple[int, int, int], Shape]:
    """The numbers of heads and the shape of the axes in front of them, of arguments that fit."""
    _check(q, k, v, masked, p, causal, grouped)
    heads = _heads(q, k, v, grouped)
    return heads, broadcast(_NAME, q[:-3], k[:-3], v[:-3])


def _check(
    q: Shape, k: Shape, v: Shape, masked: bool, p: float, causal: bool, grouped: bool
) -> None:
    ndim = min(len(q), len(k), len(v))
    if ndim < 2:
        raise _shape_error(q, k, v, "; expected (…, length, width)")
    if q[-1] != k[-1]:
        raise _shape_error(q, k, v, "; expected query and key of one width, their last axis")
    if k[-2] != v[-2]:
        raise _shape_error(q, k, v, "; expected key and value of one length, axis -2")
    if not q[-1]:
        raise _shape_error(q, k, v, ": the width is 0, expected 1 or more")
    if not 0 <= p < 1:
        raise errors.ArgumentError(f"{_NAME}: dropout_p={p}, expected 0 ≤ p < 1")
    if causal and masked:
        raise errors.ArgumentError(
            f"{_NAME}: attn_mask and is_causal=True; give one of them, or a mask that is causal"
        )
    if grouped and ndim < 3:
        needed = (
            ": enable_gqa needs a heads axis at position -3: expected (…, heads, length, width)"
        )
        raise _shape_error(q, k, v, needed)


def _shape_error(q: Shape, k: Shape, v: Shape, wrong: str) -> errors.ShapeError:
    return errors.ShapeError(f"{_NAME}: query {q}, key {k}, value {v}{wrong}")


def _heads(q: Shape, k: Shape, v: Shape, grouped: bool) -> tuple[int, int, int]:
    """The numbers of heads; 1 is broadcast to the others' unless heads are grouped."""
    counts = [shape[-3] if len(shape) > 2 else 1 for shape in (q, k, v)]
    if grouped:
        if counts[1] != counts[2] or not counts[1] or counts[0] % counts[1]:
            raise errors.ShapeError(
                f"{_NAME}: {counts[0]} heads of queries for {counts[1]} of keys and {counts[2]} "
                "of values; with enable_gqa=True the keys' and values' must divide the queries'"
            )
        return counts[0], counts[1], counts[2]
    if len(set(counts) - {1}) > 1:
        raise errors.ShapeError(
            f"{_NAME}: {counts[0]} heads of queries for {counts[1]} of keys and {counts[2]} of "
            "values; pass enable_gqa=True where keys and values serve groups of heads"
        )
    most = 0 if 0 in counts else max(counts)
    return most, most, most


def _with_heads(x, heads: int):
    """x with an axis of so many heads."""
    shape = x.shape
    if len(shape) == 2:
        shape = (1, *shape)
        x = reshape(x, shape)
    if shape[-3] == heads:
        return x
    return broadcast_to(x, (*shape[:-3], heads, *shape[-2:]))


def _mask(q, k, mask, lead):
    mask = boxed_beside(q, mask)
    if mask.dtype != dtypes.bool_ and not dtypes.is_inexact(mask.dtype):
        raise errors.DTypeError(
            f"{_NAME}: attn_mask of dtype {mask.dtype}; expected booleans (True: attend), or "
            "numbers of a floating dtype to be added"
        )
    scores = (*lead, q.shape[-3], q.shape[-2], k.shape[-2])
    if broadcast(_NAME, mask.shape, scores) != scores:
        raise errors.ShapeError(
            f"{_NAME}: attn_mask of shape {mask.shape}, expected one that broadcasts to {scores}"
        )
    if mask.ndim < 3:
        mask = reshape(mask, (*(1,) * (3 - mask.ndim), *mask.shape))
    if mask.dtype == dtypes.bool_ or not mask.shape[-1]:
        return mask
    return _raise_low_queries(mask if mask.dtype == q.dtype else cast(mask, q.dtype))


# Below this, the one number that is kept of a query, near its largest score, would be rounded by
# more than the logarithm of its sum can bear.
_LOW = -256.0


def _raise_low_queries(mask: Tensor) -> Tensor:
    """The mask less its largest number, in queries all of whose keys have a low one.

    Weights do not depend on what is added to all scores of a query, but their accuracy does: where
    all keys are masked by the least float, the gradients would be those of weights 1, not 1/n.
    """
    top = mask.detach().amax(axis=-1, keepdims=True)
    low = (top < _LOW) & isfinite(top)
    values = low._data
    if values.__class__ not in BOXES and low.device in ("cpu", "torch") and not values.any():
        return mask  # as it mostly is: on a GPU, to look would be to wait
    return mask - where(low, top, 0.0)


def rotary_table(
    positions: int | ArrayLike,
    dim: int,
    base: float = 10000.0,
    dtype: DTypeLike | None = None,
    device: Device | None = None,
) -> Tensor:
    """The turns of `rotate` at positions (…, T): cosines, then sines of the angles (…, T, dim).

    positions  a number of them, from 0 on, or an array of any numbers
    dim        how many features are turned, an even number
    base       angle i is position·base^(−2i/dim), computed in float64
    dtype      None: the default float
    device     where the result is: "cpu", "cuda", … ; None for the default

    >>> import weft as wf
    >>> wf.nn.functional.rotary_table(1, 4).tolist()
    [[1.0, 1.0, 0.0, 0.0]]
    """
    if dim < 0 or dim % 2:
        raise errors.ArgumentError(f"rotary_table: dim {dim}, expected an even number of features")
    if isinstance(positions, int):
        positions = np.arange(positions)
    positions = asarray(positions) if device is None else asarray(positions, device=device)
    pace = np.float64(base) ** (-np.arange(dim // 2, dtype=np.float64) * (2 / dim if dim else 0))
    where = cast(positions, dtypes.float64)
    angles = reshape(where, (*where.shape, 1)) * asarray(pace, device=where.device)
    table = concat([cos(angles), sin(angles)], len(angles.shape) - 1)
    return cast(table, dtypes.default_float() if dtype is None else dtypes.canonical(dtype))


def rotate(input: ArrayLike, table: ArrayLike, interleaved: bool = False) -> Tensor:
    """Features turned in pairs by angles: (a, b) becomes (a·cos − b·sin, a·sin + b·cos).

    input        (…, T, D)
    table        cosines and sines (…, T, D), as `rotary_table` gives them
    interleaved  whether features 2i and 2i + 1 are a pair, not i and i + D/2

    Of an input that is wider than the table the first D features are turned.

    >>> import weft as wf
    >>> table = wf.nn.functional.rotary_table(2, 2)
    >>> [round(v, 4) for v in wf.nn.functional.rotate([[1.0, 0.0], [1.0, 0.0]], table)[1].tolist()]
    [0.5403, 0.8415]
    """
    x = as_tensor(input)
    table = boxed_beside(x, table)
    dim = table.shape[-1] if table.ndim else -1
    if not x.ndim or not 0 <= dim <= x.shape[-1] or dim % 2:
        raise errors.ShapeError(
            f"rotate: input {x.shape} and table {table.shape}; expected a table of an even width, "
            "at most the input's"
        )
    if broadcast("rotate", x.shape[:-1], table.shape[:-1]) != x.shape[:-1]:
        raise errors.ShapeError(
            f"rotate: a table of shape {table.shape} does not broadcast to the input {x.shape}"
        )
    table = table if table.dtype == x.dtype else cast(table, x.dtype)
    axis, width = x.ndim - 1, x.shape[-1]
    if dim == width:
        return _rotate(x, table, interleaved, False)
    turned = _rotate(narrow(x, axis, 0, dim), table, interleaved, False)
    return concat([turned, narrow(x, axis, dim, width)], axis)


def rope(
    input: ArrayLike,
    positions: ArrayLike | None = None,
    base: float = 10000.0,
    interleaved: bool = False,
    dim: int | None = None,
) -> Tensor:
    """Rotary position embedding (Su et al. 2021) of (…, T, D): `rotate` by `rotary_table`.

    input        (…, T, D)
    positions    (…, T), broadcasting with the input's axes; None: 0 to T − 1
    base         angle i is position·base^(−2i/dim)
    interleaved  whether features 2i and 2i + 1 are turned together, not i and i + D/2
    dim          how many of the features are turned; None: all

    >>> import weft as wf
    >>> x = wf.ones((2, 4))
    >>> y = wf.nn.functional.rope(x)
    >>> y[0].tolist(), round(wf.norm(y[1]).item(), 4)
    ([1.0, 1.0, 1.0, 1.0], 2.0)
    """
    x = as_tensor(input)
    if x.ndim < 2:
        raise errors.ShapeError(f"rope: input of shape {x.shape}; expected (…, T, D)")
    dim = x.shape[-1] if dim is None else dim
    positions = np.arange(x.shape[-2]) if positions is None else positions
    if not hasattr(positions, "device") or isinstance(positions, np.ndarray):
        positions = asarray(positions, device=x.device)
    table = rotary_table(positions, dim, base, x.dtype)
    return rotate(x, table, interleaved)
