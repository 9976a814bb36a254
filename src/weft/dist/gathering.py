"""Arrays and descriptions that all ranks have parts of, gathered on each of them."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ..core.backends import BACKENDS
from ..io import strict_json
from .member import Member
from .shares import overlaps

# The bytes that arrive by one collective, as in data parallelism.
BUCKET = 25 << 20

# Called as write(rank, which, start, values) with a part of one of a rank's arrays.
Write = Callable[[int, int, int, Any], None]


def exchange(group: Member, what: str, value: Any) -> list[Any]:
    """What each rank gives, as JSON.

    what  the header of the transaction
    """
    text = np.frombuffer(strict_json.dumps(value).encode("ascii"), np.uint8)
    group.agree(what)
    rows = group.run(partial(_exchange, text)).wait()
    return [strict_json.loads(row.tobytes(), f"{what}: rank {r}") for r, row in enumerate(rows)]


def _exchange(text: np.ndarray, member: Member) -> list[np.ndarray]:
    sizes = member.perform("all_gather", np.array([len(text)], np.int64)).reshape(-1).tolist()
    padded = np.zeros(max(sizes), np.uint8)
    padded[: len(text)] = text
    rows = member.perform("all_gather", padded)
    return [row[:size] for row, size in zip(rows, sizes, strict=True)]


def windows(sizes: list[list[int]], itemsize: int) -> Iterator[tuple[int, int]]:
    """The ranges of the ranks' arrays, laid end to end, that go through one collective each."""
    longest = max([sum(own) for own in sizes], default=0)
    step = max(BUCKET // (itemsize * len(sizes)), 1)
    for start in range(0, longest, step):
        yield start, min(start + step, longest)


def gather(group: Member, own: list[Any], sizes: list[list[int]], like: Any, write: Write) -> None:
    """Hand all ranks' flat arrays to each other, in buckets, within a transaction.

    own    this rank's arrays, of one dtype and device
    sizes  by rank, the lengths of its arrays
    like   an array of that dtype and device
    write  takes what other ranks have
    """
    xp = BACKENDS[type(like)]
    dtype, device = xp.dtype_of(like), xp.device_of(like)

    def unpack(job: Any, start: int, stop: int) -> None:
        gathered = job.wait()
        for rank in [r for r in range(group.size) if r != group.rank]:
            at = 0
            for which, a, b in overlaps(sizes[rank], start, stop):
                write(rank, which, a, gathered[rank, at : at + b - a])
                at += b - a

    under_way: tuple[Any, int, int] | None = None  # one arrives while the next one is packed
    for start, stop in windows(sizes, dtype.itemsize):
        packed, at = xp.full((stop - start,), 0, dtype, device), 0
        for which, a, b in overlaps(sizes[group.rank], start, stop):
            xp.overwrite(packed[at : at + b - a], own[which][a:b])
            at += b - a
        job = group.run(partial(_all_gather, packed))
        if under_way is not None:
            unpack(*under_way)
        under_way = job, start, stop
    if under_way is not None:
        unpack(*under_way)


def _all_gather(packed: Any, member: Member) -> Any:
    return member.perform("all_gather", packed)


def write_range(raw: Any, start: int, values: Any) -> None:
    """Write values into the elements of an array from `start` on, in the order of its indices."""
    xp = BACKENDS[type(raw)]
    line = raw.reshape(-1)
    xp.overwrite(line[start : start + len(values)], values)
    if len(values) and not xp.lies_in(line, raw):
        xp.overwrite(raw, line.reshape(tuple(raw.shape)))
