"""Producers and readers of each value of a graph, through views."""

from ...graph.graph import Equation, Graph, Literal
from .views import View

OUTPUT = -1  # stands for a reader: the graph returns the value


def arrays(e: Equation) -> list[int]:
    """The operands of an equation that are arrays, not Python numbers."""
    return [i for i in e.inputs if not isinstance(i, Literal)]


class Uses:
    """The equations of a graph by the values that they produce and read."""

    graph: Graph
    views: dict[int, View]
    made_by: dict[int, int]
    readers: dict[int, list[int]]

    def __init__(self, graph: Graph, views: dict[int, View]):
        self.graph, self.views = graph, views
        self.made_by = {i: k for k, e in enumerate(graph.equations) for i in e.outputs}
        self.readers = {}
        self._arrays: dict[int, list[int]] = {}  # by the first result of the equation
        rows = {e.op.name for e in graph.equations}
        self._guarded, self._delayed = "guard" in rows, "later" in rows
        for k, e in enumerate(graph.equations):
            operands = self._arrays[e.outputs[0]] = arrays(e)
            for i in operands:
                self.readers.setdefault(i, []).append(k)
        for i in graph.outputs:
            self.readers.setdefault(i, []).append(OUTPUT)

    def arrays(self, e: Equation) -> list[int]:
        """The operands of an equation of the graph that are arrays, not Python numbers."""
        return self._arrays[e.outputs[0]]

    def seen_through(self, x: int) -> Equation | None:
        """The equation that makes a value a view; None for a root."""
        k = self.made_by.get(x)
        return None if k is None or self.views[x].root == x else self.graph.equations[k]

    def only_in(self, x: int, inside: set[int]) -> bool:
        """Whether only these equations read a value, directly or through views."""
        for reader in self.readers.get(x, ()):
            if reader == OUTPUT:
                return False
            if reader in inside:
                continue
            seen = self.graph.equations[reader].outputs[0]
            if self.views[seen].root == seen or not self.only_in(seen, inside):
                return False
        return True

    def guards(self, x: int) -> set[int]:
        """The positions of the guard equations that a value has passed through."""
        found: set[int] = set()
        while self._guarded and (e := self.seen_through(x)) is not None:
            if e.op.name == "guard":
                found.add(self.made_by[x])
            x = arrays(e)[0]
        return found

    def signals(self, x: int) -> set[int]:
        """The values that must be computed before a value is read, by `later`."""
        found: set[int] = set()
        while self._delayed and (e := self.seen_through(x)) is not None:
            if e.op.name == "later":
                found.add(e.inputs[1])
            x = arrays(e)[0]
        return found
