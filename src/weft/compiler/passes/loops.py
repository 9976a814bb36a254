"""Loop optimisation: prune unused results, hoist invariants, fold constants into bodies.

A loop of a backward pass starts each step from the carries of the forward loop and recomputes the
step. Where that is expensive and the forward loop computed the same value anyway, it is saved there
and read here, up to `ROOM` bytes.
"""

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from ...core.aval import Aval
from ...graph.graph import Equation, Graph, Literal
from ...graph.structured import Branch, Loop, Repeat, Structured, communicates, row
from ..ir.views import LOOKS
from .bodies import ROWS, emit_structure
from .common import key_of
from .rewriting import Builder, Operand, Replacement, rewrite

# Constants of up to this many bytes are copied into bodies.
SMALL = 1 << 10
# Bytes that may be saved for a backward loop beyond the carries.
ROOM = 1 << 26


def loops(graph: Graph) -> Graph:
    """The graph with its loops and branches simplified; their bodies are not rewritten yet."""
    if not any(e.op.name in ROWS for e in graph.equations):
        return graph
    return prune(save_for_backward_loops(rewrite(prune(graph), _simplify, ROWS)))


# -- pruning -------------------------------------------------------------------------------------


def prune(graph: Graph) -> Graph:
    """The graph without anything that no output needs, also in its loops and branches.

    What other processes need stays, and so does a loop or a branch around it, as it is.
    """
    live, kept = set(graph.outputs), []
    for e in reversed(graph.equations):
        joins = communicates(e)
        if live.isdisjoint(e.outputs) and not joins:
            continue
        if e.op.name in ROWS and not joins:
            e = _TRIMMED[type(e.static[0])](e, live)
        kept.append(e)
        live.update([i for i in e.inputs if not isinstance(i, Literal)])
    constants = {i: v for i, v in graph.constants.items() if i in live}
    return Graph(graph.avals, graph.inputs, constants, kept[::-1], graph.outputs)


def _reads(graph: Graph) -> set[int]:
    read = {i for e in graph.equations for i in e.inputs if not isinstance(i, Literal)}
    return read.union(graph.outputs)


def _only(graph: Graph, outputs: list[int]) -> Graph:
    """A body with only some of its outputs."""
    return prune(
        Graph(
            *(graph.avals, graph.inputs, graph.constants, graph.equations),
            [graph.outputs[k] for k in outputs],
        )
    )


def _equation(
    e: Equation, structure: Structured, inputs: list[Operand], outputs: list[int]
) -> Equation:
    op = row(type(structure), len(inputs), len(outputs), (), (None, None))  # type: ignore[arg-type]
    return Equation(op, tuple(inputs), (structure,), tuple(outputs), e.origin)


def _trim_loop(e: Equation, live: set[int]) -> Equation:
    (loop,) = e.static
    n = loop.carries
    wanted = {k for k, i in enumerate(e.outputs) if i in live}
    while True:
        body = _only(loop.body, sorted(wanted))
        read = _reads(body)
        more = {k for k in range(n) if body.inputs[k] in read} - wanted
        if not more:
            break
        wanted |= more
    kept = [k for k, i in enumerate(body.inputs) if (k in wanted if k < n else i in read)]
    body = replace(body, inputs=[body.inputs[k] for k in kept])
    carries, xs = sum(k < n for k in kept), sum(n <= k < n + loop.xs for k in kept)
    trimmed = replace(loop, body=body, carries=carries, xs=xs, saved=0)
    return _equation(
        e, trimmed, [e.inputs[k] for k in kept], [e.outputs[k] for k in sorted(wanted)]
    )


