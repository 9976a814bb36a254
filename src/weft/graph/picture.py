"""Pictures of programs as data: boxes with a row for each equation, and the values between them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from .. import errors
from ..core.record import field, record
from .graph import Equation, Graph, Literal

FORMATS = ("svg", "dot")
LOCAL = ("input", "again")  # marks of rows that other boxes do not read
_INSIDE = 12  # equations of a nested program that are shown, at most
_LONGEST = 44  # characters of a row's text, at most


@record
class PictureRow:
    """One line of a box: the values that it computes and reads, its text and its type.

    mark  "output", "view" (nothing is computed), "input" or "again" (only for its own box), or ""
    """

    makes: tuple[Any, ...]
    reads: tuple[Any, ...]
    text: str
    type: str = ""
    mark: str = ""


@record(frozen=False)
class PictureBox:
    """A box of a picture: a title and rows.

    kind  gives the colour: "input", "constant", "kernel", "product", "routine", "library",
          "check", "loop" or "plain"
    """

    title: str
    kind: str
    rows: list[PictureRow] = field(default_factory=list)


@record(frozen=False)
class Picture:
    """A program to be drawn."""

    title: str
    boxes: list[PictureBox]

    def edges(self) -> dict[tuple[int, int], int]:
        """The number of values that go from one box to another."""
        rows = [(k, row) for k, box in enumerate(self.boxes) for row in box.rows]
        home = {v: k for k, row in rows if row.mark not in LOCAL for v in row.makes}
        own = {(k, v) for k, row in rows for v in row.makes}
        found: dict[tuple[int, int], set[Any]] = {}
        for k, row in rows:
            for v in row.reads:
                if v in home and (k, v) not in own:
                    found.setdefault((home[v], k), set()).add(v)
        return {ends: len(values) for ends, values in found.items()}


def draw(picture: Picture, path: str | PathLike[str] | None = None, format: str = "svg") -> str:
    """The picture as text, also written to `path` if given; its suffix may give the format."""
    if path is not None and Path(path).suffix[1:] in FORMATS:
        format = Path(path).suffix[1:]
    if format not in FORMATS:
        raise errors.ArgumentError(f"draw: format={format!r}, expected 'svg' or 'dot'")
    if format == "svg":
        from .svg import svg

        made = svg(picture)
    else:
        made = dot(picture)
    if path is not None:
        Path(path).write_text(made, encoding="utf-8")
    return made


# Programs


def picture_of(
    graph: Graph, title: str = "program", names: Mapping[int, str] | None = None
) -> Picture:
    """The picture of a program: a box for each run of equations from one of the user's lines."""
    rows = inputs_of(graph, names or {})
    boxes: list[PictureBox] = []
    line = None
    for e in graph.equations:
        if e.line != line:
            line = e.line
            boxes.append(PictureBox(line, "plain"))
        boxes[-1].rows += [row_of(graph, e), *body_rows(e)]
    return Picture(title, [*sources(rows), *with_inputs(boxes, {i: [r] for i, r in rows.items()})])


def row_of(graph: Graph, e: Equation, mark: str = "") -> PictureRow:
    """An equation as a row."""
    reads = tuple([i for i in e.inputs if not isinstance(i, Literal)])
    operands = [repr(i.value) if isinstance(i, Literal) else f"v{i}" for i in e.inputs]
    static = [_static(s) for s in e.static]
    made = ", ".join(f"v{i}" for i in e.outputs)
    text = shorten(f"{made} = {e.op.name}({', '.join([*operands, *static])})", _LONGEST)
    mark = mark or ("output" if set(e.outputs) & set(graph.outputs) else "")
    return PictureRow(e.outputs, reads, text, type_of(graph, e.outputs[0]), mark)


def bodies_of(e: Equation) -> list[Graph]:
    """The nested programs of an equation: what a loop repeats, the branches of a condition."""
    return [graph for s in e.static for graph in getattr(s, "graphs", ())]


def body_rows(e: Equation) -> list[PictureRow]:
    """The equations inside a loop or a branch, as rows below its own; they have their own names."""
    rows, whole = [], e.outputs[:1]
    for n, body in enumerate(bodies_of(e)):
        rows.append(PictureRow((), whole, f"┌ body {n}" if n else "┌ body", "", "view"))
        for inner in body.equations[:_INSIDE]:
            row = row_of(body, inner)
            rows.append(PictureRow((), whole, f"│ {row.text}", row.type, "view"))
        if len(body.equations) > _INSIDE:
            rows.append(
                PictureRow((), whole, f"│ and {len(body.equations) - _INSIDE} more", "", "view")
            )
    return rows


