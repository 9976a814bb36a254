"""Loop fission: products that need no carry of a loop are computed outside, all steps at once.

Before a loop: the products of its xs and a matrix that no step changes. After it: sums over all
steps of products, as the gradients of weights are, from what the steps had as factors; and sums of
a value's elements. What the other side needs is stacked, up to `ROOM` bytes.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from ...core.record import record
from ...graph.graph import Equation, Graph, Literal
from ...graph.structured import Loop
from .bodies import emit_structure
from .loops import prune
from .rewriting import Builder, Operand, Replacement, rewrite

# Bytes that may be stacked for one loop.
ROOM = 1 << 28


def fission(graph: Graph) -> Graph:
    """The graph with products moved out of its loops; bodies are not looked at."""
    if not any(e.op.name == "scan" for e in graph.equations):
        return graph
    return prune(rewrite(rewrite(graph, _before, {"scan"}), _after, {"scan"}))


# -- before loops ----------------------------------------------------------------------------------


def _before(b: Builder, e: Equation) -> Replacement:
    (loop,) = e.static
    body, n, m = loop.body, loop.carries, loop.carries + loop.xs
    along = dict(zip(body.inputs[n:m], e.inputs[n:m], strict=True))
    fixed = dict(zip(body.inputs[m:], e.inputs[m:], strict=True))
    room, kept, made = ROOM, [], dict[int, int]()
    for p in body.equations:
        size = loop.length * _nbytes(body, p.outputs[0])
        if p.op.name == "matmul" and size <= room:
            product = _product_of_all(b, loop, along, fixed, p)
            if product is not None:
                made[p.outputs[0]] = product
                room -= size
                continue
        kept.append(p)
    if not made:
        return None
    inputs = [*body.inputs[:m], *made, *body.inputs[m:]]
    body = replace(body, inputs=inputs, equations=kept)
    loop = replace(loop, body=body, xs=loop.xs + len(made))
    return emit_structure(b, loop, (*e.inputs[:m], *made.values(), *e.inputs[m:]))


def _product_of_all(
    b: Builder, loop: Loop, along: dict[int, Operand], fixed: dict[int, Operand], p: Equation
) -> int | None:
    """The products of all steps; None if they need more than xs and a fixed matrix."""
    x, k = p.inputs
    if isinstance(x, Literal) or isinstance(k, Literal):
        return None
    shape = loop.body.avals[p.outputs[0]].shape
    if k in along and x in fixed and len(loop.body.avals[k].shape) == 1:
        x, k = k, x
        matrix = b.emit("permute", fixed[k], (1, 0)) if len(b.shape(fixed[k])) == 2 else None
    elif x in along and k in fixed and len(b.shape(fixed[k])) == 2:
        matrix = fixed[k]
    else:
        return None
    if matrix is None or not loop.body.avals[x].shape:
        return None
    width = b.shape(along[x])[-1]
    rows = b.emit("reshape", along[x], (prod(b.shape(along[x])[:-1]), width))
    return b.emit("reshape", b.emit("matmul", rows, matrix), (loop.length, *shape))


# -- after loops -----------------------------------------------------------------------------------


@record(eq=False)
class Term:
    """What a step adds to a sum: values of the body to stack, and what all steps' values give."""

    stacked: tuple[int, ...]
    total: Callable[[Builder, tuple[int, ...]], int]


def _after(b: Builder, e: Equation) -> Replacement:
    (loop,) = e.static
    sums = _sums(loop)
    if not sums:
        return None
    body, n, m = loop.body, loop.carries, loop.carries + loop.xs
    left = [k for k in range(n) if k not in sums]
    along = dict(zip(body.inputs[n:m], e.inputs[n:m], strict=True))
    values = dict.fromkeys(v for terms in sums.values() for t in terms for v in t.stacked)
    new = [v for v in values if v not in along and v not in body.outputs[n:]]
    outputs = [*(body.outputs[k] for k in left), *body.outputs[n:], *new]
    inputs = [*(body.inputs[k] for k in left), *body.inputs[n:]]
    slim = Graph(body.avals, inputs, body.constants, body.equations, outputs)
    made = emit_structure(
        b,
        replace(loop, body=slim, carries=len(left), saved=0),
        (*[e.inputs[k] for k in left], *e.inputs[n:]),
    )
    stacks = dict(zip(outputs[len(left) :], made[len(left) :], strict=True)) | along
    carries = dict(zip(left, made, strict=False))
    for k, terms in sums.items():
        carries[k] = _total(b, e.inputs[k], terms, stacks)
    return (*[carries[k] for k in range(n)], *made[len(left) : len(left) + loop.ys])


