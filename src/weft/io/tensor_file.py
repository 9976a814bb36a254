"""Named arrays in one safetensors file.

The bytes are read and written here, and not by the `safetensors` package, for three reasons: every
operation on the disk is one of `disk`'s, flushed in the right order; what is loaded is exactly what
was checked and hashed, in one pass and in its final memory (the package takes twice that); and a
file that shrinks while it is being read gives an error, where mapped memory ends the process.

Complex tensors are stored as their real view, with a last axis of two; their names are in the
metadata under `weft.complex`. A *sealed* file begins its metadata with `weft.sha256`, the digest of
the whole file with these 64 digits as zeros.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from os import fstat
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..backend.device import as_numpy
from ..core import dtypes
from ..core.value import aval_of
from ..errors import CheckpointError
from . import disk, header, strict_json
from .durable import Stored, measure_chunks, write_file
from .header import Header

OWN = "weft."
_COMPLEX, _SEAL = "weft.complex", "weft.sha256"
_ZEROS = "0" * 64
_BEFORE_SEAL = header.LENGTH + len(f'{{"{header.METADATA}":{{"{_SEAL}":"')
_SEALED = slice(_BEFORE_SEAL, _BEFORE_SEAL + len(_ZEROS))
_CHUNK = 1 << 20


def write(path: Path, arrays: Mapping[str, Any]) -> Stored:
    """Write raw arrays of any backend under their names; returns length and digest."""
    stored: list[Stored] = []
    write_file(path, measure_chunks(_chunks(_describe(arrays, {}), arrays), stored))
    return stored[0]


def write_plain(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """Write a file that carries no digest, for other programs."""
    write_file(path, _chunks(_describe(arrays, metadata), arrays))


def write_sealed(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """Write a file that carries its own digest."""
    head = _describe(arrays, {_SEAL: _ZEROS} | dict(metadata))
    digest = sha256()
    for chunk in _chunks(head, arrays):
        buffer: Any = chunk
        digest.update(buffer)
    raw = bytearray(head.raw)
    raw[_SEALED] = digest.hexdigest().encode("ascii")
    write_file(path, _chunks(head._replace(raw=bytes(raw)), arrays))


def _describe(arrays: Mapping[str, Any], metadata: Mapping[str, str]) -> Header:
    described, parts = {}, []
    for name, raw in arrays.items():
        aval = aval_of(raw)
        dtype, shape = aval.dtype, aval.shape
        if dtype in dtypes.COMPLEX:
            parts.append(name)
            dtype, shape = dtypes.to_real(dtype), (*shape, 2)
        described[name] = dtype, shape
    own = {_COMPLEX: strict_json.dumps(parts)} if parts else {}
    return header.build(described, dict(metadata) | own)


def _chunks(head: Header, arrays: Mapping[str, Any]) -> Iterator[bytes | np.ndarray]:
    yield head.raw
    for name in sorted(head.entries, key=lambda n: head.entries[n][2:]):
        yield bytes_of(np.ascontiguousarray(as_numpy(arrays[name])))


def bytes_of(array: np.ndarray) -> np.ndarray:
    """The memory of a contiguous array, as bytes."""
    return array.reshape(-1).view(np.uint8)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """A block in which a file is read; an OSError becomes an error of ours."""
    try:
        yield
    except OSError as e:
        raise CheckpointError(f"{path}: cannot be read: {e.strerror or e}") from e


@contextmanager
def _open(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """The open file and its size."""
    with readable(path), disk.open_to_read(path) as file:
        yield file, fstat(file.fileno()).st_size


def read_exactly(file: BinaryIO, buffer, where) -> None:
    """Fill the buffer from the file."""
    view = memoryview(buffer)
    while view.nbytes:
        n = file.readinto(view)  # type: ignore[attr-defined]
        if not n:
            raise CheckpointError(f"{where}: the file ended while it was being read")
        view = view[n:]


def header_of(file: BinaryIO, size: int, where: str) -> Header:
    """The header of an open file of this size."""
    first = bytearray(min(header.LENGTH, size))
    read_exactly(file, first, where)
    rest = bytearray(header.length(bytes(first), size, where))
    read_exactly(file, rest, where)
    return header.check(bytes(first + rest), size - len(first) - len(rest), where)


def read_whole(path: Path, longest: int) -> bytes:
    """All bytes of a file that is not too long."""
    with _open(path) as (file, size):
        if size > longest:
            raise CheckpointError(f"{path}: {size} bytes, expected at most {longest}")
        buffer = bytearray(size)
        read_exactly(file, buffer, str(path))
    return bytes(buffer)


def read_header(path: Path) -> Header:
    """The header of a file, without its tensors."""
    with _open(path) as (file, size):
        return header_of(file, size, str(path))


def read(path: Path, expected: Stored) -> dict[str, np.ndarray]:
    """The arrays of a file that must have this size and this digest."""
    where = str(path)
    with _open(path) as (file, size):
        check_size(where, size, expected)
        head = header_of(file, size, where)
        digest = sha256(head.raw)
        arrays = _arrays(file, head, where, digest.update)
    _compare(where, digest.hexdigest(), expected.sha256)
    return _values(head, arrays, where)


def read_plain(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file of any program."""
    with _open(path) as (file, size):
        head = header_of(file, size, str(path))
        return _values(head, _arrays(file, head, str(path), lambda memory: None), str(path))


