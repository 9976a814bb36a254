"""How the axes of values map to the axes of a group's domain, through views."""

from ...graph.graph import Equation, Graph
from ..ir.uses import Uses
from ..ir.views import View
from .domain import STILL, Axes, Group, without_ones


class Alignment:
    """The values of a graph, aligned with the groups that compute them."""

    graph: Graph
    views: dict[int, View]
    uses: Uses

    def __init__(self, graph: Graph, views: dict[int, View]):
        self.graph, self.views, self.uses = graph, views, Uses(graph, views)

    def axes_in(self, group: Group, x: int) -> Axes | None:
        """The domain axes of a value of the group, or of a view of one; None for other values."""
        if x in group.values:
            return group.values[x]
        e = self.uses.seen_through(x)
        if e is None or e.op.name not in ("permute", "reshape"):
            return None
        axes = self.axes_in(group, e.inputs[0])
        if axes is None or e.op.name == "permute":
            return None if axes is None else tuple(axes[a] for a in e.static[0])
        return without_ones(axes, self.graph.avals[e.inputs[0]].shape, tuple(e.static[0]))

    def member(self, group: Group, x: int) -> int:
        """The group's own value that x is, or is a view of."""
        while x not in group.values:
            e = self.uses.seen_through(x)
            assert e is not None, "a value of the group"
            x = e.inputs[0]
        return x

    def operand_axes(self, group: Group, e: Equation, x: int) -> Axes:
        """The domain axes along which an equation of the group reads a value from outside."""
        shape, out = self.graph.avals[x].shape, group.values[e.outputs[0]]
        if not e.op.folds:
            aligned = out[len(out) - len(shape) :] if shape else ()
            return tuple(STILL if n == 1 else a for n, a in zip(shape, aligned, strict=True))
        named, keepdims = e.static[0], len(e.static) > 1 and e.static[1]
        kept, over = iter(out), sorted(group.folded)
        axes = []
        for k, n in enumerate(shape):
            if k in named:
                a = STILL if n == 1 else next(b for b in over if group.domain[b] == n)
                over = [b for b in over if b != a]
                axes.append(a)
                if keepdims:
                    next(kept)
            else:
                axes.append(next(kept))
        return tuple(axes)
