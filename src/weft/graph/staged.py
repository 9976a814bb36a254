"""Staged: the box of abstract tracing; its operations append equations and compute nothing."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from .. import errors
from ..core.aval import Aval
from ..core.backends import BACKENDS, PYTHON_SCALARS
from ..core.box import BOXES, NUMBERS, Box, Level
from ..core.dtypes import canonical, check_holds, is_inexact, promote_all
from ..core.explain import unknown_shape
from ..core.op import TABLE, Op
from ..core.origin import here, origin
from ..core.settings import current
from ..core.types import Array, Raw, Static
from ..core.value import aval_of
from .graph import Equation, Graph, Literal
from .unrecorded import UNRECORDED

REMEDY = (
    "branch with wf.cond or wf.where, pass what it depends on as a static argument "
    "(static_argnames=…), or move this outside of the function"
)

_OTHERWISE = "pass it as a static argument (static_argnames=…), or move this out of the function"
# What to do instead of reading a number, by how it is read.
_REMEDIES = {
    "bool()": "branch with wf.cond or wf.where, loop with wf.while_loop, or if it is the same at "
    "many calls, " + _OTHERWISE,
    "int()": "keep it a tensor (x[i], wf.where and wf.take have tensors for indices), "
    + _OTHERWISE,
    "item()": "keep it a tensor (wf.where and all other functions take them), return it and read "
    "it after the call, " + _OTHERWISE,
}
_REMEDIES |= {"an index": _REMEDIES["int()"]}


class SharedMemory:
    """Memory that several traced values alias, and how often it was written to.

    latest  the current value of all of it; None if the last write was to a part
    """

    __slots__ = ("latest", "written")

    def __init__(self):
        self.written: int = 0
        self.latest: Staged | None = None


class Staging:
    """A program that is being traced: its graph, and whether tracing has ended (`closed`)."""

    # Whether it is differentiated by replaying its equations, which must then show where no
    # derivative goes. Otherwise the nodes of the tensors around the boxes record that.
    replayed = False

    def __init__(self, name: str):
        self.name = name
        self.graph: Graph = Graph()
        self.closed = False
        self.settled = False  # whether all writes into memory are done
        self._known: dict[int, int] = {}  # index by identity; the graph's constants keep it alive

    def input(self, level: float, aval: Aval) -> "Staged":
        """A new input of the program."""
        i = self.graph.new(aval)
        self.graph.inputs.append(i)
        return Staged(level, self, i)

    def constant(self, value: Raw) -> int:
        """The index of a raw array as a constant; the same array has one index."""
        if value.__class__ is Staged:
            raise leak_error(value)
        i = self._known.get(id(value))
        if i is None:
            whole = BACKENDS[value.__class__].whole(value)
            i = self._known[id(value)] = self.graph.new(aval_of(whole))
            self.graph.constants[i] = whole
            if whole is not value:  # a NumPy scalar, which nothing keeps alive
                del self._known[id(value)]
        return i

    def index_of(self, x: Raw) -> int:
        """The index of a value of the program, or of a raw array."""
        own = x.__class__ is Staged and x.staging is self
        return _current(x).index if own else self.constant(x)

    def value(self, level: float, index: int) -> "Staged":
        """The value with this index."""
        return Staged(level, self, index)

    def emit(
        self, op: Op, inputs: tuple[Any, ...], static: Static, avals: tuple[Aval, ...]
    ) -> tuple[int, ...]:
        """Append an equation; returns the indices of its results."""
        outputs = tuple([self.graph.new(a) for a in avals])
        self.graph.equations.append(Equation(op, inputs, static, outputs, origin()))
        return outputs

    def made_at(self, index: int) -> str:
        """Where a value was computed, for messages."""
        for e in self.graph.equations:
            if index in e.outputs:
                return f"made by {e.op.name} at {e.line}"
        return "one of its inputs or constants"


class Staged(Box):
    """A value of a program that is being traced: its index there, and its aval.

    memory   its memory, if another value aliases it or it was written to
    written  the number of writes to that memory when the value was computed
    whole    whether the value is all of that memory, in the same layout
    """

    __slots__ = ("aval", "index", "memory", "staging", "whole", "written")
    staged = True
    level: float
    staging: Staging
    index: int
    aval: Aval
    written: int
    whole: bool

    def __init__(self, level: float, staging: Staging, index: int):
        self.level, self.staging, self.index = level, staging, index
        self.aval = staging.graph.avals[index]
        self.memory: SharedMemory | None = None
        self.written, self.whole = 0, True

    def own_memory(self) -> SharedMemory:
        """The memory of the value, created at first use."""
        if self.memory is None:
            self.memory = SharedMemory()
            self.memory.latest = self
        return self.memory

    def overwrite(self, value: "Staged") -> "Staged":
        """Write `value` into this value's memory; reading the old value is refused from now on."""
        new = Staged(value.level, value.staging, value.index)
        new.memory = self.own_memory()
        new.memory.written += 1
        new.written, new.whole = new.memory.written, self.whole
        new.memory.latest = new if self.whole else None
        return new

    @property
    def inner(self) -> Aval:
        """The aval: there is no value below to compute with."""
        return self.aval

    @property
    def known(self) -> Any:
        """The array of a constant; None for an input or a computed value."""
        return self.staging.graph.constants.get(self.index)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.aval.shape

    @property
    def dtype(self) -> np.dtype:
        return self.aval.dtype

    @property
    def device(self) -> str:
        return self.aval.device

    @classmethod
    def interpret(cls, op: Op, level: float, operands: list[Raw], static: Static) -> Any:
        """Find the results' avals by the row's shape rule, and append the equation."""
        staging = next(x.staging for x in operands if x.__class__ is cls and x.level == level)
        if staging.closed:
            raise leak_error(next(x for x in operands if x.__class__ is cls and x.level == level))
        if op.stage is not None:
            return op.stage(operands, static)
        operands, static = _promote(op, level, operands), _plain_static(static)
        inputs: list[Any] = []
        avals: list[Any] = []
        for x in operands:
            if x.__class__ is cls and x.level == level:
                inputs.append(_current(x).index)
                avals.append(x.aval)
            elif x is None or type(x) in PYTHON_SCALARS:
                inputs.append(Literal(x))
                avals.append(None if x is None else aval_of(x))
            else:
                i = staging.constant(x)
                inputs.append(i)
                avals.append(staging.graph.avals[i])
        z = op.call(op.shape, avals, static)
        zs = (z,) if op.outputs == 1 else tuple(z)
        _refuse_unknown(op, zs)
        _refuse_large(op, inputs, zs)
        outputs = staging.emit(op, tuple(inputs), static, _beside_devices(op, avals, zs))
        made = tuple([cls(level, staging, i) for i in outputs])
        if staging.replayed and op is not UNRECORDED and not current.get().grad:
            made = tuple([y.unrecord() if is_inexact(y.dtype) else y for y in made])
        if op.views and operands[0].__class__ is cls:
            memory = operands[0].own_memory()
            for y in made:
                y.memory, y.written = memory, memory.written
                y.whole = op.name in ("alias", "detach") and operands[0].whole
        return made[0] if op.outputs == 1 else made

    @classmethod
    def lift(cls, level: Level, value: Array) -> "Staged":
        """A value from a lower level: a captured tensor, or a constant."""
        staging = level.trace
        if hasattr(value, "_data"):
            return staging.of(value)._data
        return cls(level.tag, staging, staging.constant(value))

    def beside(self, value: Array) -> "Staged":
        if hasattr(value, "_data"):
            return self.staging.of(value)._data  # type: ignore[attr-defined]
        return Staged(self.level, self.staging, self.staging.constant(value))

    def stop_gradient(self) -> "Staged":
        """The same box, if the tensor around it records derivatives; else by an equation."""
        if not self.staging.replayed:
            return self
        return Staged.interpret(TABLE["detach"], self.level, [self], ())

    def unrecord(self) -> "Staged":
        """The same value by an equation that passes no cotangent back."""
        return Staged.interpret(UNRECORDED, self.level, [self], ())

    def text(self) -> str:
        return f"StagedTensor(shape={self.shape}, dtype={self.dtype})"

    def refuse(self, use: str) -> None:
        if use in NUMBERS:
            remedy = _REMEDIES.get(use, _REMEDIES["item()"])
            raise unread_error(self, f"a number of it, as {use} asks for", remedy)
        raise errors.InterchangeError(unread_error(self, "an array of it").message)


