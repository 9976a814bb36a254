"""Printing what a command has found: nothing is cut, whatever the output is."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console
from rich.measure import Measurement

_WIDEST = 1 << 16  # columns


def show(what: Any, console: Console | None = None) -> None:
    """Print a table, a report or a text, each line whole: a terminal folds what is too wide.

    what     a renderable of rich, or something that is printed as `str` gives it
    console  where; None: standard output
    """
    console = Console() if console is None else console
    if not hasattr(what, "__rich_console__"):
        console.print(str(what), markup=False, highlight=False, soft_wrap=True, emoji=False)
        return
    options = console.options.update(width=_WIDEST)
    wide = Measurement.get(console, options, what).maximum
    with_room = Console(file=console.file, width=max(wide, console.width))
    with_room.print(what, markup=False, highlight=False, crop=False, emoji=False)


def write_any_text() -> None:
    """Have standard output write escapes for characters that its encoding has not."""
    for stream in (sys.stdout, sys.stderr):
        change = getattr(stream, "reconfigure", None)
        if change is not None:
            change(errors="backslashreplace")
