"""Attention tile by tile, in the operations that all backends share.

No array of all pairs of a query and a key is ever made: scores are computed for a tile of queries
and keys, used, and discarded; a backward pass recomputes them. Online softmax after Milakov and
Gimelshein (2018), the backward pass after Dao et al. (2022).

Queries are (…, heads, T, D), keys and values (…, groups, S, D): each group of keys is shared by
equally many heads. A mask is True, or an array that broadcasts to (…, heads, T, S): of booleans,
True where a query attends to a key, or of numbers, added to the scores. Where every key is masked
the result is 0 and the logarithm of the sum -∞.
"""

from collections.abc import Callable, Iterable, Iterator
from math import inf, prod
from types import ModuleType
from typing import Any

import numpy as np

from ...core import dtypes
from ...core.aval import broadcast
from ...core.backends import PYTHON_SCALARS
from ...core.counter import WORD, philox
from ...core.record import record
from . import threads
from .types import Raw, Shape

# How many scores a tile has, and how many keys it spans.
TILE = {"numpy": 1 << 17, "torch": 1 << 18, "cuda": 1 << 26}
KEYS = {"numpy": 512, "torch": 512, "cuda": 4096}
# The most queries of a tile under a causal mask: most masked pairs are then in tiles that are
# skipped.
STAIR = {"numpy": 64, "torch": 256, "cuda": 4096}

Span = tuple[int, int]


@record
class AttentionTile:
    """A tile: ranges of the batch, of the groups of heads, of queries and of keys."""

    batch: Span
    groups: Span
    rows: Span
    columns: Span = (0, 0)

    def across(self, columns: Span) -> "AttentionTile":
        return AttentionTile(self.batch, self.groups, self.rows, columns)


def _cut(x: Raw, *spans: Span) -> Raw:
    """A part of x; an axis of length 1 stands for all of its span."""
    return x[
        tuple(slice(None) if n == 1 else slice(*s) for n, s in zip(x.shape, spans, strict=False))
    ]


def _spans(n: int, step: int) -> Iterator[Span]:
    for start in range(0, n, step):
        yield start, min(start + step, n)


