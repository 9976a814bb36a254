"""Scalarise small arrays: equations over them become one scalar program.

Where many small arrays are stacked, sliced and multiplied (a robot's joints, a Jacobian of a few
inputs), passing them from kernel to kernel takes longer than computing them. A scalar program loads
each element once, keeps all intermediate numbers in registers, and stores what is read outside.
"""

from collections.abc import Iterator
from functools import lru_cache
from math import prod

import numpy as np

from ....core.aval import Aval
from ....core.op import Op
from ....graph.graph import Equation, Graph, Literal
from ....graph.structured import communicates
from ...emit.convert import SUPPORTED
from ...fusion.classify import UnitKind, kind_of
from ...ir.scalar_program import STRIDED, ScalarProgram, ScalarProgramBuilder, interpret_program
from ...ir.views import LOOKS, View, views_of
from ..computes import Computes

_CPU = Computes()
# The most elements of a small array; the most for expensive rows, and multiplications of products.
# A scalar program computes at most LONGEST numbers: LLVM takes 0.1 ms for one.
SMALL, COSTLY, PRODUCT, LONGEST = 256, 64, 1024, 3000
# A separate step costs as much as this many scalars, since kernels compute theirs in lanes. And
# there must be some: a scalar program is compiled, while copies and products need not be.
STEP, FEWEST = 48, 4
# This many expensive rows of single numbers are worth a program, which packs them into lanes.
LANES = 8


@lru_cache(maxsize=None)
def program_op(results: int) -> Op:
    """The operation of a scalar program; not a row of the table: no user program has it."""

    def compute(xp, operands, line: ScalarProgram):
        made = interpret_program(line, operands)
        return made[0] if results == 1 else made

    def shape(avals, line: ScalarProgram):
        made = tuple(Aval(shape, dtype) for (shape, dtype), _ in line.results)
        return made[0] if results == 1 else made

    tracked = tuple(range(results))
    return Op("line", compute, shape, None, None, outputs=results, tracked=tracked)


def scalarise(graph: Graph) -> Graph:
    """The graph with scalar programs in place of small equations, where that is profitable."""
    views = views_of(graph)
    small = [_is_small(graph, views, e) for e in graph.equations]
    if not any(small):
        return graph
    stages = _stages(graph, views, small)
    chosen = [
        part
        for together in _numbers_together(graph, _components(graph, small, stages), stages)
        if _is_worth_it(graph, together)
        for part in _cut(graph, together)
    ]
    return _insert_programs(graph, chosen, small, stages) if chosen else graph


# -- which equations -------------------------------------------------------------------------


def _is_small(graph: Graph, views: dict[int, View], e: Equation) -> bool:
    """Whether an equation can be unrolled into scalars."""
    inputs = [graph.avals[i] for i in e.inputs if not isinstance(i, Literal)]
    avals = [*inputs, *(graph.avals[i] for i in e.outputs)]
    if not all(0 < prod(a.shape) <= SMALL and a.dtype in SUPPORTED for a in avals):
        return False
    if len(inputs) < len(e.inputs) and (e.op.moves in STRIDED or e.op.name == "matmul"):
        return False
    if any(a.device != "cpu" for a in avals):
        return False
    if e.op.name == "matmul":
        return avals[0].dtype == avals[1].dtype and _products(graph, e) <= PRODUCT
    if e.op.moves in STRIDED:
        return len({a.dtype for a in avals}) == 1
    if e.op.folds:
        logical = avals[0].dtype == np.bool_ and e.op.folds not in ("any", "all", "sum")
        return not logical and kind_of(graph, views, e, _CPU)[0] is UnitKind.FOLD
    if kind_of(graph, views, e, _CPU)[0] is not UnitKind.POINT:
        return False
    return e.op.cost == "light" or prod(avals[-1].shape) <= COSTLY


def _products(graph: Graph, e: Equation) -> int:
    """How many multiplications a matrix product takes."""
    out = prod(graph.avals[e.outputs[0]].shape)
    return out * graph.avals[e.inputs[0]].shape[-1]


def _stages(graph: Graph, views: dict[int, View], small: list[bool]) -> list[int]:
    """The longest chain of other equations before each equation.

    Small equations of one stage depend on each other through nothing else, so they can be one step.
    What other processes take part in stays in order.
    """
    given = {*graph.inputs, *graph.constants}
    stage: dict[int, int] = {}
    handful: set[int] = set()  # results of small equations; a view of one comes after them
    found = []
    joined = 0  # the stage of the last equation that other processes take part in
    for e, is_small in zip(graph.equations, small, strict=True):
        arrays = [i for i in e.inputs if not isinstance(i, Literal)]
        own = max((stage.get(i, 0) for i in arrays), default=0)
        joins = communicates(e)
        own = max(own, joined) if joins else own
        look = e.op.name in LOOKS and len(arrays) == 1 and arrays[0] not in handful
        own += not (is_small or (look and views[e.outputs[0]].root in given))
        found.append(own)
        joined = own if joins else joined
        stage.update(dict.fromkeys(e.outputs, own))
        handful.update(e.outputs if is_small else ())
    return found


