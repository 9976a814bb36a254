"""Light rows computed again by every kernel that reads them, from arrays of fewer bytes.

A fold over images and sizes goes down columns, in two stages: a batch norm is three kernels that
read its input. In between, that input in float32, less its mean and so on would be stored, each
twice as large as the half-precision array that all of it is computed from in a few instructions.
"""

from math import prod

from ...core.record import record
from ...graph.graph import Equation, Graph, Literal
from ..fusion.remat import LATER
from ..ir.views import LOOKS
from ..passes.rewriting import Builder, Replacement, rewrite
from .computes import supports
from .routines.table import ROWS

# The least elements of a value that is computed again, and the most rows for it.
ELEMENTS, ROWS_AGAIN = 1 << 16, 24


def repeat(graph: Graph) -> Graph:
    """The graph with light rows repeated, if it has convolutions of turned arrays."""
    if not any([e.op.name.endswith("_last") for e in graph.equations]):
        return graph
    repeating = _Repeating(graph)
    return rewrite(graph, repeating.rule) if repeating.chains else graph


@record
class _Chain:
    """How a value is computed again: the values that are stored, and the number of rows."""

    sources: frozenset[int]
    rows: int


class _Repeating:
    """Finds values that need not be stored, and repeats their equations for their readers."""

    def __init__(self, graph: Graph):
        self._graph = graph
        self._made = {i: e for e in graph.equations for i in e.outputs}
        self._points = {e.outputs[0] for e in graph.equations if self._is_point(e)}
        self._stored, self._depths = self._find_stored(), self._find_depths()
        late = {i for e in graph.equations for i in _arrays(e) if self._is_late(e, i)}
        self.chains: dict[int, _Chain] = {}
        self._ways: dict[int, _Chain] = {}  # also of values that only chains are computed by
        for e in graph.equations:
            x, way = e.outputs[0], self._way(e)
            if way is not None and self._pays(x, way):
                self.chains[x] = self._ways[x] = way
            elif x in late:
                self._stored.add(x)
            elif way is not None:
                self._ways[x] = way
        self._again: dict[tuple[int, int], int] = {}  # by value and depth of its readers

    def rule(self, b: Builder, e: Equation) -> Replacement:
        if e.outputs[0] in self.chains or self.chains.keys().isdisjoint(_arrays(e)):
            return None
        depth, signal = self._depths[e.outputs[0]], self._signal(e)
        operands = [self._repeat(b, x, depth, signal) if x in self.chains else x for x in e.inputs]
        b.append(e._replace(inputs=tuple(operands)))  # under its name, which chains know
        return e.outputs

    def _signal(self, e: Equation) -> int | None:
        """A value that an equation waits for, which the kernels before it do not have."""
        read: set[int] = set()
        for x in _arrays(e):
            read |= self.chains[x].sources if x in self.chains else {x}
        depth = self._depths[e.outputs[0]]
        made = [x for x in read if x in self._made and x not in self._points]
        late = [x for x in made if self._depths[x] + self._waits(x) == depth]
        return min(late, default=None)

    def _repeat(self, b: Builder, x: int, depth: int, signal: int | None) -> int:
        """A value, computed again for readers of a depth, or a source of it.

        A source that a kernel computes is there after the signal only: what is computed from it
        would be in that kernel.
        """
        if x not in self._ways and (signal is None or x not in self._points):
            return x
        if (x, depth) not in self._again:
            if x in self._ways:
                e = self._made[x]
                given = [
                    i if isinstance(i, Literal) else self._repeat(b, i, depth, signal)
                    for i in e.inputs
                ]
                self._again[x, depth] = b.emit(e.op, *given, *e.static)
            else:
                late = self._depths[x] < depth
                self._again[x, depth] = b.emit(LATER, x, signal) if late else x
        return self._again[x, depth]

    def _is_point(self, e: Equation) -> bool:
        """Whether an equation is elementwise in a kernel."""
        other = e.op.name in LOOKS or e.op.name in ROWS or e.op.folds or e.op.moves == "parts"
        return not other and e.op.arity is not None and not supports(self._graph, e)

    def _is_fold(self, e: Equation) -> bool:
        return bool(e.op.folds) and not supports(self._graph, e)

    def _find_stored(self) -> set[int]:
        """The values that have memory: all but elementwise ones that only kernels read."""
        found = {i for e in self._graph.equations for i in e.outputs} - self._points
        found.update(self._graph.inputs, self._graph.constants, self._graph.outputs)
        for e in self._graph.equations:
            if e.outputs[0] not in self._points and not self._is_fold(e):
                found.update(_arrays(e))
        return found

    def _is_late(self, e: Equation, i: int) -> bool:
        """Whether an equation cannot be in the kernel that computes its operand."""
        return self._depths[e.outputs[0]] > self._depths.get(i, 0)

    def _way(self, e: Equation) -> _Chain | None:
        """How the result of an equation could be computed again; None if it cannot."""
        x = e.outputs[0]
        if x in self._stored or x not in self._points or e.op.cost != "light":
            return None
        sources, rows = set(), 1
        for i in _arrays(e):
            if i in self._stored:
                sources.add(i)
            elif i in self._ways:
                sources |= self._ways[i].sources
                rows += self._ways[i].rows
            else:
                return None
        return _Chain(frozenset(sources), rows) if rows <= ROWS_AGAIN else None

    def _pays(self, x: int, way: _Chain) -> bool:
        """Whether a value is better computed again than stored."""
        large = [i for i in way.sources if self._size(i) == self._size(x)]
        nbytes = sum([self._width(i) for i in large])
        # Stored, it is written, and read by all but one; so up to 4/3 of its bytes pay for four.
        return (
            bool(large) and self._size(x) >= ELEMENTS and 3 * nbytes <= 4 * max(self._width(x), 2)
        )

    def _size(self, i: int) -> int:
        return prod(self._graph.avals[i].shape)

    def _width(self, i: int) -> int:
        return self._graph.avals[i].dtype.itemsize

    def _find_depths(self) -> dict[int, int]:
        """For each value, how many kernels and calls wait for each other before it is there.

        Readers of one depth can be in one kernel; they share what is repeated.
        """
        found: dict[int, int] = {}
        for e in self._graph.equations:
            depth = max([found.get(i, 0) + self._waits(i) for i in _arrays(e)], default=0)
            found.update(dict.fromkeys(e.outputs, depth))
        return found

    def _waits(self, i: int) -> bool:
        """Whether the readers of a value wait for another kernel or call."""
        maker = self._made.get(i)
        return maker is not None and i not in self._points and maker.op.name not in LOOKS


def _arrays(e: Equation) -> list[int]:
    return [i for i in e.inputs if not isinstance(i, Literal)]
