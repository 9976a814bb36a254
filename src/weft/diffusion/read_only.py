"""Folders that cannot be written to, where writing is not always needed."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EACCES, EPERM, EROFS
from pathlib import Path

_REASONS = (EACCES, EPERM, EROFS)


@contextmanager
def unless_read_only() -> Iterator[None]:
    """A block that writes what can be computed again, where that can be written."""
    try:
        yield
    except OSError as e:
        if e.errno not in _REASONS:
            raise


def why_read_only(folder: Path) -> str | None:
    """Why nothing can be written into a folder; None: it can, or the folder is not there.

    folder  which is tried out

    >>> import tempfile
    >>> from pathlib import Path
    >>> from weft.diffusion.read_only import why_read_only
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(why_read_only(Path(folder)))
    None
    """
    if not folder.is_dir():
        return None
    try:
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as e:
        if e.errno not in _REASONS:
            raise
        return e.strerror
