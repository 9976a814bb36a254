"""Headers: what each rank is about to do, compared between ranks before it is done."""

from hashlib import blake2b
from typing import Any

import numpy as np

from .. import errors
from ..core.record import record

_TEXT, _DIGEST = 104, 16  # bytes
BYTES = 8 + _DIGEST + _TEXT


@record
class Header:
    """The number of a transaction in its group, and what it is.

    number  counts the transactions of the group, from 0
    what    for instance "all_reduce sum float32 (3, 4)"; all ranks must have the same text
    """

    number: int
    what: str

    def pack(self) -> np.ndarray:
        """The header as bytes: number, digest of the whole text, the text's beginning."""
        text = self.what.encode()
        digest = blake2b(text, digest_size=_DIGEST).digest()
        packed = self.number.to_bytes(8, "little") + digest + text[:_TEXT].ljust(_TEXT, b"\0")
        return np.frombuffer(packed, np.uint8)


def _unpack(row: np.ndarray) -> tuple[int, bytes, str]:
    packed = row.tobytes()
    text = packed[8 + _DIGEST :].rstrip(b"\0").decode(errors="replace")
    return int.from_bytes(packed[:8], "little"), packed[8 : 8 + _DIGEST], text


def compare(rows: Any) -> None:
    """Refuse headers (size, BYTES) of all ranks that are not the same, naming what each rank does."""
    found = [_unpack(row) for row in np.asarray(rows)]
    if len(set(found)) == 1:
        return
    groups: dict[tuple[int, bytes, str], list[int]] = {}
    for r, header in enumerate(found):
        groups.setdefault(header, []).append(r)
    listed = "; ".join(
        f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}: {what} (number {number})"
        for (number, _, what), ranks in groups.items()
    )
    raise errors.RanksDiffer(
        f"the ranks do different things: {listed}. All ranks must call the same functions of "
        "wf.dist, on arrays of one shape and dtype, in the same order"
    )
