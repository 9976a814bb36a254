"""Headers: what each rank is about to do, compared between ranks before it is done."""

from hashlib import blake2b

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

    def pack(self) -> bytes:
        """The header as bytes: number, digest of the whole text, the text's beginning."""
        text = self.what.encode()
        digest = blake2b(text, digest_size=_DIGEST).digest()
        return self.number.to_bytes(8, "little") + digest + text[:_TEXT].ljust(_TEXT, b"\0")


def _unpack(row: np.ndarray) -> tuple[int, bytes, str]:
    packed = row.tobytes()
    text = packed[8 + _DIGEST :].rstrip(b"\0").decode(errors="replace")
    return int.from_bytes(packed[:8], "little"), packed[8 : 8 + _DIGEST], text


def compare(rows: np.ndarray) -> None:
    """Refuse headers (size, BYTES) of all ranks that differ, naming what each rank does."""
    if (rows == rows[0]).all():
        return
    found = [_unpack(row) for row in rows]
    groups: dict[tuple[int, bytes, str], list[int]] = {}
    for r, header in enumerate(found):
        groups.setdefault(header, []).append(r)
    listed = "; ".join(
        f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}: {what} (number {number})"
        for (number, _, what), ranks in groups.items()
    )
    raise errors.RanksDiffer(
        f"the ranks do different things: {listed}. All ranks must call the same functions of "
        "wf.dist, on arrays of one shape and dtype, in the same order"
    )
