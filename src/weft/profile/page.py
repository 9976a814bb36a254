"""The report as one HTML page: everything is in it, nothing is loaded."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

from .events import OpEvent
from .page_assets import SCRIPT, STYLE
from .trace import by_begin, curve_of

_MOST = 20_000  # events on the timeline: the longest
_POINTS = 1000  # of the memory curve
_PLACES = 40  # of the peak that are listed one by one
_KINDS = ("op", "backward", "update", "step", "program", "launch")
_MEANINGS = {
    "op": "operation",
    "backward": "pull-back of an operation",
    "update": "optimizer",
    "step": "step of a compiled program",
    "program": "compiled program",
    "launch": "launch of work on the GPU",
}


@dataclass(frozen=True)
class StrategyCost:
    """What a step needs under a checkpoint strategy: the most live bytes, and seconds."""

    name: str
    peak: int
    seconds: float


@dataclass(frozen=True)
class Measured:
    """What the page shows.

    tables      (title, table): the same events, grouped in several ways
    contents    bytes that were live at the peak, by place; `peak` is their sum
    before      bytes by role of the arrays that were there when the profile began
    strategies  what the step needs under each checkpoint strategy
    """

    title: str
    seconds: float
    events: Sequence[OpEvent]
    tables: Sequence[tuple[str, Any]]
    peak: int
    contents: dict[str, int]
    before: dict[str, int]
    strategies: Sequence[StrategyCost] = ()


def write_page(measured: Measured, path: str | PathLike[str]) -> None:
    """Write the page."""
    Path(path).write_text(page_of(measured), "utf-8")


def page_of(m: Measured) -> str:
    """The page as text."""
    parts = [
        f"<h1>{escape(m.title)}</h1>",
        _figures(m),
        *_timeline(m),
        *_memory(m),
        *_strategies(m.strategies),
    ]
    for title, table in m.tables:
        parts += [f"<h2>{escape(title)}</h2>", _operations(table)]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(m.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + f'\n<script type="application/json" id="data">{_data(m)}</script>\n'
        + f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


# -- figures ---------------------------------------------------------------------------------


def _figures(m: Measured) -> str:
    rows = m.tables[0][1].rows
    inside = sum(r.self_seconds for r in rows)
    flops = sum(r.flops or 0 for r in rows)
    figures = [
        (duration(m.seconds), "in all"),
        (f"{100 * inside / m.seconds:.0f} %" if m.seconds else "", "in operations"),
        (f"{sum(r.calls for r in rows):,}", "operations"),
        (_si(flops, "flop"), "counted"),
        (_si(flops / m.seconds, "flop/s") if m.seconds else "", "on average"),
    ]
    if m.peak:
        figures.append((size(m.peak), "peak of new arrays"))
    cells = "".join(f"<div><b>{escape(v)}</b><span>{escape(k)}</span></div>" for v, k in figures)
    return f'<div class="figures">{cells}</div>'


def duration(seconds: float) -> str:
    """`12.3 ms`."""
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 1e-6:.3g} µs"


def size(n: float) -> str:
    """`1.5 MiB`."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if abs(n) >= unit:
            return f"{n / unit:.2f} {name}"
    return f"{n:.0f} B"


def _si(n: float, what: str) -> str:
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if n >= unit:
            return f"{n / unit:.3g} {name}{what}"
    return f"{n:.0f} {what}"


# -- the timeline ----------------------------------------------------------------------------


def _timeline(m: Measured) -> list[str]:
    shown = [k for k in _KINDS if any(e.kind == k for e in m.events)]
    legend = "".join(
        f'<span><i style="background: var(--{k})"></i>{_MEANINGS[k]}</span>' for k in shown
    )
    few = f" The longest {_MOST:,} of {len(m.events):,} events." if len(m.events) > _MOST else ""
    return [
        "<h2>Timeline</h2>",
        f"<p>The wheel zooms, dragging moves, a double click shows all.{few}</p>",
        f'<div class="legend">{legend}</div>',
        '<canvas id="timeline"></canvas>',
        '<p id="told"></p>',
    ]


