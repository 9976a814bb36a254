"""Signals that stop a command: exit statuses as shells give them, and how to go on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer

# SIGHUP: the terminal was closed. Where it is ignored, as under nohup, it stays so.
_ENDING = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]


class Terminated(BaseException):
    """A signal where Python would end the process without a word."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


class _Ending:
    """A handler that raises at the first SIGHUP only: shells and terminals both send it."""

    def __init__(self) -> None:
        self._ended = False

    def __call__(self, number: int, frame: Any) -> None:
        if not self._ended or number == signal.SIGTERM:
            self._ended = True
            raise Terminated(number)


@contextmanager
def stoppable(say: Callable[[str], None], how_to_go_on: Callable[[], str]) -> Iterator[None]:
    """A block that signals end with status 128 + number, after a word on how to go on.

    say           prints a message
    how_to_go_on  that message

    They are SIGINT, SIGTERM and SIGHUP.
    """
    ours, ending = [], _Ending()
    if threading.current_thread() is threading.main_thread():
        ours = [n for n in _ENDING if signal.getsignal(n) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, ending)
    try:
        yield
    except (KeyboardInterrupt, Terminated) as e:
        number = e.number if isinstance(e, Terminated) else signal.SIGINT
        say(how_to_go_on())
        raise typer.Exit(128 + number) from None
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