def _total(b: Builder, first: Operand, terms: list[Term], stacks: dict[int, int]) -> int:
    total: int | None = None
    for t in terms:
        made = t.total(b, tuple(stacks[v] for v in t.stacked))
        total = made if total is None else b.emit("add", total, made)
    assert total is not None
    zeros = None if isinstance(first, Literal) else b.graph.constants.get(first)
    plain = isinstance(zeros, np.ndarray) and not np.any(zeros)
    return total if plain else b.emit("add", first, total)


def _sums(loop: Loop) -> dict[int, list[Term]]:
    """The carries that only sum up something, by number, and the terms of each step."""
    body, room, found = loop.body, ROOM, {}
    made_by = {i: e for e in body.equations for i in e.outputs}
    uses = Counter(i for e in body.equations for i in e.inputs if not isinstance(i, Literal))
    uses.update(body.outputs)
    fixed = {*body.inputs[loop.carries + loop.xs :], *body.constants}
    for k in range(loop.carries):
        leaves = _summands(made_by, uses, body.outputs[k], body.inputs[k])
        if leaves is None or uses[body.inputs[k]] != 1:
            continue
        terms = [_term(body, made_by, fixed, i) for i in leaves]
        whole = [t for t in terms if t is not None]
        size = loop.length * sum(_nbytes(body, v) for t in whole for v in t.stacked)
        if len(whole) == len(terms) and size <= room:
            found[k] = whole
            room -= size
    return found


def _summands(
    made_by: dict[int, Equation], uses: Counter[int], out: int, carry: int
) -> list[int] | None:
    """What a step adds to a carry; None if it does anything else with it."""
    todo, leaves, seen = [out], [], False
    while todo:
        i = todo.pop()
        e = made_by.get(i)
        if i == carry:
            seen = True
        elif e is not None and e.op.name == "add" and uses[i] == 1:
            if any(isinstance(x, Literal) for x in e.inputs):
                return None
            todo += [x for x in e.inputs if not isinstance(x, Literal)]
        else:
            leaves.append(i)
    return leaves if seen and leaves else None


def _term(body: Graph, made_by: dict[int, Equation], fixed: set[int], i: int) -> Term | None:
    e = made_by.get(i)
    if e is None:
        return None
    if e.op.name == "sum" and not isinstance(e.inputs[0], Literal):
        return _sum_of(e)
    if e.op.name == "matmul" and all(not isinstance(x, Literal) for x in e.inputs):
        return _product(body, made_by, fixed, e)
    return None


def _sum_of(e: Equation) -> Term:
    (x,), (axes, kept) = e.inputs, e.static
    assert not isinstance(x, Literal)

    def total(b: Builder, stacks: tuple[int, ...]) -> int:
        summed = b.emit("sum", stacks[0], (0, *[a + 1 for a in axes]), kept)
        return b.emit("reshape", summed, b.shape(summed)[1:]) if kept else summed

    return Term((x,), total)


def _product(
    body: Graph, made_by: dict[int, Equation], fixed: set[int], e: Equation
) -> Term | None:
    """A product of two matrices that both change: the terms of all steps are one long sum."""
    left, right = e.inputs
    assert not isinstance(left, Literal) and not isinstance(right, Literal)
    if any(len(body.avals[x].shape) != 2 for x in (left, right)):
        return None
    turned = made_by.get(left)
    down = turned is not None and turned.op.name == "permute" and turned.static == ((1, 0),)
    if down:
        assert turned is not None
        left = turned.inputs[0]
    if left in fixed or right in fixed or isinstance(left, Literal):
        return None

    def total(b: Builder, stacks: tuple[int, ...]) -> int:
        x, y = stacks
        steps, rows, columns = b.shape(x)
        if down:
            x = b.emit("permute", b.emit("reshape", x, (steps * rows, columns)), (1, 0))
        else:
            x = b.emit("reshape", b.emit("permute", x, (1, 0, 2)), (rows, steps * columns))
        n, k, m = b.shape(y)
        return b.emit("matmul", x, b.emit("reshape", y, (n * k, m)))

    return Term((left, right), total)


def _nbytes(graph: Graph, i: int) -> int:
    a = graph.avals[i]
    return prod(a.shape) * a.dtype.itemsize
