"""Jacobians of what a tape has recorded: reverse, forward by transposition, or cut in two."""

from math import prod

import numpy as np

from ..array.make import asarray, zeros
from ..array.manipulation import reshape
from ..array.tensor import Tensor
from ..core.box import Level, tags
from ..core.dtypes import is_complex
from ..core.node import Leaf, Node
from ..core.settings import changed, current
from ..core.value import wrap
from ..ops.batching import spread
from .batch import Batch
from .cut import ENDLESS, minimum_cut
from .dual import released
from .scheduling import SchedulerConfig
from .sweep import reaching, sweep

Vertex = Leaf | Node


def swept(config: SchedulerConfig, target, end, like: Tensor, record: bool):
    """∂target/∂end as a matrix, in the mode that the configuration allows and the sizes suggest."""
    m, n = prod(target.shape), prod(end.shape)
    kinds = config.families(m, n)
    narrow = "mixed" in kinds and 2 * sum(map(_size, narrowest(target, end))) < min(m, n)
    if kinds[0] == "mixed" or narrow:
        return mixed_sweeps(target, end, like, record)
    if "reverse" not in kinds or ("forward" in kinds and 2 * n < m):
        return forward_sweeps(target, end, like, record)
    return reverse_sweeps([target], end, like, record)


def reverse_sweeps(starts: list[Vertex], end: Vertex, like: Tensor, record: bool) -> Tensor:
    """∂starts/∂end, one row for each element of the starts, by cotangents all at once."""
    count = sum(prod(n.shape) for n in starts)
    tag, at, seeds = next(tags), 0, {}
    for n in starts:
        size = prod(n.shape)
        block = np.zeros((count, size))
        block[at : at + size] = np.eye(size)
        at += size
        data = asarray(block, dtype=like.dtype, device=like.device)
        seeds[n] = Batch(tag, reshape(data, (count, *n.shape))._data, count)
    useful, _ = reaching(seeds, {end})
    start = {n: wrap(g) if record else g for n, g in seeds.items() if n in useful}
    if not start:
        return zeros((count, prod(end.shape)), dtype=like.dtype, device=like.device)
    with changed(levels=(*current.get().levels, Level(Batch, tag, count))):
        found = sweep(start, record=record, retain=True, useful=useful, goals={end})
    return reshape(_rows(tag, count, found[end]), (count, prod(end.shape)))


def _rows(tag: float, count: int, c) -> Tensor:
    """A cotangent with its batch axis in front."""
    raw = c._data if isinstance(c, Tensor) else c
    if raw.__class__ is Batch and raw.level == tag:
        return released(raw.data if raw.mapped else spread(raw.data, count))
    return released(spread(c, count))


def forward_sweeps(target: Vertex, end: Vertex, like: Tensor, record: bool) -> Tensor:
    """∂target/∂end, one column for each element of the end.

    The pull-back u ↦ uᵀJ is linear in u; it is recorded at u = 0 and pulled back itself, with
    one seed for each element of the end: that is J, at a cost in proportion to the end's size.
    """
    u = zeros(tuple(target.shape), dtype=like.dtype, device=like.device)
    u._node = leaf = Leaf(tuple(target.shape), u._data.dtype, None, False)
    useful, _ = reaching([target], {end})
    if target not in useful:
        return zeros((prod(target.shape), prod(end.shape)), dtype=like.dtype, device=like.device)
    pulled = sweep({target: u}, record=True, retain=True, useful=useful, goals={end})[end]
    return reverse_sweeps([pulled._node], leaf, like, record).T


def mixed_sweeps(target: Vertex, end: Vertex, like: Tensor, record: bool) -> Tensor:
    """∂target/∂end through the narrowest cut: forward after it, reverse before it."""
    cut = narrowest(target, end)
    before = reverse_sweeps(cut, end, like, record)
    after = [forward_sweeps(target, n, like, record) for n in cut]
    total, at = None, 0
    for n, part in zip(cut, after, strict=True):
        size = prod(n.shape)
        term = part @ before[at : at + size]
        total, at = term if total is None else total + term, at + size
    return total


def narrowest(target: Vertex, end: Vertex) -> list[Vertex]:
    """The nodes of a smallest cut between two nodes of a recorded graph."""
    useful, _ = reaching([target], {end})
    sizes = {n: _size(n) for n in useful}
    arcs = [
        (p, n)
        for n in useful
        if n is not end and n.__class__ is Node
        for p in n.parents or ()
        if p in sizes
    ]
    return minimum_cut(sizes, arcs, [end], [target])


def _size(n: Vertex) -> int:
    """The elements of a node; one with several outputs is never cut, its picks may be."""
    several = n.shape and isinstance(n.shape[0], tuple)
    if not several and is_complex(n.dtype):
        return ENDLESS  # real seeds do not span it
    return sum(map(prod, n.shape)) * 2 if several else prod(n.shape)
