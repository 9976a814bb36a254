"""Deferring signals until the current step and its checkpoint are done."""

import os
import signal
import threading
from contextlib import suppress
from typing import Any

from .. import errors

# Of a terminal that is closed; shells and the terminal both send it.
_HANGUP = getattr(signal, "SIGHUP", None)
_WAITING = [n for n in (signal.SIGINT, signal.SIGTERM, _HANGUP) if n is not None]


class Interrupts:
    """Defers SIGINT, SIGTERM and SIGHUP while the block runs; a second signal takes effect at once.

    A second SIGHUP does not: where a terminal is closed, it often comes twice. Only the main thread
    receives signals: in others, and for signals that are ignored (SIGHUP under nohup), nothing
    changes.

    wait   whether signals are deferred
    doing  what is done before a signal takes effect, said when it comes; None: nothing is said
    joint  whether a signal takes effect only when all ranks know of it: `receive`
    """

    def __init__(self, wait: bool, doing: str | None = None, joint: bool = False):
        self._wait, self._doing, self._joint = wait, doing, joint
        self._received: tuple[int, int] | None = None  # a rank and its signal
        self._before: dict[int, Any] = {}
        self.pending: int | None = None

    @property
    def due(self) -> int | None:
        """The signal that takes effect after this step."""
        if not self._joint:
            return self.pending
        return None if self._received is None else self._received[1]

    def receive(self, rank: int, number: int) -> None:
        """Take notice, with all other ranks, of a signal that a rank has got."""
        self._received = (rank, number)

    def __enter__(self) -> "Interrupts":
        if self._wait and threading.current_thread() is threading.main_thread():
            handlers = {number: signal.getsignal(number) for number in _WAITING}
            ignored = (signal.SIG_IGN, None)  # None: set by a library that is not Python
            self._before = {n: h for n, h in handlers.items() if h not in ignored}
            self._install()
        return self

    def _install(self) -> None:
        for number in self._before:
            signal.signal(number, self._note)

    def _note(self, number, frame) -> None:
        if self.pending is not None and number == _HANGUP:
            return
        self.pending = number
        self._restore(but=_HANGUP)
        if self._doing is not None:
            # Python's own stderr may be in the middle of a write.
            name = signal.Signals(number).name
            text = f"\n{name}: {self._doing}; a second one stops at once\n"
            with suppress(OSError):  # the terminal may be gone: what is done matters more
                os.write(2, text.encode("ascii"))

    def _restore(self, but: int | None = None) -> None:
        for number, handler in self._before.items():
            if number != but:
                signal.signal(number, handler)

    def deliver(self) -> None:
        """Deliver the deferred signal; if its handler does not raise, go on deferring."""
        number, received, self.pending, self._received = self.due, self._received, None, None
        if number is not None and received is not None and not self._before:
            raise errors.DistributedError(
                f"Trainer.fit: rank {received[0]} has got {signal.Signals(number).name}, so that "
                "all ranks stop; the run goes on with resume='auto'"
            )
        if number is not None:
            self._restore()
            signal.raise_signal(number)
            self._install()

    def __exit__(self, *error: Any) -> None:
        self._restore()
        number = self.pending or self.due
        if number is not None and self._before:  # it came after the last check
            signal.raise_signal(number)
