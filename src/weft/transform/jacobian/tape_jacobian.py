"""Jacobians over a recorded graph: reverse, forward by double transposition, or through a cut."""

from math import prod

import numpy as np

from ... import errors
from ...arrays.make import asarray, zeros
from ...arrays.manipulation import concat, reshape
from ...arrays.tensor import Tensor
from ...core.box import Level, tags
from ...core.dtypes import canonical, is_complex
from ...core.node import Leaf, Node
from ...core.settings import current, override_settings
from ...core.value import wrap
from ...ops.batching import spread
from ..modes.batch import Batch
from ..modes.dual import to_tensor
from ..modes.paths import Vertex, nodes_reaching
from ..modes.reverse import sweep
from .cut import ENDLESS, minimum_cut
from .scheduling import SchedulerConfig


def sweep_jacobian(
    config: SchedulerConfig, target: Vertex, end: Vertex, like: Tensor, record: bool
) -> Tensor:
    """∂target/∂end as a matrix, in the mode that the configuration allows and the sizes suggest."""
    _refuse_complex(target, end)
    m, n = prod(target.shape), prod(end.shape)
    kinds = config.families(m, n)
    cut = narrowest(target, end) if "mixed" in kinds else []
    if kinds[0] == "mixed" or (cut and 2 * sum(map(_size, cut)) < min(m, n)):
        return mixed_sweeps(target, cut, end, like, record)
    if "reverse" not in kinds or ("forward" in kinds and 2 * n < m):
        return forward_sweeps(target, [end], like, record)
    return reverse_sweeps([target], end, like, record)


def _refuse_complex(target: Vertex, end: Vertex) -> None:
    for what, n in (("target", target), ("source", end)):
        if is_complex(n.dtype):
            raise errors.NotDifferentiable(
                f"jacobian: a complex {what} has no single Jacobian; take its real and imaginary "
                "parts, or use wf.jvp and wf.vjp"
            )


def reverse_sweeps(starts: list[Vertex], end: Vertex, like: Tensor, record: bool) -> Tensor:
    """∂starts/∂end, one row for each element of the starts, by a batch of cotangents.

    They are total derivatives: cotangents continue through a start that another depends on.
    """
    count = sum(prod(n.shape) for n in starts)
    tag, at, seeds = next(tags), 0, {}
    for n in starts:
        size = prod(n.shape)
        block = np.zeros((count, size))
        block[at : at + size] = np.eye(size)
        at += size
        data = asarray(block, dtype=canonical(n.dtype), device=like.device)
        seeds[n] = Batch(tag, reshape(data, (count, *n.shape))._data, count)
    useful, _ = nodes_reaching(seeds, {end})
    start = {n: wrap(g) if record else g for n, g in seeds.items() if n in useful}
    if not start:
        return zeros((count, prod(end.shape)), dtype=canonical(end.dtype), device=like.device)
    with override_settings(levels=(*current.get().levels, Level(Batch, tag, count))):
        found = sweep(start, record=record, retain=True, useful=useful, goals={end})
    return reshape(_rows(tag, count, found[end]), (count, prod(end.shape)))


def _rows(tag: float, count: int, c) -> Tensor:
    """A cotangent with its batch axis in front."""
    raw = c._data if isinstance(c, Tensor) else c
    if raw.__class__ is Batch and raw.level == tag:
        return to_tensor(raw.data if raw.mapped else spread(raw.data, count))
    return to_tensor(spread(c, count))


def forward_sweeps(target: Vertex, ends: list[Vertex], like: Tensor, record: bool) -> Tensor:
    """∂target/∂ends, one column for each element of the ends, which are independent variables.

    The pull-back u ↦ uᵀJ is linear in u; it is recorded at u = 0 and pulled back itself, with
    one seed for each element of the ends: that is J, at a cost in proportion to their size.
    """
    u = zeros(tuple(target.shape), dtype=like.dtype, device=like.device)
    u._node = leaf = Leaf(tuple(target.shape), u._data.dtype, None, False)
    useful, _ = nodes_reaching([target], set(ends))
    found = {}
    if target in useful:
        found = sweep(
            {target: u}, record=True, retain=True, useful=useful, goals=set(ends), beyond=False
        )
    with override_settings(grad=True):
        whole = concat([_flat(found.get(n), n, like) for n in ends])
    if whole._node is None:  # nothing of the target depends on the ends
        return zeros((prod(target.shape), whole.size), dtype=like.dtype, device=like.device)
    return reverse_sweeps([whole._node], leaf, like, record).T


def _flat(c: Tensor | None, n: Vertex, like: Tensor) -> Tensor:
    """The cotangent of a node, flattened; zeros if it has none."""
    if c is None:
        return zeros((prod(n.shape),), dtype=canonical(n.dtype), device=like.device)
    return reshape(c, (-1,))


def mixed_sweeps(
    target: Vertex, cut: list[Vertex], end: Vertex, like: Tensor, record: bool
) -> Tensor:
    """∂target/∂end through a cut: forward after it, reverse before it, as `sweeps.through_cut`."""
    if not cut:  # there is no path from the end to the target
        return zeros((prod(target.shape), prod(end.shape)), dtype=like.dtype, device=like.device)
    return forward_sweeps(target, cut, like, record) @ reverse_sweeps(cut, end, like, record)


def narrowest(target: Vertex, end: Vertex) -> list[Vertex]:
    """The nodes of a smallest cut between two nodes of a recorded graph."""
    useful, _ = nodes_reaching([target], {end})
    if target not in useful:
        return []
    sizes = {n: _size(n) for n in useful}
    arcs = [
        (p, n)
        for n in useful
        if n is not end and isinstance(n, Node)
        for p in n.parents or ()
        if p in sizes
    ]
    return minimum_cut(sizes, arcs, [end], [target])


def _size(n: Vertex) -> int:
    """The number of elements of a node; huge for a node that must not be cut.

    That is a complex one, which real seeds do not span, and one with several outputs, each of which
    has a node of its own.
    """
    several = n.shape and isinstance(n.shape[0], tuple)
    return ENDLESS if several or is_complex(n.dtype) else min(prod(n.shape), ENDLESS)
