"""The header of a safetensors file: built, and checked before memory is allocated by it.

The file is 8 bytes (the length n of the header, little-endian), n bytes of JSON, then the tensors'
bytes, in C order and little-endian, without gaps. The JSON maps each name to
`{"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}`, and `__metadata__` to strings.
"""

import re
from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..core import dtypes
from ..errors import CheckpointError
from . import strict_json

LENGTH = 8
LONGEST = 100_000_000
METADATA = "__metadata__"
_NAMES = {dtypes.bool_: "BOOL", dtypes.bfloat16: "BF16"}
_NAMES |= {d: f"I{8 * d.itemsize}" for d in dtypes.SIGNED}
_NAMES |= {d: f"U{8 * d.itemsize}" for d in dtypes.UNSIGNED}
_NAMES |= {d: f"F{8 * d.itemsize}" for d in dtypes.REAL if d != dtypes.bfloat16}
_DTYPES = {name: d for d, name in _NAMES.items()} | {"C64": dtypes.complex64}
_NAME = 1000  # characters
_RANK = 64  # NumPy's largest number of dimensions
_UNWELCOME = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class TensorEntry(NamedTuple):
    """One tensor: its dtype and shape, and where in the data its bytes are."""

    dtype: np.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


class Header(NamedTuple):
    """A parsed header, with its own bytes (the length in front)."""

    entries: dict[str, TensorEntry]
    metadata: dict[str, str]
    raw: bytes


def named_properly(name: str) -> bool:
    """Whether a tensor may have this name: one line without control characters or surrogates."""
    return name != METADATA and 0 < len(name) <= _NAME and _UNWELCOME.search(name) is None


def build(
    described: Mapping[str, tuple[np.dtype, tuple[int, ...]]], metadata: Mapping[str, str]
) -> Header:
    """The header of tensors with these dtypes and shapes.

    Wide dtypes come first in the data, so that every tensor is aligned.
    """
    at, entries = 0, {}
    for name in sorted(described, key=lambda n: -described[n][0].itemsize):
        dtype, shape = described[name]
        end = at + prod(shape) * dtype.itemsize
        entries[name] = TensorEntry(dtype, tuple(shape), at, end)
        at = end
    entries = {name: entries[name] for name in described}
    table: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    for name, e in entries.items():
        spelled = {"dtype": _NAMES[e.dtype], "shape": e.shape, "data_offsets": (e.begin, e.end)}
        table[name] = spelled
    text = strict_json.dumps(table).encode("ascii")
    text += b" " * (-len(text) % 8)
    if len(text) > LONGEST:
        raise CheckpointError(
            f"the header of {len(entries)} tensors takes {len(text)} bytes, more than {LONGEST}: "
            "spread them over several files"
        )
    return Header(entries, dict(metadata), len(text).to_bytes(LENGTH, "little") + text)


def length(first: bytes, size: int, where: str) -> int:
    """The length of the header, from the file's first 8 bytes and its size."""
    if len(first) < LENGTH:
        raise CheckpointError(f"{where}: {len(first)} bytes are too few for a safetensors file")
    n = int.from_bytes(first, "little")
    if n > LONGEST or n > size - LENGTH:
        raise CheckpointError(
            f"{where}: a header of {n} bytes does not fit into a file of {size} (at most {LONGEST})"
        )
    return n


def check(raw: bytes, data: int, where: str) -> Header:
    """The header in these bytes (the length in front), if it describes exactly `data` bytes."""
    if raw[LENGTH : LENGTH + 1] != b"{":
        raise CheckpointError(f"{where}: the header does not begin with '{{'")
    table = strict_json.loads(raw[LENGTH:], where)
    metadata = _metadata(table.pop(METADATA, {}), where)
    entries = {name: _entry(name, e, where) for name, e in table.items()}
    at = 0
    for name in sorted(entries, key=lambda n: entries[n][2:]):
        e = entries[name]
        if e.begin != at:
            raise CheckpointError(f"{where}: {name!r} begins at byte {e.begin}, expected {at}")
        at = e.end
    if at != data:
        raise CheckpointError(f"{where}: the tensors take {at} bytes, the file holds {data}")
    return Header(entries, metadata, raw)


def _metadata(found: Any, where: str) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise CheckpointError(f"{where}: {METADATA} must map names to strings")
    return found


def _entry(name: str, found: Any, where: str) -> TensorEntry:
    if not named_properly(name):
        raise CheckpointError(f"{where}: a tensor named {name[:80]!r}, expected a line of text")
    where = f"{where}: {name!r}"
    if not isinstance(found, dict) or set(found) != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"{where}: expected exactly dtype, shape and data_offsets")
    dtype = _DTYPES.get(found["dtype"]) if isinstance(found["dtype"], str) else None
    if dtype is None:
        raise CheckpointError(
            f"{where}: dtype {str(found['dtype'])[:40]!r}, expected one of {', '.join(_DTYPES)}"
        )
    shape = _naturals(found["shape"], f"{where}: shape")
    offsets = _naturals(found["data_offsets"], f"{where}: data_offsets")
    # Empty tensors may have long axes too, but NumPy multiplies those in 63 bits.
    if len(shape) > _RANK or prod(n for n in shape if n) * dtype.itemsize >= 1 << 63:
        raise CheckpointError(f"{where}: a shape too large: {str(shape)[:80]}")
    if len(offsets) != 2 or offsets[1] - offsets[0] != prod(shape) * dtype.itemsize:
        raise CheckpointError(
            f"{where}: data_offsets {str(offsets)[:80]}, but {dtype} of shape {str(shape)[:80]} "
            f"takes {prod(shape) * dtype.itemsize} bytes"
        )
    return TensorEntry(dtype, shape, *offsets)


def _naturals(found: Any, where: str) -> tuple[int, ...]:
    if not isinstance(found, list) or not all(type(n) is int and n >= 0 for n in found):
        raise CheckpointError(f"{where} {str(found)[:80]}, expected a list of integers ≥ 0")
    return tuple(found)
