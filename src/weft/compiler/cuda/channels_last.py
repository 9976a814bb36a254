"""Channels last: convolutions in half precision on arrays that lie as (images, sizes, channels).

Tensor cores multiply rows of channels. Of arrays that lie channel by channel the library transposes
the operands and the result of every convolution. Here these are transposed once, and all that lies
between two convolutions computes on arrays as they lie. A value that was turned so is also there as
a `permute` of its turned one, for equations that cannot be turned; often nothing reads that. Of
convolutions that depend on each other all are turned, or none: whichever moves fewer bytes.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ...core import dtypes
from ...core.aval import Aval
from ...core.op import TABLE, Op
from ...graph.graph import Equation, Graph, Literal
from ..passes.dead import dead
from ..passes.layout import broadcasts
from ..passes.rewriting import Builder, Operand, Replacement, rewrite

# Dtypes in which the library's convolutions are faster so.
TURNED: frozenset[np.dtype] = frozenset(dtypes.HALF)
_CONVOLUTIONS = ("convolution", "convolution_transposed", "convolution_weight")
_POOLS = ("max_pool", "pool_pick", "pool_put", "sum_pool", "spread_pool")
_ELEMENTWISE = frozenset(
    {
        *("cast", "copy", "abs", "sign", "signbit", "isnan", "isfinite", "isinf", "logical_not"),
        *("masked_scale",),
    }
)


# -- orders of axes --------------------------------------------------------------------------


def there(n: int) -> tuple[int, ...]:
    """The order of n axes with the channels, axis 1, at the end."""
    return (0, *range(2, n), 1)


def back(n: int) -> tuple[int, ...]:
    """The inverse of `there`."""
    return (0, n - 1, *range(1, n - 1))


def _arranged(items: Sequence[Any], order: Sequence[int]) -> tuple[Any, ...]:
    return tuple([items[a] for a in order])


def _stays(shape: Sequence[int], order: Sequence[int]) -> bool:
    """Whether elements are in the same order after a permutation of the axes."""
    moved = [a for a in order if shape[a] != 1]
    return moved == sorted(moved) or 0 in shape


def _permuted(b: Builder, x: int, order: Sequence[int]) -> int:
    """x with its axes in another order; a reshape if its elements stay where they are."""
    shape = b.shape(x)
    if _stays(shape, order):
        return b.emit("reshape", x, _arranged(shape, order))
    inner = b.made_by(x, "permute")
    if inner is not None and _arranged(inner.static[0], order) == tuple(range(len(order))):
        return inner.inputs[0]
    return b.emit("permute", x, tuple(order))


# -- rows of arrays that lie channels-last ---------------------------------------------------


@lru_cache(maxsize=None)
def last_row(row: str) -> Op:
    """A row of windows on turned arrays: the library gets views of them in the usual order.

    No user program has it.
    """
    op = TABLE[row]

    def compute(xp, *given):
        arrays = [xp.permute(x, back(x.ndim)) for x in given[: op.arity]]
        made = getattr(xp, row)(*arrays, *given[op.arity :])
        if op.outputs == 1:
            return xp.permute(made, there(made.ndim))
        return tuple([xp.permute(y, there(y.ndim)) for y in made])

    def shape(*given):
        avals = [a.like(_arranged(a.shape, back(a.ndim))) for a in given[: op.arity]]
        made = op.shape(*avals, *given[op.arity :])
        if op.outputs == 1:
            return _turned_aval(made)
        return tuple([_turned_aval(a) for a in made])

    outputs = op.outputs
    return Op(f"{row}_last", compute, shape, None, arity=op.arity, outputs=outputs, static=True)


def _turned_aval(a: Aval) -> Aval:
    return a.like(_arranged(a.shape, there(a.ndim)))


# -- regions ---------------------------------------------------------------------------------


class _Regions:
    """Sets of convolutions whose arrays meet, each with the bytes that it saves and costs."""

    def __init__(self) -> None:
        self._above: dict[int, int] = {}
        self._saved: dict[int, int] = {}
        self._cost: dict[int, int] = {}

    def new(self, name: int) -> int:
        """A region; its name is a value's."""
        self._above[name] = name
        self._saved[name] = self._cost[name] = 0
        return name

    def find(self, region: int) -> int:
        while self._above[region] != region:
            region = self._above[region]
        return region

    def join(self, regions: Sequence[int]) -> int:
        first, *others = [self.find(r) for r in regions]
        for other in others:
            if (other := self.find(other)) != first:
                self._above[other] = first
                self._saved[first] += self._saved[other]
                self._cost[first] += self._cost[other]
        return first

    def save(self, region: int, nbytes: int) -> None:
        self._saved[self.find(region)] += nbytes

    def pay(self, region: int, nbytes: int) -> None:
        self._cost[self.find(region)] += nbytes

    def pays(self, region: int) -> bool:
        """Whether a region saves more than it costs."""
        root = self.find(region)
        return self._saved[root] > self._cost[root]