def read_again(x: Staged) -> Staged:
    """The current value of the memory of x, which may have been written to through an alias."""
    if x.memory is None or x.written == x.memory.written:
        return x
    return x.memory.latest if x.whole and x.memory.latest is not None else _current(x)


def _current(x: Staged) -> Staged:
    """x, if its memory was not written to since; raises otherwise."""
    if x.memory is not None and x.written != x.memory.written and not x.staging.settled:
        raise errors.StagingError(
            f"{x.staging.name} is being compiled, and a value in it "
            f"({x.staging.made_at(x.index)}) lies in memory that was written into after that; "
            "make a copy before (.clone()), or take it again afterwards"
        )
    return x


def unread_error(x: Staged, what: str, remedy: str = REMEDY) -> errors.StagingError:
    """The error for reading a value that is not computed yet, with the fix."""
    if x.staging.closed:
        return leak_error(x)
    return errors.StagingError(
        f"{x.staging.name} is being compiled, and a tensor in it ({x.staging.made_at(x.index)}) "
        f"has no values yet to make {what}; {remedy}"
    )


def leak_error(x: Staged) -> errors.LeakedTensor:
    """The error for using a value whose trace has ended."""
    return errors.LeakedTensor(
        f"a tensor of {x.staging.name} ({x.staging.made_at(x.index)}) was kept somewhere while the "
        "function was being compiled, and is used after that; return it from the function instead"
    )


