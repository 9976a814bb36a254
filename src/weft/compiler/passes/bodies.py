"""Bodies: passes inside of loops and branches, with their guards hoisted outside.

Native code in a body cannot raise. Whether its guards held is an additional carry (for a branch, an
additional result), and the guard itself is outside. The offending index is another carry, for the
error message. Until the guard raises, the loop computes with what it has; no access leaves an
array, whatever the indices are.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.aval import Aval
from ...core.dtypes import bool_, int64
from ...core.op import TABLE
from ...core.origin import Origin, origin
from ...core.record import record
from ...core.types import Static
from ...graph.graph import Equation, Graph, Literal
from ...graph.guard import GUARD, WITHIN
from ...graph.structured import NAMES, Branch, Loop, Repeat, Structured, row
from .rewriting import Builder, Operand, Replacement, rewrite

ROWS = frozenset(NAMES.values())
_FLAG, _INDEX = Aval((), bool_), Aval((), int64)
_TRUE, _ZERO = np.array(True), np.array(0)

Optimise = Callable[[Graph], Graph]


@record
class BodyCheck:
    """A guard of a body.

    flag   whether it holds
    index  the index that the error names; None if it names none
    said   the guard's static parameters; `origin` is its line in the user's program
    """

    flag: int
    index: int | None
    said: Static
    origin: Origin


def bodies(graph: Graph, optimise: Optimise) -> Graph:
    """Optimise the bodies of loops and branches, and hoist their guards."""

    def rule(b: Builder, e: Equation) -> Replacement:
        structure, inputs, checks = _TREATED[type(e.static[0])](b, e, optimise)
        outputs = emit_structure(b, structure, inputs)
        if not checks:
            return outputs
        results, values = _split_checks(structure, outputs, len(e.outputs), checks)
        for check in checks:
            flag = values.pop(0)
            index = None if check.index is None else values.pop(0)
            results = [_guard(b, x, flag, index, check) for x in results]
        return tuple(results)

    return rewrite(graph, rule, ROWS)


def emit_structure(
    b: Builder, structure: Structured, inputs: tuple[Operand, ...]
) -> tuple[int, ...]:
    """Emit the equation of a structure, and return its results."""
    count = len(structure.results(*map(b.aval, inputs)))
    op = row(type(structure), len(inputs), count, (), (None, None))  # type: ignore[arg-type]
    out = b.emit(op, *inputs, structure)
    return out if isinstance(out, tuple) else (out,)


def _count(checks: list[BodyCheck]) -> int:
    """How many values the checks add."""
    return sum([1 if c.index is None else 2 for c in checks])


def _split_checks(
    structure: Structured, outputs: tuple, kept: int, checks: list[BodyCheck]
) -> tuple:
    """The results without the checks' values, and those: they follow the other carries."""
    if isinstance(structure, Branch):
        return list(outputs[:kept]), list(outputs[kept:])
    last = structure.carries
    first = last - _count(checks)
    return [*outputs[:first], *outputs[last:]], list(outputs[first:last])


def _guard(b: Builder, x: int, flag: int, index: int | None, check: BodyCheck) -> int:
    new = b.graph.new(b.graph.avals[x])
    op, inputs = (GUARD, (x, flag)) if index is None else (WITHIN, (x, flag, index))
    b.append(Equation(op, inputs, check.said, (new,), check.origin))
    return new


def _in_loop(b: Builder, e: Equation, optimise: Optimise) -> tuple[Loop, tuple, list[BodyCheck]]:
    (loop,) = e.static
    body, checks = _remove_guards(optimise(loop.body))
    body = _carry_checks(body, checks, loop.carries)
    inputs = _initialise_checks(b, e.inputs, loop.carries, checks)
    return replace(loop, body=body, carries=loop.carries + _count(checks), saved=0), inputs, checks


def _in_repeat(
    b: Builder, e: Equation, optimise: Optimise
) -> tuple[Repeat, tuple, list[BodyCheck]]:
    (repeat,) = e.static
    body, checks = _remove_guards(optimise(repeat.body))
    n = repeat.carries
    body, test = _carry_checks(body, checks, n), optimise(repeat.test)
    test = _test_with_checks(test, n, checks)
    inputs = _initialise_checks(b, e.inputs, n, checks)
    return Repeat(test, body, n + _count(checks), repeat.most), inputs, checks


