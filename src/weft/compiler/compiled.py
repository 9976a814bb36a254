"""A compiled function: one variant for each kind of call."""

import os
import sys
from collections.abc import Callable, Sequence
from functools import update_wrapper
from inspect import (
    Parameter,
    isasyncgenfunction,
    iscoroutinefunction,
    isgeneratorfunction,
    signature,
)
from threading import RLock
from time import perf_counter
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload
from weakref import WeakSet

from .. import errors
from ..core.aval import integer_in
from ..core.box import BOXED
from ..core.checkpointing import CheckpointConfig
from ..core.dtypes import default_float
from ..core.settings import Settings, current
from ..graph.graph import Graph
from .collecting import no_collection
from .explain.picture import TracedGraph
from .explain.report import Text, Texts, VariantRecord, kernels_text, report
from .explain.stages import after_stage
from .frontend.arguments import (
    CallArguments,
    CallKey,
    difference,
    find_resized,
    flatten_arguments,
    positional_names,
    settings_key,
)
from .frontend.effects import StateBefore
from .frontend.inputs import Call
from .frontend.quick import Quick
from .frontend.trace import trace
from .frontend.variant import Variant
from .memory import CallBytes

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")

# All compiled functions, so that a forked child can replace their locks.
_COMPILED: WeakSet["Compiled[..., Any]"] = WeakSet()


def _free_locks() -> None:
    """Replace all locks in a forked child, where the threads that held them do not exist."""
    for compiled in _COMPILED:
        compiled._lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_locks)


