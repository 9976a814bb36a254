"""The part of each batch that a rank takes, so that all ranks together have each sample once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from ..core.record import record

Items = TypeVar("Items", bound="Sequence[Any] | np.ndarray[Any, Any]")


@record
class Part:
    """Contiguous shares of a batch's samples, the first of which may be larger by one.

    rank  whose share it is
    size  how many ranks there are

    A batch with fewer samples than ranks has none for the last ones: they take the first sample
    again, which counts for nothing.

    >>> from weft.train.parts import Part
    >>> [Part(r, 3).of([4, 5, 6, 7]) for r in range(3)]
    [[4, 5], [6], [7]]
    >>> [(Part(r, 3).of([4, 5]), Part(r, 3).counts(2)) for r in range(3)]
    [([4], True), ([5], True), ([4], False)]
    """

    rank: int
    size: int

    def bounds(self, n: int) -> tuple[int, int]:
        """Where this rank's share of n samples begins and ends."""
        each, more = divmod(n, self.size)
        begin = self.rank * each + min(self.rank, more)
        return begin, begin + each + (self.rank < more)

    def counts(self, n: int) -> bool:
        """Whether this rank has any of n samples."""
        begin, end = self.bounds(n)
        return begin < end

    def of(self, items: Items) -> Items:
        """This rank's share, or the first sample again."""
        begin, end = self.bounds(len(items)) if self.counts(len(items)) else (0, 1)
        return items[begin:end]  # type: ignore[return-value]


@record
class Share:
    """A rank's share of a batch.

    batch   as the loader makes batches
    counts  whether its samples count; else the rank had none, and this is another one's
    """

    batch: Any
    counts: bool


def shares_of(loader: Any, part: Part | None) -> Iterator[Share]:
    """A rank's shares of all batches of an epoch of a loader; the loader's place stays.

    loader  batches; those that cannot be shared out are taken in turn, whole
    part    whose rank it is; None: all batches are whole
    """
    if part is not None and hasattr(loader, "all_parts"):
        yield from loader.all_parts(part)
        return
    whole = getattr(loader, "all_batches", None)
    for k, batch in enumerate(loader if whole is None else whole()):
        yield Share(batch, part is None or k % part.size == part.rank)
