"""One variant of a compiled function: its graph, what goes into it, and where its results go."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import optree

from ... import errors
from ...arrays.tensor import Tensor
from ...core import versions
from ...core.backends import BACKENDS
from ...core.node import Leaf, Node, Severed
from ...core.value import RESULT, aval_of, wrap
from ...graph.graph import Graph
from ..pipeline import build, current_target
from ..target import Executable, Target
from ..timing import time_stages
from .arguments import is_flat
from .derivative import Derivative
from .draws import Reserved
from .fresh import Original
from .gradient_buffers import GradientBuffers, Replaced
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
from .reachable.watch import ReadWatch
from .records import BoundTensors
from .results import Build, Opened
from .severed import at_call

Write = Callable[[Call, np.ndarray], None]
_new = object.__new__
_owner = BACKENDS[np.ndarray].owner


def alone(leaves: list[Any]) -> Any:
    """A result that is one leaf."""
    return leaves[0]


def rebuilder(structure: optree.PyTreeSpec | Opened, which: list[int]) -> Build:
    """What makes a tree of this structure of its leaves; the common ones without a walk.

    which  where each leaf is among those that are given, each once
    """
    if which != list(range(len(which))) or isinstance(structure, Opened):
        return lambda made: structure.unflatten([made[k] for k in which])
    if structure.is_leaf():
        return alone
    if is_flat(structure) and structure.type in (tuple, list):
        return structure.type
    return structure.unflatten


@dataclass(frozen=True)
class Returned:
    """How one leaf of the function's result is made: `get(call, raws)`.

    position  among the outputs, of a tensor that the program computes
    """

    get: Callable[[Call, list[np.ndarray]], Any]
    position: int | None = None


@dataclass(slots=True)
class _CallEnding:
    """What follows the native code of a call."""

    program: "Variant"
    call: Call
    values: list[np.ndarray]
    room: list[np.ndarray] | None

    def finish(self, made: list[np.ndarray]) -> Any:
        return self.program.finish(self.call, self.values, made)

    def stop(self, task: int) -> None:
        self.program.stop(self.room, task)


@dataclass(slots=True)
class _KeeperArrays:
    """Arrays of one keeper's, which are read again when he has counted on."""

    keeper: Keeper
    slots: list[tuple[int, Callable[[], np.ndarray]]]
    seen: int = 0

    def read(self, values: list[np.ndarray]) -> None:
        if self.keeper.readings != self.seen:
            for k, get in self.slots:
                values[k] = get()
            self.seen = self.keeper.readings


