"""The flow of gradients over the layers of a network, as an SVG picture."""

from html import escape
from math import isfinite, log10
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .health import GradientHealthReport, GradientStats

_ROW, _HEAD, _FOOT, _PAD, _CHARACTER, _WIDTH = 18.0, 58.0, 26.0, 12.0, 6.1, 560.0
_FEWEST = 4  # decades that are shown at least
_COLOURS = {"not finite": "#c0392b", "exploding": "#d35400", "vanishing": "#7d3c98"}
_STYLE = """
  text { font: 10px ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace; fill: #1c2733 }
  .name { font-size: 13px; font-weight: bold } .axis { fill: #5b6b7b } .end { text-anchor: end }
  .middle { text-anchor: middle } .grid { stroke: #dfe5ea; stroke-width: 1 }
  .rms { fill: none; stroke: #16324f; stroke-width: 1.5 } .dot { fill: #16324f }
  .largest { stroke: #16324f; stroke-width: 1 }
"""


class _Scale:
    """From log₁₀|g| to pixels."""

    def __init__(self, report: "GradientHealthReport", left: float):
        edges = [e for s in report.entries.values() for e in s.edges.tolist()]
        self.low, self.high = (min(edges), max(edges)) if edges else (-_FEWEST, 0)
        self.low = min(self.low, self.high - _FEWEST)
        self.left = left

    def __call__(self, decade: float) -> float:
        return self.left + _WIDTH * (decade - self.low) / (self.high - self.low)


def draw_flow(report: "GradientHealthReport") -> str:
    """The picture as an SVG document."""
    names = [*report.entries, *report.missing]
    left = _PAD * 2 + max(len(n) for n in names) * _CHARACTER
    scale = _Scale(report, left)
    bottom = _HEAD + _ROW * len(names)
    width = left + _WIDTH + 11 * _CHARACTER + _PAD * 2
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" '
        f'height="{bottom + _FOOT:.0f}" viewBox="0 0 {width:.0f} {bottom + _FOOT:.0f}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{width:.0f}" height="{bottom + _FOOT:.0f}" fill="#ffffff"/>',
        f'<text class="name" x="{_PAD}" y="20">Gradient flow: |g| of each parameter</text>',
        f'<text class="axis" x="{_PAD}" y="36">{_legend(report)}</text>',
        *_grid(scale, bottom),
    ]
    marks = report.marks() | dict.fromkeys(report.missing, "no gradient")
    for k, name in enumerate(names):
        lines += _layer(report, name, marks.get(name, ""), scale, _HEAD + _ROW * k)
    return "\n".join([*lines, _line_of_rms(report, scale), "</svg>", ""])


def _legend(report: "GradientHealthReport") -> str:
    norm = f"norm of all {report.total.norm:.3g}"
    return f"{norm}; shade: share of the elements; ● root mean square; | largest"


def _grid(scale: _Scale, bottom: float) -> list[str]:
    span = scale.high - scale.low
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100) if span / s <= 14)
    lines = []
    for decade in range(-(-scale.low // step) * step, scale.high + 1, step):
        x = scale(decade)
        lines.append(f'<path class="grid" d="M{x:.1f},{_HEAD - 4:.0f} V{bottom:.1f}"/>')
        lines.append(
            f'<text class="axis middle" x="{x:.1f}" y="{bottom + 16:.1f}">1e{decade}</text>'
        )
    return lines


def _layer(report: Any, name: str, mark: str, scale: _Scale, top: float) -> list[str]:
    """A parameter's row: name, decades, largest magnitude, mark."""
    colour = _COLOURS.get(mark, "#5b6b7b" if mark else "#1c2733")
    y = top + _ROW - 6
    x = scale.left - _PAD / 2
    lines = [
        f'<text class="end" style="fill:{colour}" x="{x:.1f}" y="{y:.1f}">{escape(name)}</text>'
    ]
    if mark:
        x = scale.left + _WIDTH + _PAD / 2
        lines.append(f'<text style="fill:{colour}" x="{x:.1f}" y="{y:.1f}">{mark}</text>')
    if name not in report.entries:
        return lines
    s = report.entries[name]
    whole = max(int(s.histogram.sum()), 1)
    wide = scale(scale.low + 1) - scale.left
    for decade, count in zip(s.edges.tolist(), s.histogram.tolist(), strict=False):
        if count:
            shade = 0.15 + 0.85 * count / whole
            lines.append(
                f'<rect x="{scale(decade):.1f}" y="{top + 2:.1f}" width="{wide:.1f}" '
                f'height="{_ROW - 4:.1f}" fill="#5b9bd5" fill-opacity="{shade:.2f}"/>'
            )
    if s.largest > 0:
        x = scale(log10(s.largest))
        lines.append(f'<path class="largest" d="M{x:.1f},{top + 2:.1f} v{_ROW - 4:.1f}"/>')
    return lines


def _line_of_rms(report: "GradientHealthReport", scale: _Scale) -> str:
    """The root mean squares, joined from layer to layer."""
    points = [
        (scale(log10(s.rms)), _HEAD + _ROW * (k + 0.5))
        for k, s in enumerate(report.entries.values())
        if _is_drawn(s)
    ]
    line = " ".join([f"{'L' if k else 'M'}{x:.1f},{y:.1f}" for k, (x, y) in enumerate(points)])
    dots = "".join([f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points])
    return f'<path class="rms" d="{line}"/>{dots}' if points else ""


def _is_drawn(s: "GradientStats") -> bool:
    return isfinite(s.rms) and s.rms > 0
