"""Bodies: the passes inside of loops and branches, and their checks made outside.

Native code in a body cannot raise: whether its guards held is one more carry (of a branch, one
more result), and the guard is outside. Until then a loop computes with what it has; no access
leaves an array whatever its indices are.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...core.aval import Aval
from ...core.dtypes import bool_
from ...core.op import TABLE
from ...core.origin import Origin, origin
from ...graph.graph import Equation, Graph
from ...graph.guard import GUARD
from ...graph.structured import NAMES, Branch, Loop, Repeat, Structured, row
from .rewriting import Builder, Replacement, rewritten

ROWS = frozenset(NAMES.values())
_FLAG = Aval((), bool_)
_TRUE = np.array(True)

Optimise = Callable[[Graph], Graph]
Check = tuple[tuple, Origin]  # what a guard says, and where it was written


def bodies(graph: Graph, optimise: Optimise) -> Graph:
    """The graph with its loops' and branches' bodies optimised, and guards outside of them."""

    def rule(b: Builder, e: Equation) -> Replacement:
        structure, inputs, checks = _TREATED[type(e.static[0])](b, e, optimise)
        outputs = made(b, structure, inputs)
        if not checks:
            return outputs
        kept = len(e.outputs)
        results, flags = _parted(structure, outputs, kept, len(checks))
        for flag, (said, where) in zip(flags, checks, strict=True):
            results = [_guarded(b, x, flag, said, where) for x in results]
        return tuple(results)

    return rewritten(graph, rule, ROWS)


def made(b: Builder, structure: Structured, inputs: tuple) -> tuple[int, ...]:
    """The equation of a structure; its results."""
    count = len(structure.results(*map(b.aval, inputs)))
    out = b.emit(row(type(structure), len(inputs), count, (), (None, None)), *inputs, structure)
    return out if isinstance(out, tuple) else (out,)


def _parted(structure: Structured, outputs: tuple, kept: int, flags: int) -> tuple[list, list]:
    """The results, and the flags among them: they are behind the other carries."""
    if isinstance(structure, Branch):
        return list(outputs[:kept]), list(outputs[kept:])
    first = structure.carries - flags
    return [*outputs[:first], *outputs[first + flags :]], list(outputs[first : first + flags])


def _guarded(b: Builder, x: int, flag: int, said: tuple, origin: Origin) -> int:
    new = b.graph.new(b.graph.avals[x])
    b.append(Equation(GUARD, (x, flag), said, (new,), origin))
    return new


def _in_loop(b: Builder, e: Equation, optimise: Optimise) -> tuple[Loop, tuple, list[Check]]:
    (loop,) = e.static
    body, flags, checks = _unguarded(optimise(loop.body))
    body = _carrying(body, flags, loop.carries)
    inputs = _with_true(b, e.inputs, loop.carries, len(flags))
    return replace(loop, body=body, carries=loop.carries + len(flags), saved=0), inputs, checks


def _in_repeat(b: Builder, e: Equation, optimise: Optimise) -> tuple[Repeat, tuple, list[Check]]:
    (repeat,) = e.static
    body, flags, checks = _unguarded(optimise(repeat.body))
    n = repeat.carries
    body, test = _carrying(body, flags, n), optimise(repeat.test)
    test = _tested(test, n, len(flags))
    inputs = _with_true(b, e.inputs, n, len(flags))
    return Repeat(test, body, n + len(flags), repeat.most), inputs, checks


def _in_branch(b: Builder, e: Equation, optimise: Optimise) -> tuple[Branch, tuple, list[Check]]:
    (branch,) = e.static
    parts = [_unguarded(optimise(g)) for g in branch.graphs]
    checks = [c for _, _, found in parts for c in found]
    (yes, first, _), (no, second, _) = parts
    yes = _telling(yes, [*first, *[None] * len(second)])
    no = _telling(no, [*[None] * len(first), *second])
    return Branch(yes, no), e.inputs, checks


_TREATED: dict[type, Any] = {Loop: _in_loop, Repeat: _in_repeat, Branch: _in_branch}


def _with_true(b: Builder, inputs: tuple, at: int, count: int) -> tuple:
    """Operands with flags that are true, behind the first carries."""
    return (*inputs[:at], *[b.constant(_TRUE) for _ in range(count)], *inputs[at:])


def _unguarded(graph: Graph) -> tuple[Graph, list[int], list[Check]]:
    """A body without its guards; their flags, and what they say."""
    if not any(e.op.name == "guard" for e in graph.equations):
        return graph, [], []
    found: dict[int, Check] = {}

    def rule(b: Builder, e: Equation) -> Replacement:
        x, flag = e.inputs
        found.setdefault(flag, (e.static, e.origin))
        return (x,)

    graph = rewritten(graph, rule, {"guard"})
    return graph, list(found), list(found.values())


def _copied(graph: Graph) -> Graph:
    return Graph(
        *(list(graph.avals), list(graph.inputs), dict(graph.constants)),
        *(list(graph.equations), list(graph.outputs)),
    )


def _carrying(graph: Graph, flags: list[int], at: int) -> Graph:
    """The body with a carry for each flag: whether it held in all steps so far."""
    graph = _copied(graph)
    for k, flag in enumerate(flags):
        before, after = graph.new(_FLAG), graph.new(_FLAG)
        graph.inputs.insert(at + k, before)
        graph.outputs.insert(at + k, after)
        graph.equations.append(_and(before, flag, after))
    return graph


def _and(a: int, b: int, out: int) -> Equation:
    return Equation(TABLE["logical_and"], (a, b), (), (out,), origin())


def _tested(graph: Graph, at: int, flags: int) -> Graph:
    """The test of a loop that also ends where a flag is false."""
    graph = _copied(graph)
    for k in range(flags):
        held, both = graph.new(_FLAG), graph.new(_FLAG)
        graph.inputs.insert(at + k, held)
        graph.equations.append(_and(graph.outputs[0], held, both))
        graph.outputs[0] = both
    return graph


def _telling(graph: Graph, flags: list[int | None]) -> Graph:
    """A branch that also gives these flags, or that there is nothing to say."""
    graph = _copied(graph)
    for flag in flags:
        out = graph.new(_FLAG)
        if flag is None:
            true = graph.new(_FLAG)
            graph.constants[true] = _TRUE
            flag = true
        graph.equations.append(_and(flag, flag, out))
        graph.outputs.append(out)
    return graph
