"""Tracing a function with its values, and derivative sweeps over the trace."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from numpy import ndarray

from ... import errors
from ...arrays.tensor import Tensor
from ...core.backends import BACKENDS
from ...core.box import Level, Tag, ground
from ...core.node import Leaf, Node, ids
from ...core.op import Partials
from ...core.record import record
from ...core.recording import inexact, pick, values_to_save
from ...core.settings import current, exactly, override_settings
from ...core.types import Array, Raw
from ...core.value import install_level, wrap
from ...graph.graph import Equation, Literal
from ...graph.symbol import Symbol, Trace
from ...ops.structural import permute
from . import trees
from .dual import to_tensor, unwrap_if_plain
from .reverse import sweep
from .rules import push


class TracedTensor(Tensor):
    """A tensor whose operations are traced."""

    __slots__ = ()


install_level(Symbol, TracedTensor)


@record(frozen=False)
class Traced:
    """A function's trace at some arguments, with all intermediate values."""

    trace: Trace
    rebuild: trees.Rebuild  # leaves -> the function's result

    @property
    def inputs(self) -> list[int]:
        return self.trace.inputs

    @property
    def outputs(self) -> list[int]:
        return self.trace.outputs

    def value(self) -> Any:
        """The function's result."""
        return self.rebuild([to_tensor(self.trace.values[i]) for i in self.outputs])


def trace_of(
    what: str, f: Callable[..., Any], leaves: list[Tensor], rebuild: trees.Rebuild
) -> Traced:
    """The trace of `f(*rebuild(leaves))`, which is run once, with these values."""
    trace = Trace()
    with Tag(what) as tag:
        level = Level(Symbol, tag, trace=trace)
        symbols = []
        for x in leaves:
            i = trace.enter(unwrap_if_plain(x))
            trace.inputs.append(i)
            symbols.append(wrap(Symbol(tag, trace, i)))
        with override_settings(levels=(*current.get().levels, level)):
            out = f(*rebuild(symbols))
            outputs, put = trees.flatten_result(what, out)
        for y in outputs:
            raw = y._data
            at_level = raw.__class__ is Symbol and raw.level == tag
            trace.outputs.append(raw.index if at_level else trace.constant(unwrap_if_plain(y)))
    return Traced(trace, put)


def operands(trace: Trace, e: Equation) -> list[Raw]:
    """The values that an equation was computed from."""
    return [i.value if i.__class__ is Literal else trace.values[i] for i in e.inputs]


def result(trace: Trace, e: Equation) -> Any:
    """The value of an equation, as its row returns it."""
    return (
        trace.values[e.outputs[0]]
        if e.op.outputs == 1
        else tuple([trace.values[i] for i in e.outputs])
    )


def passes_on(e: Equation, moving: list[bool]) -> bool:
    """Whether a derivative of the operands marked in `moving` can reach the results."""
    rule = e.op.rule
    if isinstance(rule, Partials):
        return any(
            m and not (d.__class__ is int and d == 0) for m, d in zip(moving, rule.d, strict=True)
        )
    return any(moving)


def differentiable_outputs(trace: Trace, e: Equation) -> list[int]:
    """The results of an equation that a derivative can reach: those that are no integers."""
    return [e.outputs[k] for k in e.op.tracked if inexact(trace.values[e.outputs[k]])]


def active(trace: Trace, starts: Iterable[int]) -> list[Equation]:
    """The equations through which a derivative of `starts` goes, in order.

    Raises for an operation without a derivative on the way.
    """
    reached, found = set(starts), []
    for e in trace.equations:
        moving = [i.__class__ is not Literal and i in reached for i in e.inputs]
        if not passes_on(e, moving):
            continue
        results = differentiable_outputs(trace, e)
        if not results:
            continue
        if e.op.rule is None:
            raise errors.NotDifferentiable(
                f"{e.op.name} (at {e.line}) has no derivative; use .detach() or "
                "wf.stop_gradient() on its argument to treat the result as a constant"
            )
        reached.update(results)
        found.append(e)
    return found


