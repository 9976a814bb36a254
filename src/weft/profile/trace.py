"""Traces in Chrome's format, which Perfetto opens: events by thread, and live bytes over time."""

import json
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from .events import OpEvent

_PROCESS = 1


def by_begin(e: OpEvent) -> tuple[int, int]:
    """A key that sorts events by their begin in nanoseconds, one around others before them."""
    return round(1e9 * e.start), -round(1e9 * e.seconds)


def write_trace(events: Sequence[OpEvent], path: str | PathLike[str]) -> None:
    """Write events as a trace."""
    Path(path).write_text(json.dumps(trace_of(events), ensure_ascii=False), "utf-8")


def trace_of(events: Sequence[OpEvent]) -> dict[str, Any]:
    """The trace as data; times are in microseconds."""
    tracks = {name: k for k, name in enumerate(dict.fromkeys(e.thread for e in events), 1)}
    return {
        "displayTimeUnit": "ms",
        "traceEvents": [
            {"ph": "M", "pid": _PROCESS, "name": "process_name", "args": {"name": "weft"}},
            *_names(tracks),
            # The one around others first, where two begin at the same moment.
            *[_complete(e, tracks[e.thread]) for e in sorted(events, key=by_begin)],
            *_memory(events),
        ],
    }


def _names(tracks: dict[str, int]) -> Iterator[dict[str, Any]]:
    for name, k in tracks.items():
        where = {"ph": "M", "pid": _PROCESS, "tid": k}
        yield {**where, "name": "thread_name", "args": {"name": name}}
        yield {**where, "name": "thread_sort_index", "args": {"sort_index": k}}


def _microseconds(seconds: float) -> float:
    """Whole nanoseconds, so that what ends where another begins does so exactly."""
    return round(1e6 * seconds, 3)


def _complete(e: OpEvent, track: int) -> dict[str, Any]:
    args: dict[str, Any] = {"line": e.line, "self_us": _microseconds(e.self_seconds)}
    given = {"sizes": e.sizes, "dtype": e.dtype, "flops": e.flops, "bytes": e.nbytes}
    args |= {name: value for name, value in given.items() if value not in ("", None)}
    if e.flops and e.seconds:
        args["gflops_per_second"] = e.flops / e.seconds / 1e9
    return {
        **{"ph": "X", "pid": _PROCESS, "tid": track, "name": e.name, "cat": e.kind},
        **{"ts": _microseconds(e.start), "dur": _microseconds(e.seconds), "args": args},
    }


def curve_of(events: Sequence[OpEvent]) -> list[tuple[float, int]]:
    """Points (seconds, live bytes): of each event the most since the one before, then the end."""
    points: list[tuple[float, int]] = []
    if not any(e.peak for e in events):
        return points
    for e in sorted((e for e in events if e.kind != "step"), key=lambda e: e.start + e.seconds):
        end = e.start + e.seconds
        if e.peak > e.live:
            points.append((max(e.start, points[-1][0] if points else 0.0), e.peak))
        points.append((end, e.live))
    return points


def _memory(events: Sequence[OpEvent]) -> Iterator[dict[str, Any]]:
    for at, live in curve_of(events):
        yield {
            **{"ph": "C", "pid": _PROCESS, "name": "live bytes", "ts": _microseconds(at)},
            "args": {"bytes": live},
        }
