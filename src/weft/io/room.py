"""Full disks: errors that say what was needed, what is free, and what to do."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path

from ..errors import DiskFull


def is_full(error: BaseException) -> bool:
    """Whether an error says that a disk, a quota on it, or the limit of a file's size is full."""
    return isinstance(error, OSError) and error.errno in (ENOSPC, EDQUOT, EFBIG)


def disk_full(path: Path, error: OSError, needed: int | None = None) -> DiskFull:
    """The error for a full disk.

    path    what could not be written
    error   what the operating system said
    needed  the bytes of it; None: not known
    """
    number = ENOSPC if error.errno is None else error.errno
    wants = "" if needed is None else f"{needed:,} bytes are needed, "
    if number == EFBIG:
        made = DiskFull(
            f"{path}: {os.strerror(number)}: {wants}and files may not be as long here; raise the "
            "limit (`ulimit -f unlimited`), or take another file system, and repeat the command, "
            "what was saved before is as it was"
        )
        made.errno, made.needed = number, needed
        return made
    made = DiskFull(
        f"{path}: {os.strerror(number)}: {wants}{_free(path)}; make room and repeat the command, "
        "what was saved before is as it was"
    )
    made.errno, made.needed = number, needed
    return made


def _free(path: Path) -> str:
    """What is free where a file was to be, in words."""
    folder = path
    while not folder.is_dir():
        folder = folder.parent
    found = os.statvfs(folder)
    if found.f_files and not found.f_favail:
        return f"and the file system of {folder} has no room for another file, whatever its size"
    return f"{found.f_bavail * found.f_frsize:,} bytes are free in {folder}"


@contextmanager
def naming_full_disk(path: Path) -> Iterator[None]:
    """A block that writes to a path; if the disk is full, the error says what to do."""
    try:
        yield
    except OSError as e:
        if isinstance(e, DiskFull) or not is_full(e):
            raise
        raise disk_full(path, e) from e
