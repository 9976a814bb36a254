"""The sizes and strides of an attention problem."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from ....core import dtypes
from ....core.aval import Shape
from ....core.record import record
from ....graph.graph import Equation, Graph, Literal
from ...ir.views import View
from ..tiles import lanes_for

NATIVE = (dtypes.float32, dtypes.float64)
# Flops per nanosecond; nanoseconds for a weight, and for a dropout decision.
_FLOPS, _WEIGHT, _DROPPED = {4: 70.0, 8: 35.0}, {4: 0.4, 8: 1.2}, 1.0


@record
class Heads:
    """The sizes of a problem; `lead` are the axes of the batch."""

    dtype: np.dtype
    lead: tuple[int, ...]
    heads: int
    groups: int
    queries: int
    keys: int
    width: int  # of queries and keys
    depth: int  # of values
    causal: bool
    scale: float
    p: float = 0.0  # the probability that dropout zeroes a weight

    @property
    def element(self) -> str:
        return "float" if self.dtype == dtypes.float32 else "double"

    @property
    def lanes(self) -> int:
        return lanes_for(self.element)

    @property
    def batch(self) -> int:
        return prod(self.lead)

    @property
    def pairs(self) -> float:
        """About how many weights are computed."""
        all_of_them = self.batch * self.heads * self.queries * self.keys
        return 0.6 * all_of_them if self.causal else all_of_them

    def flops(self, widths: int, depths: int) -> int:
        """Those of so many products with queries and keys, and with values; the mask is ignored."""
        pairs = self.batch * self.heads * self.queries * self.keys
        return 2 * pairs * (widths * self.width + depths * self.depth)

    def cost(self, products: float) -> float:
        """Nanoseconds of one core, for `products` of all widths and the weights."""
        flops = self.pairs * (self.width + self.depth) * products
        item = self.dtype.itemsize
        each = _WEIGHT[item] + (_DROPPED if self.p else 0.0)
        return flops / _FLOPS[item] + self.pairs * each


@record
class Mask:
    """The layout of a mask: strides for the batch, heads, queries and keys; booleans, or a bias."""

    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def in_lines(e: Equation, position: int, view: View) -> bool:
    """Whether the rows of a head are contiguous; those of a mask may be broadcast."""
    if position > 3:  # seeds, which are read one by one
        return True
    return view.strides[-1] == 1 or view.shape[-1] == 1 or (position == 3 and not view.strides[-1])


def spread(view: View, lead: tuple[int, ...], core: int) -> tuple[int, ...]:
    """The strides of a view along the axes of the batch, 0 where it is broadcast, and the rest."""
    pad = len(lead) + core - len(view.shape)
    strides = [0 if n == 1 else s for n, s in zip(view.shape, view.strides, strict=True)]
    return (*(0,) * pad, *strides)


def heads_of(
    graph: Graph, arrays: tuple[int, int, int], lead: Shape, static: tuple[Any, ...]
) -> Heads:
    """The sizes of a problem, from queries, keys and values, and (causal, scale, p, …)."""
    q, _, v = arrays
    (heads, queries, width), dtype = graph.avals[q].shape[-3:], graph.avals[q].dtype
    groups, keys, depth = graph.avals[v].shape[-3:]
    causal, scale, p = static[:3]
    sizes = (heads, groups, queries, keys, width, depth)
    return Heads(dtype, lead, *sizes, bool(causal), scale, p)


def mask_of(
    graph: Graph, views: Mapping[int, View], mask: int | Literal, lead: Shape
) -> Mask | None:
    """The layout of a mask; None for none."""
    if isinstance(mask, Literal):
        return None
    view = views[mask]
    pad = len(lead) + 3 - len(view.shape)
    return Mask(graph.avals[mask].dtype, (*(1,) * pad, *view.shape), spread(view, lead, 3))


def seeds_of(views: Mapping[int, View], seeds: int | Literal, lead: Shape) -> Shape | None:
    """The strides of seeds for each head; None for none."""
    return None if isinstance(seeds, Literal) else spread(views[seeds], lead, 1)
