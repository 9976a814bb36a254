"""The batches of an epoch: every item once, each batch of one bucket."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...core.counter import Generator
from ...errors import DatasetError
from ...train.order import epoch_order, shuffle

# Of an epoch, whose order is in memory.
_MOST_ITEMS = 10_000_000


class PlannedBatch(NamedTuple):
    """The items of a batch.

    items  their numbers
    real   those from this number on only fill the batch, and count for nothing

    >>> import numpy as np
    >>> from weft.diffusion.data import PlannedBatch
    >>> PlannedBatch(np.array([3, 1]), real=2).real
    2
    """

    items: np.ndarray
    real: int


def item_samples(repeats: Sequence[int]) -> np.ndarray:
    """The sample of each item: sample i comes repeats[i] times.

    >>> from weft.diffusion.data.plan import item_samples
    >>> item_samples([2, 1]).tolist()
    [0, 0, 1]
    """
    if sum(repeats) > _MOST_ITEMS:
        raise DatasetError(
            f"an epoch of {sum(repeats)} items ({len(repeats)} images, the most often of which "
            f"comes {max(repeats)} times), expected at most {_MOST_ITEMS}: lower repeats, and "
            "train for more epochs"
        )
    return np.repeat(np.arange(len(repeats)), np.asarray(repeats, dtype=np.int64))


def count_batches(buckets: np.ndarray, batch_size: int) -> int:
    """How many batches an epoch has: each bucket's last one may be smaller."""
    _, counts = np.unique(buckets, return_counts=True)
    return int(np.sum(-(-counts // batch_size)))


def plan_epoch(
    buckets: np.ndarray,
    batch_size: int,
    seed: int,
    epoch: int,
    shuffled: bool = True,
    fill: bool = False,
) -> list[PlannedBatch]:
    """The batches of an epoch, in order: a function of these arguments alone.

    buckets     the number of each item's bucket
    batch_size  items in a batch
    seed        of the run
    epoch       number of the epoch
    shuffled    whether items and batches come in a random order
    fill        whether a bucket's last batch is filled with items of the bucket that come again,
                with a weight of zero; else it is smaller

    >>> import numpy as np
    >>> from weft.diffusion.data import plan_epoch
    >>> plan = plan_epoch(np.array([0, 1, 0, 0]), 2, seed=0, epoch=0, shuffled=False)
    >>> [batch.items.tolist() for batch in plan]
    [[0, 2], [3], [1]]
    """
    n = len(buckets)
    order = epoch_order(n, seed, epoch) if shuffled else np.arange(n)
    batches = []
    for bucket in np.unique(buckets):
        members = order[buckets[order] == bucket]
        for begin in range(0, len(members), batch_size):
            items = members[begin : begin + batch_size]
            real = len(items)
            if fill and real < batch_size:
                items = np.concatenate([items, np.resize(members, batch_size - real)])
            batches.append(PlannedBatch(items, real))
    if not shuffled:
        return batches
    turns = shuffle(len(batches), Generator(seed).fork("batches").fork(epoch))
    return [batches[i] for i in turns]