def forward(
    trace: Trace,
    equations: list[Equation],
    tangents: dict[int, Array],
    starts: Iterable[int],
    wanted: Sequence[int],
    units: frozenset[int] = frozenset(),
) -> list[Array | None]:
    """The tangents of the values `wanted` (None: zero), carried through the equations.

    starts  independent variables: a value among them has the tangent given here, or none, even if
            it is computed from others
    units   values whose batch of tangents is the unit vectors in order
    """
    tangents, starts = dict(tangents), frozenset(starts)
    last = {i: k for k, e in enumerate(equations) for i in e.inputs if i.__class__ is not Literal}
    for i in wanted:
        last[i] = len(equations)
    with exactly(), BACKENDS[ndarray].quiet():
        for k, e in enumerate(equations):
            moving = tuple([None if i.__class__ is Literal else tangents.get(i) for i in e.inputs])
            if all([t is None for t in moving]) or starts.issuperset(e.outputs):
                continue
            dy = _push_units(trace, e, moving, units) if units else None
            if dy is None:
                y = result(trace, e)
                dy = push(e.op, y, operands(trace, e), moving, e.static)
            for n in e.op.tracked:
                i = e.outputs[n]
                if i in last and i not in starts and inexact(trace.values[i]):
                    tangents[i] = dy if e.op.outputs == 1 else dy[n]
            for i in e.inputs:
                if i.__class__ is not Literal and last[i] == k:
                    tangents.pop(i, None)
    return [tangents.get(i) for i in wanted]


def _push_units(
    trace: Trace, e: Equation, moving: tuple[Array, ...], units: frozenset[int]
) -> Array | None:
    """A matrix times all unit vectors, which is the matrix; None for other equations."""
    if e.op.name != "matmul" or units.isdisjoint(e.inputs):
        return None
    place = next(k for k, i in enumerate(e.inputs) if i in units)
    vector, matrix = e.inputs[place], e.inputs[1 - place]
    avals = [trace.avals[i] for i in (vector, matrix, *e.outputs)]
    alike = len({a.dtype for a in avals}) == 1
    if moving[1 - place] is not None or not alike or [a.ndim for a in avals] != [1, 2, 1]:
        return None
    rows = trace.values[matrix]
    return moving[place].across(permute(rows, (1, 0)) if place else rows)


class Reverse:
    """The trace as a recorded graph, for any number of reverse sweeps."""

    def __init__(self, trace: Trace, equations: list[Equation], starts: Iterable[int]):
        self.nodes: dict[int, Leaf | Node] = {}
        for i in starts:
            raw = ground(trace.values[i])
            self.nodes[i] = Leaf(tuple(trace.values[i].shape), raw.dtype, None, False)
        for e in equations:
            self._add(trace, e)

    def _add(self, trace: Trace, e: Equation) -> None:
        parents = tuple([None if i.__class__ is Literal else self.nodes.get(i) for i in e.inputs])
        y = result(trace, e)
        n = Node()
        n.op, n.parents, n.static = e.op, parents, e.static
        n.saved = values_to_save(e.op, parents, y, operands(trace, e), e.static)
        n.id, n.thread, n.extra = next(ids), 0, None
        n.code, n.lasti = e.origin
        if e.op.outputs == 1:
            n.shape, n.dtype = tuple(y.shape), ground(y).dtype
            self.nodes[e.outputs[0]] = n
            return
        n.shape = tuple([tuple(v.shape) for v in y])
        n.dtype = tuple([ground(v).dtype for v in y])
        for k in e.op.tracked:
            if inexact(y[k]):
                self.nodes[e.outputs[k]] = pick(n, k)

    def sweep(self, seeds: dict[int, Array], wanted: Sequence[int]) -> list[Array | None]:
        """The cotangents of the values `wanted` (None: zero) for cotangents of later values."""
        start: dict[Leaf | Node, Array] = {}
        for i, g in seeds.items():
            node = self.nodes.get(i)
            if node is not None and g is not None:
                start[node] = g
        goals = {self.nodes[i] for i in wanted if i in self.nodes}
        found = sweep(start, record=False, retain=True, goals=goals) if start else {}
        return [found.get(self.nodes.get(i)) for i in wanted]