def _trim_repeat(e: Equation, live: set[int]) -> Equation:
    (repeat,) = e.static
    n, test = repeat.carries, prune(repeat.test)
    wanted = {k for k, i in enumerate(e.outputs[:n]) if i in live}
    wanted |= {k for k in range(n) if test.inputs[k] in _reads(test)}
    while True:
        body = _only(repeat.body, sorted(wanted))
        read = _reads(body)
        more = {k for k in range(n) if body.inputs[k] in read} - wanted
        if not more:
            break
        wanted |= more
    asked = _reads(test)
    kept = [
        k
        for k, (i, j) in enumerate(zip(body.inputs, test.inputs, strict=True))
        if (k in wanted if k < n else i in read or j in asked)
    ]
    body, test = (replace(g, inputs=[g.inputs[k] for k in kept]) for g in (body, test))
    trimmed = Repeat(test, body, len(wanted), repeat.most)
    outputs = [*[e.outputs[k] for k in sorted(wanted)], e.outputs[n]]
    return _equation(e, trimmed, [e.inputs[k] for k in kept], outputs)


def _trim_branch(e: Equation, live: set[int]) -> Equation:
    (branch,) = e.static
    wanted = [k for k, i in enumerate(e.outputs) if i in live]
    parts = [_only(g, wanted) for g in branch.graphs]
    kept = sorted({k for g in parts for k, i in enumerate(g.inputs) if i in _reads(g)})
    parts = [replace(g, inputs=[g.inputs[k] for k in kept]) for g in parts]
    inputs = [e.inputs[0], *[e.inputs[k + 1] for k in kept]]
    return _equation(e, Branch(*parts), inputs, [e.outputs[k] for k in wanted])


_TRIMMED: dict[type, Any] = {Loop: _trim_loop, Repeat: _trim_repeat, Branch: _trim_branch}


# -- constants and invariants --------------------------------------------------------------------


def _simplify(b: Builder, e: Equation) -> Replacement:
    structure = e.static[0]
    if isinstance(structure, Loop):
        return _simplify_loop(b, e, structure)
    if isinstance(structure, Repeat):
        graphs, inputs = _embed_constants(b, structure.graphs, e.inputs, structure.carries)
        return emit_structure(b, replace(structure, test=graphs[0], body=graphs[1]), tuple(inputs))
    graphs, inputs = _embed_constants(b, structure.graphs, e.inputs[1:], 0)
    return emit_structure(b, Branch(*graphs), (e.inputs[0], *inputs))


def _simplify_loop(b: Builder, e: Equation, loop: Loop) -> Replacement:
    if loop.length == 0:
        avals = [b.graph.avals[i] for i in e.outputs[loop.carries :]]
        return (*e.inputs[: loop.carries], *[b.constant(np.empty(a.shape, a.dtype)) for a in avals])
    loop, inputs, still = _drop_constant_carries(loop, e.inputs)
    (body,), inputs = _embed_constants(b, (loop.body,), inputs, loop.carries + loop.xs)
    loop, inputs = _hoist(b, replace(loop, body=body), inputs)
    outputs = iter(emit_structure(b, loop, tuple(inputs)))
    return tuple([still[k] if k in still else next(outputs) for k in range(len(e.outputs))])


def _drop_constant_carries(loop: Loop, inputs: tuple) -> tuple[Loop, tuple, dict[int, int]]:
    """Turn carries that no step changes into constants; also returns them by position."""
    body, n = loop.body, loop.carries
    still = [k for k in range(n) if body.outputs[k] == body.inputs[k]]
    if not still:
        return loop, inputs, {}
    rest = [k for k in range(len(inputs)) if k not in still]
    body = replace(
        body,
        inputs=[body.inputs[k] for k in (*rest, *still)],
        outputs=[i for k, i in enumerate(body.outputs) if k not in still],
    )
    loop = replace(loop, body=body, carries=n - len(still), saved=0)
    return loop, tuple(inputs[k] for k in (*rest, *still)), {k: inputs[k] for k in still}


def _embed_constants(b: Builder, graphs: tuple, inputs, first: int) -> tuple[list[Graph], list]:
    """Copy small constants into bodies; merge repeated outside operands."""
    kept, place, known = list(range(first)), {}, {}
    same: dict[int, int] = {}
    for k in range(first, len(inputs)):
        value = b.graph.constants.get(inputs[k])
        if isinstance(value, np.ndarray) and value.nbytes <= SMALL:
            known[k] = value
        elif inputs[k] in place:
            same[k] = place[inputs[k]]
        else:
            place[inputs[k]] = k
            kept.append(k)
    made = []
    for g in graphs:
        constants = {**g.constants, **{g.inputs[k]: v for k, v in known.items()}}
        renamed = {g.inputs[k]: g.inputs[j] for k, j in same.items()}
        made.append(_rename(g, renamed, [g.inputs[k] for k in kept], constants))
    return made, [inputs[k] for k in kept]


