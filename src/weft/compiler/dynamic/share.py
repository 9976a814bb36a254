"""Native code that calls of many lengths share."""

from collections.abc import Callable, Hashable
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ...core.once import once
from ...graph.graph import Graph, Literal
from ...graph.structured import STRUCTURED
from ..frontend.derivative import Derivative
from ..frontend.variant import Variant
from ..pipeline import build
from ..target import Arrays, Ending, Executable
from ..timing import time_stages
from .lift import Lift, Lifted
from .spans import Span, Spans, cut, is_ragged, pad_array
from .table import rule_of
from .traces import Differs, LengthTrace, Varying

# Called before native code is compiled, with a reason or ""; raises if no more is allowed.
Allow = Callable[[str], None]


class Padded:
    """An executable of a bucket's length, called with arrays of another length.

    made  gives the executable; called at first use
    """

    length: int
    bucket: int

    def __init__(self, made: Callable[[], Executable], lifted: Lifted, length: int, bucket: int):
        self._made, self.length, self.bucket = made, length, bucket
        self._numbers = lifted.numbers
        self._inputs = _only_ragged(lifted.inputs)
        self._outputs = _only_ragged(lifted.outputs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made(), name)

    def __call__(self, arrays: Arrays, room: Arrays | None = None) -> list[np.ndarray]:
        return self.run(arrays, room)

    def run(self, arrays: Arrays, room: Arrays | None = None, ending: Ending | None = None) -> Any:
        """Run a call: pad the arguments, and cut the outputs to their length."""
        given = [*arrays, *self._numbers]
        for k, spans in self._inputs:
            given[k] = pad_array(given[k], spans, self.length, self.bucket)
        run = self._made().run
        if ending is None:
            return self.cut(run(given, room))
        return run(given, room, _CutOutputs(self, ending))

    def cut(self, made: list[np.ndarray]) -> list[np.ndarray]:
        """Outputs without their padding."""
        made = list(made)
        for k, spans in self._outputs:
            made[k] = cut(made[k], spans, self.length, self.bucket)
        return made


def _only_ragged(spans: list[Spans]) -> list[tuple[int, Spans]]:
    return [(k, s) for k, s in enumerate(spans) if is_ragged(s)]


class _CutOutputs:
    """The end of a call, which gets the outputs without their padding."""

    def __init__(self, padded: Padded, ending: Ending):
        self._padded, self._ending = padded, ending
        self.stop = ending.stop

    def finish(self, made: list[np.ndarray]) -> Any:
        return self._ending.finish(self._padded.cut(made))


class Template:
    """A function at its bucket's length, for one reachable state.

    small  at another length of the bucket, which shows what depends on the length
    """

    name: str
    small: "SizedVariant"
    large: "SizedVariant"
    inputs: list[Spans]

    def __init__(self, name: str, small: "SizedVariant", large: "SizedVariant"):
        self.name, self.small, self.large = name, small, large
        self.inputs = _input_spans(small, large)
        self._varying, self._pulled = Varying(), Varying()
        self._programs: dict[Hashable, once[Executable]] = {}  # native code by lifted graph
        self._pullbacks: dict[Hashable, once[Executable]] = {}
        self.lift(small)  # finds what depends on the length, or raises

    def lift(self, of: "SizedVariant") -> Lifted:
        """The lifted program of a length, with the bucket's shapes."""
        graphs = [LengthTrace(s.length, s.program.graph) for s in (self.small, self.large, of)]
        return Lift(self.name, graphs, self._varying).run(self.inputs, rule_of, zeros=True)

    def fit(self, of: "SizedVariant", allow: Allow) -> None:
        """Let a variant run native code of the bucket; `allow` is called before new code."""
        program, derivative = of.program, of.program.derivative
        if bool(derivative) != bool(self.large.program.derivative):
            raise Differs("other results are differentiated")
        lifted = self.lift(of)
        pulled = None if derivative is None else self._lift_pull_back(of, lifted)
        key = (graph_key(lifted.graph), tuple(sorted(program.donated.items())))
        if key not in self._programs:
            allow("")
            self._programs[key] = once(partial(_build, program, lifted.graph))
        # `Padded` has the other members of `Executable` by `__getattr__`.
        program.executable = Padded(  # type: ignore[assignment]
            self._programs[key], lifted, of.length, self.large.length
        )
        if derivative is not None and pulled is not None:
            options = derivative.checkpoint, derivative.capture
            made = pulled.graph, {}, derivative.target, *options
            key, make = graph_key(pulled.graph), partial(build, *made)
            native = self._pullbacks.setdefault(key, once(make))
            derivative.executable = Padded(  # type: ignore[assignment]
                native, pulled, of.length, self.large.length
            )

    def _lift_pull_back(self, of: "SizedVariant", lifted: Lifted) -> Lifted:
        """The lifted pull-back of a call, with the bucket's shapes."""
        of_all = (self.small, self.large, of)
        derivatives: list[Any] = [s.program.derivative for s in of_all]
        graphs = [d.graph for d in derivatives]
        traced = [LengthTrace(s.length, g) for s, g in zip(of_all, graphs, strict=True)]
        inputs = _pulled_spans(self.large.program, lifted)
        return Lift(self.name, traced, self._pulled).run(inputs, rule_of, zeros=True)


