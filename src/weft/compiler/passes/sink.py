"""Transposes moved after elementwise equations that feed matrix products.

f(Aᵀ)·B is f(A)ᵀ·B: a product reads its operands either way, but an elementwise kernel that reads
columns and writes rows is slow.
"""

from math import prod

from ...graph.graph import Equation, Graph, Literal
from .layout import broadcasts
from .rewriting import Builder, Operand, Replacement, rewrite


def sink(graph: Graph) -> Graph:
    """The graph with permutations after elementwise equations that only products read."""
    rows = {e.op.name for e in graph.equations}
    if not rows >= {"permute", "matmul"}:
        return graph
    factors = _factors(graph)

    def rule(b: Builder, e: Equation) -> Replacement:
        if not broadcasts(e) or e.outputs[0] not in factors or e.op.name == "extreme_share":
            return None
        shape = graph.avals[e.outputs[0]].shape
        axes = _common_axes(b, e, shape)
        if axes is None:
            return None
        inputs = [_undo_permutation(b, x, axes, shape) for x in e.inputs]
        return (b.emit("permute", b.emit(e.op, *inputs, *e.static), axes),)

    return rewrite(graph, rule)


def _factors(graph: Graph) -> set[int]:
    """The values that only products read, maybe through elementwise equations of their shape."""
    readers: dict[int, list[Equation]] = {}
    for e in graph.equations:
        for i in e.inputs:
            if not isinstance(i, Literal):
                readers.setdefault(i, []).append(e)
    found: set[int] = set()

    def leads_there(e: Equation, i: int) -> bool:
        same = graph.avals[e.outputs[0]].shape == graph.avals[i].shape
        return e.op.name == "matmul" or (broadcasts(e) and same and e.outputs[0] in found)

    outputs = set(graph.outputs)
    for e in reversed(graph.equations):
        for i in e.outputs:
            if i in readers and i not in outputs and all(leads_there(r, i) for r in readers[i]):
                found.add(i)
    return found


def _common_axes(b: Builder, e: Equation, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The swap of the last two axes, if it produces all operands of the full shape.

    Other permutations would leave matrices that no product can read.
    """
    found = set()
    for x in e.inputs:
        if b.shape(x) == shape:
            turned = b.made_by(x, "permute")
            found.add(None if turned is None else tuple(turned.static[0]))
    n = len(shape)
    exchanged = (*range(n - 2), n - 1, n - 2) if n > 1 else None
    return exchanged if found == {exchanged} else None


def _undo_permutation(
    b: Builder, x: Operand, axes: tuple[int, ...], shape: tuple[int, ...]
) -> Operand:
    """An operand before the permutation; a broadcast operand is permuted back."""
    if isinstance(x, Literal) or prod(b.shape(x)) == 1:
        return x
    if b.shape(x) == shape:
        turned = b.made_by(x, "permute")
        assert turned is not None
        return turned.inputs[0]
    wide = (1,) * (len(shape) - len(b.shape(x))) + b.shape(x)
    back = tuple(sorted(range(len(axes)), key=lambda a: axes[a]))
    moved = tuple(wide[a] for a in back)
    if sum(n > 1 for n in wide) == 1:  # its elements stay in order
        return b.emit("reshape", x, moved)
    full = x if wide == b.shape(x) else b.emit("reshape", x, wide)
    return b.emit("permute", full, back)