def _refuse_unknown(op: Op, avals: Sequence[Aval]) -> None:
    if any([-1 in a.shape for a in avals]):
        raise errors.StagingError(
            f"{unknown_shape(op)}, and a compiled function knows all shapes beforehand; "
            "use wf.where in place of a mask, indices that are found outside, or call it outside"
        )


def _refuse_large(op: Op, inputs: Sequence[Any], avals: Sequence[Aval]) -> None:
    """Refuse integers that the integers of the result cannot hold."""
    for i in inputs:
        if i.__class__ is Literal and avals[0].dtype.kind in "iu":
            check_holds(op.name, avals[0].dtype, i.value)


# Types of PyTorch that rules may take from the raw arrays of constants, as parameters.
_PLAIN: dict[str, Any] = {"dtype": canonical, "Size": tuple}


def _plain_static(static: Static) -> Static:
    """Parameters with Weft's dtypes and Python's tuples."""
    if not any([type(s).__module__ == "torch" for s in static]):
        return static
    return tuple(
        [_PLAIN[type(s).__name__](s) if type(s).__module__ == "torch" else s for s in static]
    )


def _beside_devices(op: Op, avals: Sequence[Aval | None], zs: tuple[Aval, ...]) -> tuple[Aval, ...]:
    """Results on the device of the operands; NumPy's numbers may be beside tensors elsewhere."""
    for a in () if op.name == "transfer" else avals:
        if a is not None and a.device != "cpu" and a.device is not None:
            return tuple([z if z.device == a.device else replace(z, device=a.device) for z in zs])
    return zs


def _promote(op: Op, level: float, operands: list[Raw]) -> list[Raw]:
    """The operands cast to a common dtype.

    Derivative rules mix dtypes, which NumPy promotes implicitly; a graph needs explicit casts.
    """
    if op.promote == ():
        return operands
    picked = range(len(operands)) if op.promote is None else op.promote
    arrays = [
        i for i in picked if operands[i] is not None and type(operands[i]) not in PYTHON_SCALARS
    ]
    kinds = [aval_of(operands[i]).dtype for i in arrays]
    if all([k is kinds[0] for k in kinds]):
        return operands
    common = promote_all(kinds)
    cast = TABLE["cast"]
    changed = list(operands)
    for i, kind in zip(arrays, kinds, strict=True):
        if kind != common:
            x = operands[i]
            if not (x.__class__ is Staged and x.level == level):
                own = [o for o in operands if o.__class__ is Staged and o.level == level]
                x = own[0].beside(x)
            changed[i] = Staged.interpret(cast, level, [x], (common,))
    return changed


class Abstract:
    """The backend namespace of avals, for queries outside of operations."""

    array_type = None  # nothing computes with it
    name = "abstract"

    def dtype_of(self, x: Aval) -> np.dtype:
        return x.dtype

    def device_of(self, x: Aval) -> str:
        return x.device

    def nbytes(self, x: Aval) -> int:
        return int(np.prod(x.shape, dtype=np.int64)) * x.dtype.itemsize

    def owner(self, x: Aval) -> int:
        return id(x)

    def lies_in(self, x: Aval, other: Any) -> bool:
        return True  # conservative: it may

    def as_index(self, i: Any, like: Any) -> Any:
        return i if i.__class__ in BOXES else BACKENDS[np.ndarray].as_index(i, np.empty(0))

    def to_numpy(self, x: Aval) -> NoReturn:
        raise errors.StagingError(
            f"a function is being compiled, and at {here()} the values of a tensor are looked at, "
            f"which are not known yet; {REMEDY}"
        )

    all_finite = to_numpy


BACKENDS[Aval] = Abstract()
