"""The entries of a cache: sealed files, named by digests of all that they depend on."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256
from pathlib import Path

import numpy as np

from ...core import dtypes
from ...core.record import record
from ...errors import CheckpointError, DatasetError
from ...io import strict_json
from ...io.directory import remove_unfinished
from ...io.durable import make_directories
from ...io.tensor_file import read_sealed, write_sealed

KINDS = ("latents", "masks", "text")
_NAME = re.compile(r"[0-9a-f]{64}\.safetensors")
_SHARD = re.compile("[0-9a-f]{2}")
_META = "entry"


@record
class Entry:
    """One entry: its kind, and all that its content depends on, as JSON."""

    kind: str
    description: str

    @property
    def path(self) -> str:
        """The entry's file below the cache's directory."""
        key = sha256(self.description.encode("ascii")).hexdigest()
        return f"{self.kind}/{key[:2]}/{key}.safetensors"


def describe(kind: str, **what: object) -> Entry:
    """The entry of a kind whose content depends on these values."""
    return Entry(kind, strict_json.dumps(dict(sorted({"kind": kind, **what}.items()))))


def read_entry(directory: Path, entry: Entry) -> dict[str, np.ndarray]:
    """The arrays of an entry in float32; a `CheckpointError` if it is missing or damaged."""
    path = directory / entry.path
    arrays, metadata = read_sealed(path)
    if metadata.get(_META) != entry.description:
        raise CheckpointError(f"{path}: holds something else than its name says")
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def write_entry(
    directory: Path, entry: Entry, arrays: Mapping[str, np.ndarray], dtype: str, what: str
) -> None:
    """Store arrays in a dtype, atomically; refused unless they are finite in it."""
    stored = rounded(arrays, dtype, what)
    path = directory / entry.path
    make_directories(path.parent)
    try:
        write_sealed(path, stored, {_META: entry.description})
    except OSError as e:
        e.add_note(
            f"cache: while an entry was written to {directory}; all entries before it are kept: "
            "run it again when this is mended"
        )
        raise


def rounded(arrays: Mapping[str, np.ndarray], dtype: str, what: str) -> dict[str, np.ndarray]:
    """Arrays in the dtype of an entry; refused unless they are finite in it."""
    with np.errstate(over="ignore"):  # what overflows is refused below
        stored = {name: a.astype(dtypes.canonical(dtype)) for name, a in arrays.items()}
    for name, array in stored.items():
        if not np.isfinite(array.astype(np.float32)).all():
            raise DatasetError(
                f"cache: {name} of {what} are not finite in {dtype}; take an encoder or a dtype "
                "with a larger range, such as float32"
            )
    return stored


def stored_entries(directory: Path) -> Iterator[str]:
    """The paths of the entries below a cache's directory, in order."""
    for shard in _shards(directory):
        for name in sorted(os.listdir(directory / shard)):
            if _NAME.fullmatch(name):
                yield f"{shard}/{name}"


def _shards(directory: Path) -> Iterator[str]:
    for kind in KINDS:
        if (directory / kind).is_dir():
            for shard in sorted(os.listdir(directory / kind)):
                if _SHARD.fullmatch(shard) and (directory / kind / shard).is_dir():
                    yield f"{kind}/{shard}"


def sweep(directory: Path) -> int:
    """Remove what killed writers have left; returns how many files. Needs the lock."""
    return remove_unfinished(directory, *[directory / shard for shard in _shards(directory)])


def orphans(directory: Path, needed: Collection[Entry]) -> list[str]:
    """The paths of stored entries that are none of the needed ones."""
    used = {entry.path for entry in needed}
    return [path for path in stored_entries(directory) if path not in used]
