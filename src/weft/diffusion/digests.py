"""Content digests of files, computed once and remembered while a file stays as it is."""

from __future__ import annotations

from hashlib import sha256
from os import stat_result
from pathlib import Path
from typing import Any

from .. import errors
from ..io import disk, strict_json, tensor_file
from ..io.durable import write_file

_CHUNK = 1 << 22
_LONGEST = 10_000_000


def content_digest(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    digest = sha256()
    with tensor_file.readable(path), disk.open_to_read(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


class Digests:
    """Digests of files, remembered in one file with size, time of change and inode of each.

    memory  the file

    A file of the same size, time (in nanoseconds) and inode is taken to have the same content. The
    memory itself is only a shortcut: damaged or absent, digests are computed again.
    """

    def __init__(self, memory: Path):
        self._memory = memory

    def of(self, path: Path) -> str:
        """The digest of a file."""
        known = self._read()
        key, state = str(path.resolve()), _state(path.stat())
        had = known.get(key)
        if isinstance(had, list) and had[:-1] == state and _is_digest(had[-1]):
            return had[-1]
        digest = content_digest(path)
        if _state(path.stat()) != state:
            raise errors.CheckpointError(f"{path}: the file was changed while it was being read")
        data = strict_json.dumps(self._read() | {key: [*state, digest]}).encode("ascii")
        write_file(self._memory, [data])
        return digest

    def _read(self) -> dict[str, Any]:
        if not self._memory.is_file():
            return {}
        try:
            raw = tensor_file.read_whole(self._memory, _LONGEST)
            found = strict_json.loads(raw, str(self._memory))
        except errors.CheckpointError:  # damaged: everything is computed again
            return {}
        return found if isinstance(found, dict) else {}


def _state(status: stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _is_digest(x: Any) -> bool:
    return isinstance(x, str) and len(x) == 64
