"""Pictures of compiled programs: equations in the boxes of the kernels that compute them."""

from collections.abc import Mapping
from os import PathLike

from ...core.record import field, record
from ...graph.graph import Graph
from ...graph.picture import (
    Picture,
    PictureBox,
    bodies_of,
    body_rows,
    draw,
    inputs_of,
    picture_of,
    row_of,
    sources,
    with_inputs,
)
from ..fusion.classify import UnitKind
from ..fusion.groups import Grouping, Unit
from ..ir.views import views_of
from ..pipeline import current_target
from ..target import optimise

_KINDS = {
    UnitKind.PRODUCT: "product",
    UnitKind.NATIVE: "routine",
    UnitKind.LIBRARY: "library",
    UnitKind.GUARD: "check",
}


@record(frozen=False)
class TracedGraph(Graph):
    """A traced graph that can be drawn as it runs.

    names  of the inputs, by index
    """

    title: str = "program"
    names: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph, title: str, names: list[str]) -> "TracedGraph":
        """A graph with a title and the names of its inputs."""
        parts = (graph.avals, graph.inputs, graph.constants, graph.equations, graph.outputs)
        return cls(*parts, title, dict(zip(graph.inputs, names, strict=True)))

    def draw(
        self, path: str | PathLike[str] | None = None, format: str = "svg", optimised: bool = True
    ) -> str:
        """A picture of the program, as text.

        path       a file to write it to as well; its suffix may give the format
        format     "svg", or "dot" for Graphviz
        optimised  the program as it runs, with the equations of each kernel in one box; False:
                   as it was traced, before the compiler's passes
        """
        image = picture_of_kernels(self) if optimised else picture_of(self, self.title, self.names)
        return draw(image, path, format)


def picture_of_kernels(traced: TracedGraph) -> Picture:
    """The picture of what runs: a box for each kernel, product, routine and library call."""
    target = current_target()
    graph = optimise(traced, target.passes)
    views = views_of(graph)
    grouping = Grouping(graph, views, target)
    boxes: dict[int, PictureBox] = {}
    for u, unit in grouping.units.items():
        boxes[u] = PictureBox(_title(graph, grouping, unit), _KINDS.get(unit.kind, "kernel"))
        for k in sorted(unit.equations):
            e = graph.equations[k]
            again = grouping.unit_of[e.outputs[0]] != u
            boxes[u].rows += [row_of(graph, e, "again" if again else ""), *body_rows(e)]
            boxes[u].kind = "loop" if bodies_of(e) else boxes[u].kind
    names = dict(zip(graph.inputs, traced.names.values(), strict=True))
    inputs = inputs_of(graph, names)
    arguments = {box.rows[0].makes[0]: box for box in sources(inputs)}
    home = {i: boxes[u] for i, u in grouping.unit_of.items()} | arguments
    local = {i: [row] for i, row in inputs.items()}
    for e in graph.equations:
        root = views[e.outputs[0]].root
        if root == e.outputs[0]:
            continue
        if root in home:
            home[root].rows.append(row_of(graph, e, "view"))
        else:
            local[e.outputs[0]] = [*local[e.inputs[0]], row_of(graph, e)]
    kernels = sum(b.kind == "kernel" for b in boxes.values())
    title = f"{traced.title}: {len(graph.equations)} equations, {kernels} kernels"
    return Picture(title, _in_order([*arguments.values(), *with_inputs(boxes.values(), local)]))


def _in_order(boxes: list[PictureBox]) -> list[PictureBox]:
    """The non-empty boxes, with each row after the rows that it reads."""
    for box in boxes:
        made: set[int] = set()
        waiting, box.rows = box.rows, []
        inside = {i for row in waiting for i in row.makes}
        while waiting:
            ready = [r for r in waiting if not (set(r.reads) & inside) - made]
            box.rows += ready
            made |= {i for r in ready for i in r.makes}
            waiting = [r for r in waiting if r not in ready]
    return [box for box in boxes if box.rows]


def _title(graph: Graph, grouping: Grouping, unit: Unit) -> str:
    """The title of a unit's box: its kind, and the user's lines that it computes."""
    lines = list(dict.fromkeys(graph.equations[k].line for k in sorted(unit.equations)))
    where = ", ".join(lines[:2]) + (f" and {len(lines) - 2} more" if len(lines) > 2 else "")
    if unit.kind is UnitKind.LIBRARY:
        (k, *_) = unit.equations
        return f"library call: {grouping.reasons.get(k, '')} · {where}"
    if unit.group is not None:
        sizes = "×".join(map(str, unit.group.domain)) or "1"
        folded = " with folds" if unit.group.folded else ""
        return f"kernel {sizes}{folded} · {where}"
    if bodies_of(graph.equations[unit.equations[0]]):
        return f"{graph.equations[unit.equations[0]].op.name} · {where}"
    words = {
        UnitKind.PRODUCT: "matrix product",
        UnitKind.NATIVE: "routine",
        UnitKind.GUARD: "check",
    }
    return f"{words.get(unit.kind, 'copies')} · {where}"