class AttentionProblem:
    """One call: arrays as (batch, groups, heads of a group, length, width), and how to tile."""

    xp: ModuleType
    causal: bool
    scale: float
    p: float
    device: str
    own: np.dtype
    wide: np.dtype
    lead: Shape
    heads: int
    groups: int
    q: Raw
    k: Raw
    v: Raw
    mask: Raw
    seeds: Raw
    size: int
    queries: int
    keys: int
    across: int
    down: int
    some_groups: int
    some: int

    def __init__(
        self,
        xp: ModuleType,
        q: Raw,
        k: Raw,
        v: Raw,
        mask: Raw,
        seeds: Raw,
        causal: bool,
        scale: float,
        p: float,
        leads: Iterable[Shape] = (),
    ):
        self.xp, self.causal, self.scale, self.p = xp, causal, scale, p
        self.device = xp.device_of(q)
        self.own, self.wide = xp.dtype_of(q), dtypes.accumulator(xp.dtype_of(q))
        leads = [*leads, *(x.shape[:-3] for x in (q, k, v)), _shape_of(mask)[:-3]]
        self.lead = broadcast("attention", *leads, _shape_of(seeds)[:-1])
        self.heads, self.groups = q.shape[-3], k.shape[-3]
        self.q, self.k, self.v = self.five(q), self.five(k), self.five(v)
        self.mask = None if not _shape_of(mask) else self._five_mask(mask)
        self.seeds = None if not p else self.five(seeds[..., None, None])[..., 0, 0]
        self.size = prod(self.lead)
        self.queries, self.keys = q.shape[-2], k.shape[-2]
        self._choose_tiles()

    def five(self, x: Raw) -> Raw:
        """(…, heads or groups, T, D) in the accumulator's dtype, with five axes."""
        x = self._join_batch(x)
        dtype = self.xp.dtype_of(x)
        if dtypes.is_inexact(dtype) and dtype != self.wide:
            x = self.xp.cast(x, self.wide)
        return x.reshape((x.shape[0], self.groups, x.shape[1] // self.groups, *x.shape[2:]))

    def _join_batch(self, x: Raw) -> Raw:
        """x with the axes before its last three joined into the batch."""
        if tuple(x.shape[:-3]) != self.lead:
            x = self.xp.broadcast_to(x, (*self.lead, *x.shape[-3:]))
        return x.reshape((prod(self.lead), *x.shape[-3:]))

    def _five_mask(self, mask: Raw) -> Raw:
        alone = prod(mask.shape[:-3]) == 1
        x = mask.reshape((1, *mask.shape[-3:])) if alone else self._join_batch(mask)
        if self.own != self.wide and dtypes.is_inexact(self.xp.dtype_of(x)):
            x = self.xp.cast(x, self.wide)
        shared = x.shape[1] == 1
        heads = (1, 1) if shared else (self.groups, self.heads // self.groups)
        return x.reshape((x.shape[0], *heads, *x.shape[2:]))

    def _choose_tiles(self) -> None:
        kind = "cuda" if self.device.startswith("cuda") else self.xp.name
        per_group, tile = self.heads // self.groups, TILE[kind]
        self.across = max(1, min(self.keys, KEYS[kind]))
        self.down = max(1, min(self.queries, tile // (per_group * self.across) or 1))
        if self.causal:
            self.down = min(self.down, STAIR[kind])
        block = per_group * self.across * self.down
        self.some_groups = max(1, min(self.groups, tile // block))
        self.some = max(1, tile // (block * self.groups)) if self.some_groups == self.groups else 1

    def parts(self) -> list[tuple[Span, Span]]:
        """Independent parts: ranges of the batch and of the groups."""
        every_group = list(_spans(self.groups, self.some_groups))
        return [(b, g) for b in _spans(self.size, self.some) for g in every_group]

    def tiles(self, part: tuple[Span, Span]) -> list[AttentionTile]:
        """A part's queries, with all of their keys."""
        return [AttentionTile(*part, rows) for rows in _spans(self.queries, self.down)]

    def each(self, pieces: list[Any], do: Callable[[Any], None], products: int) -> None:
        """Run every piece; with NumPy, by the thread pool."""
        if self.xp.name == "numpy":
            pairs = self.size * self.heads * self.queries * self.keys
            width = self.q.shape[-1] + self.v.shape[-1]
            threads.share(pieces, lambda: do, pairs * width * products)
        else:
            for piece in pieces:
                do(piece)

    def columns(self, tile: AttentionTile) -> Iterator[Span]:
        """The keys that are unmasked for some query of a tile."""
        seen = min(self.keys, tile.rows[1]) if self.causal else self.keys
        yield from _spans(seen, self.across)

    def of_queries(self, x: Raw, tile: AttentionTile) -> Raw:
        """A part of an array of one vector a query."""
        (a, b), (c, d), (i, j) = tile.batch, tile.groups, tile.rows
        return x[a:b, c:d, :, i:j]

    def of_keys(self, x: Raw, tile: AttentionTile) -> Raw:
        (a, b), (c, d), (i, j) = tile.batch, tile.groups, tile.columns
        return x[a:b, c:d, :, i:j]

    def of_mask(self, x: Raw, tile: AttentionTile) -> Raw:
        return _cut(x, tile.batch, tile.groups, (0, x.shape[2]), tile.rows, tile.columns)

    def scores(self, q: Raw, k: Raw, tile: AttentionTile) -> Raw:
        """The scores of a tile for scaled queries, -∞ where masked."""
        xp = self.xp
        s = xp.matmul(q, xp.swap_last(k))
        if self.mask is not None:
            part = self.of_mask(self.mask, tile)
            if dtypes.is_inexact(xp.dtype_of(part)):
                s += part
            else:
                xp.fill_where(s, ~part, -inf)
        (i, _), (j, end) = tile.rows, tile.columns
        if self.causal and end - 1 > i:
            first = max(i + 1 - j, 0)  # the first column that is masked for some query
            corner = s[..., first:]
            xp.fill_where(corner, xp.later(corner, j + first - i), -inf)
        return s

    def dropout_factors(self, tile: AttentionTile) -> Raw:
        """Which of a tile's weights are kept, as factors 0 and 1/(1 - p)."""
        bits = dropout_bits(self.xp, self.seeds_of(tile), tile.rows, tile.columns, self.p)
        return self.xp.cast(bits, self.wide) * (1 / (1 - self.p))

    def seeds_of(self, tile: AttentionTile) -> Raw:
        return _cut(self.seeds, tile.batch, tile.groups)

    def zeros(self, heads: int, length: int, width: int) -> Raw:
        """Zeros for a result, with the heads of a position side by side in memory.

        That is the layout of the layers around it, which split an axis into heads and join them.
        """
        shape = (self.size, length, self.groups, heads // self.groups, width)
        x = self.xp.full(shape, 0, self.wide, self.device)
        return self.xp.permute(x, (0, 2, 3, 1, 4))

    def reshape(self, x: Raw, heads: int, dtype: np.dtype | None = None) -> Raw:
        """A result with its axes as they were given."""
        x = x.reshape((*self.lead, heads, *x.shape[3:]))
        dtype = self.own if dtype is None else dtype
        return x if self.xp.dtype_of(x) == dtype else self.xp.cast(x, dtype)


def _shape_of(x: Raw) -> tuple[int, ...]:
    return () if type(x) in PYTHON_SCALARS else tuple(x.shape)


def attend(
    xp: ModuleType,
    q: Raw,
    k: Raw,
    v: Raw,
    mask: Raw,
    seeds: Raw,
    causal: bool,
    scale: float,
    p: float,
    dtype: np.dtype,
) -> tuple[Raw, Raw]:
    """softmax(scale·q·kᵀ + mask)·v, and the logarithms of the softmax' denominators."""
    it = AttentionProblem(xp, q, k, v, mask, seeds, causal, scale, p)
    out = it.zeros(it.heads, it.queries, v.shape[-1])
    lse = xp.full(tuple(out.shape[:-1]), 0, it.wide, it.device)

    def do(tile: AttentionTile) -> None:
        _attend_tile(it, tile, it.of_queries(out, tile), it.of_queries(lse, tile))

    it.each([tile for part in it.parts() for tile in it.tiles(part)], do, 1)
    return it.reshape(out, it.heads), it.reshape(lse, it.heads, dtype)


def _attend_tile(it: AttentionProblem, tile: AttentionTile, out: Raw, lse: Raw) -> None:
    xp = it.xp
    q = it.of_queries(it.q, tile) * it.scale
    top = total = mixed = None
    for columns in it.columns(tile):
        here = tile.across(columns)
        s = it.scores(q, it.of_keys(it.k, here), here)
        peak = xp.amax(s, (4,), True)
        peak = peak if top is None else xp.maximum(top, peak)
        shift = xp.where(peak == -inf, 0.0, peak)  # all keys so far are masked
        s -= shift
        xp.exp_into(s)
        sums = xp.sum(s, (4,), True)
        if it.p:
            s *= it.dropout_factors(here)
        part = xp.matmul(s, it.of_keys(it.v, here))
        if top is None:
            total, mixed = sums, part
        else:
            fading = xp.exp(top - shift)
            total, mixed = total * fading + sums, mixed * fading + part
        top = peak
    if top is None:
        lse[...] = -inf
        return
    out[...] = mixed / xp.where(total == 0, 1.0, total)
    lse[...] = (xp.log_or_minus_inf(total) + xp.where(top == -inf, 0.0, top))[..., 0]


class AttentionBackward(AttentionProblem):
    """A call in the backward pass: also its results, and their cotangents."""

    g: Raw
    out: Raw
    lse: Raw
    h: Raw

    def __init__(
        self,
        xp: ModuleType,
        g: Raw,
        h: Raw,
        out: Raw,
        lse: Raw,
        q: Raw,
        k: Raw,
        v: Raw,
        mask: Raw,
        seeds: Raw,
        causal: bool,
        scale: float,
        p: float,
    ):
        leads = [g.shape[:-3], out.shape[:-3], lse.shape[:-2], _shape_of(h)[:-2]]
        super().__init__(xp, q, k, v, mask, seeds, causal, scale, p, leads)
        self.g, self.out, self.lse = self.five(g), self.five(out), self.five(lse[..., None])
        self.h = self.five(h[..., None]) if _shape_of(h) else None

    def factors(self, part: tuple[Span, Span], times: float) -> tuple[Raw, ...]:
        """A part's (q·scale, -lse), (k, 1), (g·times, -δ·times) and (v, 1).

        By the last columns the products are scores less their lse, and slopes less their mean δ.
        """
        xp, every = self.xp, AttentionTile(*part, (0, self.queries), (0, self.keys))
        q, g, out, lse = (self.of_queries(x, every) for x in (self.q, self.g, self.out, self.lse))
        k, v = (self.of_keys(x, every) for x in (self.k, self.v))
        delta = xp.row_dots(g, out)[..., None]
        if self.h is not None:
            delta = delta - self.of_queries(self.h, every)
        # Where every key is masked all weights are exp(-∞) = 0.
        lse = xp.where(lse == -inf, inf, lse)
        ones = xp.full((*k.shape[:-1], 1), 1, self.wide, self.device)
        pairs = (q * self.scale, -lse), (k, ones), (g * times, delta * -times), (v, ones)
        return tuple(xp.concatenate(pair, 4) for pair in pairs)

    def weights(self, factors: tuple[Raw, ...], tile: AttentionTile) -> tuple[Raw, Raw]:
        """The weights of a tile that dropout kept, and `times` the scores' cotangents."""
        xp, (q, k, g, v) = self.xp, _within(factors, tile)
        w = self.scores(q, k, tile)
        xp.exp_into(w)
        if not self.p:
            ds = xp.matmul(g, xp.swap_last(v))
            ds *= w
            return w, ds
        factor = self.dropout_factors(tile)
        ds = xp.matmul(g[..., :-1], xp.swap_last(v[..., :-1]))
        ds *= factor
        ds += g[..., -1:]
        ds *= w
        return w * factor, ds


def _within(factors: tuple[Raw, ...], tile: AttentionTile) -> list[Raw]:
    """The slices of a part's arrays for a tile, of queries and keys in turns."""
    (i, j), (k, n) = tile.rows, tile.columns
    return [x[..., i:j, :] if at % 2 == 0 else x[..., k:n, :] for at, x in enumerate(factors)]


def attend_gradient(xp: ModuleType, *args: Any) -> tuple[Raw, Raw, Raw]:
    """The cotangents of queries, keys and values."""
    it = AttentionBackward(xp, *args)
    dq = it.zeros(it.heads, it.queries, it.q.shape[-1])
    dk, dv = (it.zeros(it.groups, it.keys, x.shape[-1]) for x in (it.k, it.v))
    it.each(it.parts(), lambda part: _part_gradient(it, part, dq, dk, dv), 3)
    return it.reshape(dq, it.heads), it.reshape(dk, it.groups), it.reshape(dv, it.groups)


def _part_gradient(
    it: AttentionBackward, part: tuple[Span, Span], dq: Raw, dk: Raw, dv: Raw
) -> None:
    """Accumulate in contiguous memory, then copy the sums into the results."""
    xp, factors, every = (
        it.xp,
        it.factors(part, it.scale),
        AttentionTile(*part, (0, 0), (0, it.keys)),
    )
    to_k, to_v = (xp.zeros_like(x[..., :-1]) for x in factors[1::2])
    for tile in it.tiles(part):
        to_q = None
        q, g = it.of_queries(it.q, tile), it.of_queries(it.g, tile)
        for columns in it.columns(tile):
            here = tile.across(columns)
            w, ds = it.weights(factors, here)
            seen = (..., slice(*columns), slice(None))
            to_v[seen] += _over_group(xp, xp.matmul(xp.swap_last(w), g))
            to_k[seen] += _over_group(xp, xp.matmul(xp.swap_last(ds), q))
            change = xp.matmul(ds, it.of_keys(it.k, here))
            to_q = change if to_q is None else to_q + change
        if to_q is not None:
            it.of_queries(dq, tile)[...] = to_q
    it.of_keys(dk, every)[...] = to_k
    it.of_keys(dv, every)[...] = to_v


def _over_group(xp: ModuleType, x: Raw) -> Raw:
    return x if x.shape[2] == 1 else xp.sum(x, (2,), True)


def attend_mask_gradient(xp: ModuleType, *args: Any) -> Raw:
    """The cotangent of a mask of numbers, in its shape."""
    it = AttentionBackward(xp, *args)
    mask = args[7]
    total = xp.full(tuple(it.mask.shape), 0, it.wide, it.device)
    for part in it.parts():
        factors = it.factors(part, 1.0)
        for here in [t.across(c) for t in it.tiles(part) for c in it.columns(t)]:
            _, ds = it.weights(factors, here)
            there = it.of_mask(total, here)
            there += _summed_to(xp, ds, there.shape)
    if prod(total.shape) != prod(mask.shape):  # the mask was broadcast along some axes of the batch
        total = _summed_to(xp, total.reshape((*it.lead, *mask.shape[-3:])), mask.shape)
    return xp.cast(total.reshape(tuple(mask.shape)), it.own)


def _summed_to(xp: ModuleType, x: Raw, shape: Shape) -> Raw:
    shape = (*(1,) * (len(x.shape) - len(shape)), *shape)
    axes = tuple(a for a, (m, n) in enumerate(zip(shape, x.shape, strict=True)) if m == 1 != n)
    return xp.sum(x, axes, True) if axes else x


def dropout_bits(xp: ModuleType, seeds: Raw, rows: Span, columns: Span, p: float) -> Raw:
    """Which pairs of a row and a column are kept, with probability 1 - p: (…, rows, columns).

    The word for a pair is a function of the seed, the row and the column alone, so that a backward
    pass recomputes it with any tiling.
    """
    first = columns[0] // 4
    blocks = -(-columns[1] // 4) - first
    shape = (*seeds.shape, rows[1] - rows[0], blocks)
    key = seeds.reshape((*seeds.shape, 1, 1))
    row, block = xp.counting(seeds, *rows), xp.counting(seeds, first, first + blocks)
    counters = [xp.spread_copy(c, shape) for c in (block, row[:, None], block * 0, block * 0)]
    words = xp.stack(list(philox(key, *counters)), len(shape))
    words = words.reshape((*shape[:-1], 4 * blocks))
    start = columns[0] - 4 * first
    return words[..., start : start + columns[1] - columns[0]] >= round(p * WORD)