# -- the pass --------------------------------------------------------------------------------


def channels_last(graph: Graph) -> Graph:
    """The graph with convolutions, and what lies between them, on turned arrays."""
    chosen = {e.outputs[0] for e in graph.equations if _takes(graph, e)}
    while chosen:
        turning = _Turning(chosen)
        made = rewrite(graph, turning.rule)
        turning.settle(made)
        worth = {i for i in chosen if turning.regions.pays(i)}
        if worth == chosen:
            return dead(made)
        chosen = worth
    return graph


def _takes(graph: Graph, e: Equation) -> bool:
    """Whether a convolution may be turned: over two axes, dense, in half precision."""
    if e.op.name not in _CONVOLUTIONS and e.op.name != "convolution_biased":
        return False
    if any(isinstance(x, Literal) for x in e.inputs):
        return False
    avals = [graph.avals[i] for i in (*e.inputs, *e.outputs)]
    plain = all(a.dtype == avals[0].dtype in TURNED and 0 not in a.shape for a in avals)
    return plain and avals[0].ndim == 4 and e.static[-1] == 1


class _Turning:
    """Turns equations of a graph, from first to last.

    chosen   the results of the convolutions that are turned, in the numbers of the old graph
    regions  of these, by the same numbers
    """

    def __init__(self, chosen: set[int]):
        self._chosen = chosen
        self._turned: dict[int, tuple[int, int]] = {}  # by value: its turned one, and a region
        self.regions = _Regions()

    def rule(self, b: Builder, e: Equation) -> Replacement:
        """What replaces an equation; None if it stays."""
        if e.outputs[0] in self._chosen:
            return (self._convolution(b, e),)
        if not any([x in self._turned for x in e.inputs if x.__class__ is int]):
            return None
        if e.op.name in _RULES:
            return _RULES[e.op.name](self, b, e)
        if e.op.folds:
            return self._fold(b, e)
        if e.op.name in _ELEMENTWISE or (broadcasts(e) and e.op.name != "extreme_share"):
            return self._elementwise(b, e)
        return None

    def settle(self, graph: Graph) -> None:
        """Count what reads values in the old order after all: each is a copy, or reads columns."""
        read = {i for e in graph.equations for i in e.inputs if i.__class__ is int}
        for i in read.union(graph.outputs):
            if i in self._turned and _moves(graph.avals[i]):
                self.regions.pay(self._turned[i][1], _nbytes(graph.avals[i]))

    def _given(self, x: Operand) -> tuple[int, int] | None:
        """The turned value of an operand, and its region."""
        return None if isinstance(x, Literal) else self._turned.get(x)

    def _keep(self, b: Builder, turned: int, region: int) -> int:
        """A value of which the turned one is given."""
        x = _permuted(b, turned, back(len(b.shape(turned))))
        self._turned[x] = turned, region
        return x

    # Convolutions

    def _convolution(self, b: Builder, e: Equation) -> int:
        own = self.regions.new(e.outputs[0])
        x, w, *bias = e.inputs
        known = [found[1] for i in (x, w) if (found := self._given(i)) is not None]
        region = self.regions.join([own, *known])
        operands = [self._operand(b, i, region) for i in (x, w)]
        avals = [b.aval(i) for i in (x, w, e.outputs[0])]
        self.regions.save(region, sum([_nbytes(a) for a in avals if _moves(a)]))
        name = "convolution" if bias else e.op.name
        made = b.emit(last_row(name), *operands, *e.static)
        if bias:
            made = b.emit("add", made, bias[0])
        if name == "convolution_weight":  # what reads it has parameters beside it
            return _permuted(b, made, back(4))
        return self._keep(b, made, region)

    def _operand(self, b: Builder, x: int, region: int) -> int:
        """An operand of a convolution in the memory that it reads."""
        found = self._given(x)
        if found is not None:
            return found[0]
        made = _permuted(b, x, there(4))
        if b.made_by(made, "permute") is not None:
            self.regions.pay(region, _nbytes(b.aval(x)))
            made = b.emit("copy", made)
        return made

    # What lies between

    def _elementwise(self, b: Builder, e: Equation) -> Replacement:
        shape = b.shape(e.outputs[0])
        full = [x for x in e.inputs if b.shape(x) == shape]
        found = [x for x in full if self._given(x) is not None]
        other = [x for x in full if self._given(x) is None and not _is_spread(b, x)]
        if not found or len(other) > len(found):
            return None
        region = self.regions.join([self._turned[x][1] for x in found])
        for x in other:
            self.regions.pay(region, 2 * _nbytes(b.aval(x)))
        operands = [self._beside(b, x, shape) for x in e.inputs]
        return (self._keep(b, b.emit(e.op, *operands, *e.static), region),)

    def _beside(self, b: Builder, x: Operand, shape: tuple[int, ...]) -> Operand:
        """An operand of a turned elementwise equation, which may broadcast it."""
        if isinstance(x, Literal) or prod(b.shape(x)) == 1:
            return x
        found = self._given(x)
        if found is not None and b.shape(x) == shape:
            return found[0]
        spread = b.made_by(x, "broadcast_to")
        if spread is not None and not isinstance(spread.inputs[0], Literal):
            source = self._beside(b, spread.inputs[0], shape)
            return b.emit("broadcast_to", source, _arranged(b.shape(x), there(len(shape))))
        missing = len(shape) - len(b.shape(x))
        wide = b.emit("reshape", x, (*(1,) * missing, *b.shape(x))) if missing else x
        return _permuted(b, wide, there(len(shape)))

    def _fold(self, b: Builder, e: Equation) -> Replacement:
        found = self._given(e.inputs[0])
        if found is None or len(e.inputs) != 1 or len(e.static) != 2:
            return None
        (turned, region), (axes, keepdims) = found, e.static
        n = len(b.shape(turned))
        order = there(n)
        made = b.emit(e.op, turned, tuple(sorted([order.index(a) for a in axes])), keepdims)
        if keepdims:
            return (self._keep(b, made, region),)
        left = [a for a in order if a not in axes]
        return (_permuted(b, made, sorted(range(len(left)), key=left.__getitem__)),)

    def _reshape(self, b: Builder, e: Equation) -> Replacement:
        """Images and channels stay; sizes are joined or split."""
        found, shape = self._given(e.inputs[0]), tuple(e.static[0])
        if found is None or len(shape) < 2 or shape[:2] != b.shape(e.inputs[0])[:2]:
            return None
        made = b.emit("reshape", found[0], (shape[0], *shape[2:], shape[1]))
        return (made if len(shape) == 2 else self._keep(b, made, found[1]),)

    def _window(self, b: Builder, e: Equation) -> Replacement:
        """A pool over both sizes."""
        found = [self._given(x) for x in e.inputs]
        if None in found or len(e.static[0]) != 2 or len(b.shape(e.inputs[0])) != 4:
            return None
        if any(0 in b.shape(i) for i in (*e.inputs, *e.outputs)):
            return None
        turned = [f[0] for f in found if f is not None]
        region = self.regions.join([f[1] for f in found if f is not None])
        made = b.emit(last_row(e.op.name), *turned, *e.static)
        made = made if isinstance(made, tuple) else (made,)
        return tuple([self._keep(b, y, region) for y in made])

    def _concat(self, b: Builder, e: Equation) -> Replacement:
        found = [self._given(x) for x in e.inputs]
        if None in found:
            return None
        region = self.regions.join([f[1] for f in found if f is not None])
        axis, *rest = e.static
        axis = there(len(b.shape(e.outputs[0]))).index(axis)
        made = b.emit(e.op, [f[0] for f in found if f is not None], axis, *rest)
        return (self._keep(b, made, region),)

    def _by_axis(self, b: Builder, e: Equation) -> Replacement:
        """A row whose first parameter has an entry for each axis, and the second maybe, too."""
        found, (first, *rest) = self._given(e.inputs[0]), e.static
        if found is None or any(p is None or isinstance(p, int) for p in first):
            return None
        order = there(len(first))
        if e.op.name == "unslice":
            rest = [_arranged(rest[0], order)]
        made = b.emit(e.op, found[0], _arranged(first, order), *rest)
        return (self._keep(b, made, found[1]),)


def _nbytes(a: Aval) -> int:
    return prod(a.shape) * a.dtype.itemsize


def _moves(a: Aval) -> bool:
    """Whether an array lies differently when it is turned."""
    return not _stays(a.shape, there(a.ndim))


def _is_spread(b: Builder, x: Operand) -> bool:
    """Whether an operand has fewer elements than places."""
    return isinstance(x, Literal) or b.made_by(x, "broadcast_to") is not None


_RULES: dict[str, Callable[[_Turning, Builder, Equation], Replacement]] = {
    **dict.fromkeys(_POOLS, _Turning._window),
    "reshape": _Turning._reshape,
    "concat": _Turning._concat,
    **dict.fromkeys(("slice_", "pad", "unslice"), _Turning._by_axis),
}
