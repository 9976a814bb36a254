"""Loop fission: products that need no carry of a loop are computed outside, all steps at once.

Before a loop: the products of its xs and a matrix that no step changes. After it: such products
that are ys; and sums over all steps, as the gradients of weights are, of products or of a value's
elements. What the other side needs is stacked, up to `ROOM` bytes for each kind.
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
    for rule in (_before, _late, _after):
        graph = rewrite(graph, rule, {"scan"})
    return prune(graph)


@record(eq=False)
class Body:
    """What rules look up in a loop: definitions, uses, and the operands that no step changes."""

    made_by: dict[int, Equation]
    uses: Counter[int]
    fixed: dict[int, Operand]

    def matrix(self, b: Builder, i: int) -> int | None:
        """A matrix that no step changes, or such a one turned, outside of the loop."""
        e = self.made_by.get(i)
        turned = e is not None and e.op.name == "permute" and e.static == ((1, 0),)
        source = e.inputs[0] if e is not None and turned else i
        outer = self.fixed.get(source) if isinstance(source, int) else None
        if not isinstance(outer, int) or len(b.shape(outer)) != 2:
            return None
        return b.emit("permute", outer, (1, 0)) if turned else outer


def _body(e: Equation) -> Body:
    (loop,) = e.static
    body, m = loop.body, loop.carries + loop.xs
    uses = Counter(i for p in body.equations for i in p.inputs if not isinstance(i, Literal))
    uses.update(body.outputs)
    made_by = {i: p for p in body.equations for i in p.outputs}
    return Body(made_by, uses, dict(zip(body.inputs[m:], e.inputs[m:], strict=True)))


def _rows_times(b: Builder, x: int, matrix: int, shape: tuple[int, ...]) -> int:
    """The products of a stack's last axis and a matrix, in a shape."""
    rows = b.emit("reshape", x, (prod(b.shape(x)[:-1]), b.shape(x)[-1]))
    return b.emit("reshape", b.emit("matmul", rows, matrix), shape)


# -- before loops ----------------------------------------------------------------------------------


def _before(b: Builder, e: Equation) -> Replacement:
    (loop,) = e.static
    body, n, m = loop.body, loop.carries, loop.carries + loop.xs
    known, along = _body(e), dict(zip(body.inputs[n:m], e.inputs[n:m], strict=True))
    room, kept, made = ROOM, [], dict[int, int]()
    for p in body.equations:
        size = loop.length * _nbytes(body, p.outputs[0])
        product = None
        if p.op.name == "matmul" and size <= room:
            product = _product_of_all(b, loop, known, along, p)
        if product is None:
            kept.append(p)
        else:
            made[p.outputs[0]] = product
            room -= size
    if not made:
        return None
    inputs = [*body.inputs[:m], *made, *body.inputs[m:]]
    body = replace(body, inputs=inputs, equations=kept)
    loop = replace(loop, body=body, xs=loop.xs + len(made))
    return emit_structure(b, loop, (*e.inputs[:m], *made.values(), *e.inputs[m:]))


def _product_of_all(
    b: Builder, loop: Loop, known: Body, along: dict[int, Operand], p: Equation
) -> int | None:
    """The products of all steps; None if they need more than xs and a fixed matrix."""
    x, k = p.inputs
    if isinstance(x, Literal) or isinstance(k, Literal):
        return None
    avals, turned = loop.body.avals, False
    if k in along and len(avals[k].shape) == 1:  # the matrix is on the left of a vector
        x, k, turned = k, x, True
    stack = along.get(x)
    if stack is None or isinstance(stack, Literal) or not avals[x].shape:
        return None
    matrix = known.matrix(b, k)
    if matrix is None:
        return None
    matrix = b.emit("permute", matrix, (1, 0)) if turned else matrix
    return _rows_times(b, stack, matrix, (loop.length, *avals[p.outputs[0]].shape))


# -- products that are ys --------------------------------------------------------------------------


@record(eq=False)
class Late:
    """A product of the ys: its factor and itself in the body; matrix and bias outside of it."""

    factor: int
    product: int
    matrix: int
    biases: list[int]

    def emit(self, b: Builder, loop: Loop, stack: int) -> int:
        """The products of all steps."""
        shape = (loop.length, *loop.body.avals[self.product].shape)
        made = _rows_times(b, stack, self.matrix, shape)
        for bias in self.biases:
            made = b.emit("add", made, bias)
        return made


