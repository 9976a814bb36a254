"""Schedules on disk: a graph's schedule and memory plan, stored under the graph's digest.

An entry is a line of JSON: records by the names of their classes, which are a fixed list, dtypes
and rows by their names, lines of the user's program by the equations that came from there. After it
come the bytes of constants that passes have computed. A schedule that cannot be encoded so is
computed anew in each process.
"""

import json
import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from hashlib import sha256
from math import prod
from typing import Any

import numpy as np

from ... import errors
from ...core import dtypes
from ...core.aval import Aval
from ...core.checkpointing import CheckpointConfig
from ...core.op import TABLE, Op
from ...core.origin import Origin
from ...graph.graph import Equation, Graph, Literal
from ...graph.guard import WITHIN
from ...graph.structured import Structured, structure_of
from ..ir.kernel import FoldStep, Kernel, Operand, Result, Step
from ..ir.repeated import stored_part
from ..ir.routine import RoutineArray
from ..ir.scalar_program import Constant, Load, ScalarProgram
from ..ir.schedule import (
    Buffer,
    GemmStep,
    GuardStep,
    KernelStep,
    LibraryStep,
    NativeStep,
    Schedule,
    TiledStep,
)
from ..memory import MemoryPlan, Recomputation
from .disk import cache
from .keys import digest, spell_value

# The packages and modules that define the targets' routines, which are records.
ROUTINES: set[str] = set()
# Makers of the rows that passes derive from the table's: by what follows those names and `_`.
DERIVED: dict[str, Callable[[str], Op]] = {}
# Bytes of constants that an entry may hold.
CONSTANTS = 1 << 22
_CLASSES = (Kernel, Operand, Result, Step, FoldStep, Literal, Buffer, RoutineArray)
_SCALARS = (ScalarProgram, Load, Constant)
_STEPS = (Recomputation, KernelStep, GemmStep, TiledStep, NativeStep, LibraryStep, GuardStep)


def known_types() -> dict[str, type]:
    """The records that entries may hold, by name: the compiler's, and those of the routines."""
    return _load_types(frozenset(ROUTINES))


@lru_cache(maxsize=8)
def _load_types(packages: frozenset[str]) -> dict[str, type]:
    found: dict[str, type] = {}
    for name, module in list(sys.modules.items()):
        if f"{name}.".startswith(tuple(f"{package}." for package in packages)):
            own = [k for k in vars(module).values() if isinstance(k, type) and is_dataclass(k)]
            found |= {k.__name__: k for k in own if k.__module__ == name}
    return found | {k.__name__: k for k in (*_CLASSES, *_SCALARS, *_STEPS)}


def _row_of(name: str) -> Op | None:
    """The row of a name, of the table or derived from one."""
    if name in TABLE:
        return TABLE[name]
    for kind, derive in DERIVED.items():
        source = name.removesuffix(f"_{kind}")
        if source != name and source in TABLE:
            return derive(source)
    return None


class Unwritable(TypeError):
    """Raised for a value that an entry cannot hold."""


def fetch(key: str | None) -> bytes | None:
    """The entry stored under a key."""
    return None if key is None else cache().fetch(key)


def read(graph: Graph, kept: bytes) -> tuple[Schedule, MemoryPlan]:
    """Decode the schedule of a graph, and its plan."""
    found, _, constants = kept.partition(b"\n")
    return _Reader(graph, constants).entry(json.loads(found))


def keep(graph: Graph, key: str | None, schedule: Schedule, placed: MemoryPlan) -> None:
    """Store a schedule and its plan under a key, if they can be encoded."""
    if key is None:
        return
    writer = _EntryWriter(graph)
    try:
        entry = writer.entry(schedule, placed)
    except Unwritable:
        return
    line = json.dumps(entry, separators=(",", ":")).encode()
    cache().store(key, b"\n".join([line, b"".join(writer.constants)]))


# -- the key ---------------------------------------------------------------------------------


