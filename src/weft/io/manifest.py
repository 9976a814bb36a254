"""The manifest of a checkpoint: strict JSON that begins with the digest of all that follows."""

import re
from hashlib import sha256
from typing import Any, NamedTuple

from ..errors import CheckpointError
from . import strict_json
from .durable import Stored

FORMAT = "weft-checkpoint/1"
LONGEST = 1 << 26
FILE = re.compile(r"[a-z_]{1,40}(-[0-9]{1,9})?\.safetensors")
_DIGEST = re.compile("[0-9a-f]{64}")
_BEGIN = b'{"sha256":"'
_BODY = len(_BEGIN) + 64


class Manifest(NamedTuple):
    """A checkpoint's step, its files (name, size and digest by field) and its fields' trees."""

    step: int
    files: dict[str, tuple[str, Stored]]
    trees: dict[str, Any]


def encode(manifest: Manifest) -> bytes:
    """The bytes of the file."""
    files = {
        field: {"name": name, "size": stored.size, "sha256": stored.sha256}
        for field, (name, stored) in manifest.files.items()
    }
    table = {"format": FORMAT, "step": manifest.step, "files": files, "trees": manifest.trees}
    body = f'",{strict_json.dumps(table)[1:]}\n'.encode("ascii")
    if len(body) > LONGEST - _BODY:
        raise CheckpointError(
            f"save: everything but the tensors takes {len(body)} bytes of JSON, more than "
            f"{LONGEST}: make long lists of numbers tensors"
        )
    return _BEGIN + sha256(body).hexdigest().encode("ascii") + body


def decode(data: bytes, where: str) -> Manifest:
    """The manifest in these bytes, every part of it checked."""
    if not data.startswith(_BEGIN) or data[len(_BEGIN) : _BODY] != _digest(data):
        raise CheckpointError(f"{where}: damaged: it does not begin with the digest of the rest")
    table = strict_json.loads(data, where)
    if table.get("format") != FORMAT:
        raise CheckpointError(
            f"{where}: format {str(table.get('format'))[:40]!r}, this version reads {FORMAT!r}"
        )
    _check_keys(table, {"sha256", "format", "step", "files", "trees"}, where)
    if not isinstance(table["files"], dict) or not isinstance(table["trees"], dict):
        raise CheckpointError(f"{where}: files and trees must be objects")
    if not set(table["files"]) <= set(table["trees"]):
        raise CheckpointError(f"{where}: a file that belongs to no tree")
    files = {field: _file(entry, where) for field, entry in table["files"].items()}
    if len({name for name, _ in files.values()}) < len(files):
        raise CheckpointError(f"{where}: two trees in one file")
    return Manifest(_natural(table["step"], "step", where), files, table["trees"])


def _digest(data: bytes) -> bytes:
    return sha256(memoryview(data)[_BODY:]).hexdigest().encode("ascii")


def _check_keys(table, expected: set[str], where: str) -> None:
    if not isinstance(table, dict) or set(table) != expected:
        raise CheckpointError(f"{where}: expected an object with exactly {sorted(expected)}")


def _natural(value, what: str, where: str) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise CheckpointError(f"{where}: {what} {str(value)[:40]}, expected an integer ≥ 0")
    return value


def _file(entry, where: str) -> tuple[str, Stored]:
    _check_keys(entry, {"name", "size", "sha256"}, where)
    name, digest = entry["name"], entry["sha256"]
    if not isinstance(name, str) or not FILE.fullmatch(name):
        raise CheckpointError(f"{where}: a file named {str(name)[:80]!r}, expected {FILE.pattern}")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise CheckpointError(f"{where}: {name}: its digest is not 64 hexadecimal digits")
    return name, Stored(_natural(entry["size"], "size", where), digest)