def _build(program: Variant, graph: Graph) -> Executable:
    with time_stages() as program.times:
        options = program.checkpoint, program.capture
        return build(graph, program.donated, program.target, *options)


class SizedVariant(NamedTuple):
    """A variant for calls of one length."""

    length: int
    program: Variant


def _input_spans(small: SizedVariant, large: SizedVariant) -> list[Spans]:
    """The spans of a program's inputs, from their shapes at two lengths."""
    pairs = zip(small.program.places, large.program.places, strict=False)  # `Lift` counts them
    found: list[Spans] = []
    for a, b in pairs:
        one, other = a.entered.aval.shape, b.entered.aval.shape
        ends = [(small.length, large.length) == ends for ends in zip(one, other, strict=False)]
        if len(one) != len(other) or any(
            [m != n and not e for m, n, e in zip(one, other, ends, strict=True)]
        ):
            raise Differs(f"{b.label} has shape {one} in place of {other}")
        found.append(tuple([Span() if e else None for e in ends]))
    return found


def _pulled_spans(program: Variant, lifted: Lifted) -> list[Spans]:
    """The spans of a pull-back's inputs: saved values, then cotangents of the results."""
    derivative: Derivative = program.derivative  # type: ignore[assignment]
    results = [program.graph.outputs[k] for k in derivative.results]
    saved = derivative.graph.inputs[: len(derivative.graph.inputs) - len(results)]
    return [lifted.values[i] for i in (*saved, *results)]


def graph_key(graph: Graph) -> Hashable:
    """A hashable key of a graph: graphs with equal keys compute the same."""
    equations = [
        (id(e.op), tuple(map(_operand, e.inputs)), tuple(map(_static, e.static)), e.outputs)
        for e in graph.equations
    ]
    constants = [
        (i, np.asarray(x).dtype.str, np.shape(x), np.asarray(x).tobytes())
        for i, x in graph.constants.items()
    ]
    used = {i for e in graph.equations for i in (*e.inputs, *e.outputs) if i.__class__ is int}
    used |= {*graph.inputs, *graph.outputs}
    avals = [(i, graph.avals[i].shape, str(graph.avals[i].dtype)) for i in sorted(used)]
    return (
        tuple(equations),
        tuple(constants),
        tuple(avals),
        tuple(graph.inputs),
        tuple(graph.outputs),
    )


def _operand(x) -> Any:
    return repr(x.value) if x.__class__ is Literal else x


def _static(s) -> Any:
    if not isinstance(s, STRUCTURED):
        return repr(s)
    parts = [getattr(s, f.name) for f in fields(s)]
    return type(s).__name__, tuple(graph_key(p) if isinstance(p, Graph) else p for p in parts)