def key_of(
    graph: Graph,
    donated: Mapping[int, int],
    target: tuple[Any, ...],
    checkpoint: CheckpointConfig | None = None,
) -> str | None:
    """The digest of a graph; None if it has rows of the user's, or there is no cache.

    target   the target's own key
    """
    if cache().folder is None:
        return None
    try:
        whole = _GraphTexts().graph(graph)
    except (Unwritable, TypeError):
        return None
    kept = None if checkpoint is None else repr(checkpoint)
    return digest("schedule", (whole, tuple(sorted(donated.items())), target, kept))


class _GraphTexts:
    """Parts of a graph as text, memoised by identity."""

    def __init__(self):
        self._avals: dict[int, str] = {}
        self._held: list[Any] = []  # keeps them alive, so that no identity is reused

    def graph(self, graph: Graph) -> str:
        """The digest of a graph."""
        lines = [self.equation(e) for e in graph.equations]
        lines += [f"{i}={_constant_text(x)}" for i, x in graph.constants.items()]
        lines += map(self.aval, graph.avals)
        lines.append(f"{graph.inputs}{graph.outputs}")
        return sha256("\n".join(lines).encode()).hexdigest()

    def structure(self, x: Structured) -> str:
        """A loop or a branch: the digests of its bodies, and its numbers."""
        parts = [getattr(x, name) for name in _names(type(x))]  # type: ignore[arg-type]
        return "".join([self.graph(p) if isinstance(p, Graph) else repr(p) for p in parts])

    def equation(self, e: Equation) -> str:
        structure = structure_of(e)
        if structure is not None:
            return f"{e.outputs}={e.op.name}({e.inputs};{self.structure(structure)}"
        if (TABLE.get(e.op.name) is not e.op and e.op is not WITHIN) or e.op.foreign:
            raise Unwritable(f"the row {e.op.name} is not of the table")
        inputs = [str(i) if i.__class__ is int else spell_value(i) for i in e.inputs]
        return f"{e.outputs}={e.op.name}({','.join(inputs)};{e.static and spell_value(e.static)}"

    def aval(self, a: Aval) -> str:
        text = self._avals.get(id(a))
        if text is None:
            text = self._avals[id(a)] = f"{a.shape}{spell_value(a.dtype)}{a.device}"
            self._held.append(a)
        return text


def _constant_text(x: Any) -> str:
    if not isinstance(x, np.ndarray) or x.dtype.hasobject:
        raise Unwritable(f"a constant that is a {type(x).__name__}")
    once = stored_part(x)
    return f"{x.dtype.name}{x.shape}{once.shape}{sha256(once.tobytes()).hexdigest()}"


# -- encoding --------------------------------------------------------------------------------


@lru_cache(maxsize=None)
def _names(kind: type) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


class _EntryWriter:
    """Encodes values as JSON; each kernel and dtype is stored once."""

    def __init__(self, graph: Graph):
        self._graph = graph
        self._places = {e.origin: k for k, e in reversed(list(enumerate(graph.equations)))}
        self._kernels: dict[Kernel, int] = {}
        self.constants: list[bytes] = []  # those that the graph does not have

    def entry(self, schedule: Schedule, placed: MemoryPlan) -> dict[str, Any]:
        steps = [self.value(s) for s in schedule.steps]
        return {
            "buffers": [self.value(b) for b in schedule.buffers],
            "ends": [schedule.inputs, schedule.outputs],
            "steps": steps,
            "constants": self._constants(schedule),
            "kernels": [self._fields(k) for k in self._kernels],
            "plan": [list(placed.offsets.items()), placed.size, placed.least, placed.adopted],
            "again": self.value(placed.again),
        }

    def value(self, x: Any) -> Any:
        kind = x.__class__
        if kind in (int, bool, str) or x is None:
            return x
        if kind is tuple:
            return [self.value(v) for v in x]
        if kind is float:
            return {"float": x.hex()}
        if kind is Kernel:
            return {"kernel": self._kernels.setdefault(x, len(self._kernels))}
        if isinstance(x, np.dtype) and x in dtypes.KIND:
            return {"dtype": x.name}
        name = x.name if kind is Op else getattr(x, "__name__", "")
        if kind is Op and operator.is_(_row_of(name), x):
            return {"row": name}
        if isinstance(x, type) and operator.is_(getattr(errors, name, None), x):
            return {"error": name}
        if operator.is_(known_types().get(kind.__name__), kind):
            return {kind.__name__: self._fields(x)}
        raise Unwritable(f"a {kind.__name__}: {x!r}")

    def _fields(self, x: Any) -> list[Any]:
        if not is_dataclass(x):
            raise Unwritable(f"a {type(x).__name__}: {x!r}")
        return [self._field(name, getattr(x, name)) for name in _names(type(x))]  # type: ignore[arg-type]

    def _field(self, name: str, x: Any) -> Any:
        if name == "origin":
            if x not in self._places:
                raise Unwritable("a place of no equation")
            return self._places[x]
        if name == "origins":
            return [self._places[o] for o in x if o in self._places]
        return self.value(x)

    def _constants(self, schedule: Schedule) -> list[Any]:
        """(buffer, the graph's constant) or (buffer, dtype, shape, stored shape, place)."""
        own = {id(x): i for i, x in self._graph.constants.items()}
        entries: list[Any] = []
        size = 0
        for n, x in schedule.constants.items():
            if id(x) in own:
                entries.append([n, own[id(x)]])
                continue
            once = stored_part(x)
            entries.append([n, self.value(x.dtype), x.shape, once.shape, size])
            size += once.nbytes
            if size > CONSTANTS:
                raise Unwritable(f"{size} bytes of constants")
            self.constants.append(once.tobytes())
        return entries


