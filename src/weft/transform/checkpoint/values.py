"""Values that can be computed again: the operations behind what a graph saves.

Under a checkpoint strategy every recorded operation on arrays is a `Step`: its row, its arguments
as `Value`s, its static parameters. What a node saves is a `Kept`, which may be empty. An empty one
is filled by running steps again, kernels on arrays: never the user's code. Values that no step made
(parameters, batches, random draws, results of custom operations) cannot be computed again.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol
from weakref import ref

from ... import errors
from ...core import versions
from ...core.backends import BACKENDS, KERNELS, PYTHON_SCALARS
from ...core.node import ids
from ...core.op import TABLE, Op
from ...core.origin import Origin, line_of
from ...core.types import Raw, Static
from ...ops.flops import flops
from .digests import digest


class _Shape(NamedTuple):
    """What is known of an array when operations are counted."""

    shape: tuple[int, ...]


class Step:
    """One operation that was run: enough to run it again.

    inputs   values, Python scalars and None, as the kernel takes them
    keeps    whether it makes what the row's rule keeps, of the results and the arguments
    outputs  the values that it made, weakly: they own the step
    id       on the clock of nodes: steps with smaller ids were run later
    shapes   of its results, then of its arguments (None: a Python scalar); empty: not known
    nbytes   that it reads and writes
    """

    __slots__ = (
        "__weakref__",
        "_flops",
        "id",
        "inputs",
        "keeps",
        "nbytes",
        "op",
        "origin",
        "outputs",
        "shapes",
        "static",
    )

    def __init__(self, op: Op, inputs: tuple[Any, ...], static: Static, origin: Origin):
        self.op, self.inputs, self.static, self.origin = op, inputs, static, origin
        self.keeps = False
        self.id = next(ids)
        self._flops: int | None = None
        self.nbytes = 0
        self.shapes: tuple[Any, ...] = ()
        self.outputs: tuple[Callable[[], Value | None], ...] = ()

    @property
    def line(self) -> str:
        return line_of(*self.origin)

    @property
    def flops(self) -> int:
        """The operations that it takes."""
        if self._flops is None:
            known = [None if s is None else _Shape(s) for s in self.shapes]
            count = self.op.outputs
            self._flops = flops(self.op, known[:count], known[count:], self.static) if known else 0
        return self._flops

    @property
    def values(self) -> Iterator["Value"]:
        """The values among the arguments."""
        return (v for v in self.inputs if v.__class__ is Value)

    def run(self, arrays: Sequence[Any]) -> list[Raw]:
        """The results for these arguments."""
        op = self.op
        if self.keeps:
            count = op.outputs
            y = arrays[0] if count == 1 else tuple(arrays[:count])
            kept = op.rule.keep(y, *arrays[count:], *self.static)  # type: ignore[union-attr,misc]
            return list(flat(kept))
        xp = next(BACKENDS[a.__class__] for a in arrays if a.__class__ in BACKENDS)
        z = op.call(KERNELS[op][xp.array_type], arrays, self.static)
        zs = [z] if op.outputs == 1 else z
        # NumPy gives scalars for results of no axes; a transfer gives another backend's arrays.
        return [r if getattr(r.__class__, "__weakrefoffset__", 0) else xp.whole(r) for r in zs]


class Value:
    """An array of the program: there, or to be computed by its step.

    weak     the array, as long as anything holds it
    strong   the same, held for those that are computed from it; None: not held
    kept     what nodes save of it, weakly: they own it
    nbytes   of the array
    touched  when it was last used, on the store's clock
    uses     how many steps have read it, if somebody counts
    digest   of its bytes, if computing again is verified
    """

    __slots__ = (
        "__weakref__",
        "digest",
        "firm",
        "kept",
        "nbytes",
        "step",
        "strong",
        "touched",
        "uses",
        "weak",
    )

    def __init__(self, step: Step | None, nbytes: int):
        self.step, self.nbytes = step, nbytes
        self.weak: Callable[[], Any] = _nothing
        self.strong: Any = None
        self.kept: Callable[[], Kept | None] = _nothing
        self.touched = self.uses = 0
        # Whether everything that computing it again needs will be there; None: not known yet.
        self.firm: bool | None = None
        self.digest: bytes | None = None

    @property
    def array(self) -> Any:
        """The array, if it is there."""
        return self.strong if self.strong is not None else self.weak()


def _nothing() -> None:
    return None


class KeyedRef(ref):
    """A weak reference that knows the key under which it is kept.

    One callback serves all: objects that wait for their end make garbage collection longer.
    """

    __slots__ = ("key",)
    key: int

    def __new__(cls, x: Any, callback: Callable[[Any], Any], key: int) -> "KeyedRef":
        made = super().__new__(cls, x, callback)
        made.key = key
        return made

    def __init__(self, x: Any, callback: Callable[[Any], Any], key: int):
        super().__init__(x, callback)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def forgetting(entries: dict[int, Any]) -> Callable[[KeyedRef], None]:
    """The callback of references to what is in a dict by their keys."""
    pop = entries.pop

    def forget(gone: KeyedRef) -> None:
        pop(gone.key, None)

    return forget


class Kept:
    """What nodes save: a value, with its array or without.

    owner  what computes it again; it lives as long as something is kept
    moved  where the array was moved to; None: nowhere
    """

    __slots__ = ("__weakref__", "array", "moved", "owner", "value")

    def __init__(self, value: Value, array: Any, owner: Any):
        self.value, self.array, self.owner = value, array, owner
        self.moved: Any = None

    @property
    def _data(self) -> Any:
        """What `memory_stats` counts."""
        return self.array


def flat(saved: Any) -> Iterator[Any]:
    """The entries of a tuple of values and tuples."""
    for v in saved if saved.__class__ is tuple else (saved,):
        if v.__class__ is tuple:
            yield from flat(v)
        else:
            yield v


def is_repeatable(op: Op) -> bool:
    """Whether an operation can be run again: the table's rows can, the user's own cannot."""
    return not (op.foreign or op.several) and TABLE.get(op.name) is op


class Policy(Protocol):
    """What is kept of the values that are computed again on the way to another.

    fills  whether those that nodes save are kept
    """

    fills: bool

    def pauses(self, steps: int) -> Container[int]:
        """The steps, of so many, before which `pause` is called."""
        ...

    def pause(self, step: Step, arrays: list[Any]) -> None:
        """Keep, if that is wanted, the arrays that this step and later ones are computed from."""
        ...


class Values:
    """The values of one program, by their arrays."""

    def __init__(self, verify: bool = False):
        self._by_array: dict[int, Value] = {}
        self._forget = forgetting(self._by_array)
        self._sources: dict[int, Callable[[], Any]] = {}  # arrays that no step made, by memory
        self._verify = verify
        self.on_source: Callable[[Raw], None] | None = None  # told of arrays that no step made
        self.clock = 0

    def of(self, array: Any) -> Any:
        """The value of an array; Python scalars and None are their own."""
        if array is None or array.__class__ in PYTHON_SCALARS:
            return array
        self.clock += 1
        value = self._by_array.get(id(array))
        if value is None or value.weak() is not array or _is_rewritten(value, array):
            value = Value(None, BACKENDS[array.__class__].nbytes(array))
            if self.on_source is not None:
                self.on_source(array)
            if array.__class__.__weakrefoffset__:
                self.bind(value, array)
                self._sources[BACKENDS[array.__class__].owner(array)] = value.weak
                if not array.shape:  # a Python scalar's, which nobody else holds
                    value.strong = array
            else:  # a NumPy scalar
                value.strong = array
        value.touched = self.clock
        return value

    def __del__(self) -> None:
        self._by_array.clear()  # the arrays' weak references hold it, and so all values

    def is_source(self, array: Any) -> bool:
        """Whether an array lies in memory that no step made: a parameter's, a batch's."""
        return self._sources.get(BACKENDS[array.__class__].owner(array), _nothing)() is not None

    def bind(self, value: Value, array: Any) -> None:
        """Make an array that of a value."""
        key = id(array)
        value.weak = KeyedRef(array, self._forget, key)
        self._by_array[key] = value

    def made(self, step: Step, arrays: Iterable[Any]) -> None:
        """Note that a step made these arrays; one that is an argument itself is not made."""
        outputs: list[Callable[[], Value | None]] = []
        for array in arrays:
            if not getattr(array.__class__, "__weakrefoffset__", 0):  # None, a number
                outputs.append(_nothing)
                continue
            known = self._by_array.get(id(array))
            if known is not None and known.weak() is array:
                outputs.append(ref(known))
                continue
            value = Value(step, BACKENDS[array.__class__].nbytes(array))
            self.clock += 1
            value.touched = self.clock
            self.bind(value, array)
            if self._verify:
                value.digest = digest(array)
            outputs.append(ref(value))
        step.outputs = tuple(outputs)

    # -- computing again -------------------------------------------------------------------------

    def firm(self, value: Value) -> bool:
        """Hold what computing a value again needs; False if some of that is gone or overwritten."""
        waiting = [(value, False)]
        while waiting:
            v, seen = waiting.pop()
            if v.firm is not None:
                continue
            if v.step is None:
                v.strong = v.array
                v.firm = v.strong is not None
            elif seen:
                v.firm = all([i.firm for i in v.step.values])
            elif any(_is_overwritten(i, v.step) for i in v.step.values):
                v.firm = False
            else:
                waiting.append((v, True))
                waiting += [(i, False) for i in v.step.values]
        return bool(value.firm)

    def missing(self, target: Value) -> tuple[list[Step], dict[Value, Any]]:
        """The steps that compute a value, oldest first, and the arrays that they start from."""
        held: dict[Value, Any] = {}
        steps: dict[Step, None] = {}
        waiting = [target]
        while waiting:
            v = waiting.pop()
            if v in held:
                continue
            array = v.array
            kept = v.kept() if array is None else None
            if kept is not None and kept.moved is not None:
                array = kept.moved.load()
            if array is not None:
                held[v] = array
            elif v.step is not None and v.step not in steps:
                steps[v.step] = None
                waiting += v.step.values
        return sorted(steps, key=_age), held

    def compute(self, target: Value, policy: "Policy") -> Any:
        """The array of a value that is not there."""
        steps, held = self.missing(target)
        uses: dict[Value, int] = {}
        for step in steps:
            for v in step.values:
                uses[v] = uses.get(v, 0) + 1
        saved = {v for s in steps for v in _outputs(s) if _is_empty(v)}
        wanted = saved if policy.fills else set()
        pauses = policy.pauses(len(steps))
        for n, step in enumerate(steps):
            if n in pauses:
                policy.pause(step, [held[v] for v in held if uses.get(v) and v.step is not None])
            self._run(step, held, wanted, lambda v: uses.get(v) or v is target)
            for v in step.values:
                uses[v] -= 1
                if not uses[v] and v is not target:
                    held.pop(v, None)
        return held[target]

    def _run(self, step: Step, held: dict[Value, Any], wanted: set[Value], needs: Any) -> None:
        """Run a step again: its results go to those that need them, and to what is kept."""
        for v in step.values:
            _refuse_overwritten(held[v], step)
        arrays = [held[i] if i.__class__ is Value else i for i in step.inputs]
        for weak, array in zip(step.outputs, step.run(arrays), strict=True):
            value = weak()
            if value is not None and value.array is None:
                self._replace(value, array, step)
                if value in wanted:
                    value.kept().array = array  # type: ignore[union-attr]
                if needs(value):
                    held[value] = array

    def _replace(self, value: Value, array: Any, step: Step) -> None:
        """A value's array, computed again."""
        self.clock += 1
        value.touched = self.clock
        self.bind(value, array)
        if value.digest is not None and digest(array) != value.digest:
            raise errors.ReplayDiffers(
                f"{step.op.name} (at {step.line}): computed again for the backward pass, it gave "
                "other numbers. Something it reads was changed without Weft's knowledge (through "
                "NumPy or another library), or its kernel does not repeat; do not write into "
                "arrays that a graph needs, or turn checkpointing off for this part"
            )