def read_sealed(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays and the metadata of a file that carries its own digest."""
    where = str(path)
    with _open(path) as (file, size):
        head = header_of(file, size, where)
        digest = sha256(_unseal(head, where))
        arrays = _arrays(file, head, where, digest.update)
    _compare(where, digest.hexdigest(), head.metadata[_SEAL])
    return _values(head, arrays, where), head.metadata


def stream_sealed(path: Path) -> Iterator[tuple[str, np.ndarray]]:
    """Names and arrays of a file that carries its own digest, one at a time.

    That the digest is right is known after the last: until then no array is to be trusted.
    """
    where = str(path)
    with _open(path) as (file, size):
        head = header_of(file, size, where)
        digest = sha256(_unseal(head, where))
        for name in sorted(head.entries, key=lambda n: head.entries[n][2:]):
            entry = head.entries[name]
            array = np.empty(entry.shape, entry.dtype)
            memory: Any = bytes_of(array)
            read_exactly(file, memory, where)
            digest.update(memory)
            yield name, array
    _compare(where, digest.hexdigest(), head.metadata[_SEAL])


def _arrays(
    file: BinaryIO, head: Header, where: str, seen: Callable[..., Any]
) -> dict[str, np.ndarray]:
    """The arrays in the order of the file; `seen` is called with the bytes of each."""
    arrays = {}
    for name in sorted(head.entries, key=lambda n: head.entries[n][2:]):
        entry = head.entries[name]
        arrays[name] = np.empty(entry.shape, entry.dtype)
        memory = bytes_of(arrays[name])
        read_exactly(file, memory, where)
        seen(memory)
    return arrays


def _compare(where: str, found: str, expected: str) -> None:
    if found != expected:
        raise CheckpointError(f"{where}: damaged: its SHA-256 is not the one it was written with")


def check_size(where: str, size: int, expected: Stored) -> None:
    """Raise unless a file has the expected size."""
    if size != expected.size:
        raise CheckpointError(f"{where}: {size} bytes, but {expected.size} were written")


def check_digest(path: Path, expected: Stored) -> None:
    """Raise unless a file has the expected digest; reads it in small blocks."""
    where, digest = str(path), sha256()
    with _open(path) as (file, size):
        check_size(where, size, expected)
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    _compare(where, digest.hexdigest(), expected.sha256)


def _unseal(head: Header, where: str) -> bytes:
    """The header as it was hashed, with zeros in the place of the digest."""
    begin = f'{{"{header.METADATA}":{{"{_SEAL}":"'.encode("ascii")
    raw = bytearray(head.raw)
    if raw[header.LENGTH : _BEFORE_SEAL] != begin or len(head.metadata[_SEAL]) != len(_ZEROS):
        raise CheckpointError(f"{where}: not written by save_optimizer, or damaged: it has no seal")
    raw[_SEALED] = _ZEROS.encode("ascii")
    return bytes(raw)


def check_bools(name: str, array: np.ndarray, where: str) -> None:
    """Raise if an array of bools has another byte than 0 and 1 in it."""
    if array.dtype == dtypes.bool_ and array.size and array.view(np.uint8).max() > 1:
        raise CheckpointError(f"{where}: {name!r} holds bytes that are neither True nor False")


def complex_names(head: Header, where: str) -> set[str]:
    """The names of the tensors that are stored as real and imaginary parts."""
    parts = strict_json.loads(head.metadata.get(_COMPLEX, "[]"), where)
    known = head.entries
    if not isinstance(parts, list) or not all(isinstance(n, str) and n in known for n in parts):
        raise CheckpointError(f"{where}: {_COMPLEX} in its metadata does not list tensors of it")
    return set(parts)


def _values(head: Header, arrays: dict[str, np.ndarray], where: str) -> dict[str, np.ndarray]:
    """The arrays in the header's order, complex ones reassembled."""
    for name, array in arrays.items():
        check_bools(name, array, where)
    for name in complex_names(head, where):
        array = arrays[name]
        if array.dtype not in (dtypes.float32, dtypes.float64) or array.shape[-1:] != (2,):
            raise CheckpointError(f"{where}: {name!r} is not a pair of real and imaginary parts")
        arrays[name] = array.view(dtypes.to_complex(array.dtype))[..., 0]
    return {name: arrays[name] for name in head.entries}
