"""One writer per directory: a lock that ends with the process that holds it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.record import field, record
from ..errors import CheckpointLocked
from .room import naming_full_disk

if TYPE_CHECKING:
    from os import PathLike


NAME = ".lock"


@record(frozen=False)
class _HeldLock:
    fd: int
    users: int = 0
    turn: threading.Lock = field(default_factory=threading.Lock)


_held: dict[str, _HeldLock] = {}
_guard = threading.Lock()


@contextmanager
def locked(directory: str | PathLike[str]) -> Iterator[threading.Lock]:
    """Keep other processes from saving into a directory while the block runs.

    directory  where the run's checkpoints are

    `save_checkpoint` locks for the time of a save; a run that saves more than once holds the lock
    from its beginning to its end. Blocks of one process may nest, and its threads share the lock;
    they take turns by the lock that the block is given. A process that dies frees its locks.

    >>> import weft as wf
    >>> import tempfile
    >>> import weft as wf
    >>> with tempfile.TemporaryDirectory() as run, wf.io.locked(run):
    ...     path = wf.io.save_checkpoint(run, wf.Checkpoint({"w": wf.ones(2)}), step=1)
    """
    key = os.path.realpath(directory)
    with _guard:
        held = _held.get(key) or _held.setdefault(key, _HeldLock(_acquire(Path(key))))
        held.users += 1
    try:
        yield held.turn
    finally:
        with _guard:
            held.users -= 1
            if not held.users and _held.get(key) is held:
                del _held[key]
                os.close(held.fd)


def _acquire(directory: Path) -> int:
    import fcntl  # without it (Windows), only saving into directories is unavailable

    with naming_full_disk(directory / NAME):
        fd = os.open(directory / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(fd, 0)
        with naming_full_disk(directory / NAME):
            os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    except BlockingIOError:
        owner = os.pread(fd, 20, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise CheckpointLocked(
            f"{directory}: process {owner or 'unknown'} is writing there; wait until it has ended, "
            "or give another directory"
        ) from None
    except BaseException:
        os.close(fd)
        raise
    return fd


def _forget() -> None:
    """In a forked child: the locks are the parent's, and must not outlive it here."""
    global _guard
    _guard = threading.Lock()
    for held in _held.values():
        os.close(held.fd)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
