"""Object code on disk: a private directory of entries that are whole or absent.

An entry is a file named by its key: a digest of the key and the data, then the data. It is written
under a temporary name and renamed into place, so no process reads half an entry. An entry that
disagrees with its digest is deleted. `WEFT_CACHE_DIR` names the directory; if it is empty, there is
no cache.
"""

import os
import stat
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from ...errors import CacheWarning

LIMIT = 256 << 20  # bytes of all entries
_KEEP = 0.75  # share of the limit down to which the oldest entries are deleted
_STALE = 3600.0  # seconds after which an unfinished entry counts as abandoned
_DIGEST = sha256().digest_size
_SUFFIX, _UNFINISHED = ".object", ".part"


class Cache:
    """Entries in a directory, which is created when the first one is stored."""

    def __init__(self, folder: Path | None, limit: int = LIMIT):
        self.folder: Path | None = folder
        self.limit: int = limit
        self._stored = limit  # bytes since the entries were last counted

    def fetch(self, key: str) -> bytes | None:
        """The data stored under a key; None if it is missing or damaged."""
        if self.folder is None or not self._is_trusted(self.folder):
            return None
        path = self._path(key)
        try:
            entry = _read(path)
            if entry is not None and _digest(key, entry[_DIGEST:]) == entry[:_DIGEST]:
                _touch(path)
                return entry[_DIGEST:]
            path.unlink(missing_ok=True)
        except FileNotFoundError:
            return None
        except OSError as failure:
            self._give_up(f"{path.name}: {failure.strerror}")
        return None

    def store(self, key: str, data: bytes) -> None:
        """Store data under a key; where that is impossible, warn once and go on without a cache."""
        if self.folder is None:
            return
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_trusted(self.folder):
                return
            _write(self.folder, self._path(key), _digest(key, data) + data)
            self._make_room(len(data) + _DIGEST)
        except OSError as failure:
            self._give_up(failure.strerror or str(failure))

    def _path(self, key: str) -> Path:
        if self.folder is None or not key.isalnum():
            raise ValueError(f"{key!r} is no key")
        return self.folder / (key + _SUFFIX)

    def _is_trusted(self, folder: Path) -> bool:
        """Whether no other user can have written there; a missing directory is trusted."""
        try:
            found = folder.stat()
        except FileNotFoundError:
            return True
        except OSError as failure:
            self._give_up(failure.strerror or str(failure))
            return False
        if not stat.S_ISDIR(found.st_mode):
            self._give_up("it is no directory")
        elif found.st_uid != os.geteuid():
            self._give_up("it belongs to another user")
        elif found.st_mode & 0o077:
            self._give_up(f"others may use it: chmod 700 {folder}")
        else:
            return True
        return False

    def _give_up(self, reason: str) -> None:
        """Disable the cache, and warn why, once."""
        folder, self.folder = self.folder, None
        warnings.warn(
            f"compiled code is not kept in {folder}: {reason}", CacheWarning, stacklevel=2
        )

    def _make_room(self, size: int) -> None:
        """Delete the oldest entries once there are too many; they are counted now and then only."""
        self._stored += size
        if self._stored < self.limit // 8:
            return
        self._stored = 0
        assert self.folder is not None
        entries = sorted(_entries(self.folder))
        total, now = sum(n for _, n, _ in entries), time.time()
        keep = self.limit if total <= self.limit else int(self.limit * _KEEP)
        for used, n, path in entries:
            given_up = path.suffix == _UNFINISHED and now - used > _STALE
            if given_up or (total > keep and path.suffix == _SUFFIX):
                path.unlink(missing_ok=True)
                total -= n


def _entries(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """Time of last use, size and path of each file; files deleted in the meantime are skipped."""
    for path in folder.iterdir():
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        if path.suffix in (_SUFFIX, _UNFINISHED):
            yield found.st_mtime, found.st_size, path


def _digest(key: str, data: bytes) -> bytes:
    """The digest that detects a damaged entry, or one of another key."""
    return sha256(key.encode() + b"\0" + data).digest()


def _read(path: Path) -> bytes | None:
    """The contents of a file that this user owns; None for anything else."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return None
        return file.read()


def _write(folder: Path, path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(_UNFINISHED, path.stem[:8], folder)
    try:
        with open(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _touch(path: Path) -> None:
    """Mark an entry as used."""
    with suppress(OSError):  # deleted by another process just now, or on a read-only disk
        os.utime(path)


def _default_folder() -> Path | None:
    named = os.environ.get("WEFT_CACHE_DIR")
    if named is not None:
        return Path(named) if named else None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "weft" / "objects"


_caches: dict[Path | None, Cache] = {}


def cache() -> Cache:
    """The cache that the environment names now."""
    folder = _default_folder()
    if folder not in _caches:
        _caches[folder] = Cache(folder)
    return _caches[folder]