def _in_branch(
    b: Builder, e: Equation, optimise: Optimise
) -> tuple[Branch, tuple, list[BodyCheck]]:
    (branch,) = e.static
    (yes, first), (no, second) = [_remove_guards(optimise(g)) for g in branch.graphs]
    yes = _return_checks(yes, [(c, True) for c in first] + [(c, False) for c in second])
    no = _return_checks(no, [(c, False) for c in first] + [(c, True) for c in second])
    return Branch(yes, no), e.inputs, [*first, *second]


_TREATED: dict[type, Any] = {Loop: _in_loop, Repeat: _in_repeat, Branch: _in_branch}


def _initialise_checks(b: Builder, inputs: tuple, at: int, checks: list[BodyCheck]) -> tuple:
    """Operands with initial flags (true) and indices (0), after the first carries."""
    begun = []
    for c in checks:
        begun += [b.constant(_TRUE), *([] if c.index is None else [b.constant(_ZERO)])]
    return (*inputs[:at], *begun, *inputs[at:])


def _remove_guards(graph: Graph) -> tuple[Graph, list[BodyCheck]]:
    """A body without its guards, and the guards."""
    if not any(e.op.name == "guard" for e in graph.equations):
        return graph, []
    found: dict[int, BodyCheck] = {}

    def rule(b: Builder, e: Equation) -> Replacement:
        x, flag, *seen = e.inputs
        if flag not in found:
            index = _wrong(b, seen[0], e.static[-1]) if seen else None
            found[flag] = BodyCheck(flag, index, e.static, e.origin)
        return (x,)

    graph = rewrite(graph, rule, {"guard"})
    return graph, list(found.values())


def _wrong(b: Builder, indices: int, n: int) -> int:
    """The largest index if it is n or more, else the least."""
    axes = tuple(range(len(b.shape(indices))))
    if axes:
        high, low = b.emit("amax", indices, axes, False), b.emit("amin", indices, axes, False)
        indices = b.emit("where", b.emit("greater_equal", high, Literal(n)), high, low)
    return indices if b.dtype(indices) == int64 else b.emit("cast", indices, int64)


def _copy_graph(graph: Graph) -> Graph:
    return Graph(
        *(list(graph.avals), list(graph.inputs), dict(graph.constants)),
        *(list(graph.equations), list(graph.outputs)),
    )


def _carry_checks(graph: Graph, checks: list[BodyCheck], at: int) -> Graph:
    """The body with carries per check: whether it held so far, and the offending index."""
    graph = _copy_graph(graph)
    for c in checks:
        held, holds = graph.new(_FLAG), graph.new(_FLAG)
        graph.inputs.insert(at, held)
        graph.outputs.insert(at, holds)
        graph.equations.append(_and(held, c.flag, holds))
        at += 1
        if c.index is not None:
            before, after = graph.new(_INDEX), graph.new(_INDEX)
            graph.inputs.insert(at, before)
            graph.outputs.insert(at, after)
            graph.equations.append(_write_equation("where", (held, c.index, before), after))
            at += 1
    return graph


def _write_equation(row: str, inputs: tuple, out: int) -> Equation:
    return Equation(TABLE[row], inputs, (), (out,), origin())


def _and(a: int, b: int, out: int) -> Equation:
    return _write_equation("logical_and", (a, b), out)


def _test_with_checks(graph: Graph, at: int, checks: list[BodyCheck]) -> Graph:
    """The test of a loop that also stops when a check fails."""
    graph = _copy_graph(graph)
    for c in checks:
        held, both = graph.new(_FLAG), graph.new(_FLAG)
        graph.inputs.insert(at, held)
        graph.equations.append(_and(graph.outputs[0], held, both))
        graph.outputs[0] = both
        at += 1
        if c.index is not None:
            graph.inputs.insert(at, graph.new(_INDEX))
            at += 1
    return graph


def _return_checks(graph: Graph, checks: list[tuple[BodyCheck, bool]]) -> Graph:
    """A branch that also returns its own checks' values, and neutral values for the other's."""
    graph = _copy_graph(graph)
    for c, own in checks:
        flag = c.flag if own else _literal(graph, _FLAG, _TRUE)
        graph.outputs.append(graph.new(_FLAG))
        graph.equations.append(_and(flag, flag, graph.outputs[-1]))
        if c.index is not None:
            index = c.index if own else _literal(graph, _INDEX, _ZERO)
            graph.outputs.append(graph.new(_INDEX))
            graph.equations.append(_write_equation("maximum", (index, index), graph.outputs[-1]))
    return graph


def _literal(graph: Graph, aval: Aval, value: np.ndarray) -> int:
    i = graph.new(aval)
    graph.constants[i] = value
    return i