def _rename(g: Graph, names: dict[int, int], inputs: list[int], constants: dict) -> Graph:
    if not names:
        return Graph(g.avals, inputs, constants, g.equations, g.outputs)

    def now(i):
        return i if isinstance(i, Literal) else names.get(i, i)

    equations = [e._replace(inputs=tuple(map(now, e.inputs))) for e in g.equations]
    return Graph(g.avals, inputs, constants, equations, [names.get(i, i) for i in g.outputs])


def _hoist(b: Builder, loop: Loop, inputs: list) -> tuple[Loop, list]:
    """Hoist loop-invariant equations out of the loop."""
    body, first = loop.body, loop.carries + loop.xs
    outer = dict(zip(body.inputs[first:], inputs[first:], strict=True))
    steady = _find_invariants(body, set(outer))
    if not steady:
        return loop, inputs
    gone, given = {id(e) for e in steady}, []
    for e in steady:
        operands = tuple(_outside(b, body, outer, i) for i in e.inputs)
        new = tuple(b.graph.new(body.avals[i]) for i in e.outputs)
        b.append(Equation(e.op, operands, e.static, new, e.origin))
        outer.update(zip(e.outputs, new, strict=True))
        given += e.outputs
    kept = [e for e in body.equations if id(e) not in gone or e.op.name in LOOKS]
    known = {i for e in kept for i in e.outputs}
    read = {i for e in kept for i in e.inputs if not isinstance(i, Literal)} | {*body.outputs}
    given = [i for i in given if i in read and i not in known]
    body = Graph(body.avals, [*body.inputs, *given], body.constants, kept, body.outputs)
    return replace(loop, body=body), [*inputs, *[outer[i] for i in given]]


def _outside(b: Builder, body: Graph, outer: dict[int, int], i):
    """The outside value of an operand of a hoisted equation."""
    if isinstance(i, Literal):
        return i
    if i not in outer:
        outer[i] = b.constant(body.constants[i])
    return outer[i]


def _find_invariants(body: Graph, outer: set[int]) -> list[Equation]:
    """Loop-invariant equations, and the views that they need.

    A view alone stays, since it costs nothing in the body; so does a result larger than its
    operands.
    """
    known, found = set(outer), []
    for e in body.equations:
        operands = [i for i in e.inputs if not isinstance(i, Literal)]
        inside = [i for i in operands if i not in known and i not in body.constants]
        if inside or not known.intersection(operands) or not _is_pure(e):
            continue
        if e.op.name not in LOOKS and _bytes(body, e.outputs) > _bytes(body, operands):
            continue
        found.append(e)
        known.update(e.outputs)
    needed: set[int] = set()
    for e in reversed(found):
        if e.op.name not in LOOKS or not needed.isdisjoint(e.outputs):
            needed.update([i for i in e.inputs if not isinstance(i, Literal)])
    return [e for e in found if e.op.name not in LOOKS or not needed.isdisjoint(e.outputs)]


def _is_pure(e: Equation) -> bool:
    """Whether it does not matter how often and when an equation is computed."""
    return not (e.op.foreign or e.op.name == "guard" or communicates(e))


def _bytes(graph: Graph, values) -> int:
    avals = [graph.avals[i] for i in values]
    return sum(prod(a.shape) * a.dtype.itemsize for a in avals)


# -- values saved by the forward loop ------------------------------------------------------------