def _late(b: Builder, e: Equation) -> Replacement:
    """Stack the factors of ys that are products, and multiply after the loop."""
    (loop,) = e.static
    body, n, m, known, room = loop.body, loop.carries, loop.carries + loop.xs, _body(e), ROOM
    late: dict[int, Late] = {}
    for k in range(n, len(body.outputs)):
        found = _late_product(b, body, known, body.outputs[k])
        if found is not None and loop.length * _nbytes(body, found.factor) <= room:
            room -= loop.length * _nbytes(body, found.factor)
            late[k] = found
    if not late:
        return None
    # What is stacked already, or among the xs, is not stacked again.
    along = dict(zip(body.inputs[n:m], e.inputs[n:m], strict=True))
    kept = [k for k in range(n, len(body.outputs)) if k not in late]
    ys = [body.outputs[k] for k in kept]
    ys += [v for v in dict.fromkeys(x.factor for x in late.values()) if v not in {*along, *ys}]
    slim = replace(body, outputs=[*body.outputs[:n], *ys])
    made = emit_structure(b, replace(loop, body=slim, saved=0), e.inputs)
    stacks: dict[int, int] = along | dict(zip(ys, made[n:], strict=True))  # type: ignore[operator]
    results = dict(zip(kept, made[n:], strict=False))
    for k, x in late.items():
        results[k] = x.emit(b, loop, stacks[x.factor])
    return (*made[:n], *[results[k] for k in range(n, len(body.outputs))])


def _late_product(b: Builder, body: Graph, known: Body, i: int) -> Late | None:
    """A value as the product of one that changes and a fixed matrix, and fixed values added."""
    biases: list[int] = []
    e = known.made_by.get(i)
    while e is not None and e.op.name == "add" and known.uses[i] == 1:
        left, bias = (x if isinstance(x, int) else -1 for x in e.inputs)
        outer = known.fixed.get(bias)
        if left < 0 or not isinstance(outer, int):
            return None
        if len(b.shape(outer)) > len(body.avals[left].shape):
            return None
        biases.insert(0, outer)
        i, e = left, known.made_by.get(left)
    if e is None or e.op.name != "matmul" or known.uses[i] != 1:
        return None
    x, k = (x if isinstance(x, int) else -1 for x in e.inputs)
    if min(x, k) < 0 or x in known.fixed or x in body.constants or not body.avals[x].shape:
        return None
    matrix = known.matrix(b, k)
    return None if matrix is None else Late(x, i, matrix, biases)


# -- after loops -----------------------------------------------------------------------------------


@record(eq=False)
class Term:
    """What a step adds to a sum: values of the body to stack, and what all steps' values give."""

    stacked: tuple[int, ...]
    total: Callable[[Builder, tuple[int, ...]], int]


def _after(b: Builder, e: Equation) -> Replacement:
    (loop,) = e.static
    sums = _sums(e)
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


def _sums(e: Equation) -> dict[int, list[Term]]:
    """The carries that only sum up something, by number, and the terms of each step."""
    (loop,) = e.static
    body, room, found, known = loop.body, ROOM, {}, _body(e)
    for k in range(loop.carries):
        leaves = _summands(known, body.outputs[k], body.inputs[k])
        if leaves is None or known.uses[body.inputs[k]] != 1:
            continue
        terms = [_term(body, known, i) for i in leaves]
        whole = [t for t in terms if t is not None]
        size = loop.length * sum(_nbytes(body, v) for t in whole for v in t.stacked)
        if len(whole) == len(terms) and size <= room:
            found[k] = whole
            room -= size
    return found


def _summands(known: Body, out: int, carry: int) -> list[int] | None:
    """What a step adds to a carry; None if it does anything else with it."""
    todo, leaves, seen = [out], [], False
    while todo:
        i = todo.pop()
        e = known.made_by.get(i)
        if i == carry:
            seen = True
        elif e is not None and e.op.name == "add" and known.uses[i] == 1:
            if any(isinstance(x, Literal) for x in e.inputs):
                return None
            todo += [x for x in e.inputs if not isinstance(x, Literal)]
        else:
            leaves.append(i)
    return leaves if seen and leaves else None


def _term(body: Graph, known: Body, i: int) -> Term | None:
    e = known.made_by.get(i)
    if e is None or any(isinstance(x, Literal) for x in e.inputs):
        return None
    if e.op.name == "sum" and e.inputs[0] not in known.fixed:
        return _sum_of(e)
    return _product(body, known, e) if e.op.name == "matmul" else None


def _sum_of(e: Equation) -> Term:
    (x,), (axes, kept) = e.inputs, e.static
    assert not isinstance(x, Literal)

    def total(b: Builder, stacks: tuple[int, ...]) -> int:
        summed = b.emit("sum", stacks[0], (0, *[a + 1 for a in axes]), kept)
        return b.emit("reshape", summed, b.shape(summed)[1:]) if kept else summed

    return Term((x,), total)


def _product(body: Graph, known: Body, e: Equation) -> Term | None:
    """A product of two matrices that both change: the terms of all steps are one long sum."""
    left, right = e.inputs
    assert not isinstance(left, Literal) and not isinstance(right, Literal)
    if any(len(body.avals[x].shape) != 2 for x in (left, right)):
        return None
    turned, fixed = known.made_by.get(left), {*known.fixed, *body.constants}
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