# -- decoding --------------------------------------------------------------------------------


class _Reader:
    """Decodes what `_EntryWriter` encoded."""

    def __init__(self, graph: Graph, constants: bytes):
        self._graph, self._constants = graph, constants
        self._kernels: list[Kernel] = []
        self._makers: dict[str, Callable[[Any], Any]] = {
            "float": float.fromhex,
            "kernel": lambda n: self._kernels[n],
            "dtype": lru_cache(dtypes.canonical),  # NumPy takes a while to look up a dtype's name
            "row": _row_of,
            "error": lambda name: getattr(errors, name),
            **{name: self._maker(kind) for name, kind in known_types().items()},
        }

    def entry(self, found: dict[str, Any]) -> tuple[Schedule, MemoryPlan]:
        make = self._makers["Kernel"]
        self._kernels = [make(k) for k in found["kernels"]]
        inputs, outputs = map(tuple, found["ends"])
        schedule = Schedule(
            tuple([self.value(b) for b in found["buffers"]]),
            inputs,
            outputs,
            tuple([self.value(s) for s in found["steps"]]),
            {n: self._constant(*rest) for n, *rest in found["constants"]},
        )
        offsets, size, least, adopted = found["plan"]
        again = self.value(found["again"])
        return schedule, MemoryPlan({n: at for n, at in offsets}, size, least, again, adopted)

    def value(self, x: Any) -> Any:
        kind = x.__class__
        if kind is list:
            return tuple([v if v.__class__ is int else self.value(v) for v in x])
        if kind is dict:
            ((name, inside),) = x.items()
            return self._makers[name](inside)
        return x

    def _maker(self, kind: type) -> Callable[[list[Any]], Any]:
        """A function from the fields of a dataclass to the value."""
        names = _names(kind)
        place = names.index("origin") if "origin" in names else None
        places = names.index("origins") if "origins" in names else None

        def make(parts: list[Any]) -> Any:
            values: list[Any] = [p if p.__class__ is int else self.value(p) for p in parts]
            if place is not None:
                values[place] = self._origin(values[place])
            if places is not None:
                values[places] = tuple(map(self._origin, values[places]))
            return kind(*values)

        return make

    def _origin(self, equation: int) -> Origin:
        return self._graph.equations[equation].origin

    def _constant(self, *rest: Any) -> np.ndarray:
        if len(rest) == 1:
            return self._graph.constants[rest[0]]
        dtype, shape, stored, at = rest
        held = np.frombuffer(self._constants, self.value(dtype), prod(stored), at)
        return np.broadcast_to(held.copy().reshape(stored), shape)  # the copy is aligned
