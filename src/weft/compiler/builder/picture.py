"""A graph as it was built: its picture and its text."""

from typing import TYPE_CHECKING, Any

from ...core.origin import line_of
from ...graph.picture import Picture, PictureBox, PictureRow, short_dtype, shorten
from .calls import GraphCall
from .values import GraphTensor, Placeholder, Value, Variable

if TYPE_CHECKING:
    from .graph import Graph


def picture_of(graph: "Graph") -> Picture:
    """Boxes for the inputs, and for the calls of each of the user's lines."""
    boxes = [PictureBox("placeholder", "input", [_entry(p)]) for p in graph.placeholders]
    boxes += [PictureBox("variable", "constant", [_entry(v)]) for v in graph.variables]
    used = {v for call in graph.calls for v in call.operands}
    boxes = [b for b in boxes if b.rows[0].makes[0] in used]
    line = None
    for call in graph.calls:
        if line_of(*call.origin) != line:
            line = line_of(*call.origin)
            boxes.append(PictureBox(line, "plain"))
        boxes[-1].rows.append(_row(graph, call))
    return Picture(f"{graph.name}: {len(graph.calls)} calls", boxes)


def text_of(graph: "Graph") -> str:
    """The graph in readable lines."""
    lines = [f"placeholder {p.name}: {_describe_type(p)}" for p in graph.placeholders]
    lines += [f"variable {v.name}: {_describe_type(v)}" for v in graph.variables]
    rows = [(_row(graph, call), call) for call in graph.calls]
    wide = max([len(row.text) + len(row.type) for row, _ in rows], default=0) + 2
    for row, call in rows:
        gap = " " * (wide - len(row.text) - len(row.type))
        lines.append(f"{row.text}{gap}{row.type}  {line_of(*call.origin)}")
    return "\n".join(lines)


def _entry(value: Placeholder | Variable) -> PictureRow:
    return PictureRow((value,), (), value.name, _describe_type(value))


def _row(graph: "Graph", call: GraphCall) -> PictureRow:
    """The row of a call, with the values that other calls read."""
    given = [_describe(x) for x in call.args]
    given += [f"{name}={_describe(x)}" for name, x in call.kwargs.items()]
    text = shorten(f"v{call.number} = {call.name}({', '.join(given)})", 52)
    made = graph.made[call]
    types = ", ".join(_describe_type(v) for v in made[:3]) + (", …" if len(made) > 3 else "")
    return PictureRow(tuple(made), tuple(call.operands), text, types)


def _describe(x: Any) -> str:
    """A short text for an argument."""
    if isinstance(x, Placeholder | Variable):
        return x.name
    if isinstance(x, Value):
        several = len(x.graph.made[x.call]) > 1
        return f"v{x.call.number}.{x.position}" if several else f"v{x.call.number}"
    if isinstance(x, list | tuple):
        inside = ", ".join(_describe(i) for i in x)
        return f"[{inside}]" if isinstance(x, list) else f"({inside})"
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return f"{short_dtype(str(x.dtype))}{list(x.shape)}"
    if callable(x):
        return getattr(x, "__name__", type(x).__name__)
    return shorten(repr(x), 16)


def _describe_type(v: Value) -> str:
    if not isinstance(v, GraphTensor):
        return "number"
    sizes = ",".join("None" if n is None else str(n) for n in v.shape)
    return f"{short_dtype(str(v.dtype))}[{sizes}]"
