"""Slots: what native code knows of each thread, and the state of sweeps that Python adds."""

import threading
from typing import Any

from ..compiler.native.observers import tables
from ..compiler.native.places import SLOTS, Slot, Tables
from ..errors import ArgumentError

# The name of each thread that had a slot, and its position here, `Slot.SERIAL`: unlike identifiers,
# the positions of threads that have ended are not used again.
THREADS: list[tuple[str, int]] = []
_lock = threading.RLock()


class ThreadSlot:
    """The slot of a thread, which is free again when the thread ends.

    at      its first word
    words   those of all slots
    thread  its name, and its position in `THREADS`
    """

    __slots__ = ("at", "thread", "words")

    at: int
    words: memoryview
    thread: tuple[str, int]

    def __init__(self) -> None:
        me = threading.get_ident()
        self.words = tables().threads.words
        with _lock:
            self.at = _free_place(self.words, me)
            self.thread = threading.current_thread().name, len(THREADS)
            THREADS.append(self.thread)
            for field in range(Slot.SIZE):
                self.words[self.at + field] = 0
            self.words[self.at + Slot.SERIAL] = self.thread[1]
            self.words[self.at + Slot.THREAD] = me

    def __del__(self) -> None:
        at = getattr(self, "at", None)  # none: there was no room
        if at is not None and self.words[at + Slot.SERIAL] == self.thread[1]:
            self.words[at + Slot.THREAD] = 0


def _free_place(words: memoryview, me: int) -> int:
    """A place for a slot: that of an ended thread with this identifier, or one that is free."""
    head = tables().head.words
    used = [words[k * Slot.SIZE + Slot.THREAD] for k in range(head[Tables.USED])]
    for wanted in (me, 0):
        if wanted in used:
            return used.index(wanted) * Slot.SIZE
    if len(used) == SLOTS:
        raise ArgumentError(f"profile: more than {SLOTS} threads at once; profile fewer")
    head[Tables.USED] = len(used) + 1
    return len(used) * Slot.SIZE


class _Running(threading.local):
    """In each thread, its slot, once it needs one."""

    slot: ThreadSlot | None = None


_running = _Running()


class SweepStack(threading.local):
    """In each thread, its slot, and what is known of the sweeps that run there."""

    def __init__(self) -> None:
        self.slot = _running.slot = _running.slot or ThreadSlot()
        self.sweeps: list[Any] = []
