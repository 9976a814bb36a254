"""The ledger of an estimate: arrays that are made and freed, and the peak of their bytes."""

import mmap
from typing import Any

import numpy as np

from ..core.origin import Origin, origin
from ..core.record import record
from .counter import Counter


@record
class Event:
    """An array that is made, or freed: then `op` is empty.

    key  the number of its memory
    """

    key: int
    nbytes: int
    op: str
    origin: Origin | None


class Ledger:
    """The bytes of live phantoms and of real arrays, and their peak."""

    def __init__(self, counter: Counter):
        self._counter = counter
        self._zeros: Any = None
        self.kept: dict[Any, Any] = {}  # zeros that kernels keep, the most recent last
        self.live = 0  # bytes of phantoms
        self.events: list[Event] = []
        self.reset_peak()

    def reset_peak(self) -> None:
        """Let the peak begin again at what is live now.

        peak     bytes, also of real arrays and of the temporaries of kernels
        peak_at  the number of events before the peak
        at_work  the row at the peak, where it was called, and its temporaries
        """
        self.peak, self.peak_at = self.live + self._counter.live, len(self.events)
        self.at_work: tuple[str, Origin | None, int] = ("", None, 0)

    def reserve(self, nbytes: int) -> Any:
        """A range of at least so many zeros."""
        if self._zeros is None or self._zeros.nbytes < nbytes:
            # Nothing writes to it, so the system gives it no memory.
            kind = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)
            kind |= getattr(mmap, "MAP_NORESERVE", 0)
            size = max(2 * nbytes, 1 << 20)
            memory = mmap.mmap(-1, size, flags=kind) if kind else mmap.mmap(-1, size)
            self._zeros = np.frombuffer(memory, np.uint8)
        return self._zeros

    def enter(self, nbytes: int, op: str) -> int:
        """Count an array that is made now; returns the number of its memory."""
        key = len(self.events)
        self.events.append(Event(key, nbytes, op, origin()))
        self.live += nbytes
        self.note()
        return key

    def leave(self, key: int, nbytes: int) -> None:
        """Count an array that is freed now."""
        self.events.append(Event(key, nbytes, "", None))
        self.live -= nbytes

    def note(self, op: str = "", extra: int = 0) -> None:
        """Compare the peak with the bytes now, and with a row's temporaries beside them."""
        total = self.live + self._counter.live + extra
        if total > self.peak:
            self.peak, self.peak_at = total, len(self.events)
            self.at_work = (op, origin(), extra) if extra else ("", None, 0)

    def alive(self, at: int) -> dict[int, Event]:
        """The arrays that were alive after so many events, by the number of their memory."""
        found: dict[int, Event] = {}
        for e in self.events[:at]:
            if e.op:
                found[e.key] = e
            else:
                del found[e.key]
        return found
