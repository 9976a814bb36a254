"""Tracing a rule once for parameters of one kind, and copying its equations for the others."""

from collections.abc import Callable
from typing import Any

from ..core.record import record
from ..core.value import wrap
from ..graph.graph import Equation
from ..graph.staged import Staged


@record
class _Stamp:
    """The trace of a rule: its operands, equations and results, as indices of the graph."""

    rule: Callable[..., Any]
    operands: list[int]
    equations: list[Equation]
    results: list[int]


class Stamps:
    """Rules over columns of a program, with the same settings.

    A rule that adds inputs to the program, such as a random draw, is traced for each parameter.
    """

    def __init__(self, staging: Any):
        self.staging = staging
        self._known: dict[tuple[Any, ...], _Stamp] = {}

    def __call__(
        self, rule: Callable[..., Any], columns: list[Any], settings: dict[str, Any]
    ) -> list[Any]:
        """rule(*columns, **settings); for one rule the settings are the same at each call."""
        graph = self.staging.graph
        operands = [self.staging.index_of(x._data) for x in columns if self._is_own(x)]
        if len(set(operands)) < len(columns):
            return list(rule(*columns, **settings))
        key = (id(rule), *[graph.avals[i] for i in operands])
        stamp = self._known.get(key)
        if stamp is not None:
            level = columns[0]._data.level
            return [wrap(self.staging.value(level, i)) for i in self._stamp(stamp, operands)]
        start, entered = len(graph.equations), len(graph.inputs)
        made = list(rule(*columns, **settings))
        if len(graph.inputs) == entered and all(map(self._is_own, made)):
            results = [self.staging.index_of(x._data) for x in made]
            self._known[key] = _Stamp(rule, operands, graph.equations[start:], results)
        return made

    def _is_own(self, x) -> bool:
        """Whether a tensor is a value of the program, outside of any transformation in it."""
        return x._data.__class__ is Staged and x._data.staging is self.staging

    def _stamp(self, stamp: _Stamp, operands: list[int]) -> list[int]:
        graph = self.staging.graph
        names = dict(zip(stamp.operands, operands, strict=True))
        for e in stamp.equations:
            inputs = tuple([names.get(i, i) if i.__class__ is int else i for i in e.inputs])
            outputs = tuple([graph.new(graph.avals[i]) for i in e.outputs])
            names.update(zip(e.outputs, outputs, strict=True))
            graph.equations.append(e._replace(inputs=inputs, outputs=outputs))
        return [names.get(i, i) for i in stamp.results]
