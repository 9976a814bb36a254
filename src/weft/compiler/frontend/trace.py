"""Tracing: from a call of a function to a variant."""

from collections.abc import Callable
from functools import partial
from inspect import iscoroutine, isgenerator
from typing import Any
from weakref import ref

import numpy as np

from ... import errors
from ...core.box import Level
from ...core.node import Leaf, Node, Severed
from ...core.op import TABLE
from ...core.recording import record_node, values_to_save
from ...core.settings import override_settings
from ...core.value import GROUND, TENSORS, aval_of, wrap
from ...graph.staged import Staged, leak_error, read_again
from ..passes.devices import without_devices
from ..pipeline import target_for
from ..raw.arrays import arrays_on
from .arguments import NUMBER, SAME, SEVERED, TENSOR, CallArguments
from .capture import Capture, CapturedDraws, gradient_node
from .containers import ContainerCopies
from .derivative import derive_pull_back
from .effects import report_copies
from .fresh import FreshObjects, Original
from .gradient_buffers import ReplacedGradient
from .host_scalars import Host
from .inputs import Call, Captured, Changeable, Now, StateArray, TensorArgument
from .reachable.frames import watch_frames
from .reachable.watch import ReadWatch
from .results import PLAIN, flatten
from .severed import CallMark, at_calls, mark_argument, mark_of
from .variant import (
    ReturnedLeaf,
    Variant,
    rebuilder,
    returned_argument,
    returned_container,
    returned_copy,
    returned_number,
    returned_object,
    returned_tensor,
)


def trace(name: str, f: Callable[..., Any], taken: CallArguments) -> Variant:
    """Trace f for calls like this one; no tensor outside changes.

    Where a function that is not written in Python rejects a host scalar, the program is specialised
    on the values of the numbers.
    """
    try:
        return _trace(name, f, taken, exact=False)
    except TypeError as e:
        if not taken.call.numbers or isinstance(e, errors.WeftError):
            raise
    return _trace(name, f, taken, exact=True)


def _trace(name: str, f: Callable[..., Any], taken: CallArguments, exact: bool) -> Variant:
    """Trace f.

    exact  whether to specialise on the values of numbers: `type(x)` tells a host scalar from a
           number
    """
    capture = Capture(name, taken.call)
    level = Level(Staged, capture.tag, trace=capture)
    draws = CapturedDraws(capture)
    try:
        with override_settings(
            staging=capture, levels=(level,), draws=draws, tapes=(), saved_hooks=None, saving=None
        ):
            leaves, arguments = _enter_arguments(capture, taken, exact)
            copies = ContainerCopies(leaves)
            args, kwargs = taken.rebuild(copies)
            with watch_frames(name) as ran:
                capture.reads = ran
                box = [f(*args, **kwargs)]
            program = _finish(capture, box, arguments, copies)
    finally:
        capture.closed = True
        capture.arguments.clear()  # the program holds none of them
    if ran.asks_types and taken.call.numbers and not exact:
        return _trace(name, f, taken, exact=True)
    report_copies(name, f, copies, ran.user)
    program.watch = ReadWatch(ran, program.captured_tensors(), f, taken.call.objects)
    return program


class _TracedArgument:
    """A tensor among the arguments: its source, and the staged tensor that f gets."""

    def __init__(self, capture: Capture, position: int, x, tracking: str):
        self.place = capture.enter(aval_of(x), TensorArgument, position)
        self.tensor = wrap(self.place.staged)
        if tracking and tracking != SEVERED:
            self.tensor._grad = None
            leaf = Leaf(x.shape, x.dtype, ref(self.tensor), tracking == "leaf")
            leaf.extra = x._node.extra if x._node.__class__ is Leaf else None  # its hooks
            self.tensor._node = leaf
            capture.leaves[leaf] = position
            if tracking == "computed":
                capture.computed.add(leaf)
                self.tensor._node = _before(leaf, self.place.staged, x._node)
        self.leaf = self.tensor._node
        capture.arguments[id(x)] = (x, self)


def _before(leaf: Leaf, staged: Staged, outside: Node) -> Node:
    """The node of a computed argument: as outside, it is not a leaf for the function."""
    row = TABLE["alias"]
    node = record_node(row, staged, (leaf,), values_to_save(row, (leaf,), staged, [staged], ()), ())
    node.code, node.lasti = outside.code, outside.lasti
    return node


def _enter_arguments(
    capture: Capture, taken: CallArguments, exact: bool
) -> tuple[list, list[_TracedArgument]]:
    """The leaves of the arguments as f gets them."""
    tensors, numbers = iter(taken.call.tensors), 0
    leaves, arguments = [], []
    for kind, static in zip(taken.kinds, taken.leaves, strict=True):
        if kind[0] == TENSOR:
            arguments.append(_TracedArgument(capture, len(arguments), next(tensors), kind[-1]))
            leaves.append(arguments[-1].tensor)
        elif kind[0] == SAME:
            leaves.append(arguments[kind[1]].tensor)
        elif kind[0] == NUMBER:
            number = capture.host(f"number {numbers}", partial(capture.now.number, numbers))
            leaves.append(number.__weft_value__() if exact else number)
            numbers += 1
        else:
            leaves.append(static)
    for a, x in zip(arguments, taken.call.tensors, strict=True):
        if x._node.__class__ is Severed:  # marked last: it may depend on leaves of other arguments
            a.tensor._node = mark_argument(capture, a.place.position, x._node)
    return leaves, arguments


