"""Capture: the inputs of a trace besides its arguments, and what the traced function changes."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from ... import errors
from ...arrays.tensor import Tensor
from ...core.aval import Aval
from ...core.backends import BACKENDS
from ...core.box import BOXED, tags
from ...core.counter import Generator
from ...core.dispatch import above
from ...core.dtypes import default_float, is_inexact, uint64
from ...core.node import Leaf, Node, Severed
from ...core.op import Op
from ...core.record import record
from ...core.settings import current
from ...core.types import Static
from ...core.value import GROUND, TENSORS, aval_of, install_level, wrap
from ...graph.staged import Staged, Staging, read_again
from ...ops.draws import state_after
from ..pipeline import target_for
from ..raw.arrays import arrays_on
from .draws import LoopDraws, Stream, streams_of
from .guards import FixedAttributes, Guard, LeafState
from .host_scalars import Host
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
)
from .reachable.frames import RanCode, ReadPlace
from .records import Records

T = TypeVar("T")
AnyPlace = TypeVar("AnyPlace", bound=InputSource)


class StagedTensor(Tensor):
    """A tensor of a traced function: it has a shape and a dtype, but no values."""

    __slots__ = ()


install_level(Staged, StagedTensor)


@record
class StagedDraw:
    """A draw that is made at each call."""

    state: Staged

    def __getattr__(self, name: str) -> Any:
        raise errors.StagingError(
            f"a random stream is asked for {name!r} in a function that is being compiled, where "
            "draws are made at each call; fork or split generators outside of it"
        )


def _replaying() -> bool:
    draws = current.get().draws
    return draws is not None and draws.again


class CapturedDraws:
    """Replaces the generators in a trace: each draw is an input of the program."""

    def __init__(self, capture: "Capture"):
        self.capture = capture
        self._again = _replaying()

    @property
    def again(self) -> bool:
        """Whether a checkpoint replays the function; reading it adds a guard."""
        self.capture.depends("whether a checkpoint is replayed", _replaying, self._again)
        return self._again

    def __call__(self, generator: Generator, words: int) -> StagedDraw:
        if id(generator) in streams_of(self.capture):
            state = self.state(generator)
            self.move(generator, state_after(state, words))
            return self.draw_of(state)
        place = self.capture.enter(Aval((3,), uint64), DrawWords, generator, words)
        return StagedDraw(place.staged)

    def state(self, generator: Generator) -> Tensor:
        """The state of a stream at this point of the program, as a staged value."""
        streams = streams_of(self.capture)
        if id(generator) not in streams:
            streams[id(generator)] = self.capture.enter(Aval((3,), uint64), Stream, generator)
        return wrap(streams[id(generator)].staged)

    def move(self, generator: Generator, state: Tensor) -> None:
        """Set the state of a stream."""
        streams_of(self.capture)[id(generator)].staged = state._data

    def draw_of(self, state: Tensor) -> StagedDraw:
        """A draw from a stream in this state."""
        return StagedDraw(state._data)

    def along(self, length: int, reverse: bool) -> LoopDraws:
        """The draws in the body of a loop."""
        return LoopDraws(self.capture, StagedDraw, length, reverse)


class Capture(Staging):
    """A trace under way: its graph, the sources of its inputs, and what it changes."""

    tag: int
    now: Now
    reads: RanCode | None  # the code that runs during the trace

    def __init__(self, name: str, call: Call):
        super().__init__(name)
        self.tag = next(tags)
        self.now = Now(call)
        self.reads = None
        self._first: Aval | None = None  # of the first tensor
        self.leaves: dict[Leaf, int] = {}  # leaves of arguments, with their positions
        self.computed: set[Leaf] = set()  # leaves of arguments that are not leaves outside
        # By identity: (the caller's tensor, the traced argument).
        self.arguments: dict[int, tuple[Tensor, Any]] = {}
        self.same: dict[int, Tensor] = {}  # arguments that are also captured, by position
        self.places: list[InputSource] = []  # the sources of the graph's inputs, in order
        self._decided: dict[str, Guard] = {}
        self._fixed: dict[str, FixedAttributes] = {}
        self.preparing: list[Callable[[], None]] = []  # reads the host scalars that guards compare
        self.before: list[Callable[[], None]] = []
        self.after: list[Callable[[], None]] = []
        # (The source, the current tensor).
        self.gradients: dict[Leaf, tuple[InputSource | None, Tensor | None]] = {}
        self.overwritten: set[int] = set()  # identities of staged tensors that were overwritten
        self._tensors: dict[int, Captured] = {}
        self._made: dict[int, Tensor] = {}
        self._constants: dict[int, tuple[Any, Staged]] = {}  # raw arrays, by identity
        self.raws: dict[int, Any] = {}  # arrays that the function creates
        self._numbers: dict[tuple[str, np.dtype], HostNumber] = {}
        self._names: dict[str, int] = {}
        self._kept: dict[Any, tuple[Any, Any]] = {}

    def enter(self, aval: Aval, kind: type[AnyPlace], *args: Any) -> AnyPlace:
        """Add an input to the program, with a source of this kind."""
        if self.closed:
            raise errors.StagingError(f"{self.name} has been compiled, and its trace has ended")
        if aval.device != "cpu" or not kind.on_host:
            self._stay_on(aval)
        place = kind(self.input(self.tag, aval), *args)
        self.places.append(place)
        return place

    def _stay_on(self, aval: Aval) -> None:
        """Require that the program has one device, that of the first tensor."""
        if self._first is None:
            target_for(aval.device)  # raises where there is none
            self._first = aval
        elif aval.device != self._first.device:
            first = self._first
            raise errors.DeviceError(
                f"compile: {self.name} uses tensors on two devices: {first.dtype}"
                f"{list(first.shape)} on {first.device!r}, and {aval.dtype}{list(aval.shape)} on "
                f"{aval.device!r}; move one of them with .to({first.device!r})"
            )

    @property
    def device(self) -> str:
        """The device of the program's tensors."""
        return "cpu" if self._first is None else self._first.device

    @property
    def late_device(self) -> str | None:
        """The program's device, if its values are there only some time after a call; else None."""
        device = self.device
        return None if device == "cpu" or arrays_on(device).host_runtime else device

    def constant(self, value: Any) -> int:
        """The index of a raw array as a constant; NumPy's may be beside tensors elsewhere."""
        i = super().constant(value)
        if self.graph.avals[i].device != "cpu":
            self._stay_on(self.graph.avals[i])
        return i

    def emit(
        self, op: Op, inputs: tuple[Any, ...], static: Static, avals: tuple[Aval, ...]
    ) -> tuple[int, ...]:
        """Append an equation; one that moves NumPy's words or constants away says where to."""
        if op.name == "transfer" and avals[0].device != "cpu":
            self._stay_on(avals[0])
        return super().emit(op, inputs, static, avals)

    def made_at(self, index: int) -> str:
        """A text for where a value comes from."""
        entered = [p.label for p in self.places if p.entered.index == index]
        return entered[0] if entered else super().made_at(index)

    # Operands

    def lift_arguments(self, args: Iterable[Any]) -> list[Any]:
        """The arguments of an operation as values of the program."""
        lifted = [self.of(a) if a.__class__ in GROUND else a for a in args]
        return self._with_numbers(lifted) if any(map(_is_number, lifted)) else lifted

    def _with_numbers(self, args: list[Any]) -> list[Any]:
        """Numbers of each call as tensors of the operands' dtype; integers are cast to float."""
        tensors = [a for a in args if a.__class__ in TENSORS or isinstance(a, Staged)]
        dtype = next((t.dtype for t in tensors if is_inexact(t.dtype)), None)
        if dtype is None:
            dtype = default_float()
            args = [above.cast(a, dtype) if a.__class__ in TENSORS else a for a in args]
        return [a.__weft_number__(dtype) if _is_number(a) else a for a in args]

    def number(self, host: Host, dtype: np.dtype | None) -> Tensor:
        """A host scalar as a staged tensor."""
        dtype = default_float() if dtype is None else dtype
        place = self._numbers.get((host.label, dtype))
        if place is None:
            place = self.enter(Aval((), dtype), HostNumber, host)
            self._numbers[host.label, dtype] = place
        return wrap(place.staged)

    def of(self, tensor: Tensor) -> Tensor:
        """The staged tensor for a tensor: a constant if the function created it, else an input."""
        if tensor.__class__ not in GROUND:
            return tensor
        if self.closed:
            raise errors.StagingError(f"{self.name} has been compiled, and its trace has ended")
        if not self.is_captured(tensor):
            return wrap(self._constant(tensor), tensor._node)
        if id(tensor) in self.arguments:
            return self._argument(tensor)
        place = self._tensors.get(id(tensor))
        if place is None:
            _refuse_node(tensor)
            place = self.enter(aval_of(tensor), Captured, tensor)
            self._tensors[id(tensor)] = place
        place.staged = read_again(place.staged)
        return wrap(place.staged, place.node)

    def _argument(self, tensor: Tensor) -> Tensor:
        """The traced argument of a tensor that is also captured; `same` guards this."""
        _, argument = self.arguments[id(tensor)]
        self.same[argument.place.position] = tensor
        return argument.tensor

    def lift_raw(self, raw: Any) -> Staged:
        """A raw value as a staged value."""
        return raw if isinstance(raw, Staged) else Staged(self.tag, self, self.constant(raw))

    def _constant(self, tensor: Tensor) -> Staged:
        """A tensor that the function created, as a constant with its current values."""
        raw = tensor._data
        if id(raw) not in self._constants:
            value = self.constant(BACKENDS[type(raw)].copy(raw))
            self._constants[id(raw)] = (raw, Staged(self.tag, self, value))
        return self._constants[id(raw)][1]

    def is_captured(self, tensor: Tensor) -> bool:
        """Whether a tensor comes from outside, and was not created by the function."""
        return id(tensor) not in self._made and id(tensor._data) not in self.raws

    def makes(self, tensor: Tensor) -> bool:
        """Whether a tensor is created at each call."""
        return tensor.__class__ not in GROUND or not self.is_captured(tensor)

    def note(self, tensor: Tensor) -> None:
        """Register a tensor that the function creates: a constant until it is changed."""
        if tensor.__class__ in GROUND:
            self._made[id(tensor)] = tensor

    def note_raw(self, raw: Any) -> None:
        """Register an array that the function creates."""
        self.raws[id(raw)] = raw

    def read(self, tensor: Tensor) -> Tensor:
        """A tensor whose values are read: itself if it is a constant, else the staged one."""
        return self.of(tensor) if self.is_captured(tensor) else tensor

    def assign(self, tensor: Tensor, value: Tensor, rebinds: bool = False) -> None:
        """Assign a value to a tensor, in its memory or (`rebinds`, y[i] = v) in new memory."""
        value = self.of(value)
        if id(tensor) in self.arguments:
            tensor = self._argument(tensor)
        if tensor.__class__ in BOXED or id(tensor) in self._made:
            old = self.of(tensor)._data
            self._made.pop(id(tensor), None)
            if not rebinds:
                self.overwritten.add(id(tensor))
            new = value._data if rebinds else _into_memory(old, value._data)
            tensor.__class__, tensor._data = value.__class__, new
            if tensor._node.__class__ is not Leaf:
                tensor._node = value._node
            return
        self.of(tensor)
        place = self._tensors[id(tensor)]
        new = self._only_staged(value)
        place.staged = new if rebinds else _into_memory(place.staged, new)
        place.rebinds = place.rebinds or rebinds
        if place.node.__class__ is not Leaf:
            place.node = value._node

    def _only_staged(self, value: Tensor) -> Staged:
        if value._data.__class__ is not Staged or value._data.staging is not self:
            raise errors.StagingError(
                "compile: a tensor from inside vmap, jvp, or the body of a loop or branch is "
                "written into one from outside; return it from there, and assign it afterwards"
            )
        return value._data

    # Gradients

    def gradient(self, leaf: Leaf) -> Tensor | None:
        """The `.grad` of a leaf, as the program sees it."""
        leaf = self.own_leaf(leaf)
        if leaf not in self.gradients:
            if not self._from_outside(leaf):
                return leaf.held
            self._identify(leaf)
            self.gradients[leaf] = self._given_gradient(leaf)
        return self.gradients[leaf][1]

    def _identify(self, leaf: Leaf) -> None:
        """Require that the tensor of a leaf outside is the same one at each call."""
        owner = leaf.tensor and leaf.tensor()
        if owner is not None and self.reads is not None:
            self.reads.identified[id(owner)] = owner

    def own_leaf(self, leaf: Leaf) -> Leaf:
        """The traced leaf for the leaf of an argument; any other leaf is returned unchanged."""
        owner = leaf.tensor and leaf.tensor()
        if owner is None or id(owner) not in self.arguments:
            return leaf
        node = self._argument(owner)._node
        return node if isinstance(node, Leaf) else leaf

    def _from_outside(self, leaf: Leaf) -> bool:
        """Whether the leaf belongs to an argument or to a captured tensor."""
        owner = leaf.tensor and leaf.tensor()
        found = owner is not None and owner.__class__ in GROUND and id(owner) not in self._made
        return found or leaf in self.leaves

    def leaf_finder(self, leaf: Leaf) -> Callable[[Call], Leaf]:
        """A function from a call to this leaf: captured, or of the call's own argument."""
        if leaf not in self.leaves:
            return lambda call: leaf
        position = self.leaves[leaf]
        return lambda call: call.tensors[position]._node

    def _given_gradient(self, leaf: Leaf) -> tuple[InputSource | None, Tensor | None]:
        find = self.leaf_finder(leaf)
        self._depend_on_hooks(leaf)
        if leaf in self.leaves:
            owner, whose = LeafState(lambda: find(self.now.call)), "arguments"
        else:
            owner, whose = LeafState(lambda: leaf), "parameters"
        if not self.fix(f"whether {whose} have a .grad", owner, "gradient"):
            return None, None
        have = find(self.now.call).held
        _refuse_node(have)
        place = self.enter(aval_of(have), Gradient, find, have._node)
        return place, wrap(place.staged, have._node)

    def _depend_on_hooks(self, leaf: Leaf) -> None:
        """Guard the hooks of an argument's leaf; `Variant` compares those of captured tensors."""
        if leaf in self.leaves:
            find = self.leaf_finder(leaf)
            owner = LeafState(lambda: find(self.now.call))
            self.fix("the hooks on gradients of arguments", owner, "hooks")

    def check_unrequested_leaf(self, leaf: Leaf) -> None:
        """Refuse a backward pass that ends at a computed argument, which has no `.grad`."""
        if leaf in self.computed:
            raise errors.StagingError(
                f"compile: a backward pass in {self.name} reaches argument {self.leaves[leaf]}, "
                "which was computed from something outside, and would have to go on there; pass "
                "x.detach().requires_grad_(), or call backward() outside of the function"
            )

    def set_gradient(self, leaf: Leaf, gradient: Tensor | None) -> None:
        """Set the `.grad` of a leaf."""
        leaf = self.own_leaf(leaf)
        if not self._from_outside(leaf):
            leaf.held = gradient
            return
        self._depend_on_hooks(leaf)
        self._identify(leaf)
        place = self.gradients.get(leaf, (None, None))[0]
        new = None if gradient is None else self.of(gradient)
        if new is not None:
            self._only_staged(new)
        self.gradients[leaf] = (place, new)

    # Host scalars, guards, state

    def host(self, label: str, read: Callable[[], Any]) -> Host:
        """A host scalar: `read()` gives its value at each call."""
        return Host(self, self._number_name(label), read)

    def depends(self, label: str, decide: Callable[[], Any], *known: Any) -> Any:
        """The value of `decide()` now (or the known one), with a guard for it."""
        if self.closed:
            raise errors.StagingError(f"{self.name} has been compiled; {label} is asked for later")
        if label not in self._decided:
            self._decided[label] = Guard(label, decide, known[0] if known else decide())
        return self._decided[label].value

    def note_read(self, label: str, held: dict[Any, Any], key: Any, shallow: bool = False) -> None:
        """Record that user code reads a value, which is compared before each call.

        shallow  whether it is a list of which only the elements' identities are compared
        """
        if self.reads is not None:
            self.reads.places[label] = ReadPlace(label, held, key, shallow)

    def fix(self, label: str, owner: object, name: str) -> Any:
        """The attribute of an object; a guard requires the same value at each call."""
        if label not in self._fixed:
            self._fixed[label] = FixedAttributes()
        where = self._fixed[label].where
        if not any([o is owner and n == name for o, n in where]):
            where.append((owner, name))
        return getattr(owner, name)

    @property
    def guards(self) -> list[Guard]:
        """All guards of the program."""
        fixed = [Guard(label, read, read()) for label, read in self._fixed.items()]
        return fixed + list(self._decided.values())

    def name_of(self, owner: object, name: str) -> str:
        """A unique name for an object in this program."""
        return self.state((id(owner), name), lambda: self._number_name(name), owner)

    def _number_name(self, name: str) -> str:
        n = self._names[name] = self._names.get(name, 0) + 1
        return name if n == 1 else f"{name}#{n}"

    def state(self, key: object, make: Callable[[], T], owner: object = None) -> T:
        """State that a module keeps during the trace, by key; `make()` creates it at first use.

        owner  kept alive with it, where the key holds only its identity
        """
        key = key if key.__class__ is tuple else id(key)
        if key not in self._kept:
            self._kept[key] = (owner, make())
        return self._kept[key][1]

    def slot(
        self,
        label: str,
        aval: Aval,
        get: Callable[[], np.ndarray],
        keeper: Keeper | None = None,
    ) -> StateArray:
        """Add an array that a Python object keeps, and that the program may change.

        keeper  its `readings` counts up when `get` may return another array; None: at every call
        """
        return self.enter(aval, StateArray, label, get, keeper)

    def records(self) -> Records:
        """New records, in which a caller lists places for native code to compare at each call."""
        return Records()


def _is_number(a: Any) -> bool:
    """Whether it is a number that is known at each call only: a host scalar, or the program's."""
    return hasattr(type(a), "__weft_number__")


def _refuse_node(tensor: Tensor) -> None:
    node = tensor._node
    if node.__class__ is Node and current.get().grad:
        raise errors.StagingError(
            f"compile: the function finds a tensor by itself that was computed by {node.name} (at "
            f"{node.line}) and is being differentiated; pass it as an argument, or .detach() it"
        )


def _into_memory(old, new):
    """A new value in the memory of an old one; boxed values of vmap and jvp have no memory."""
    both = old.__class__ is Staged and new.__class__ is Staged
    return old.overwrite(new) if both else new


def gradient_node(tensor: Tensor) -> Severed | None:
    """The mark of a severed gradient; None for any other."""
    return tensor._node if tensor._node.__class__ is Severed else None
