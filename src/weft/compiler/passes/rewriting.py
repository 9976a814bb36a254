"""Rewriting a graph, equation by equation."""

from collections import Counter
from collections.abc import Callable, Container
from typing import Any

import numpy as np

from ...core.aval import Aval
from ...core.op import TABLE, Op
from ...core.origin import Origin
from ...core.value import aval_of
from ...graph.graph import Equation, Graph, Literal

Operand = int | Literal
# What a rule returns for an equation: values that replace its results, or None to keep it.
Replacement = tuple[int, ...] | None


class Builder:
    """Builds a graph that replaces another one.

    Old values keep their numbers; new ones are numbered after them. `uses` counts how often the old
    graph reads a value, so that a rule can tell that nothing else needs it.
    """

    graph: Graph

    def __init__(self, old: Graph):
        self.graph = Graph(list(old.avals), old.inputs, dict(old.constants))
        self.definitions: dict[int, Equation] = {}
        self._old = old
        self._uses: Counter[int] | None = None
        self._origin: Origin | None = None
        self._renamed: dict[int, int] = {}

    @property
    def uses(self) -> Counter[int]:
        """How often each value is read, by its current name; counted on first use."""
        if self._uses is None:
            self._uses = Counter()
            for i, n in _reads(self._old).items():
                self._uses[self._renamed.get(i, i)] += n
        return self._uses

    def aval(self, x: Operand) -> Aval:
        """The aval of an operand; a Python scalar's has no device."""
        return aval_of(x.value) if isinstance(x, Literal) else self.graph.avals[x]

    def shape(self, x: Operand) -> tuple[int, ...]:
        return self.aval(x).shape

    def dtype(self, x: Operand) -> np.dtype:
        return self.aval(x).dtype

    def made_by(self, x: Operand, *rows: str) -> Equation | None:
        """The equation that computes an operand, if it is of one of these rows."""
        e = None if isinstance(x, Literal) else self.definitions.get(x)
        return e if e is not None and e.op.name in rows else None

    def constant(self, value: np.ndarray) -> int:
        """A new constant."""
        i = self.graph.new(aval_of(value))
        self.graph.constants[i] = value
        return i

    def at(self, origin: Origin) -> None:
        """Set the user's line for the equations that are appended next."""
        self._origin = origin

    def emit(self, row: str | Op, *arguments: Any) -> Any:
        """Append an equation: operands (a list, for a variadic row), then static parameters.

        Returns the index of its result, or a tuple of several.
        """
        op = TABLE[row] if isinstance(row, str) else row
        if op.arity is None:
            operands, static = tuple(arguments[0]), arguments[1:]
        else:
            operands, static = arguments[: op.arity], arguments[op.arity :]
        made = op.call(op.shape, [self.aval(x) for x in operands], static)
        made = made if isinstance(made, tuple) else (made,)
        outputs = tuple(self.graph.new(a) for a in made)
        assert self._origin is not None, "an equation outside of a rule"
        self.append(Equation(op, operands, static, outputs, self._origin))
        return outputs[0] if op.outputs == 1 else outputs

    def append(self, e: Equation) -> None:
        """Append an equation whose results are numbered already."""
        self.graph.equations.append(e)
        for i in e.outputs:
            self.definitions[i] = e

    def replace(self, e: Equation, rule: Callable[["Builder", Equation], Replacement]) -> None:
        """Apply a rule to an equation of the old graph, and append the outcome."""
        renamed = self._renamed
        if renamed and not renamed.keys().isdisjoint(e.inputs):
            e = e._replace(inputs=tuple([renamed.get(i, i) for i in e.inputs]))
        self._origin = e.origin
        made = rule(self, e)
        if made is None:
            self.append(e)
            return
        for before, after in zip(e.outputs, made, strict=True):
            if before != after:
                renamed[before] = after
                if self._uses is not None:
                    self._uses[after] += self._uses[before]

    def finish(self, outputs: list[int]) -> Graph:
        self.graph.outputs = [self._renamed.get(i, i) for i in outputs]
        return self.graph


def _reads(graph: Graph) -> Counter[int]:
    """How often each value is read; being an output counts as a read."""
    counts = Counter([i for e in graph.equations for i in e.inputs if i.__class__ is int])
    counts.update(graph.outputs)
    return counts


def rewrite(
    graph: Graph,
    rule: Callable[[Builder, Equation], Replacement],
    rows: Container[str] | None = None,
) -> Graph:
    """The graph with every equation replaced by what `rule(builder, equation)` returns.

    The rule sees rewritten operands, so one pass propagates a change all the way. If `rows` are
    given, it is called for those only; a graph without any of them is returned unchanged.
    """
    if rows is not None and not any([e.op.name in rows for e in graph.equations]):
        return graph
    builder = Builder(graph)
    renamed, keep, known = builder._renamed, builder.graph.equations.append, builder.definitions
    for e in graph.equations:
        named = rows is None or e.op.name in rows
        if named or (renamed and not renamed.keys().isdisjoint(e.inputs)):
            builder.replace(e, rule if named else _as_it_was)
            continue
        keep(e)
        for i in e.outputs:
            known[i] = e
    return builder.finish(graph.outputs)


def _as_it_was(builder: Builder, e: Equation) -> Replacement:
    return None
