"""The order of samples, and their random streams, as functions of seed and epoch alone."""

from typing import Any

import numpy as np

from ..backend.device import namespace_for
from ..backend.shared import variates
from ..core.counter import Generator


def shuffle(n: int, generator: Generator) -> np.ndarray[Any, Any]:
    """The numbers 0 … n-1 in the random order of a fresh generator, on the CPU: one sort.

    `advance` is not redirected: a replay of checkpointed code must not affect the order.
    """
    at = namespace_for("cpu").random_target("cpu")
    return variates.order(at, generator.advance(2 * n), n)


def epoch_order(n: int, seed: int, epoch: int) -> np.ndarray[Any, Any]:
    """The order in which an epoch goes through n samples.

    >>> from weft.train.order import epoch_order
    >>> epoch_order(5, seed=0, epoch=0).tolist(), epoch_order(5, seed=0, epoch=1).tolist()
    ([1, 2, 0, 4, 3], [1, 0, 2, 3, 4])
    """
    return shuffle(n, Generator(seed).fork("order").fork(epoch))


def sample_streams(seed: int, epoch: int) -> Generator:
    """The generator whose `fork(index)` is the stream of a sample in this epoch."""
    return Generator(seed).fork("transform").fork(epoch)