def _age(step: Step) -> int:
    return -step.id


def _outputs(step: Step) -> list[Value]:
    return [v for weak in step.outputs if (v := weak()) is not None]


def _is_empty(value: Value) -> bool:
    kept = value.kept()
    return kept is not None and kept.array is None and kept.moved is None


def is_filled(value: Value) -> bool:
    """Whether a node keeps a value's array."""
    kept = value.kept()
    return kept is not None and kept.array is not None


def _is_rewritten(value: Value, array: Any) -> bool:
    """Whether an array was written to after its step made it."""
    step = value.step
    if step is None or versions.latest >= step.id:
        return False
    when = versions.last_write(array)
    return when is not None and when < step.id


def _is_overwritten(value: Value, step: Step) -> bool:
    """Whether an argument's memory was written to after the step read it."""
    if versions.latest >= step.id:
        return False
    array = value.array
    when = None if array is None else versions.last_write(array)
    return when is not None and when < step.id


def _refuse_overwritten(array: Any, step: Step) -> None:
    if versions.latest < step.id:
        when = versions.last_write(array)
        if when is not None and when < step.id:
            raise errors.SavedValueOverwritten(
                f"{step.op.name} (at {step.line}) is to be computed again for the backward pass, "
                f"but an argument of shape {tuple(array.shape)} was overwritten in place (out=, "
                "copy_ or an optimizer step); run backward() first, or give it a .clone()"
            )
