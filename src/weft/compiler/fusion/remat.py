"""Rematerialisation: cheap values are recomputed late instead of kept.

Values kept between the forward and the backward pass take memory at its peak. A value that a few
light rows compute from others that are alive then anyway (a normalised array, scaled and shifted,
say) is recomputed for its readers after the peak. Several values of one source (tanh x, as t·s and
as 1 − t²) are recomputed from the source, which is kept instead. `later(x, y)` is x, available only
once y has been computed: without it the copy would be fused with the original.
"""

from collections.abc import Container
from math import inf, prod

from ...core.op import Op
from ...graph.graph import Equation, Graph, Literal
from ..ir.gemm import ACCUMULATE
from ..ir.views import View, views_of
from ..limits import Limits

LATER = Op(
    "later",
    compute=lambda xp, x, y: x,
    shape=lambda x, y: x,
    rule=None,
    arity=2,
)


def remat(
    graph: Graph,
    alive: Container[int],
    late: Container[int],
    points: Container[int],
    limits: Limits,
    switch: bool = False,
) -> Graph:
    """The graph with light values recomputed.

    alive   the values with memory of their own that are kept across the peak
    late    the positions of the equations that run after it
    points  the positions of elementwise equations in kernels
    switch  whether values are also exchanged for their source
    """
    again = _Rematerialiser(graph, alive, late, points, limits)
    by_source: dict[int, list[int]] = {}
    for v in sorted(again.readers, key=lambda v: (-again.size(v), v)):
        sources = again.sources(v)
        if sources is not None and not sources:
            again.redo(v)
        elif switch and sources is not None and len(sources) == 1:
            (source,) = sources
            by_source.setdefault(source, []).append(v)
    for source, values in by_source.items():
        if sum(map(again.size, values)) >= limits.source_worth * again.size(source):
            for v in values:
                again.redo(v)
    return again.rewrite_graph() if again.inserted else graph