def save_for_backward_loops(graph: Graph) -> Graph:
    """The graph with backward loops that read values that forward loops computed."""
    equations = list(graph.equations)
    graph = replace(graph, avals=list(graph.avals), equations=equations)
    made_by = {i: k for k, e in enumerate(equations) if e.op.name == "scan" for i in e.outputs}
    for at, e in enumerate(equations):
        if e.op.name != "scan":
            continue
        loop = e.static[0]
        along = e.inputs[loop.carries : loop.carries + loop.xs]
        for k in sorted({made_by[i] for i in along if i in made_by}):
            forward = equations[k]
            if forward.static[0].length == loop.length and k < at:
                equations[k], e = _save_shared_values(graph, forward, e)
                made_by.update(dict.fromkeys(equations[k].outputs, k))
        equations[at] = e
        made_by.update(dict.fromkeys(e.outputs, at))
    return graph


def _save_shared_values(
    graph: Graph, forward: Equation, back: Equation
) -> tuple[Equation, Equation]:
    """The two loops, with expensive values of the second saved by the first."""
    first, second = forward.static[0], back.static[0]
    same = _same_values(forward, back)
    found = _expensive_values(second.body, same)
    outputs = [*first.body.outputs]
    size = first.length * _bytes(second.body, found)
    if not found or size > ROOM:
        return forward, back
    new = []
    for i in found:
        a = second.body.avals[i]
        new.append(graph.new(Aval((first.length, *a.shape), a.dtype, a.device)))
        outputs.append(same[i])
    before = replace(first, body=replace(first.body, outputs=outputs))
    forward = _equation(forward, before, list(forward.inputs), [*forward.outputs, *new])
    m = second.carries + second.xs
    body, read = second.body, set(found)
    body = Graph(
        *(body.avals, [*body.inputs[:m], *found, *body.inputs[m:]], body.constants),
        [e for e in body.equations if read.isdisjoint(e.outputs)],
        body.outputs,
    )
    after = replace(second, body=body, xs=second.xs + len(found))
    inputs = [*back.inputs[:m], *new, *back.inputs[m:]]
    return forward, _equation(back, after, inputs, list(back.outputs))


def _same_values(forward: Equation, back: Equation) -> dict[int, int]:
    """Values of the second body that the first computes at the same step, mapped to those."""
    first, second = forward.static[0], back.static[0]
    n, m = first.carries, first.carries + first.xs
    stacked = dict(zip(forward.outputs[n:], first.body.outputs[n:], strict=True))
    along = stacked | dict(zip(forward.inputs[n:m], first.body.inputs[n:m], strict=True))
    fixed = dict(zip(forward.inputs[m:], first.body.inputs[m:], strict=True))
    same: dict[int, int] = {}
    for k, (i, x) in enumerate(zip(second.body.inputs, back.inputs, strict=True)):
        if k >= second.carries:
            known = along if k < second.carries + second.xs else fixed
            if x in known:
                same[i] = known[x]
    numbers = {_content(v): i for i, v in first.body.constants.items()}
    for i, v in second.body.constants.items():
        if _content(v) in numbers:
            same[i] = numbers[_content(v)]
    computed = {key_of(e): e.outputs for e in first.body.equations if _is_pure(e)}
    for e in second.body.equations:
        if all(isinstance(i, Literal) or i in same for i in e.inputs):
            inputs = tuple(i if isinstance(i, Literal) else same[i] for i in e.inputs)
            key = key_of(e._replace(inputs=inputs))
            if key is not None and key in computed:
                same.update(zip(e.outputs, computed[key], strict=True))
    return same


def _content(v) -> tuple:
    return v.dtype, v.shape, v.tobytes()


def _expensive_values(body: Graph, same: dict[int, int]) -> list[int]:
    """Results of expensive equations that the first loop has, and that the outputs need."""
    made_by = {i: e for e in body.equations for i in e.outputs}
    found, seen, todo = [], set(), list(body.outputs)
    while todo:
        i = todo.pop()
        e = made_by.get(i)
        if e is None or i in seen:
            continue
        seen.add(i)
        if i in same and e.op.cost != "light" and e.op.name not in LOOKS:
            found.append(i)
        else:
            todo += [j for j in e.inputs if not isinstance(j, Literal)]
    return sorted(found)
