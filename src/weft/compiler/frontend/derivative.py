"""Differentiating through a call of a compiled function: its pull-back is another program."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from ... import errors
from ...arrays.tensor import Tensor
from ...core import dispatch
from ...core.checkpointing import CheckpointConfig
from ...core.node import Leaf, Node, Severed
from ...core.op import Jvp, Op
from ...core.record import field, record
from ...core.recording import pack, pick, record_node, sever
from ...core.settings import current
from ...core.value import TENSORS, wrap
from ...graph.graph import Graph, Literal
from ...graph.staged import Staged
from ..host_tensors import on_arrays
from ..passes.devices import without_devices
from ..pipeline import build, current_target, target_for
from ..raw.arrays import RawArrays, arrays_on
from ..raw.numpy_arrays import NUMPY
from ..target import Executable, Target
from .capture import Capture
from .inputs import Call
from .severed import CallMark, at_calls, mark_of, marks_behind


@record(frozen=False)
class Derivative:
    """The pull-back of a program.

    results    positions of the outputs that are differentiated
    parents    for each leaf, a function from a call to its node
    of         for each leaf, the results that depend on it
    kept       the saved values: ("input" or "output", position)
    graph      from the saved values and the results' cotangents to the leaves' cotangents

    overwritten  the label of a saved value that the call itself overwrites, or None
    severed      the mark of the severed gradients that the results depend on
    target       the machine that it is compiled for
    arrays       the arrays that it takes and gives
    checkpoint   what is kept in memory while it runs, and what is computed again
    capture      whether a GPU runs it as one captured graph
    """

    results: list[int]
    parents: list[Callable[[Call], Any]]
    of: list[set[int]]
    kept: list[tuple[str, int]]
    graph: Graph
    op: Op
    overwritten: str | None = None
    severed: Severed | CallMark | None = None
    target: Target = field(default_factory=current_target)
    arrays: RawArrays = NUMPY
    checkpoint: CheckpointConfig | None = None
    capture: bool = True

    @cached_property
    def executable(self) -> Executable:
        """The native code, compiled at the first backward pass."""
        made = build(self.graph, {}, self.target, self.checkpoint, self.capture)
        return on_arrays(made, self.arrays)

    def attach(
        self,
        call: Call,
        values: list[np.ndarray],
        raws: list[np.ndarray],
        tensors: dict[int, Tensor],
    ) -> None:
        """Record the call: give the tensors of its results nodes."""
        parents = tuple([find(call) for find in self.parents])
        saved = tuple([raws[k] if kind == "output" else values[k] for kind, k in self.kept])
        first = tensors[self.results[0]]
        node = record_node(self.op, first._data, parents, saved, (self, parents))
        settings = current.get()
        if settings.saved_hooks is not None:
            pack(node, *settings.saved_hooks)
        if settings.saving is not None:
            settings.saving.own(node)
        mark = mark_of(self.severed, call)
        if mark is not None:
            sever(node, mark)
        if len(self.results) == 1:
            first._node = node
            return
        node.shape = tuple([tuple(tensors[k].shape) for k in self.results])
        node.dtype = tuple([tensors[k].dtype for k in self.results])
        for n, k in enumerate(self.results):
            tensors[k]._node = pick(node, n)


def _pull(g, *rest) -> tuple:
    """The cotangents of the leaves, from those of the results."""
    *saved, derivative, parents = rest
    if derivative.overwritten is not None:
        raise errors.SavedValueOverwritten(
            f"{derivative.op.name}: its derivative needs {derivative.overwritten} as it was before "
            "the call, which has written into it; differentiate inside of the function, or use a "
            ".clone() of it there"
        )
    gs = list(g) if isinstance(g, list) else [g]
    recorded = any([c.__class__ in TENSORS for c in gs])
    saved, gs = ([x._data if x.__class__ in TENSORS else x for x in xs] for xs in (saved, gs))
    graph, arrays = derivative.graph, derivative.arrays
    avals = [graph.avals[i] for i in graph.inputs[len(saved) :]]
    seeds = [
        arrays.zeros(a.shape, a.dtype) if c is None else arrays.whole(c)
        for c, a in zip(gs, avals, strict=True)
    ]
    found = derivative.executable.run([*saved, *seeds])
    if recorded:
        made = [record_node(_ONCE, raw, parents, (), (derivative.op.name,)) for raw in found]
        found = list(map(wrap, found, made))
    # A leaf that no result with a cotangent depends on has no gradient, as in eager mode.
    asked = {k for k, c in enumerate(gs) if c is not None}
    return tuple([x if asked & of else None for x, of in zip(found, derivative.of, strict=True)])


def _refuse_again(*args):
    raise errors.NotDifferentiable(
        f"{args[-1]}: a second derivative through a compiled function; differentiate inside of it, "
        "wf.compile(wf.grad(f)), or call fn.__wrapped__"
    )


# The row of a gradient that a compiled pull-back computed.
_ONCE = Op(
    "gradient",
    None,
    lambda *_: None,
    Jvp(_refuse_again, lambda g, *rest: _refuse_again(*rest), _refuse_again),
    None,
)


def _push(tangents, y, *rest):
    raise errors.NotDifferentiable(
        "forward mode through the result of a compiled function's call; use wf.jvp on the compiled "
        "function itself"
    )


def _keep(y, *rest) -> tuple:
    raise AssertionError("a call records what it keeps by itself")


def _inner_hooks(node, g):
    """Run the hooks of inner nodes; those of leaves run in the backward pass at each call."""
    return g if node.__class__ is Leaf else dispatch.above.visit(node, g)


def derive_pull_back(capture: Capture, tracked: dict[int, Any]) -> Derivative:
    """Trace the pull-back of the differentiated outputs, by their positions."""
    graph, capture.settled = capture.graph, True
    end = len(graph.equations)
    seeds: dict[Any, Any] = {}
    entered = []
    for x in tracked.values():
        i = graph.new(x._data.aval)
        entered.append(i)
        g = Staged(capture.tag, capture, i)
        seeds[x._node] = seeds[x._node] + g if x._node in seeds else g
    reached = dispatch.above.sweep(seeds, record=False, retain=True, on_node=_inner_hooks)
    found = {leaf: capture.lift_raw(c) for leaf, c in reached.items()}
    parents, ends = _parents(capture, found)
    pulled = Graph(graph.avals, [], {}, graph.equations[end:], ends)
    del graph.equations[end:]
    kept = _values_needed(graph, pulled, set(entered))
    names = _name_values(graph, kept)
    pulled.inputs = [*[i for i in kept if i not in graph.constants], *entered]
    pulled.constants = {i: graph.constants[i] for i in kept if i in graph.constants}
    rule = Jvp(_push, _pull, _keep)
    several = len(tracked)
    op = Op(
        f"{capture.name} (compiled)",
        None,
        lambda *_: None,
        rule,
        len(parents),
        outputs=several,
        tracked=tuple(range(several)),
        several=True,
    )
    of, mark = (
        _results_of_leaves(list(found), list(tracked.values())),
        marks_behind(list(tracked.values())),
    )
    device = capture.device
    return Derivative(
        list(tracked),
        parents,
        of,
        names,
        without_devices(pulled, device),
        op,
        severed=None if mark is None else at_calls(capture, mark),
        target=target_for(device),
        arrays=arrays_on(device),
    )


def _results_of_leaves(leaves: list[Leaf], results: list) -> list[set[int]]:
    """For each leaf, the results that depend on it."""
    found: dict[Leaf, set[int]] = {leaf: set() for leaf in leaves}
    for k, x in enumerate(results):
        seen, waiting = set(), [x._node]
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            if node.__class__ is Leaf:
                found.setdefault(node, set()).add(k)
            elif node.__class__ is Node:
                waiting += [p for p in node.parents or () if p is not None]
    return [found[leaf] for leaf in leaves]


def _parents(capture: Capture, found: dict[Leaf, Staged]):
    """Functions from a call to the leaves' nodes, and the indices of the leaves' cotangents."""
    parents = [capture.leaf_finder(leaf) for leaf in found]
    return parents, [cotangent.index for cotangent in found.values()]


def _values_needed(graph: Graph, pulled: Graph, seeds: set[int]) -> list[int]:
    """The values of the function that its pull-back reads, in order."""
    made = {i for e in pulled.equations for i in e.outputs} | seeds
    used = {i for e in pulled.equations for i in e.inputs if i.__class__ is not Literal}
    return sorted((used | set(pulled.outputs)) - made)


def _name_values(graph: Graph, kept: list[int]) -> list[tuple[str, int]]:
    """Each value as an input of the program, else as a new output; constants are left out."""
    inputs = {i: k for k, i in enumerate(graph.inputs)}
    named = []
    for i in kept:
        if i in graph.constants:
            continue
        if i in inputs:
            named.append(("input", inputs[i]))
        else:
            graph.outputs.append(i)
            named.append(("output", len(graph.outputs) - 1))
    return named
