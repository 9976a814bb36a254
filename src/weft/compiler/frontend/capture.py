"""What a function that is being compiled reads and changes besides its arguments."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
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
from ...core.settings import current
from ...core.value import GROUND, TENSORS, aval_of, install_level, wrap
from ...graph.staged import Staged, Staging, read_again
from ...ops.draws import behind
from .draws import LoopDraws, Stream, streams_of
from .guards import Fixed, Guard, Having
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
from .reachable.frames import Ran
from .records import Records

T = TypeVar("T")
AnyPlace = TypeVar("AnyPlace", bound=InputSource)


class StagedTensor(Tensor):
    """A tensor of a function that is being compiled: its values are not known yet."""

    __slots__ = ()


install_level(Staged, StagedTensor)


@dataclass(frozen=True)
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
    """Stands in for generators: each draw is an input of the program."""

    def __init__(self, capture: "Capture"):
        self.capture = capture
        self._again = _replaying()

    @property
    def again(self) -> bool:
        """Whether a checkpoint runs the function again; who asks makes a program of that."""
        self.capture.depends("whether a checkpoint is replayed", _replaying, self._again)
        return self._again

    def __call__(self, generator: Generator, words: int) -> StagedDraw:
        if id(generator) in streams_of(self.capture):
            state = self.state(generator)
            self.move(generator, behind(state, words))
            return self.draw_of(state)
        place = self.capture.enter(Aval((3,), uint64), DrawWords, generator, words)
        return StagedDraw(place.staged)

    def state(self, generator: Generator) -> Tensor:
        """How far a stream is at this point of the program, as a value of it."""
        streams = streams_of(self.capture)
        if id(generator) not in streams:
            streams[id(generator)] = self.capture.enter(Aval((3,), uint64), Stream, generator)
        return wrap(streams[id(generator)].staged)

    def move(self, generator: Generator, state: Tensor) -> None:
        """A stream is so far from now on."""
        streams_of(self.capture)[id(generator)].staged = state._data

    def draw_of(self, state: Tensor) -> StagedDraw:
        """A draw from a stream that is so far."""
        return StagedDraw(state._data)

    def along(self, length: int, reverse: bool) -> LoopDraws:
        """The draws in the body of a loop."""
        return LoopDraws(self.capture, StagedDraw, length, reverse)


class Capture(Staging):
    """A program in writing, with everything that comes into it and that it changes."""

    tag: int
    now: Now
    reads: Ran | None  # what runs while it is written

    def __init__(self, name: str, call: Call):
        super().__init__(name)
        self.tag = next(tags)
        self.now = Now(call)
        self.reads = None
        self.leaves: dict[Leaf, int] = {}  # of arguments, with their positions
        self.computed: set[Leaf] = set()  # those of arguments that are computed from something
        # By identity: (as given, as in the program).
        self.arguments: dict[int, tuple[Tensor, Any]] = {}
        self.same: dict[int, Tensor] = {}  # arguments that the function finds by itself as well
        self.places: list[InputSource] = []  # in the order of the graph's inputs
        self._decided: dict[str, Guard] = {}
        self._fixed: dict[str, Fixed] = {}
        self.preparing: list[Callable[[], None]] = []  # reads numbers that guards compare
        self.before: list[Callable[[], None]] = []
        self.after: list[Callable[[], None]] = []
        # (Where from, the tensor now).
        self.gradients: dict[Leaf, tuple[InputSource | None, Tensor | None]] = {}
        self.overwritten: set[int] = set()  # tensors of the program that were written into
        self._tensors: dict[int, Captured] = {}
        self._made: dict[int, Tensor] = {}
        self._constants: dict[int, tuple[Any, Staged]] = {}  # raw arrays, by identity
        self.raws: dict[int, Any] = {}  # arrays that are made in the function
        self._numbers: dict[tuple[str, np.dtype], HostNumber] = {}
        self._names: dict[str, int] = {}
        self._kept: dict[Any, tuple[Any, Any]] = {}

    def enter(self, aval: Aval, kind: Callable[..., AnyPlace], *args: Any) -> AnyPlace:
        """A new input of the program, which comes from such a place."""
        if self.closed:
            raise errors.StagingError(f"{self.name} has been compiled, and is not written any more")
        if aval.device != "cpu":
            raise errors.DeviceError(
                f"compile: {self.name} uses a tensor on {aval.device!r}; compiled functions run on "
                "'cpu': move it with .to('cpu')"
            )
        place = kind(self.input(self.tag, aval), *args)
        self.places.append(place)
        return place

    def made_at(self, index: int) -> str:
        """Where a value comes from, in words."""
        entered = [p.label for p in self.places if p.entered.index == index]
        return entered[0] if entered else super().made_at(index)

    # What operations meet

    def lifted(self, args: Iterable[Any]) -> list[Any]:
        """Arguments of an operation as values of the program."""
        lifted = [self.of(a) if a.__class__ in GROUND else a for a in args]
        return self._with_numbers(lifted) if any([type(a) is Host for a in lifted]) else lifted

    def _with_numbers(self, args: list[Any]) -> list[Any]:
        """Numbers of each call as scalars of the tensors' dtype; integers become floats."""
        tensors = [a for a in args if a.__class__ in TENSORS or isinstance(a, Staged)]
        dtype = next((t.dtype for t in tensors if is_inexact(t.dtype)), None)
        if dtype is None:
            dtype = default_float()
            args = [above.cast(a, dtype) if a.__class__ in TENSORS else a for a in args]
        return [self.number(a, dtype) if type(a) is Host else a for a in args]

    def number(self, host: Host, dtype: np.dtype | None) -> Tensor:
        """A number of each call as a scalar."""
        dtype = default_float() if dtype is None else dtype
        place = self._numbers.get((host.label, dtype))
        if place is None:
            place = self.enter(Aval((), dtype), HostNumber, host)
            self._numbers[host.label, dtype] = place
        return wrap(place.staged)

    def of(self, tensor: Tensor) -> Tensor:
        """A tensor as the program sees it: a constant that was made in it, else an input."""
        if tensor.__class__ not in GROUND:
            return tensor
        if self.closed:
            raise errors.StagingError(f"{self.name} has been compiled, and is not written any more")
        if not self.found(tensor):
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
        """An argument that the function finds by itself, too; other calls must be alike."""
        _, argument = self.arguments[id(tensor)]
        self.same[argument.place.position] = tensor
        return argument.tensor

    def raised(self, raw: Any) -> Staged:
        """A raw value as one of the program."""
        return raw if isinstance(raw, Staged) else Staged(self.tag, self, self.constant(raw))

    def _constant(self, tensor: Tensor) -> Staged:
        """A tensor that was made in the function, as it is now."""
        raw = tensor._data
        if id(raw) not in self._constants:
            value = self.constant(BACKENDS[type(raw)].copy(raw))
            self._constants[id(raw)] = (raw, Staged(self.tag, self, value))
        return self._constants[id(raw)][1]

    def found(self, tensor: Tensor) -> bool:
        """Whether this is a tensor from outside, and no constant that was made in the function."""
        return id(tensor) not in self._made and id(tensor._data) not in self.raws

    def makes(self, tensor: Tensor) -> bool:
        """Whether a tensor is a value of the program, made at each call."""
        return tensor.__class__ not in GROUND or not self.found(tensor)

    def note(self, tensor: Tensor) -> None:
        """A tensor that is made in the function: the same at each call, until it is changed."""
        if tensor.__class__ in GROUND:
            self._made[id(tensor)] = tensor

    def note_raw(self, raw: Any) -> None:
        """An array that is made in the function."""
        self.raws[id(raw)] = raw

    def read(self, tensor: Tensor) -> Tensor:
        """A tensor whose values are looked at: itself if it is a constant."""
        return self.of(tensor) if self.found(tensor) else tensor

    def assign(self, tensor: Tensor, value: Tensor, rebinds: bool = False) -> None:
        """`tensor` has this value from now on, in its memory or (y[i] = v) in new memory."""
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
        leaf = self._own(leaf)
        if leaf not in self.gradients:
            if not self._from_outside(leaf):
                return leaf.held
            self.gradients[leaf] = self._given_gradient(leaf)
        return self.gradients[leaf][1]

    def _own(self, leaf: Leaf) -> Leaf:
        """The leaf in the program's place of one that an argument came with."""
        owner = leaf.tensor and leaf.tensor()
        if owner is None or id(owner) not in self.arguments:
            return leaf
        node = self._argument(owner)._node
        return node if isinstance(node, Leaf) else leaf

    def _from_outside(self, leaf: Leaf) -> bool:
        """Whether the leaf is of an argument or of a tensor that was found."""
        owner = leaf.tensor and leaf.tensor()
        found = owner is not None and owner.__class__ in GROUND and id(owner) not in self._made
        return found or leaf in self.leaves

    def found_at(self, leaf: Leaf) -> Callable[[Call], Leaf]:
        """Where such a leaf is at a call."""
        if leaf not in self.leaves:
            return lambda call: leaf
        position = self.leaves[leaf]
        return lambda call: call.tensors[position]._node

    def _given_gradient(self, leaf: Leaf) -> tuple[InputSource | None, Tensor | None]:
        find = self.found_at(leaf)
        self._depend_on_hooks(leaf)
        if leaf in self.leaves:
            owner, whose = Having(lambda: find(self.now.call)), "arguments"
        else:
            owner, whose = Having(lambda: leaf), "parameters"
        if not self.fixed(f"whether {whose} have a .grad", owner, "gradient"):
            return None, None
        have = find(self.now.call).held
        _refuse_node(have)
        place = self.enter(aval_of(have), Gradient, find, have._node)
        return place, wrap(place.staged, have._node)

    def _depend_on_hooks(self, leaf: Leaf) -> None:
        """Those of arguments; the program looks at the tensors that were found by itself."""
        if leaf in self.leaves:
            find = self.found_at(leaf)
            owner = Having(lambda: find(self.now.call))
            self.fixed("the hooks on gradients of arguments", owner, "hooks")

    def ended(self, leaf: Leaf) -> None:
        """A backward pass in the function has come to a leaf that nobody asked a gradient for."""
        if leaf in self.computed:
            raise errors.StagingError(
                f"compile: a backward pass in {self.name} reaches argument {self.leaves[leaf]}, "
                "which was computed from something outside, and would have to go on there; pass "
                "x.detach().requires_grad_(), or call backward() outside of the function"
            )

    def set_gradient(self, leaf: Leaf, gradient: Tensor | None) -> None:
        """The `.grad` of a leaf from now on."""
        leaf = self._own(leaf)
        if not self._from_outside(leaf):
            leaf.held = gradient
            return
        self._depend_on_hooks(leaf)
        place = self.gradients.get(leaf, (None, None))[0]
        new = None if gradient is None else self.of(gradient)
        if new is not None:
            self._only_staged(new)
        self.gradients[leaf] = (place, new)

    # What Python computes at each call

    def host(self, label: str, read: Callable[[], Any]) -> Host:
        """A number that `read` gives at each call."""
        return Host(self, self._number_name(label), read)

    def depends(self, label: str, decide: Callable[[], Any], *known: Any) -> Any:
        """What `decide` says now (or is known to say); calls must find it to say the same."""
        if self.closed:
            raise errors.StagingError(f"{self.name} has been compiled; {label} is asked for later")
        if label not in self._decided:
            self._decided[label] = Guard(label, decide, known[0] if known else decide())
        return self._decided[label].value

    def fixed(self, label: str, owner: object, name: str) -> Any:
        """An attribute of an object; another value at a call makes another program."""
        if label not in self._fixed:
            self._fixed[label] = Fixed()
        where = self._fixed[label].where
        if not any([o is owner and n == name for o, n in where]):
            where.append((owner, name))
        return getattr(owner, name)

    @property
    def guards(self) -> list[Guard]:
        """What the program is built on."""
        fixed = [Guard(label, read, read()) for label, read in self._fixed.items()]
        return fixed + list(self._decided.values())

    def name_of(self, owner: object, name: str) -> str:
        """A name for an object that no other one has in this program."""
        return self.kept((id(owner), name), lambda: self._number_name(name), owner)

    def _number_name(self, name: str) -> str:
        n = self._names[name] = self._names.get(name, 0) + 1
        return name if n == 1 else f"{name}#{n}"

    def kept(self, key: object, make: Callable[[], T], owner: object = None) -> T:
        """What somebody notes down about himself while the program is written."""
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
        """An array that somebody keeps, and which the program may change.

        keeper  whose `readings` counts when the array may be another one; None: it may always be
        """
        return self.enter(aval, StateArray, label, get, keeper)

    def records(self) -> Records:
        """Where somebody writes down what calls find unchanged, for native code to compare."""
        return Records()


def _refuse_node(tensor: Tensor) -> None:
    node = tensor._node
    if node.__class__ is Node and current.get().grad:
        raise errors.StagingError(
            f"compile: the function finds a tensor by itself that was computed by {node.name} (at "
            f"{node.line}) and is being differentiated; pass it as an argument, or .detach() it"
        )


def _into_memory(old, new):
    """A new value in the memory of an old one; values of vmap and jvp have none."""
    both = old.__class__ is Staged and new.__class__ is Staged
    return old.overwrite(new) if both else new


def gradient_node(tensor: Tensor) -> Severed | None:
    """The mark of a gradient that was made without its graph; None for others."""
    return tensor._node if tensor._node.__class__ is Severed else None
