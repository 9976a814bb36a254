"""Pictures of programs as SVG."""

from html import escape

from .layers import Placement, Point, place_boxes
from .picture import Picture, PictureBox, PictureRow, fill_of

_CHARACTER, _LINE, _PAD = 6.1, 14.0, 6.0  # of a monospaced font of 10 pixels
_KERNELS = ("#d7e8fb", "#d3efee", "#dfe3fa", "#cfe9f7", "#e3ecd9", "#e9e1f3")
_STYLE = """
  text { font: 10px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #1c2733 }
  .title { font-weight: bold } .type { fill: #5b6b7b }
  .view, .again { fill: #7d8894 } text.input { fill: #55606c; font-style: italic }
  .output { font-weight: bold } .name { font-size: 13px; font-weight: bold }
  path { fill: none; stroke: #8494a4; stroke-width: 1 }
  rect { stroke: #8fa1b3; stroke-width: 1 } .library { stroke: #c0392b; stroke-dasharray: 5 3 }
  rect.input, rect.constant { stroke: #b9c4cf }
"""


def svg(picture: Picture) -> str:
    """The picture as an SVG document."""
    sizes = [_size(box) for box in picture.boxes]
    edges = picture.edges()
    sources = {k for k, b in enumerate(picture.boxes) if b.kind in ("input", "constant")}
    where = place_boxes(sizes, edges, sources)
    width = max(where.width, 240.0, _PAD * 4 + len(picture.title) * 8)
    head = 24.0
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" '
        f'height="{where.height + head:.0f}" viewBox="0 0 {width:.0f} {where.height + head:.0f}">',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="end" markerWidth="7" markerHeight="6" refX="6" refY="3" orient="auto">'
        '<path d="M0,0 L7,3 L0,6 z" style="fill:#8494a4;stroke:none"/></marker></defs>',
        '<rect x="0" y="0" width="100%" height="100%" style="fill:#ffffff;stroke:none"/>',
        f'<text class="name" x="12" y="20">{escape(picture.title)}</text>',
        f'<g transform="translate(0,{head:.0f})">',
    ]
    lines += [_edge(points, edges[ends]) for ends, points in where.edges.items()]
    lines += _boxes(picture, where, sizes)
    return "\n".join([*lines, "</g>", "</svg>", ""])


def _size(box: PictureBox) -> Point:
    texts = [len(box.title), *[len(_text(r)) + 2 + len(r.type) for r in box.rows]]
    return 2 * _PAD + max(texts) * _CHARACTER, 2 * _PAD + _LINE * (1 + len(box.rows))


def _text(row: PictureRow) -> str:
    return f"{row.text} ▸" if row.mark == "output" else row.text


def _boxes(picture: Picture, where: Placement, sizes: list[Point]) -> list[str]:
    lines, kernels = [], 0
    for box, (x, y), (w, h) in zip(picture.boxes, where.corners, sizes, strict=True):
        fill = fill_of(box.kind)
        if box.kind == "kernel":
            fill, kernels = _KERNELS[kernels % len(_KERNELS)], kernels + 1
        lines.append(
            f'<rect class="{box.kind}" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" '
            f'rx="5" style="fill:{fill}"/>'
        )
        down = y + _PAD + 9
        lines.append(_line("title", x + _PAD, down, box.title))
        for row in box.rows:
            down += _LINE
            lines.append(_line(row.mark, x + _PAD, down, _text(row)))
            lines.append(_line('type" text-anchor="end', x + w - _PAD, down, row.type))
    return lines


def _line(style: str, x: float, y: float, text: str) -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _edge(points: list[Point], values: int) -> str:
    """A smooth line downwards through the points; several values make it thicker."""
    (x, y), *rest = points
    parts = [f"M{x:.1f},{y:.1f}"]
    for to_x, to_y in rest:
        middle = (y + to_y) / 2
        parts.append(
            f"L{to_x:.1f},{to_y:.1f}"
            if to_x == x
            else f"C{x:.1f},{middle:.1f} {to_x:.1f},{middle:.1f} {to_x:.1f},{to_y:.1f}"
        )
        x, y = to_x, to_y
    width = min(1 + 0.4 * (values - 1), 3.0)
    return f'<path d="{" ".join(parts)}" style="stroke-width:{width:.1f}" marker-end="url(#end)"/>'