class _Outputs:
    """The outputs of a program, each value once."""

    def __init__(self, capture: Capture):
        self.graph, self.index_of = capture.graph, capture.index_of
        self.donated: dict[int, int] = {}  # positions of outputs to those of inputs
        self.tracked: dict[int, Any] = {}  # differentiated results, by position

    def position(self, staged: Staged) -> int:
        self.graph.outputs.append(self.index_of(staged))
        return len(self.graph.outputs) - 1


def _finish(
    capture: Capture, box: list, arguments: list[_TracedArgument], copies: ContainerCopies
) -> Variant:
    outputs, fresh = _Outputs(capture), FreshObjects(box, capture.raws)
    given = copies.find_unchanged()
    leaves, structure = flatten(capture.name, box[0], capture.makes, fresh, given)
    which, leaves = _each_once(leaves)
    objects = _objects(capture, leaves, fresh, given)
    made = [
        objects.get(id(leaf)) or _returned_leaf(capture, outputs, leaf, arguments)
        for leaf in leaves
    ]
    writes = _changed_places(capture, outputs)
    writes += _changed_arguments(capture, outputs, arguments)
    replaced = _changed_gradients(capture, outputs)
    derivative = derive_pull_back(capture, outputs.tracked) if outputs.tracked else None
    if derivative is not None:
        derivative.overwritten = _overwritten(capture, derivative.kept)
    on_host = _outputs_on_host(capture, writes, replaced)
    return Variant(
        graph=without_devices(capture.graph, capture.device),
        places=capture.places,
        writes=writes,
        replaced=replaced,
        donated=outputs.donated,
        leaves=made,
        rebuild=rebuilder(structure, which),
        guards=capture.guards,
        preparing=capture.preparing,
        before=capture.before,
        after=capture.after,
        now=capture.now,
        same=capture.same,
        derivative=derivative,
        target=target_for(capture.device),
        arrays=arrays_on(capture.device),
        on_host=on_host,
    )


def _outputs_on_host(
    capture: Capture, writes: list[tuple[int, Any]], replaced: list[ReplacedGradient]
) -> frozenset[int]:
    """The outputs that NumPy's arrays are wanted of, beside tensors of another library."""
    graph = capture.graph
    if capture.device == "cpu":
        return frozenset()
    devices = {k: graph.avals[i].device for k, i in enumerate(graph.outputs)}
    devices |= {k: write.__self__.entered.aval.device for k, write in writes}
    devices |= {r.position: capture.device for r in replaced}
    return frozenset([k for k, device in devices.items() if device == "cpu"])


def _overwritten(capture: Capture, kept: list[tuple[str, int]]) -> str | None:
    """The label of a value that the pull-back needs and a call overwrites; None without one."""
    for p in [capture.places[k] for kind, k in kept if kind == "input"]:
        if p.donated or (isinstance(p, TensorArgument) and p.changed and not p.rebinds):
            return p.label
    return None


def _each_once(leaves: list) -> tuple[list[int], list]:
    """The position of each leaf among the distinct leaves, and these."""
    known: dict[int, int] = {}
    which, once = [], []
    for x in leaves:
        if x.__class__ in PLAIN or id(x) not in known:
            known[id(x)] = len(once)
            once.append(x)
        which.append(known[id(x)])
    return which, once


def _objects(
    capture: Capture, leaves: list, made: FreshObjects, given: dict[int, int]
) -> dict[int, ReturnedLeaf]:
    """By identity, the leaves that are the caller's containers, and the objects to copy."""
    own = [x for x in leaves if x.__class__ not in TENSORS and id(x) in made.fresh]
    own = [x for x in own if not (type(x) is Host or isgenerator(x) or iscoroutine(x))]
    own = [x for x in own if not hasattr(x.__class__, "parts")]
    original = Original(capture.name, own, made, given)
    returned = {id(x): returned_copy(original, k) for k, x in enumerate(own)}
    return returned | {k: returned_container(at) for k, at in given.items()}