def _static(value) -> str:
    """A static argument as text; a nested program as its length."""
    bodies = getattr(value, "graphs", ())
    if bodies:
        return " / ".join(f"{len(g.equations)} equations" for g in bodies)
    return shorten(repr(value).replace("dtype(", "").replace("')", "'"), 16)


def inputs_of(graph: Graph, names: Mapping[int, str]) -> dict[int, PictureRow]:
    """The inputs and constants as rows; names of a call's arguments begin with "argument"."""
    rows = {}
    for i in (*graph.inputs, *graph.constants):
        name = shorten(names.get(i, "constant" if i in graph.constants else "argument"), 34)
        brought = name.startswith("argument")
        mark = "output" if i in graph.outputs else "" if brought else "input"
        rows[i] = PictureRow((i,), (), f"v{i} {name}", type_of(graph, i), mark)
    return rows


def sources(rows: Mapping[int, PictureRow]) -> list[PictureBox]:
    """A box for each argument of a program."""
    return [PictureBox("input", "input", [row]) for row in rows.values() if row.mark != "input"]


def with_inputs(
    boxes: Iterable[PictureBox], rows: Mapping[int, list[PictureRow]]
) -> list[PictureBox]:
    """Boxes with a further row for each input or constant that they read."""
    made = []
    for box in boxes:
        own = {v for row in box.rows for v in row.makes}
        read = dict.fromkeys([v for row in box.rows for v in row.reads if v not in own])
        local = [
            replace(r, mark="input") for v in read for r in rows.get(v, ()) if _is_local(rows, v)
        ]
        made.append(PictureBox(box.title, box.kind, [*dict.fromkeys(local), *box.rows]))
    return made


def _is_local(rows: Mapping[int, list[PictureRow]], v: int) -> bool:
    return rows[v][0].mark == "input"


def type_of(graph: Graph, i: int) -> str:
    """The dtype and the shape of a value."""
    a = graph.avals[i]
    return f"{short_dtype(str(a.dtype))}[{','.join(map(str, a.shape))}]"


def short_dtype(name: str) -> str:
    """`f32` for float32."""
    for long, short in (("bfloat", "bf"), ("float", "f"), ("uint", "u"), ("int", "i")):
        if name.startswith(long):
            return short + name.removeprefix(long)
    return name.replace("complex", "c")


def shorten(text: str, most: int) -> str:
    """Text cut to at most `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


# DOT

_FILLS = {
    "input": "#ffffff",
    "constant": "#f1f1f1",
    "kernel": "#d7e8fb",
    "product": "#ffe2bd",
    "routine": "#d9f0d3",
    "library": "#fbd5d5",
    "check": "#fff6c4",
    "loop": "#e6dcf5",
    "plain": "#eef2f6",
}


def fill_of(kind: str) -> str:
    """The colour of a kind of box."""
    return _FILLS[kind]


def dot(picture: Picture) -> str:
    """The picture in Graphviz's language: a node for each row, a cluster for each box."""
    lines = [
        "digraph program {",
        f"  label={_quote(picture.title)}; rankdir=TB; fontname=monospace;",
        "  node [shape=box, style=filled, fontname=monospace, fontsize=10];",
    ]
    home: dict[Any, str] = {}
    own: dict[tuple[int, Any], str] = {}
    for k, box in enumerate(picture.boxes):
        lines.append(f"  subgraph cluster_{k} {{")
        lines.append(
            f"    label={_quote(box.title)}; style=filled; color={_quote(fill_of(box.kind))};"
        )
        for n, row in enumerate(box.rows):
            name = f"n{k}_{n}"
            own |= {(k, v): name for v in row.makes}
            home |= {} if row.mark in LOCAL else dict.fromkeys(row.makes, name)
            more = ", penwidth=2" if row.mark == "output" else ""
            label = f"{row.text}\n{row.type}" if row.type else row.text
            lines.append(f"    {name} [label={_quote(label)}, fillcolor=white{more}];")
        lines.append("  }")
    for k, box in enumerate(picture.boxes):
        for n, row in enumerate(box.rows):
            for v in dict.fromkeys(row.reads):
                if (k, v) in own or v in home:
                    lines.append(f"  {own.get((k, v)) or home[v]} -> n{k}_{n};")
    return "\n".join([*lines, "}", ""])


def _quote(text: str) -> str:
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'