def _components(graph: Graph, small: list[bool], stages: list[int]) -> list[list[int]]:
    """The connected components of small equations in each stage, in order."""
    parent = list(range(len(graph.equations)))

    def top(k: int) -> int:
        while parent[k] != k:
            parent[k] = parent[parent[k]]
            k = parent[k]
        return k

    made_by: dict[int, int] = {}
    for k, e in enumerate(graph.equations):
        if small[k]:
            for i in e.inputs:
                j = None if isinstance(i, Literal) else made_by.get(i)
                if j is not None and stages[j] == stages[k]:
                    parent[top(j)] = top(k)
            made_by.update(dict.fromkeys(e.outputs, k))
    found: dict[int, list[int]] = {}
    for k in range(len(graph.equations)):
        if small[k]:
            found.setdefault(top(k), []).append(k)
    return list(found.values())


def _numbers_together(
    graph: Graph, components: list[list[int]], stages: list[int]
) -> list[list[int]]:
    """Merge components of single numbers, stage by stage: together they fill lanes."""
    found: list[list[int]] = []
    single: dict[int, list[int]] = {}
    for together in components:
        if all(_numbers(graph, graph.equations[k]) == 1 for k in together):
            single.setdefault(stages[together[0]], []).extend(together)
        else:
            found.append(together)
    return [*found, *map(sorted, single.values())]


def _numbers(graph: Graph, e: Equation) -> int:
    """How many scalars an equation becomes."""
    if e.op.moves in STRIDED:
        return 0
    if e.op.name == "matmul":
        return _products(graph, e)
    return prod(graph.avals[(e.inputs if e.op.folds else e.outputs)[0]].shape)


def _steps(e: Equation) -> int:
    """How many additional steps an equation would be, beside fused kernels."""
    many = len(e.inputs) if e.op.name in ("stack", "concat") else 0
    return many or 2 * (e.op.name in ("matmul", "unslice", "slice_set", "pad"))


def _is_worth_it(graph: Graph, together: list[int]) -> bool:
    """Whether the saved steps cost more than the advantage of kernels, which compute in lanes."""
    equations = [graph.equations[k] for k in together]
    steps = sum(map(_steps, equations))
    numbers = [_numbers(graph, e) for e in equations]
    if max(numbers) == 1 and sum(e.op.cost != "light" for e in equations) >= LANES:
        return True  # a scalar program computes expensive rows of several numbers at once
    return steps >= FEWEST and sum(n for n in numbers if n > 1) <= STEP * steps


def _cut(graph: Graph, together: list[int]) -> Iterator[list[int]]:
    """Split equations, in order, into parts that LLVM compiles quickly."""
    part: list[int] = []
    numbers = 0
    for k in together:
        own = _numbers(graph, graph.equations[k])
        if part and numbers + own > LONGEST:
            yield part
            part, numbers = [], 0
        part.append(k)
        numbers += own
    yield part


# -- building them ---------------------------------------------------------------------------


def _insert_programs(
    graph: Graph, chosen: list[list[int]], small: list[bool], stages: list[int]
) -> Graph:
    """The graph in the order of its stages, with scalar programs for the chosen parts."""
    made = Graph(graph.avals, graph.inputs, graph.constants, [], graph.outputs)
    line_at = {part[0]: part for part in chosen}
    gone = {k for part in chosen for k in part}
    read = _readers(graph)
    order = sorted(range(len(graph.equations)), key=lambda k: (stages[k], small[k]))
    for k in order:
        if k in line_at:
            made.equations += _program_equation(graph, line_at[k], read)
        elif k not in gone:
            made.equations.append(graph.equations[k])
    return made


def _readers(graph: Graph) -> dict[int, set[int]]:
    """The readers of each value; −1 is the graph itself."""
    found: dict[int, set[int]] = {i: {-1} for i in graph.outputs}
    for k, e in enumerate(graph.equations):
        for i in e.inputs:
            if not isinstance(i, Literal):
                found.setdefault(i, set()).add(k)
    return found


def _program_equation(graph: Graph, part: list[int], read: dict[int, set[int]]) -> list[Equation]:
    """The equation of a part's scalar program."""
    writer, inside = ScalarProgramBuilder(graph), set(part)
    for k in part:
        writer.write(graph.equations[k])
    own = [i for k in part for i in graph.equations[k].outputs]
    outputs = [i for i in own if read.get(i, set()) - inside]
    if not outputs:
        return []
    line, operands = writer.finish(outputs)
    origin = graph.equations[part[-1]].origin
    return [Equation(program_op(len(outputs)), tuple(operands), (line,), tuple(outputs), origin)]