def _returned_leaf(
    capture: Capture, outputs: _Outputs, x, arguments: list[_TracedArgument]
) -> ReturnedLeaf:
    """How each call makes a leaf of the function's result."""
    if type(x) is Host:
        return returned_number(x.read)
    if x.__class__ not in TENSORS:
        if isgenerator(x) or iscoroutine(x):
            raise errors.StagingError(
                f"compile: {capture.name} returns a {type(x).__name__}, which would run after it "
                "has been compiled; return a list or a tuple"
            )
        whole = hasattr(x.__class__, "parts")
        return _returned_map(capture, outputs, x, arguments) if whole else returned_object(x)
    for a in arguments:
        if x is a.tensor:
            return returned_argument(a.place)
    if x.__class__ in GROUND and capture.is_captured(x):
        capture.of(x)  # it becomes an input, compared at each call
        return returned_object(x)
    x = capture.of(x)
    if x._data.__class__ is not Staged:
        raise errors.StagingError(
            f"compile: {capture.name} returns a {type(x).__name__} of a transformation inside it, "
            "which has ended; return what the transformation gives"
        )
    if x._data.staging is not capture:
        raise leak_error(x._data)
    position = outputs.position(x._data)
    node = _find_freed(x._node) or x._node
    if isinstance(node, Leaf) or (isinstance(node, Node) and node.parents is not None):
        outputs.tracked[position] = x
        node = None
    # With the node of a freed graph, a second backward pass raises the same error as in eager mode.
    return returned_tensor(position, at_calls(capture, node) if isinstance(node, Severed) else node)


def _find_freed(node) -> Node | None:
    """A node whose graph a backward pass in the function has freed; None if there is none."""
    seen, waiting = set(), [node]
    while waiting:
        n = waiting.pop()
        if not isinstance(n, Node) or n in seen:
            continue
        if n.parents is None:
            return n
        seen.add(n)
        waiting += n.parents
    return None


def _returned_map(
    capture: Capture, outputs: _Outputs, x, arguments: list[_TracedArgument]
) -> ReturnedLeaf:
    """A `GradientMap`, with the ids of each call's arguments."""
    ids, gradients, make = x.parts()
    tracked = len(outputs.tracked)
    parts = [_returned_leaf(capture, outputs, g, arguments) for g in gradients]
    if len(outputs.tracked) != tracked:
        raise errors.StagingError(
            f"compile: {capture.name} returns a GradientMap whose gradients can be differentiated; "
            "return the gradients themselves, grads[x]"
        )
    places = {-a.leaf.id: a.place.position for a in arguments if a.leaf is not None}

    def get(call: Call, raws: list[np.ndarray]):
        keys = [call.tensors[places[k]].id if k in places else k for k in ids]
        return make(keys, [p.get(call, raws) for p in parts])

    return ReturnedLeaf(get)


def _changed_places(capture: Capture, outputs: _Outputs) -> list:
    writes = []
    for k, p in enumerate(capture.places):
        if isinstance(p, Captured):
            p.staged = read_again(p.staged)
        if not isinstance(p, Changeable) or not p.changed:
            continue
        if isinstance(p, Captured):
            _check_node(p)
        position = outputs.position(p.staged)
        writes.append((position, p.write))
        if isinstance(p, Captured | StateArray) and not p.rebinds:
            p.donated = True
            outputs.donated[position] = k
    return writes


def _check_node(p) -> None:
    if p.changed and p.node.__class__ is Node:
        raise errors.StagingError(
            f"compile: {p.label} is assigned a value that is being differentiated (by {p.node.name}"
            f", at {p.node.line}); assign value.detach(), or return it"
        )


def _changed_arguments(
    capture: Capture, outputs: _Outputs, arguments: list[_TracedArgument]
) -> list:
    writes = []
    for a in arguments:
        if a.leaf.__class__ is Node and a.leaf.extra is not None and a.leaf.extra.retains:
            capture.after.append(partial(_retain_gradient, capture.now, a.place.position))
        own = a.tensor._data
        a.place.staged, a.place.node = read_again(own), a.tensor._node
        if not a.place.changed:
            continue
        _check_node(a.place)
        a.place.rebinds = a.place.staged is own and id(a.tensor) not in capture.overwritten
        writes.append((outputs.position(a.place.staged), a.place.write))
        if isinstance(a.place.node, Severed):
            mark = at_calls(capture, a.place.node)
            capture.after.append(partial(_mark, capture.now, a.place.position, mark))
    return writes


def _mark(now: Now, position: int, mark: Severed | CallMark) -> None:
    """Mark an argument whose new value depends on a severed gradient."""
    now.call.tensors[position]._node = mark_of(mark, now.call)


def _retain_gradient(now: Now, position: int) -> None:
    now.call.tensors[position].retain_grad()


def _changed_gradients(capture: Capture, outputs: _Outputs) -> list[ReplacedGradient]:
    """The `.grad`s of captured leaves and arguments that the function replaces or clears."""
    replaced = []
    for leaf, (place, gradient) in capture.gradients.items():
        find = capture.leaf_finder(leaf)
        if gradient is None:
            capture.after.append(partial(_forget_gradient, find, capture.now))
        elif place is None or gradient._data is not place.entered:
            owner = None if leaf in capture.leaves else leaf.tensor()
            position = outputs.position(gradient._data)
            mark = gradient_node(gradient)
            mark = None if mark is None else at_calls(capture, mark)
            replaced.append(ReplacedGradient(position, owner, find, mark))
    return replaced


def _forget_gradient(find: Callable[[Call], Leaf], now: Now) -> None:
    find(now.call).held = None
