"""The file operations of a save, one function each.

Callers write `disk.write(…)`, so that a test can replace one and simulate a failing disk.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from os import PathLike


def create(path: str | PathLike[str]) -> int:
    """A descriptor of a new file; that it must not exist yet keeps writers apart."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def write(fd: int, data: Any) -> int:
    """Write `data` or a part of it; returns how many bytes were written."""
    return os.write(fd, data)


def sync(fd: int) -> None:
    """Return when the file's content has reached the disk."""
    os.fsync(fd)


def close(fd: int) -> None:
    """Give the descriptor back; some file systems report a failed write only here."""
    os.close(fd)


def rename(old: Any, new: Any) -> None:
    """Give a file another name, in one step, in place of what had that name."""
    os.replace(old, new)


def remove(path: str | PathLike[str]) -> None:
    """Remove a file."""
    os.unlink(path)


def make_directory(path: str | PathLike[str]) -> None:
    """Make a directory whose parent exists."""
    os.mkdir(path)


def remove_directory(path: str | PathLike[str]) -> None:
    """Remove an empty directory."""
    os.rmdir(path)


def sync_directory(path: str | PathLike[str]) -> None:
    """Return when the names in a directory have reached the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def open_to_read(path: str | PathLike[str]) -> BinaryIO:
    """A regular file, unbuffered; a pipe or a device, on which a reader could hang, is refused."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError("not a regular file")
    return open(fd, "rb", buffering=0)
