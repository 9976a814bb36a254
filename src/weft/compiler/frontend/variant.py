"""One variant of a compiled function: its graph, the sources of its inputs, its results."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import optree

from ... import errors
from ...arrays.tensor import Tensor
from ...core import versions
from ...core.checkpointing import CheckpointConfig
from ...core.node import Leaf, Node, Severed
from ...core.record import field, record
from ...core.value import RESULT, aval_of, wrap
from ...graph.graph import Graph
from ..host_tensors import on_arrays
from ..memory import CallBytes, call_bytes
from ..pipeline import build, current_target
from ..raw.arrays import RawArrays
from ..raw.numpy_arrays import NUMPY
from ..target import Executable, Target
from ..timing import time_stages
from .derivative import Derivative
from .draws import ReservedDraws
from .fresh import Original
from .gradient_buffers import GradientBuffers, ReplacedGradient
from .guards import Guard, hooks_of
from .inputs import (
    Call,
    Captured,
    DrawWords,
    Gradient,
    HostNumber,
    InputSource,
    Keeper,
    Now,
    StateArray,
    TensorArgument,
)
from .quick import is_flat
from .reachable.watch import ReadWatch
from .records import BoundTensors
from .results import Build, OpenedTree
from .severed import CallMark

Write = Callable[[Call, np.ndarray], None]
_new, _asarray = object.__new__, np.asarray


def alone(leaves: list[Any]) -> Any:
    """The only leaf of a result."""
    return leaves[0]


def rebuilder(structure: optree.PyTreeSpec | OpenedTree, which: list[int]) -> Build:
    """A function that builds a tree of this structure from its leaves; fast for common ones.

    which  the position of each leaf among the distinct leaves
    """
    if which != list(range(len(which))) or isinstance(structure, OpenedTree):
        return lambda made: structure.unflatten([made[k] for k in which])
    if structure.is_leaf():
        return alone
    if is_flat(structure) and structure.type in (tuple, list):
        return structure.type
    return structure.unflatten


@record
class ReturnedLeaf:
    """How one leaf of the function's result is made: `get(call, raws)`.

    position  among the outputs, if the program computes it; else None
    """

    get: Callable[[Call, list[np.ndarray]], Any]
    position: int | None = None


@record(frozen=False, slots=True)
class _CallEnding:
    """The end of a call, after its native code."""

    program: "Variant"
    call: Call
    values: list[np.ndarray]
    room: list[np.ndarray] | None

    def finish(self, made: list[np.ndarray]) -> Any:
        return self.program.finish(self.call, self.values, made)

    def stop(self, task: int) -> None:
        self.program.stop(self.room, task)


@record(frozen=False, slots=True)
class _KeeperArrays:
    """The arrays of one keeper, read again when its `readings` has changed."""

    keeper: Keeper
    slots: list[tuple[int, Callable[[], np.ndarray]]]
    last: int = 0  # `readings` at the last read

    def read(self, values: list[np.ndarray]) -> None:
        if self.keeper.readings != self.last:
            for k, get in self.slots:
                values[k] = get()
            self.last = self.keeper.readings


@record(frozen=False)
class Variant:
    """The program for calls of one kind.

    places     the source of each input of the graph
    writes     (position among the outputs, function that writes it back) of every changed source
    replaced   the gradients that a call replaces
    donated    from positions of outputs to those of the inputs whose memory they take
    leaves     how the leaves of the result are made; `rebuild` builds the result from them
    guards     what must hold for the program to be right
    preparing  functions that read the host scalars of a call, before guards compare them
    before     functions to call before each call that matches; `after` after one that succeeded
    now        the current call
    same       arguments, by position, that are captured as well
    watch      the reachable state that it depends on
    target     the machine that it is compiled for
    arrays     the arrays of its tensors
    on_host    positions of outputs that are NumPy's arrays, whatever those of tensors are
    checkpoint  what is kept in memory while it runs, and what is computed again
    capture    whether a GPU runs it as one captured graph
    once       why it is right for its first call only; "" if it is right for others
    """

    graph: Graph
    places: list[InputSource]
    writes: list[tuple[int, Write]]
    replaced: list[ReplacedGradient]
    donated: dict[int, int]
    leaves: list[ReturnedLeaf]
    rebuild: Build
    guards: list[Guard]
    preparing: list[Callable[[], None]]
    before: list[Callable[[], None]]
    after: list[Callable[[], None]]
    now: Now
    watch: ReadWatch = field(init=False)  # set after the trace, which finds the captured tensors
    same: dict[int, Tensor] = field(default_factory=dict)
    derivative: Derivative | None = None
    once: str = ""
    target: Target = field(default_factory=current_target)
    arrays: RawArrays = NUMPY
    on_host: frozenset[int] = frozenset()
    checkpoint: CheckpointConfig | None = None
    capture: bool = True

    def __post_init__(self) -> None:
        placed = list(enumerate(self.places))
        self._captured = [(k, p) for k, p in placed if isinstance(p, Captured)]
        self.times: dict[str, float] = {}  # seconds of compiling, by stage
        self._bound = BoundTensors([p.tensor for _, p in self._captured])
        self._hooks = [hooks_of(p.tensor._node) for _, p in self._captured]
        self._owners: set[int] = set()  # the owners of memory that calls overwrite
        self._stamp: Callable[[], None]  # marks that memory as overwritten
        self._values: list[Any] = [None] * len(self.places)
        self._arguments = [(k, p.position) for k, p in placed if isinstance(p, TensorArgument)]
        slots = [(k, p) for k, p in placed if isinstance(p, StateArray)]
        self._slots = [(k, p.get) for k, p in slots if p.keeper is None]
        kept = {id(p.keeper): p.keeper for _, p in slots if p.keeper is not None}
        self._kept = [
            _KeeperArrays(keeper, [(k, p.get) for k, p in slots if p.keeper is keeper])
            for keeper in kept.values()
        ]
        self._others = [(k, p.read) for k, p in placed if isinstance(p, Gradient | DrawWords)]
        self._numbers = [(k, p.compute, p.dtype) for k, p in placed if isinstance(p, HostNumber)]
        self._words = [p for p in self.places if isinstance(p, DrawWords)]
        self._given = [w for w in self.writes if w[0] not in self.donated]
        self._found = {id(p.tensor) for _, p in self._captured}
        self._changes = bool(self.writes or self.replaced or self.after)
        self._decisions = [(g.decide, g.value) for g in self.guards]
        self._overwritten = [
            p for _, p in placed if isinstance(p, TensorArgument) and p.changed and not p.rebinds
        ]

    @cached_property
    def executable(self) -> Executable:
        """The native code, compiled at first use."""
        with time_stages() as self.times:
            options = self.checkpoint, self.capture
            made = build(self.graph, self.donated, self.target, *options)
            return on_arrays(made, self.arrays, self.on_host)

    @property
    def memory(self) -> CallBytes:
        """The memory of one call."""
        return call_bytes(self.executable.schedule, self.executable.plan)

    @cached_property
    def _gradients(self) -> GradientBuffers | None:
        if not self.replaced:
            return None
        return GradientBuffers(self.replaced, self.executable, self.arrays)

    def choose(self, checkpoint: CheckpointConfig | None, capture: bool) -> None:
        """Choose how it is built, before that; also for its pull-back."""
        self.checkpoint, self.capture = checkpoint, capture
        if self.derivative is not None:
            self.derivative.checkpoint, self.derivative.capture = checkpoint, capture

    def begin(self, call: Call) -> None:
        """Compile, and bind the objects that the first call reads."""
        _ = self.executable
        self.prepare(call)
        self.renew(call)

    def captured_tensors(self) -> list[Tensor]:
        """The captured tensors, also those that are arguments."""
        return [*[p.tensor for _, p in self._captured], *self.same.values()]

    # Whether it matches

    def prepare(self, call: Call) -> None:
        """Read the host scalars of a call, for the guards to compare and the program to use."""
        self.now.call = call
        for read in self.preparing:
            read()

    def matches(self, call: Call) -> bool:
        """Whether everything is as at the last call; only compares, after `prepare`."""
        if not (self._bound.matches() and self.watch.matches(call.objects)):
            return False
        for decide, value in self._decisions:
            if not decide() == value:
                return False
        return not (self._changes or self.same) or self._overlap_with_arguments(call) is None

    def renew(self, call: Call) -> str | None:
        """Bind other objects with equal contents; a text that says why if they do not match."""
        why = None if self._bound.matches() else self._bind()
        why = why or self.watch.renew(call.objects)
        if why is not None:
            return why
        for g in self.guards:
            if not g.matches():
                return g.describe_change()
        return self._overlap_with_arguments(call)

    def _overlap_with_arguments(self, call: Call) -> str | None:
        """Why the arguments do not match the captured tensors; raises for shared changed memory."""
        for position, tensor in self.same.items():
            if call.tensors[position] is not tensor:
                return f"whether argument {position} is a tensor that the function finds by itself"
        if not self._changes:
            return None
        if not self._found.isdisjoint(map(id, call.tensors)):
            k = next(k for k, t in enumerate(call.tensors) if id(t) in self._found)
            return f"whether argument {k} is a tensor that the function finds by itself"
        if call.arrays:
            self._refuse_arrays(call)
        if self._overwritten or self.arrays.meets([t._data for t in call.tensors], self._owners):
            self._refuse_overlaps(call)
        return None

    def _refuse_arrays(self, call: Call) -> None:
        for p in self.places:
            if isinstance(p, TensorArgument) and p.changed and p.position in call.arrays:
                raise errors.StagingError(
                    f"compile: the function changes {p.label}, which is an array of another "
                    "library; pass a tensor, wf.tensor(array)"
                )

    def _refuse_overlaps(self, call: Call) -> None:
        """Refuse arguments and captured tensors that share memory which a call overwrites."""
        given = [(f"argument {k}", t) for k, t in enumerate(call.tensors)]
        found = [(p.label, p.tensor) for _, p in self._captured]
        changed = [(p.label, p.tensor) for _, p in self._captured if p.donated]
        changed += [given[p.position] for p in self._overwritten]
        shares = self.arrays.shares_memory
        for label, written in changed:
            for name, t in (*given, *found):
                if t is not written and shares(written._data, t._data):
                    raise _shared_memory_error(label, name)

    def _bind(self) -> str | None:
        """Bind the memory of captured tensors; a text that says why if they do not match."""
        for (_, p), hooks in zip(self._captured, self._hooks, strict=True):
            if p.tensor._node is not p.entered_node:
                return f"whether a gradient is wanted of {p.label}"
            if hooks_of(p.entered_node) != hooks:
                return f"the hooks on the gradient of {p.label}"
            now = aval_of(p.tensor)
            if now != p.entered.aval:
                return f"the shape or dtype of {p.label}: now {now.dtype}{list(now.shape)}"
        self._own_memory()
        for (k, _), raw in zip(self._captured, self._bound.take(), strict=True):
            self._values[k] = raw
        return None

    def _own_memory(self) -> None:
        """Make overwritten memory writable; refuse it if another captured tensor shares it."""
        arrays = self.arrays
        changed = [p for _, p in self._captured if p.donated]
        for p in changed:
            if arrays.is_frozen(p.tensor._data):
                p.tensor._data = arrays.copy(p.tensor._data)
        self._owners = {versions.watch_memory(p.tensor._data) for p in changed}
        self._stamp = versions.SharedStamp(self._owners).stamp
        owners = {id(p): arrays.owner(p.tensor._data) for _, p in self._captured}
        for p in changed:
            for _, other in self._captured:
                if other is not p and owners[id(other)] == owners[id(p)]:
                    if arrays.shares_memory(p.tensor._data, other.tensor._data):
                        raise _shared_memory_error(p.label, other.label)

    # Calls

    def __call__(self, call: Call) -> Any:
        if not self._words:
            return self._call(call, self._gather_inputs)
        reserved = ReservedDraws(self._words)

        def gather(call: Call) -> list[np.ndarray]:
            values = self._gather_inputs(call)
            reserved.end()
            return values

        try:
            return self._call(call, gather)
        except BaseException:
            reserved.give_back()
            raise

    def _call(self, call: Call, gather: Callable[[Call], list[np.ndarray]]) -> Any:
        for begin in self.before:
            begin()
        values, gradients, run = gather(call), self._gradients, self.executable
        room = None if gradients is None else gradients.room()
        ending = _CallEnding(self, call, values, room)
        return run.run(values, room, ending) if self._changes else ending.finish(run.run(values))

    def finish(self, call: Call, values: list[np.ndarray], raws: list[np.ndarray]) -> Any:
        """Write the outputs back and build the result; may run twice."""
        self.now.call, gradients = call, self._gradients
        if self.executable.copies:
            self._bring_back(call, values, raws)
        for position, write in self._given:
            write(call, raws[position])
        if gradients is not None:
            gradients.take(call, raws)
        leaves = [leaf.get(call, raws) for leaf in self.leaves]
        if self.derivative is not None:
            self.derivative.attach(call, values, raws, self._results(leaves))
        for commit in self.after:
            commit()
        self.now.call = None  # its arguments are the caller's
        return self.rebuild(leaves)

    def stop(self, room: list[np.ndarray] | None, task: int) -> None:
        """Clean up after a signal handler ended a call after this task."""
        if self._gradients is not None and room is not None:
            self._gradients.forget(room, task)

    def _bring_back(self, call: Call, values: list[np.ndarray], raws: list[np.ndarray]) -> None:
        """Write outputs back where the executable copied donated memory."""
        for position, write in self.writes:
            k = self.donated.get(position)
            if k is not None and raws[position] is not values[k]:
                write(call, raws[position])

    def direct(self) -> Callable[[list[np.ndarray]], Any] | None:
        """A function from the arguments' arrays to the result; None if a call does more than that.

        The function gives None where captured tensors or the reachable state have changed.
        """
        computed = [leaf.position for leaf in self.leaves if leaf.position is not None]
        plain = len(self._arguments) + len(self._captured) == len(self.places)
        bare = not (self._changes or self.guards or self.before or self.derivative or self.same)
        if not plain or not bare or len(computed) < len(self.leaves):
            return None
        run, rebuild, result = self.executable.run, self.rebuild, RESULT
        watch = self.watch
        if self._captured:
            return self._beside_found(run, lambda made: rebuild([wrap(made[k]) for k in computed]))

        def one(raws: list[np.ndarray]):
            if not (watch.places_match() or watch.renew_arrays()):
                return None
            t = _new(result[0])
            t._data, t._node, t._share = run(raws)[0], None, None
            return t

        def several(raws: list[np.ndarray]):
            if not (watch.places_match() or watch.renew_arrays()):
                return None
            made = run(raws)
            return rebuild([wrap(made[k]) for k in computed])

        return one if computed == [0] and rebuild is alone else several

    def _beside_found(self, run: Callable, built: Callable) -> Callable[[list[np.ndarray]], Any]:
        """The same for a program with captured tensors."""
        arguments, watch, bound = self._arguments, self.watch, self._bound

        def call(raws: list[np.ndarray]):
            if not (bound.matches() and (watch.places_match() or watch.renew_arrays())):
                return None
            values = self._values.copy()
            for k, position in arguments:
                values[k] = raws[position]
            return built(run(values))

        return call

    def _gather_inputs(self, call: Call) -> list[np.ndarray]:
        """Gather the inputs' arrays; mark the memory that the call overwrites."""
        for kept in self._kept:
            kept.read(self._values)
        values = self._values.copy()
        for k, position in self._arguments:
            values[k] = call.tensors[position]._data
        for k, get in self._slots:
            values[k] = get()
        for k, read in self._others:
            values[k] = read(call)
        for k, compute, dtype in self._numbers:
            values[k] = _asarray(compute(), dtype)
        if self._owners:
            self._stamp()
        return values

    def _results(self, leaves: list) -> dict[int, Any]:
        """The computed tensors of the result, by position among the outputs."""
        return {
            r.position: t
            for r, t in zip(self.leaves, leaves, strict=True)
            if r.position is not None
        }


