"""Layout: transposes and broadcasts moved to where they cost nothing.

A transpose of an operand of a matrix product is a flag of the product, and so is a transposed
result. An operand that a row broadcasts by itself need not be broadcast before. Slices that were
put into zeros and summed become a concatenation, or a stack if they interleave; where the sum with
zeros turned −0 into +0, this restores −0.
"""

from functools import reduce

from ...core import dtypes
from ...core.op import Partials
from ...graph.graph import Equation, Graph, Literal
from .rejoin import rejoin
from .rewriting import Builder, Replacement, rewrite


def layout(graph: Graph) -> Graph:
    """The graph with fewer copies."""
    rules = {"permute": _transpose_product, "add": _join_slices}
    spread = any(e.op.name == "broadcast_to" for e in graph.equations)

    def rule(builder: Builder, e: Equation) -> Replacement:
        special = rules.get(e.op.name)
        made = None if special is None else special(builder, e)
        return _drop_broadcasts(builder, e, graph) if made is None else made

    return rewrite(graph, rule, None if spread else rules)


def broadcasts(e: Equation) -> bool:
    """Whether a row broadcasts its operands by itself."""
    return isinstance(e.op.rule, Partials) or e.op.compares or e.op.name in BROADCASTING


# Beside rows with partials and comparisons. Other rows that broadcast are left unchanged.
BROADCASTING = frozenset(("where", "gate", "logical_and", "logical_or", "logical_xor"))


def _drop_broadcasts(b: Builder, e: Equation, graph: Graph) -> Replacement:
    """An elementwise equation of the operands before broadcasting."""
    if not broadcasts(e) or e.op.name == "extreme_share":
        return None
    inputs = list(e.inputs)
    for k, x in enumerate(e.inputs):
        spread = b.made_by(x, "broadcast_to")
        if spread is None:
            continue
        tried = [*inputs[:k], spread.inputs[0], *inputs[k + 1 :]]
        if e.op.shape(*map(b.aval, tried), *e.static) == graph.avals[e.outputs[0]]:
            inputs = tried
    return None if inputs == list(e.inputs) else (b.emit(e.op, *inputs, *e.static),)


def _transpose_product(b: Builder, e: Equation) -> Replacement:
    """(A·B)ᵀ = Bᵀ·Aᵀ, if nothing else reads A·B."""
    product = b.made_by(e.inputs[0], "matmul")
    if product is None or b.uses[e.inputs[0]] > 1:
        return None
    x, y = product.inputs
    n, axes = len(b.shape(e.inputs[0])), tuple(e.static[0])
    matrices = {len(b.shape(x)), len(b.shape(y))} == {n}
    if not matrices or n < 2 or axes != (*range(n - 2), n - 1, n - 2):
        return None
    return (b.emit("matmul", transpose_last(b, y), transpose_last(b, x)),)


def transpose_last(b: Builder, x: "int | Literal") -> int:
    """x with its last two axes swapped; two transposes cancel."""
    n = len(b.shape(x))
    axes = (*range(n - 2), n - 1, n - 2)
    inner = b.made_by(x, "permute")
    if inner is not None and tuple(inner.static[0]) == axes:
        return inner.inputs[0]
    return b.emit("permute", x, axes)


# -- slices put into zeros, and summed -------------------------------------------------------


def _join_slices(b: Builder, e: Equation) -> Replacement:
    """A sum of `unslice`s that fill all of one axis, as a concatenation of their parts."""
    terms = _terms(b, e)
    if terms is None or dtypes.is_complex(b.dtype(terms[0].outputs[0])):
        return None
    index, shape = terms[0].static
    axis = next((a for a, n in enumerate(shape) if index[a] != (0, n, 1)), None)
    if axis is None or not all(_takes_all_but(t.static[0], shape, axis) for t in terms):
        return None
    entries: dict = {}  # the part at each index; several parts are summed
    for t in terms:
        entries.setdefault(t.static[0][axis], []).append(t.inputs[0])
    placed = [(p, _sum(b, entries[p])) for p in sorted(entries, key=_start)]
    if [p for p, _ in placed] == list(range(shape[axis])):
        parts = [x for _, x in placed]
        whole = rejoin(b, parts, axis, True)
        return (b.emit("stack", parts, axis) if whole is None else whole,)
    if any(isinstance(p, int) for p, _ in placed):
        return None
    if len(placed) > 1 and [p for p, _ in placed] == _interleaved(len(placed), shape[axis]):
        return (b.emit("reshape", b.emit("stack", [x for _, x in placed], axis + 1), shape),)
    if any(p[2] != 1 for p, _ in placed):
        return None
    return _concatenate(b, placed, axis, shape)


def _interleaved(count: int, n: int) -> list[tuple[int, int, int]]:
    """The slices of an axis that take every element in turn; none if some would have more."""
    return [(k, n // count, count) for k in range(count)] if n % count == 0 and n > count else []


def _sum(b: Builder, parts: list) -> int:
    return reduce(lambda x, y: b.emit("add", x, y), parts)


def _start(entry) -> int:
    return entry if isinstance(entry, int) else entry[0]


def _takes_all_but(index, shape, axis: int) -> bool:
    """Whether a basic index adds no axes, and takes all of every axis but one."""
    whole = [(0, n, 1) for n in shape]
    return None not in index and [*index[:axis], *index[axis + 1 :]] == [
        *whole[:axis],
        *whole[axis + 1 :],
    ]


def _concatenate(b: Builder, placed: list, axis: int, shape) -> Replacement:
    ends, at = [], 0
    for (start, count, _), _ in placed:
        if start != at:
            return None
        at += count
        ends.append(at)
    parts = [x for _, x in placed]
    if at != shape[axis]:
        return None
    whole = rejoin(b, parts, axis, False)
    return (b.emit("concat", parts, axis, tuple(ends)) if whole is None else whole,)


def _terms(b: Builder, e: Equation) -> list[Equation] | None:
    """The `unslice`s of one shape that a chain of additions sums."""
    found, todo = [], list(e.inputs)
    while todo:
        x = todo.pop()
        inner = b.made_by(x, "add", "unslice")
        if inner is None or (inner.op.name == "add" and b.uses[x] > 1):
            return None
        if inner.op.name == "add":
            todo += inner.inputs
        else:
            found.append(inner)
    return found if len({t.static[1] for t in found}) == 1 else None