class _Rematerialiser:
    """Plans and inserts recomputation."""

    def __init__(
        self,
        graph: Graph,
        alive: Container[int],
        late: Container[int],
        points: Container[int],
        limits: Limits,
    ):
        self.graph, self.late, self.points, self.limits = graph, late, points, limits
        self.views: dict[int, View] = views_of(graph)
        self.made_by = {i: k for k, e in enumerate(graph.equations) for i in e.outputs}
        outputs = {self.views[i].root for i in graph.outputs}
        self.alive = {v for v in self.made_by if v in alive and v not in outputs}
        self.readers = self._late_readers()
        self.redone: set[int] = set()
        self.avals = list(graph.avals)
        # By position: equations inserted before one, and its renamed operands.
        self.inserted: dict[int, list[Equation]] = {}
        self.renamed: dict[int, dict[int, int]] = {}

    def _late_readers(self) -> dict[int, list[int]]:
        """The late equations that read each value that is alive, in order."""
        found: dict[int, list[int]] = {}
        for k, e in enumerate(self.graph.equations):
            whole = self.views[e.outputs[0]].root == e.outputs[0] or e.op.name == ACCUMULATE
            if k in self.late and whole:
                for v in {self.views[x].root for x in _arrays(e)} & self.alive:
                    found.setdefault(v, []).append(k)
        return found

    def size(self, v: int) -> int:
        aval = self.graph.avals[v]
        return prod(aval.shape) * aval.dtype.itemsize

    def sources(self, v: int) -> frozenset[int] | None:
        """The values that must be kept to recompute a value; None if it cannot be recomputed."""
        readers = self.readers[v]
        if self.size(v) < self.limits.remat_bytes or self._signal(v, readers[0]) is None:
            return None
        chain = self._chain(v)
        if not chain or len(chain) > self.limits.remat_rows:
            return None
        seen = [self.graph.equations[k] for k in (*chain, *readers)]
        if any(self._is_guarded(x) for e in seen for x in _arrays(e)):
            return None
        operands = {self.views[x].root for k in chain for x in _arrays(self.graph.equations[k])}
        own = {self.graph.equations[k].outputs[0] for k in chain}
        if self.limits.remat_time < inf and not self._is_free(v, chain, own):
            return None
        return frozenset(x for x in operands - own if not self._is_there(x))

    def _is_free(self, v: int, chain: list[int], own: set[int]) -> bool:
        """Whether a value is computed from no more bytes than it has."""
        read = {x for k in chain for x in _arrays(self.graph.equations[k])}
        return sum([self.size(x) for x in read if self.views[x].root not in own]) <= self.size(v)

    def redo(self, v: int) -> None:
        """Recompute a value for its late readers."""
        readers = self.readers[v]
        signal = self._signal(v, readers[0])
        assert signal is not None
        self._insert(v, self._chain(v), signal, readers)
        self.redone.add(v)

    def _signal(self, v: int, reader: int) -> int | None:
        """Another operand of the first reader, computed after the peak."""
        for x in _arrays(self.graph.equations[reader]):
            root = self.views[x].root
            if root != v and self.made_by.get(root, -1) in self.late:
                return x
        return None

    def _is_there(self, x: int) -> bool:
        """Whether a value is alive at the peak anyway."""
        return x not in self.made_by or (x in self.alive and x not in self.redone)

    def _chain(self, v: int) -> list[int]:
        """The light equations from alive or heavy values to a value, in order.

        As many heavy ones are among them as the target computes again.
        """
        found: set[int] = set()
        todo, heavy = [v], 0
        while todo and len(found) <= self.limits.remat_rows:
            x = todo.pop()
            k = self.made_by.get(x, -1)
            if k in found or k < 0 or (x != v and self._is_there(x)):
                continue
            e = self.graph.equations[k]
            again = k in self.points and heavy < self.limits.heavy_repeats
            if e.op.cost == "light" or again:
                heavy += e.op.cost != "light"
                found.add(k)
                todo += [self.views[y].root for y in _arrays(e)]
        return sorted(found)

    def _is_guarded(self, x: int) -> bool:
        """Whether a value passed through a guard, which must not be duplicated."""
        while self.views[x].root != x:
            e = self.graph.equations[self.made_by[x]]
            if e.op.name == "guard":
                return True
            x = e.inputs[0]
        return False

    def _insert(self, v: int, chain: list[int], signal: int, readers: list[int]) -> None:
        made: list[Equation] = self.inserted.setdefault(readers[0], [])
        names: dict[int, int] = {}  # names of the copies, of roots and of views
        own = {i for k in chain for i in self.graph.equations[k].outputs}
        for k in chain:
            e = self.graph.equations[k]
            for x in _arrays(e):
                if self.views[x].root in own:
                    self._repeat_view(x, names, made)
                elif x not in names:
                    names[x] = self._new(x)
                    made.append(Equation(LATER, (x, signal), (), (names[x],), e.origin))
            names[e.outputs[0]] = self._new(e.outputs[0])
            made.append(self._copy_equation(e, names))
        for k in readers:
            before = self.inserted.setdefault(k, []) if k != readers[0] else made
            mine = {v: names[v]}
            for x in _arrays(self.graph.equations[k]):
                if self.views[x].root == v:
                    self._repeat_view(x, mine, before)
                    self.renamed.setdefault(k, {})[x] = mine[x]

    def _repeat_view(self, x: int, names: dict[int, int], made: list[Equation]) -> None:
        """Repeat a chain of views on the copy of its root."""
        if x not in names:
            e = self.graph.equations[self.made_by[x]]
            self._repeat_view(e.inputs[0], names, made)
            names[x] = self._new(x)
            made.append(self._copy_equation(e, names))

    def _copy_equation(self, e: Equation, names: dict[int, int]) -> Equation:
        inputs = tuple([i if isinstance(i, Literal) else names.get(i, i) for i in e.inputs])
        return e._replace(inputs=inputs, outputs=tuple([names[i] for i in e.outputs]))

    def _new(self, x: int) -> int:
        self.avals.append(self.graph.avals[x])
        return len(self.avals) - 1

    def rewrite_graph(self) -> Graph:
        """The graph with the recomputation inserted."""
        equations: list[Equation] = []
        for k, e in enumerate(self.graph.equations):
            equations += self.inserted.get(k, ())
            renamed = self.renamed.get(k)
            if renamed:
                inputs = [i if isinstance(i, Literal) else renamed.get(i, i) for i in e.inputs]
                e = e._replace(inputs=tuple(inputs))
            equations.append(e)
        g = self.graph
        return Graph(self.avals, g.inputs, dict(g.constants), equations, list(g.outputs))


def _arrays(e: Equation) -> list[int]:
    return [i for i in e.inputs if not isinstance(i, Literal)]
