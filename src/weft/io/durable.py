"""Atomic and durable files: complete on disk, or absent."""

import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from errno import EIO
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import DiskFull
from . import disk
from .room import disk_full, is_full, naming_full_disk

UNFINISHED = re.compile(r"\.weft-[0-9a-f]{16}\.tmp")


Chunk = Any  # a buffer: bytes, or a flat array of them


class Stored(NamedTuple):
    """The length of a file in bytes and its SHA-256 in hexadecimal."""

    size: int
    sha256: str


def measure_chunks(chunks: Iterable[Chunk], into: list[Stored]) -> Iterator[Chunk]:
    """Yield the chunks; after the last, append their length and digest to `into`."""
    digest, size = sha256(), 0
    for chunk in chunks:
        digest.update(chunk)
        size += len(chunk)
        yield chunk
    into.append(Stored(size, digest.hexdigest()))


def write_file(path: Path, chunks: Iterable[Chunk]) -> None:
    """Write bytes under another name, flush them to the disk, then give the file its own name.

    The name itself is durable after `disk.sync_directory`.
    """
    apart = path.with_name(f".weft-{secrets.token_hex(8)}.tmp")
    counted = _Counted(chunks)
    try:
        _write_through(apart, counted)
        disk.rename(apart, path)
    except Exception as e:
        with suppress(OSError):  # the first error is the one to report
            disk.remove(apart)
        if isinstance(e, OSError) and is_full(e) and not isinstance(e, DiskFull):
            raise disk_full(path, e, counted.whole()) from e
        if isinstance(e, OSError) and e.errno is not None and not isinstance(e, DiskFull):
            raise OSError(e.errno, os.strerror(e.errno), str(path)) from e  # not the other name
        raise


class _Counted:
    """Chunks, counting the bytes of those that were taken."""

    def __init__(self, chunks: Iterable[Chunk]):
        self._chunks = iter(chunks)
        self._taken = 0

    def __iter__(self) -> Iterator[Chunk]:
        for chunk in self._chunks:
            self._taken += memoryview(chunk).nbytes
            yield chunk

    def whole(self) -> int:
        """The bytes of all chunks."""
        return self._taken + sum(memoryview(chunk).nbytes for chunk in self._chunks)


def _write_through(path: Path, chunks: Iterable[Chunk]) -> None:
    fd = disk.create(path)
    try:
        for chunk in chunks:
            _write_all(fd, memoryview(chunk))
        disk.sync(fd)
    finally:
        disk.close(fd)


def _write_all(fd: int, data: memoryview) -> None:
    while data.nbytes:
        n = disk.write(fd, data)
        if n <= 0:
            raise OSError(EIO, f"{os.strerror(EIO)}: nothing was written")
        data = data[n:]


def make_directories(path: Path) -> None:
    """Make a directory with its parents, durably."""
    if path.is_dir():
        return
    make_directories(path.parent)
    with suppress(FileExistsError), naming_full_disk(path):  # another process made it first
        disk.make_directory(path)
    if not path.is_dir():
        raise NotADirectoryError(f"{path}: expected a directory")
    disk.sync_directory(path.parent)
