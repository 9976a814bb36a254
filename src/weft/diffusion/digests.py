"""Digests of files, computed once and remembered while a file stays as it is.

What is remembered is only a shortcut: its file carries its own digest, and where it is lost or
damaged, digests are computed again.
"""

from __future__ import annotations

import os
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from .. import errors
from ..io import disk, strict_json, tensor_file
from ..io.durable import write_file
from .read_only import unless_read_only

_CHUNK = 1 << 22
_LONGEST = 1 << 30
# A file that was changed so shortly before it was read may change again under the same times.
_SETTLED_NS = 2_000_000_000


def read_answers(path: Path) -> dict[str, Any]:
    """What a file remembers; nothing if it is missing, damaged or of another version."""
    try:
        found = strict_json.loads(tensor_file.read_whole(path, _LONGEST), str(path))
    except errors.CheckpointError:
        return {}
    if not isinstance(found, dict) or set(found) != {"sha256", "answers"}:
        return {}
    answers = found["answers"]
    whole = isinstance(answers, dict) and found["sha256"] == _digest(answers)
    return answers if whole else {}


def write_answers(path: Path, answers: dict[str, Any]) -> None:
    """Replace what a file remembers."""
    whole = {"sha256": _digest(answers), "answers": answers}
    write_file(path, [strict_json.dumps(whole).encode("ascii")])


def _digest(answers: dict[str, Any]) -> str:
    return sha256(strict_json.dumps(answers).encode("ascii")).hexdigest()


def content_digest(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    digest = sha256()
    with tensor_file.readable(Path(path)), disk.open_to_read(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


class FileDigests:
    """The SHA-256 of files, remembered as long as size, times, inode and device stay the same.

    path  the file that remembers them; None: nothing outlives the process. Nor does it where the
          file's folder is not there, or cannot be written to

    >>> import tempfile
    >>> from pathlib import Path
    >>> from weft.diffusion.data import FileDigests
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     size = Path(folder, "a").write_bytes(b"abc")
    ...     FileDigests().of(f"{folder}/a")[:8]
    'ba7816bf'
    """

    def __init__(self, path: str | os.PathLike[str] | None = None):
        self.path: Path | None = None if path is None else Path(path)
        self._answers = {} if self.path is None else read_answers(self.path)

    def of(self, path: str | os.PathLike[str]) -> str:
        """The digest of a file's content.

        path  the file

        >>> import tempfile
        >>> from pathlib import Path
        >>> from weft.diffusion.data import FileDigests
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     size = Path(folder, "a").write_bytes(b"")
        ...     FileDigests().of(f"{folder}/a")[:8]
        'e3b0c442'
        """
        name = os.path.realpath(path)
        mark = _mark(name)
        known = self._answers.get(name)
        if isinstance(known, list) and known[:-1] == mark:
            return known[-1]
        begun = time.time_ns()
        digest = content_digest(name)
        if _mark(name) != mark:
            raise errors.CheckpointError(f"{name!r} changed while it was read; run it again")
        if begun - max(mark[1:3]) > _SETTLED_NS:
            self._remember(name, [*mark, digest])
        return digest

    def _remember(self, name: str, answer: list[Any]) -> None:
        self._answers[name] = answer
        if self.path is not None and self.path.parent.is_dir():
            # Others may have added to the file since.
            self._answers = read_answers(self.path) | self._answers
            with unless_read_only():
                write_answers(self.path, self._answers)


def _mark(name: str) -> list[int]:
    """What changes when a file's content does."""
    with tensor_file.readable(Path(name)):
        found = os.stat(name)
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev]
