"""Signals that stop a command: exit statuses as shells give them, and how to go on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer


class Terminated(BaseException):
    """SIGTERM, where Python would end the process without a word."""


def _terminate(number: int, frame: Any) -> NoReturn:
    raise Terminated


@contextmanager
def stoppable(say: Callable[[str], None], how_to_go_on: Callable[[], str]) -> Iterator[None]:
    """A block that SIGINT and SIGTERM end with status 130 and 143, after a word on how to go on.

    say           prints a message
    how_to_go_on  that message
    """
    ours = threading.current_thread() is threading.main_thread()
    ours = ours and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except (KeyboardInterrupt, Terminated) as e:
        number = signal.SIGTERM if isinstance(e, Terminated) else signal.SIGINT
        say(how_to_go_on())
        raise typer.Exit(128 + number) from None
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
