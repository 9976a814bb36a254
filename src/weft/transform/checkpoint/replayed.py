"""Checkpoints: calls that save only their inputs and are rematerialised in the backward pass.

A checkpointed call is recorded as always, so gradients flow through the same nodes in the same
order. But when it ends, the values that its nodes saved are replaced by empty places. The first
place that a sweep reads makes the function run again, under the settings and with the random
numbers of the first run, and the nodes of that run fill the places.
"""

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from itertools import chain, zip_longest
from typing import Any, ParamSpec, TypeVar, overload
from weakref import ref

from ... import errors
from ...arrays.tensor import Tensor
from ...core import versions
from ...core.backends import BACKENDS, PYTHON_SCALARS
from ...core.box import BOXED, ground
from ...core.node import Leaf, Node, NodeExtra, ids
from ...core.origin import line_of, origin
from ...core.recording import Packed
from ...core.settings import current, override_settings
from ...core.value import TENSORS, wrap
from ..modes import trees
from .digests import digest
from .lineage import nodes_behind, nodes_in, on_nodes, saving_nodes, values_in

P = ParamSpec("P")
R = TypeVar("R")


@overload
def checkpoint(f: Callable[P, R]) -> Callable[P, R]: ...
@overload
def checkpoint(f: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R: ...
def checkpoint(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """f(*args, **kwargs), keeping only the arguments and running f again in the backward pass.

    f             the function
    args, kwargs  what it is called with; without any, the checkpointed function is returned

    The gradients are those without a checkpoint, bit for bit, to any order and inside any
    transformation. Random numbers are drawn once: the second run gets the same ones. With f
    alone, the result is the checkpointed function, so `@wf.checkpoint` decorates.

    f must do the same both times; that something it needs was overwritten in place is noticed.
    Other numbers (of a global counter, of NumPy's random generator) are noticed only under a
    `CheckpointConfig(verify=True)`; without it they give wrong gradients.
    It returns tensors, alone or in containers and dataclasses. What it captures in a closure
    stays alive like its arguments, but an outer checkpoint cannot free it.

    >>> import weft as wf
    >>> layer = wf.checkpoint(lambda x: wf.exp(wf.sin(x)).sum())
    >>> x = wf.ones(1000, requires_grad=True)
    >>> loss = layer(x)
    >>> wf.memory_stats().bytes  # x itself, which sin has saved, but no result of exp
    4000
    >>> round(loss.backward()[x][0].item(), 4)
    1.2534
    """
    if args or kwargs:
        return _run(f, args, kwargs)

    @wraps(f)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        return _run(f, args, kwargs)

    return checkpointed


def _run(f: Callable[..., Any], args: tuple, kwargs: dict):
    settings = current.get()
    # A trace keeps all values: a checkpoint would free nothing.
    if not settings.grad or any([level.trace is not None for level in settings.levels]):
        return f(*args, **kwargs)
    return _CheckpointedCall(f, args, kwargs).first(args, kwargs)


def replaying() -> bool:
    """Whether a checkpointed function is being replayed: what it counts was counted before."""
    draws = current.get().draws
    return draws is not None and draws.again


def _keeps_state(x) -> bool:
    """Whether x is a module: a leaf that is kept as it is, since its state may change."""
    return getattr(x.__class__, "_keeps_state", False)


class _LoggedDraws:
    """Draws random numbers for the first run, and logs the draws."""

    def __init__(self, log: list, source):
        self._log, self._source = log, source
        self.again = source is not None and source.again

    def __call__(self, generator, words: int):
        draw = (self._source or type(generator).advance)(generator, words)
        self._log.append((words, draw))
        return draw


class _RepeatedDraws:
    """Replays the draws of the first run."""

    again = True

    def __init__(self, call: "_CheckpointedCall"):
        self._call, self._rest = call, iter(call.drawn)

    def __call__(self, generator, words: int):
        had, draw = next(self._rest, (None, None))
        if had != words:
            raise self._call.differs(f"drew {words} random words where it had drawn {had}")
        return draw

    def finish(self) -> None:
        left = len(list(self._rest))
        if left:
            raise self._call.differs(f"left out {left} of its draws of random numbers")


class _SavedPlace:
    """The place of a value that a call saved: empty until the call is replayed."""

    __slots__ = ("call", "digest", "filled", "nodes", "value")

    def __init__(self, call: "_CheckpointedCall", value):
        self.call, self.nodes = call, tuple(nodes_in(value))
        self.value, self.filled = None, 0
        self.digest = digest(ground(value)) if call.verifies else None

    def fill(self, value) -> None:
        self.value, self.filled = value, next(ids)

    def take(self):
        """The value; the place is empty again afterwards."""
        while (value := self.value) is None:
            self.call.replay()
        _refuse_stamped((ground(value),), self.filled, self.call)
        self.value = None
        return on_nodes(value, iter(self.nodes)) if self.nodes else value

    @property
    def _data(self) -> tuple:
        """What `memory_stats` counts: the value, if present, and once per call its inputs."""
        here = () if self.value is None else (ground(self.value),)
        return (*here, *self.call.memory()) if self.call.first_place() is self else here


def _recall(place: _SavedPlace):
    return wrap(place.take())


_recall.replays = True  # type: ignore[attr-defined]


class _Input:
    """A saved argument: a tensor's value, packed by the surrounding hooks if there are any.

    Parameters, modules and objects that are no tensors are kept as they are.
    """

    __slots__ = ("_node", "_unpack", "kept")

    def __init__(self, x, hooks):
        self._node = self._unpack = None
        self.kept: Any = x
        if x.__class__ is Tensor or x.__class__ in BOXED:
            self._node, self.kept = x._node, x._data
            if hooks is not None:
                pack, self._unpack = hooks
                self.kept = pack(wrap(x._data))

    @property
    def is_own(self) -> bool:
        """Whether it is a value that can be handed over to an outer checkpoint."""
        return self._unpack is None and self.kept.__class__ in BACKENDS

    @property
    def memory(self):
        """The raw array of the argument, or its packed place; None if there is none."""
        if self.kept.__class__ in BACKENDS or self.kept.__class__ in TENSORS:
            return ground(self.kept)
        return getattr(self.kept, "_data", None)

    def value(self):
        if self._unpack is not None:
            return wrap(self._unpack(self.kept)._data, self._node)
        raw = self.kept.take() if self.kept.__class__ is _SavedPlace else self.kept
        return wrap(raw, self._node) if raw.__class__ in BACKENDS else raw


class _CheckpointedCall:
    """One call of a checkpointed function: how to run it again, and the places to fill."""

    def __init__(self, f: Callable[..., Any], args: tuple, kwargs: dict):
        self._f, self._settings, self._origin = f, current.get(), origin()
        leaves, self._rebuild = trees.flatten((args, kwargs), _keeps_state)
        self.inputs = [_Input(x, self._settings.saved_hooks) for x in leaves]
        self.drawn: list[tuple] = []
        # Weak references: nodes and inner calls own their places, and those own this call.
        self._nodes: list[ref] = []
        self._ops: list = []
        self._inner: list[ref] = []
        self._outlived: list[ref] = []
        self._began, self._ended = next(ids), 0  # on the clock of node ids
        self.outer: _CheckpointedCall | None = None  # the checkpoint that holds this one's inputs

    @property
    def line(self) -> str:
        return line_of(*self._origin)

    @property
    def verifies(self) -> bool:
        """Whether what is computed again is compared with what it was."""
        saving = self._settings.saving
        return saving is not None and saving.config.verify

    def first(self, args: tuple, kwargs: dict):
        """The first run of the call."""
        with override_settings(
            saved_hooks=None, saving=None, draws=_LoggedDraws(self.drawn, self._settings.draws)
        ):
            out = self._f(*args, **kwargs)
        self._empty(saving_nodes(out, self._began))
        self._ended = next(ids)
        return out

    def _empty(self, nodes: list[Node]) -> None:
        """Free the saved values, and the inputs of inner checkpoints."""
        inner, raws = _calls(nodes), []
        for node in _own_nodes(nodes):
            raws += [weak for v in values_in(node.saved) if (weak := _weak(ground(v))) is not None]
            node.saved = _with_places(self, node.saved)
            node.extra = node.extra or NodeExtra()
            node.extra.unpack = _recall
            if self._settings.saving is not None:
                self._settings.saving.own(node)
            self._nodes.append(ref(node))
            self._ops.append(node.op)
        for call in inner:
            self._inner.append(ref(call))
            call.hand_over(self)
        self._outlived = [weak for weak in raws if weak() is not None]

    def hand_over(self, outer: "_CheckpointedCall") -> None:
        """Free the inputs: the outer checkpoint can recompute them."""
        self.outer = outer
        for given in self.inputs:
            if given.is_own:
                given.kept = _SavedPlace(outer, given.kept)

    def fill_inputs(self, again: "_CheckpointedCall") -> None:
        if len(again.inputs) != len(self.inputs):
            raise self.differs(f"got {len(again.inputs)} arguments, not {len(self.inputs)}")
        for given, value in zip(self.inputs, again.inputs, strict=True):
            if given.kept.__class__ is _SavedPlace:
                given.kept.fill(value.kept)

    def replay(self) -> None:
        """Run the function again, and fill the places with what it saves."""
        inputs = [k.memory for k in self.inputs if k.is_own or k.kept.__class__ in TENSORS]
        _refuse_stamped(inputs, self._began, self)
        _refuse_stamped([weak() for weak in self._outlived], self._ended, self)
        args, kwargs = self._rebuild([k.value() for k in self.inputs])
        draws, start = _RepeatedDraws(self), next(ids)
        token = current.set(replace(self._settings, saved_hooks=None, saving=None, draws=draws))
        try:
            with _keep_watching(self._settings.tapes):
                out = self._f(*args, **kwargs)
            draws.finish()
            nodes = saving_nodes(out, start)
            self._refuse_overwritten_leaves(out, start)
            self._fill(nodes)
        except Exception as e:
            e.add_note(f"in the replay of the checkpoint called at {self.line}")
            raise
        finally:
            current.reset(token)

    def _fill(self, nodes: list[Node]) -> None:
        own, inner = _own_nodes(nodes), _calls(nodes)
        for op, weak, again in zip_longest(self._ops, self._nodes, own):
            node: Any = weak and weak()
            if again is None or again.op is not op or not _alike(node, again):
                raise self.differs(_difference(op, node, again))
        if len(inner) != len(self._inner):
            raise self.differs(f"made {len(inner)} checkpoints itself, not {len(self._inner)}")
        for weak, again in zip(self._nodes, own, strict=True):
            node = weak()
            if node is not None and node.saved is not None:
                for place, value in zip(values_in(node.saved), values_in(again.saved), strict=True):
                    expected = place.handle.digest
                    if expected is not None and digest(ground(value)) != expected:
                        raise self.differs(f"got other numbers in {again.name} (at {again.line})")
                    place.handle.fill(value)
        for weak, again in zip(self._inner, inner, strict=True):
            call = weak()
            if call is not None:
                call.fill_inputs(again)

    def differs(self, how: str) -> errors.ReplayDiffers:
        return errors.ReplayDiffers(
            f"checkpoint (called at {self.line}): run again for the backward pass, the function "
            f"{how}; it must do the same both times: depend on its arguments and on what does "
            "not change, and take random numbers from wf.random"
        )

    def _refuse_overwritten_leaves(self, out, start: int) -> None:
        """Refuse leaves that f captured and that were overwritten; they are known after the run."""
        if versions.latest < self._ended:
            leaves = [n.tensor and n.tensor() for n in nodes_behind(out, start) if type(n) is Leaf]
            raws = [ground(t) for t in leaves if t is not None]
            _refuse_stamped(raws, self._ended, self, start)

    def memory(self) -> list:
        return [given.memory for given in self.inputs]

    def first_place(self) -> _SavedPlace | None:
        """One live place of the call, for which `memory_stats` counts the inputs."""
        nodes = (weak() for weak in self._nodes)
        own = (v.handle for n in nodes if n is not None for v in values_in(n.saved or ()))
        calls = (weak() for weak in self._inner)
        inner = (k.kept for c in calls if c is not None for k in c.inputs)
        return next((p for p in chain(own, inner) if p.__class__ is _SavedPlace), None)


def _with_places(call: _CheckpointedCall, saved):
    """A node's saved values, replaced by empty places."""
    if type(saved) is tuple:
        return tuple([_with_places(call, v) for v in saved])
    if saved is None or type(saved) in PYTHON_SCALARS:
        return saved
    return Packed(_SavedPlace(call, saved))


def _weak(raw):
    return ref(raw) if type(raw).__weakrefoffset__ else None  # None for NumPy scalars


def _own_nodes(nodes: list[Node]) -> list[Node]:
    """The nodes whose values are not held by an inner checkpoint or packed by hooks."""
    return [n for n in nodes if n.extra is None or n.extra.unpack is None]


def _calls(nodes: list[Node]) -> list[_CheckpointedCall]:
    """The outermost checkpoints that hold the values of these nodes."""
    found: dict[_CheckpointedCall, None] = {}
    for node in nodes:
        if node.extra is not None and node.extra.unpack is _recall:
            call = next(values_in(node.saved)).handle.call
            while call.outer is not None:
                call = call.outer
            found[call] = None
    return list(found)


def _alike(node: Node | None, again: Node) -> bool:
    """Whether two nodes of one operation agree in type and saves; True if the first was freed."""
    if node is None or node.saved is None:
        return True
    counts = [sum(1 for _ in values_in(n.saved)) for n in (node, again)]
    return node.shape == again.shape and node.dtype == again.dtype and counts[0] == counts[1]


def _difference(op, node: Node | None, again: Node | None) -> str:
    """How the replay differs from the first run, in words."""
    had = _describe(node) if node is not None else "nothing more" if op is None else op.name
    if again is None:
        return f"did not do {had}"
    return f"did {_describe(again)}, where it had done {had}"


def _describe(node: Node) -> str:
    count = sum(1 for _ in values_in(node.saved or ()))
    return (
        f"{node.name} (at {node.line}), {node.dtype} of shape {tuple(node.shape)}, saving {count}"
    )


@contextmanager
def _keep_watching(tapes: tuple):
    """A block in which the tapes' watched tensors are tracked, even if the tapes have ended."""
    again = []
    for weak, leaf in chain.from_iterable([tape._leaves.values() for tape in tapes]):
        tensor = weak()
        if tensor is not None and tensor._node is None:
            tensor._node = leaf
            again.append(tensor)
    try:
        yield
    finally:
        for tensor in again:
            tensor._node = None


def _refuse_stamped(
    raws, since: int, call: _CheckpointedCall, until: float = float("-inf")
) -> None:
    """Raise if memory was overwritten after `since` (and before `until`)."""
    if versions.latest >= since:
        return
    for raw in raws:
        when = None if raw is None else versions.last_write(raw)
        if raw is not None and when is not None and until < when < since:
            raise errors.SavedValueOverwritten(
                f"checkpoint (called at {call.line}): a value of shape {tuple(raw.shape)} that the "
                "function needs to be run again was overwritten in place (out=, copy_ or an "
                "optimizer step); run backward() first, or give the function a .clone()"
            )