class Compiled(Generic[P, R]):
    """A function that runs as native code.

    recompilations  why each variant after the first was compiled
    """

    __wrapped__: Callable[..., Any]
    name: str
    _walked = ("__wrapped__",)  # attributes that a walk of the reachable state visits

    def __init__(
        self,
        f: Callable[P, R],
        static_argnums: int | Sequence[int],
        static_argnames: str | Sequence[str],
        max_variants: int,
        checkpoint: CheckpointConfig | None = None,
        capture: bool = True,
    ):
        if not callable(f):
            raise errors.DTypeError(f"compile: got a {type(f).__name__}, expected a function")
        if isgeneratorfunction(f) or iscoroutinefunction(f) or isasyncgenfunction(f):
            raise errors.DTypeError(
                "compile: a generator or coroutine function runs piece by piece, after the call; "
                "compile a function that returns its results"
            )
        if not isinstance(max_variants, int) or max_variants < 1:
            raise errors.ArgumentError(
                f"compile: max_variants={max_variants!r}, expected 1 or more"
            )
        if checkpoint is not None and not isinstance(checkpoint, CheckpointConfig):
            raise errors.DTypeError(
                f"compile: checkpoint is a {type(checkpoint).__name__}, expected a CheckpointConfig"
            )
        if checkpoint is not None and (checkpoint.offload is not None or checkpoint.verify):
            raise errors.ArgumentError(
                "compile: offload= and verify= of a CheckpointConfig are for eager programs; a "
                "compiled one keeps its values in one block of memory, and computes some again"
            )
        if not isinstance(capture, bool):
            raise errors.DTypeError(
                f"compile: capture is a {type(capture).__name__}, expected True or False"
            )
        update_wrapper(self, f, updated=())
        self.name = getattr(f, "__name__", type(f).__name__)
        self.max_variants = max_variants
        self.checkpoint, self.capture = checkpoint, capture
        given = static_argnums, static_argnames, max_variants, checkpoint, capture
        self._options: tuple[Any, ...] = given
        self.recompilations: list[str] = []
        self._static = _static_names(f, static_argnums, static_argnames)
        self._parameters = positional_names(f)
        self._variants: dict[CallKey, list[Variant]] = {}
        self._made: list[VariantRecord] = []  # all variants, in order
        self._latest: tuple[CallKey, Variant] | None = None
        self._quick: Quick | None = None
        self._lock = RLock()
        _COMPILED.add(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        settings = current.get()
        quick = self._quick
        if quick is not None and settings is quick.settings:
            given = quick.arguments(args, kwargs) if kwargs or quick.names else args
            if given is None or default_float() is not quick.floats:
                pass  # variants are specialised on the default dtype
            elif quick.direct is not None:
                raws = quick.raws(given)
                made = None if raws is None else quick.direct(raws)
                if made is not None:
                    return made
            elif (call := quick.call(given)) is not None:
                program = quick.program
                with self._lock:
                    program.prepare(call)
                    if program.matches(call) or program.renew(call) is None:
                        return program(call)
        if settings.levels or settings.staging is not None:
            return self.__wrapped__(*args, **kwargs)
        taken = flatten_arguments(args, kwargs, self._static.__contains__, settings.grad)
        if any([t.__class__ in BOXED for t in taken.call.tensors]):
            return self.__wrapped__(*args, **kwargs)
        with self._lock:
            program = self._find_variant(taken, settings)
            self._quick = None if program.once else Quick.of(settings, taken, program)
            return program(taken.call)

    def alike(self, g: Callable[..., Any]) -> "Compiled[..., Any]":
        """Compile another function with the same options."""
        return type(self)(g, *self._options)

    def _find_variant(self, taken: CallArguments, settings: Settings) -> Variant:
        key = (*taken.key, settings_key(settings))
        program, why = _find_match(self._variants.get(key, ()), taken.call)
        if program is None:
            program = self._new_variant(key, taken, why)
            if not program.once:
                self._variants.setdefault(key, []).append(program)
        self._latest = key, program
        return program

    def _new_variant(self, key: CallKey, taken: CallArguments, why: str | None) -> Variant:
        """Trace and compile a variant: there is none for this kind of call, or none matches."""
        if self._latest is not None:
            latest, last = self._latest
            why = why or last.once or difference(latest, key, self._parameters)
            self._check_room(why, find_resized(latest, key, self._parameters))
        with no_collection():  # it would go through all that is built, again and again
            program, traced = self._build(taken)
        self._note(VariantRecord(program, key, why or "", traced))
        return program

    def _build(self, taken: CallArguments) -> tuple[Variant, float]:
        """A new variant, and the seconds of tracing."""
        began = perf_counter()
        before = StateBefore(self.name, self.__wrapped__, taken.statics)
        program = trace(self.name, self.__wrapped__, taken)
        program.once = single_use_reason(before.report())
        program.choose(self.checkpoint, self.capture)
        traced = perf_counter() - began
        program.begin(taken.call)
        return program, traced

    def _note(self, record: VariantRecord) -> None:
        """Record a variant, and why it was compiled."""
        if self._made:
            self.recompilations.append(record.reason)
        self._made.append(record)

    def _check_room(self, why: str, lengths: str | None) -> None:
        """Raise if there are `max_variants` variants already.

        lengths  the arguments whose lengths differ from the latest call's, as text for `dynamic=`
        """
        if len(self._made) >= self.max_variants:
            reasons = "\n  ".join([*self.recompilations, why])
            shapes = (
                f"compile it with dynamic={lengths}, which makes one program for many lengths"
                if lengths
                else "keep shapes alike"
            )
            raise errors.VariantsExhausted(
                f"compile: {self.name} has been compiled {self.max_variants} times "
                f"(max_variants={self.max_variants}), and another call needs it again. Pass what "
                f"changes as a tensor or a float, {shapes}, or raise max_variants. "
                f"Why, each time:\n  {reasons}\n"
            )

    @property
    def graph(self) -> Graph:
        """The traced graph of the latest call; `graph.draw()` shows it."""
        program = self._last()
        return TracedGraph.of(program.graph, self.name, [p.short for p in program.places])

    @property
    def memory(self) -> CallBytes:
        """The memory of the latest call: inputs, new results, values in between, their peak."""
        return self._last().memory

    def release(self) -> None:
        """Free the scratch memory that is kept for the next call; that one allocates it again.

        >>> import weft as wf
        >>> f = wf.compile(lambda x: (x @ x).sum())
        >>> before = f(wf.ones((3, 3)))
        >>> f.release()
        >>> f(wf.ones((3, 3))).item()
        27.0
        """
        with self._lock:
            for made in [v for variants in self._variants.values() for v in variants]:
                if "executable" in made.__dict__:
                    made.executable.release()

    @property
    def kernels(self) -> Texts:
        """The kernels and routines of the latest call, as readable texts."""
        return kernels_text(self._last().executable.schedule)

    def _last(self) -> Variant:
        if self._latest is None:
            raise errors.ArgumentError(f"{self.name} has not been compiled yet: call it first")
        return self._latest[1]

    def explain(self, verbose: bool = False, stage: str | None = None) -> Text:
        """What was compiled, for which calls, how, and why again.

        verbose  every step and every guard, however long
        stage    instead, what a stage of the compiler made of the latest call's program:
                 "trace" and "passes" (graphs), "schedule", "memory" (the plan), "build"
        """
        if stage is not None:
            program = self._last()
            made_by = program.donated, program.target, program.checkpoint, program.capture
            return Text(after_stage(program.graph, *made_by, stage))
        told = report(self.name, self.max_variants, self._made, self._parameters, verbose)
        return Text(told)

    @overload
    def __get__(self, instance: None, owner: Any = None) -> Self: ...
    @overload
    def __get__(
        self: "Compiled[Concatenate[Any, Q], R]", instance: object, owner: Any = None
    ) -> "Compiled[Q, R]": ...
    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A compiled method, bound to its object."""
        return self if instance is None else _BoundMethod(self, instance)

    def __reduce__(self) -> Any:
        """Copy or pickle the function only; the copy compiles its own variants."""
        found: object = sys.modules.get(self.__module__)
        path = getattr(self, "__qualname__", self.name)
        for name in path.split("."):
            found = getattr(found, name, None)
        if found is self:
            return path  # a global name, as functions are pickled
        return type(self), (self.__wrapped__, *self._options)

    def __repr__(self) -> str:
        return f"<compiled {self.name}>"


def _find_match(programs: Sequence[Variant], call: Call) -> tuple[Variant | None, str | None]:
    """The variant that matches a call; if none does, why the last one does not."""
    found, why = None, None
    for program in programs:
        program.prepare(call)
        if program.matches(call):
            found = program
            break
    for program in programs if found is None else ():
        why = program.renew(call)
        if why is None:
            found = program
            break
    for program in programs:
        if program is not found:
            program.now.call = None  # they hold no arguments of other calls
    return found, why


def single_use_reason(new: list[str]) -> str:
    """Why a variant is right for one call only: its trace added these places; "" if none."""
    return f"{', '.join(new)}: made while the function was traced, and there since" if new else ""


class _BoundMethod:
    """A compiled method, bound to its object."""

    def __init__(self, compiled: Compiled[..., Any], instance: object):
        self._compiled, self._instance = compiled, instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._compiled(self._instance, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)


def _static_names(
    f: Callable[..., Any], numbers: int | Sequence[int], names: str | Sequence[str]
) -> frozenset[int | str]:
    """The static arguments by position and by name, as far as both are known."""
    given = (numbers,) if isinstance(numbers, int | str) else tuple(numbers)
    numbers = tuple([integer_in("compile", "static_argnums", k) for k in given])
    names = (names,) if isinstance(names, str) else tuple(names)
    found: set[int | str] = {*numbers, *names}
    try:
        parameters = list(signature(f).parameters.values())
    except ValueError:  # the names of a builtin's parameters are not known
        return frozenset(found)
    variadic = any(p.kind is Parameter.VAR_KEYWORD for p in parameters)
    known = {p.name: k for k, p in enumerate(parameters)}
    for name in names:
        if name not in known and not variadic:
            raise errors.ArgumentError(
                f"compile: static_argnames has {name!r}, which is no parameter of "
                f"{getattr(f, '__name__', 'the function')}; it has {', '.join(known) or 'none'}"
            )
        found.add(known.get(name, name))
    for k in numbers:
        if k >= len(parameters) and not any(p.kind is Parameter.VAR_POSITIONAL for p in parameters):
            raise errors.ArgumentError(
                f"compile: static_argnums has {k}, and the function {len(parameters)} parameters"
            )
        if k < len(parameters):
            found.add(parameters[k].name)
    return frozenset(found)