@dataclass
class Variant:
    """What is run for calls of one kind.

    places   where each input of the graph comes from
    writes   (position among the outputs, what takes it over) for every place that is changed
    replaced the gradients that are others after a call
    donated  positions of outputs to those of the inputs whose memory they are written into
    leaves   how the leaves of the result are made, and `rebuild` makes the result of them
    guards   what must hold for the program to be right
    preparing  what reads the numbers of each call, before it is compared with the guards
    before   what is done before each call that fits, and `after` after one that succeeded
    now      the call that is under way
    same     arguments, by position, that the function finds by itself as well
    watch    the Python values that it is built on
    target   the machine that it is compiled for
    once     why it is good for the call that it was made at only, if it is
    """

    graph: Graph
    places: list[InputSource]
    writes: list[tuple[int, Write]]
    replaced: list[Replaced]
    donated: dict[int, int]
    leaves: list[Returned]
    rebuild: Build
    guards: list[Guard]
    preparing: list[Callable[[], None]]
    before: list[Callable[[], None]]
    after: list[Callable[[], None]]
    now: Now
    watch: ReadWatch = field(init=False)  # set when it is known which tensors it reads
    same: dict[int, Tensor] = field(default_factory=dict)
    derivative: Derivative | None = None
    once: str = ""
    target: Target = field(default_factory=current_target)

    def __post_init__(self) -> None:
        placed = list(enumerate(self.places))
        self._captured = [(k, p) for k, p in placed if isinstance(p, Captured)]
        self.times: dict[str, float] = {}  # seconds that its native code took, by stages
        self._bound = BoundTensors([p.tensor for _, p in self._captured])
        self._hooks = [hooks_of(p.tensor._node) for _, p in self._captured]
        self._owners: set[int] = set()  # of the memory that calls write into
        self._stamp: Callable[[], None]  # notes that they do
        self._values: list[Any] = [None] * len(self.places)
        self._arguments = [(k, p.position) for k, p in placed if isinstance(p, TensorArgument)]
        slots = [(k, p) for k, p in placed if isinstance(p, StateArray)]
        self._slots = [(k, p.get) for k, p in slots if p.keeper is None]
        kept = {id(p.keeper): p.keeper for _, p in slots if p.keeper is not None}
        self._kept = [
            _KeeperArrays(keeper, [(k, p.get) for k, p in slots if p.keeper is keeper])
            for keeper in kept.values()
        ]
        self._others = [
            (k, p) for k, p in placed if isinstance(p, Gradient | HostNumber | DrawWords)
        ]
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
        """The native code, made when it is first asked for."""
        with time_stages() as self.times:
            return build(self.graph, self.donated, self.target)

    @cached_property
    def _gradients(self) -> GradientBuffers | None:
        return GradientBuffers(self.replaced, self.executable) if self.replaced else None

    def begin(self, call: Call) -> None:
        """Compile it, and take hold of what the first call reads."""
        _ = self.executable
        self.prepare(call)
        self.renew(call)

    def found(self) -> list[Tensor]:
        """The tensors that the function found by itself."""
        return [*[p.tensor for _, p in self._captured], *self.same.values()]

    # Whether it fits

    def prepare(self, call: Call) -> None:
        """Read what a call comes with, for the guards to compare and the program to use."""
        self.now.call = call
        for read in self.preparing:
            read()

    def matches(self, call: Call) -> bool:
        """Whether a call that was prepared finds what the last one found: nothing is changed."""
        if not (self._bound.matches() and self.watch.matches(call.objects)):
            return False
        for decide, value in self._decisions:
            if not decide() == value:
                return False
        return not (self._changes or self.same) or self._overlap_with_arguments(call) is None

    def renew(self, call: Call) -> str | None:
        """Take hold of other objects that are alike; why the program does not fit, if so."""
        why = None if self._bound.matches() else self._bind()
        why = why or self.watch.renew(call.objects)
        if why is not None:
            return why
        for g in self.guards:
            if not g.matches():
                return g.broken()
        return self._overlap_with_arguments(call)

    def _overlap_with_arguments(self, call: Call) -> str | None:
        """Whether arguments are other found tensors than before, or meet what is changed."""
        for position, tensor in self.same.items():
            if call.tensors[position] is not tensor:
                return f"whether argument {position} is a tensor that the function finds by itself"
        if not self._changes:
            return None
        meets, owned = bool(self._overwritten), self._owners
        for k, t in enumerate(call.tensors):
            if id(t) in self._found:
                return f"whether argument {k} is a tensor that the function finds by itself"
            raw = t._data
            meets = meets or (id(raw) if raw.base is None else _owner(raw)) in owned
        if call.arrays:
            self._refuse_arrays(call)
        if meets:
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
        """Refuse arguments in memory that is written into."""
        given = [(f"argument {k}", t) for k, t in enumerate(call.tensors)]
        found = [(p.label, p.tensor) for _, p in self._captured]
        changed = [(p.label, p.tensor) for _, p in self._captured if p.donated]
        changed += [given[p.position] for p in self._overwritten]
        for label, written in changed:
            for name, t in (*given, *found):
                if t is not written and np.shares_memory(written._data, t._data):
                    raise _shared_memory_error(label, name)

    def _bind(self) -> str | None:
        """Take hold of the memory of captured tensors, if they are what they were."""
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
        """Memory that is written into must be writable, and nobody else's among the inputs."""
        numpy_ = BACKENDS[np.ndarray]
        changed = [p for _, p in self._captured if p.donated]
        for p in changed:
            if numpy_.is_frozen(p.tensor._data):
                p.tensor._data = numpy_.copy(p.tensor._data)
        self._owners = {versions.watch_memory(p.tensor._data) for p in changed}
        self._stamp = versions.Shared(self._owners).stamp
        seen = {id(p): numpy_.owner(p.tensor._data) for _, p in self._captured}
        for p in changed:
            for _, other in self._captured:
                if other is not p and seen[id(other)] == seen[id(p)]:
                    if np.shares_memory(p.tensor._data, other.tensor._data):
                        raise _shared_memory_error(p.label, other.label)

    # Calls

    def __call__(self, call: Call) -> Any:
        if not self._words:
            return self._call(call, self._gather_inputs)
        reserved = Reserved(self._words)

        def gathered(call: Call) -> list[np.ndarray]:
            values = self._gather_inputs(call)
            reserved.end()
            return values

        try:
            return self._call(call, gathered)
        except BaseException:
            reserved.give_back()
            raise

    def _call(self, call: Call, gathered: Callable[[Call], list[np.ndarray]]) -> Any:
        for begin in self.before:
            begin()
        values, gradients, run = gathered(call), self._gradients, self.executable
        room = None if gradients is None else gradients.room()
        ending = _CallEnding(self, call, values, room)
        return run.run(values, room, ending) if self._changes else ending.finish(run.run(values))

    def finish(self, call: Call, values: list[np.ndarray], raws: list[np.ndarray]) -> Any:
        """Take over what native code made; it may be done twice."""
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
        return self.rebuild(leaves)

    def stop(self, room: list[np.ndarray] | None, task: int) -> None:
        """A signal's handler has ended a call behind this task."""
        if self._gradients is not None and room is not None:
            self._gradients.forget(room, task)

    def _bring_back(self, call: Call, values: list[np.ndarray], raws: list[np.ndarray]) -> None:
        """Write what is in copies of donated memory where it belongs."""
        for position, write in self.writes:
            k = self.donated.get(position)
            if k is not None and raws[position] is not values[k]:
                write(call, raws[position])

    def direct(self) -> Callable[[list[np.ndarray]], Any] | None:
        """From the arguments' arrays to the result, where nothing else has a part in a call.

        Tensors that the function found have: for others than at the last call it gives None.
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
        """From the arguments' arrays to the result, if what was found is what it was."""
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
        """The inputs' arrays; those that are written into are marked as overwritten now."""
        for kept in self._kept:
            kept.read(self._values)
        values = self._values.copy()
        for k, position in self._arguments:
            values[k] = call.tensors[position]._data
        for k, get in self._slots:
            values[k] = get()
        for k, place in self._others:
            values[k] = place.read(call)
        if self._owners:
            self._stamp()
        return values

    def _results(self, leaves: list) -> dict[int, Any]:
        """The tensors that were computed, by their position among the outputs."""
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


def returned_tensor(position: int, node: Node | Leaf | Severed | None) -> Returned:
    """A result that the program computes; from severed gradients, it has the marks of a call's."""
    if isinstance(node, Severed) and node.asks:
        return Returned(lambda call, raws: wrap(raws[position], at_call(node, call)), position)
    return Returned(lambda call, raws: wrap(raws[position], node), position)


def returned_argument(place: TensorArgument) -> Returned:
    """An argument that the function gives back."""
    return Returned(lambda call, raws: call.tensors[place.position])


def returned_container(position: int) -> Returned:
    """A container among the arguments that the function gives back."""
    return Returned(lambda call, raws: call.containers[position])


def returned_copy(original: Original, position: int) -> Returned:
    """An object that the function has made, anew at each call."""
    return Returned(lambda call, raws: original.take(call, position))


def returned_object(x: object) -> Returned:
    """Something that is the same at each call; arrays are copied, as somebody may write there."""
    if isinstance(x, np.ndarray):
        return Returned(lambda call, raws: x.copy())
    return Returned(lambda call, raws: x)


def returned_number(read: Callable[[], Any]) -> Returned:
    """A number that Python computes."""
    return Returned(lambda call, raws: read())