def nested(events: Iterable[OpEvent]) -> list[tuple[OpEvent, int]]:
    """Events by their begin, each with the number of events around it on its track."""
    around: dict[str, list[int]] = {}
    found = []
    for e in sorted(events, key=by_begin):
        start, negative = by_begin(e)
        ends = around.setdefault(e.thread, [])
        while ends and ends[-1] <= start:
            ends.pop()
        found.append((e, len(ends)))
        ends.append(start - negative)
    return found


class _Numbers(dict[str, int]):
    """Numbers for texts, in the order in which they come."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]


def _data(m: Measured) -> str:
    """What the script draws, as JSON."""
    longest = sorted(m.events, key=lambda e: -e.seconds)[:_MOST]
    placed = nested(longest)
    tracks = {name: k for k, name in enumerate(dict.fromkeys(e.thread for e in m.events))}
    depths = dict.fromkeys(tracks, 1)
    names, lines, sizes = _Numbers(), _Numbers(), _Numbers()
    rows = []
    for e, depth in placed:
        depths[e.thread] = max(depths[e.thread], depth + 1)
        rows.append(
            [
                *(tracks[e.thread], depth, round(1e6 * e.start, 3), round(1e6 * e.seconds, 3)),
                *(_KINDS.index(e.kind), names[e.name], lines[e.line]),
                *(round(1e6 * e.self_seconds, 3), sizes[e.sizes]),
            ]
        )
    data = {
        "microseconds": max(1e6 * m.seconds, 1.0),
        "kinds": _KINDS,
        "tracks": [{"name": name, "depth": depths[name]} for name in tracks],
        "names": list(names),
        "lines": list(lines),
        "sizes": list(sizes),
        "events": rows,
    }
    return json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")


# -- memory ----------------------------------------------------------------------------------

_WIDE, _HIGH, _LEFT, _BOTTOM = 1100, 220, 104, 24


def _memory(m: Measured) -> list[str]:
    points = thin(curve_of(m.events), _POINTS)
    if not points or not m.peak:
        return []
    found = ["<h2>Memory</h2>", "<p>Bytes of the NumPy arrays that were made in the profile.</p>"]
    if any(e.kind == "program" for e in m.events):
        found.append(
            "<p>Compiled functions keep their memory from call to call: what their first "
            "call has allocated before the profile does not count.</p>"
        )
    if m.before:
        held = ", ".join(f"{size(n)} of {role}s" for role, n in m.before.items())
        found.append(f"<p>There before: {escape(held)}.</p>")
    listed = list(m.contents.items())
    if len(listed) > _PLACES:
        others = listed[_PLACES:]
        listed = [*listed[:_PLACES], (f"{len(others)} others", sum(n for _, n in others))]
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td>{size(n)}</td><td class="bar">'
        f'<i style="width: {100 * n / m.peak:.1f}%"></i></td></tr>'
        for name, n in listed
    )
    return [
        *found,
        _curve(points, m.seconds, m.peak),
        f"<h2>What the peak of {size(m.peak)} consists of</h2>",
        f'<div class="wide"><table id="contents"><thead><tr><th>made by</th><th>bytes</th><th></th>'
        f"</tr></thead><tbody>{rows}</tbody></table></div>",
    ]


def thin(points: list[tuple[float, int]], most: int) -> list[tuple[float, int]]:
    """At most about so many points: of each piece of a curve the highest and the last."""
    each = -(-2 * len(points) // most)
    if each < 3:
        return points
    found = []
    for k in range(0, len(points), each):
        piece = points[k : k + each]
        found += dict.fromkeys((max(piece, key=lambda p: p[1]), piece[-1]))
    return found


def _curve(points: list[tuple[float, int]], seconds: float, peak: int) -> str:
    def x(at: float) -> float:
        return _LEFT + (_WIDE - _LEFT) * at / seconds

    def y(n: float) -> float:
        return (_HIGH - _BOTTOM) * (1 - n / (1.08 * peak))

    steps, before = [f"M{x(0):.1f},{y(0):.1f}"], y(0)
    for at, n in points:
        steps.append(f"L{x(at):.1f},{before:.1f}L{x(at):.1f},{y(n):.1f}")
        before = y(n)
    steps.append(f"L{x(seconds):.1f},{before:.1f}")
    line = "".join(steps)
    grid = "".join(
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDE}" y1="{y(n):.1f}" y2="{y(n):.1f}"/>'
        f'<text x="{_LEFT - 6}" y="{y(n) + 4:.1f}" text-anchor="end">{size(n)}</text>'
        for n in (0, peak / 4, peak / 2, 3 * peak / 4)
    )
    top = max(points, key=lambda p: p[1])
    at = min(max(x(top[0]), _LEFT), _WIDE)
    return (
        f'<svg viewBox="0 0 {_WIDE} {_HIGH}" role="img" aria-label="live bytes over time">{grid}'
        f'<path class="area" d="{line}L{x(seconds):.1f},{y(0):.1f}Z"/>'
        f'<path class="curve" d="{line}"/>'
        f'<line class="peak" x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{y(0):.1f}"/>'
        f'<text x="{_LEFT - 6}" y="{y(peak) + 4:.1f}" text-anchor="end">{size(peak)}</text>'
        f'<text x="{_LEFT}" y="{_HIGH - 6}">0</text>'
        f'<text x="{_WIDE}" y="{_HIGH - 6}" text-anchor="end">{duration(seconds)}</text></svg>'
    )


# -- tables ----------------------------------------------------------------------------------


def _strategies(costs: Sequence[StrategyCost]) -> list[str]:
    if not costs:
        return []
    plain, rows = costs[0], []
    for c in costs:
        saved = 1 - c.peak / plain.peak if plain.peak else 0.0
        slower = c.seconds / plain.seconds if plain.seconds else 1.0
        rows.append(
            f"<tr><td>{escape(c.name)}</td><td>{size(c.peak)}</td><td>{100 * saved:.1f} %</td>"
            f"<td>{duration(c.seconds)}</td><td>{slower:.2f}</td></tr>"
        )
    return [
        "<h2>What each checkpoint strategy would save</h2>",
        "<p>The step was run under each: the most bytes of new arrays that were live at once, and "
        "the time of one run.</p>",
        '<div class="wide"><table id="strategies"><thead><tr><th>strategy</th><th>peak</th>'
        "<th>saved</th><th>time</th><th>of the first</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>",
    ]


_TITLES = ("name", "calls", "total ms", "self ms", "share", "Mflop", "MB", "GFLOP/s", "GB/s")
_TITLES += ("roofline",)


def _operations(table: Any) -> str:
    head = "".join(
        f"<th{' aria-sort=descending' * (t == 'self ms')}><button>{t}</button></th>"
        for t in _TITLES
    )
    body = "".join(f"<tr>{''.join(_cells(r))}</tr>" for r in table.rows)
    return (
        f'<div class="wide"><table class="sortable"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _cells(r: Any) -> list[str]:
    given: list[tuple[float | None, float, int]] = [
        (r.calls, 1, 0),
        (r.seconds, 1e3, 3),
        (r.self_seconds, 1e3, 3),
        (r.share, 100, 1),
        (r.flops, 1e-6, 1),
        (r.nbytes, 1e-6, 1),
        (r.gflops_per_second, 1, 1),
        (r.gb_per_second, 1, 1),
        (r.roofline, 100, 0),
    ]
    units = ("", "", "", " %", "", "", "", "", " %")
    cells = [f"<td>{escape(r.name)}</td>"]
    for (value, scale, digits), unit in zip(given, units, strict=True):
        shown = "" if value is None else f"{scale * value:,.{digits}f}{unit}"
        raw = "" if value is None else f"{value:.9g}"
        cells.append(f'<td data-value="{raw}">{shown}</td>')
    return cells