def _shared_memory_error(changed: str, other: str) -> errors.StagingError:
    return errors.StagingError(
        f"compile: {changed} is changed in place and shares its memory with {other}; give one of "
        "them a copy (.clone())"
    )


def returned_tensor(position: int, node: Node | Leaf | Severed | CallMark | None) -> ReturnedLeaf:
    """A computed result; one that depends on severed gradients gets the marks of each call."""
    if isinstance(node, CallMark):
        return ReturnedLeaf(lambda call, raws: wrap(raws[position], node(call)), position)
    return ReturnedLeaf(lambda call, raws: wrap(raws[position], node), position)


def returned_argument(place: TensorArgument) -> ReturnedLeaf:
    """An argument that the function returns."""
    return ReturnedLeaf(lambda call, raws: call.tensors[place.position])


def returned_container(position: int) -> ReturnedLeaf:
    """A container among the arguments that the function returns."""
    return ReturnedLeaf(lambda call, raws: call.containers[position])


def returned_copy(original: Original, position: int) -> ReturnedLeaf:
    """An object that the function has created: a new copy at each call."""
    return ReturnedLeaf(lambda call, raws: original.take(call, position))


def returned_object(x: object) -> ReturnedLeaf:
    """The same object at each call; arrays are copied, as the caller may write to them."""
    if isinstance(x, np.ndarray):
        return ReturnedLeaf(lambda call, raws: x.copy())
    return ReturnedLeaf(lambda call, raws: x)


def returned_number(read: Callable[[], Any]) -> ReturnedLeaf:
    """A host scalar that the function returns."""
    return ReturnedLeaf(lambda call, raws: read())
