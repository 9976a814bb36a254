"""`DataLoader`: batches of a dataset in an order that a saved cursor continues exactly."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import errors
from ..backend.device import canonical_device
from ..core.counter import Generator
from ..core.kinds import demand_number
from .collation import collate as stacked
from .collation import place_batch
from .datasets import gatherer
from .epochs import EpochLoader
from .order import epoch_order, sample_streams
from .parts import Part, Share

if TYPE_CHECKING:
    from ..arrays.types import Device
    from .datasets import Dataset


class DataLoader(EpochLoader):
    """The batches of a dataset, epoch after epoch, with an exact cursor.

    A loop goes through all batches of an epoch, and the next loop through those of another one,
    also if the first was left early: `next(iter(loader))` takes no batch away from it. The order
    is a function of seed and epoch alone, so that a loader that has loaded another's
    `state_dict()` hands out exactly the batches that the other's loop would have handed out next.
    Loops may be inside of each other; the cursor is that of the loop that had the last batch.

    Workers are threads, not processes: nothing is pickled and datasets are shared. They help
    where loading leaves Python's interpreter lock: reading files, decoding, NumPy. A dataset and
    its transform must then bear being called from several threads. What the batches hold and
    their order do not depend on the number of workers; an error in a worker is raised where the
    loop asks for its batch. Leaving the loop stops the threads.

    dataset     has `__len__` and `__getitem__`; one with `gather_batch(indices)`, as a
                `TensorDataset`, gives whole batches if there is neither transform nor collate
    batch_size  samples in a batch; the last batch of an epoch may have fewer
    shuffle     whether each epoch goes through the samples in an order of its own
    seed        of the orders and of the transforms' random streams
    drop_last   leave out a last batch that is not full
    workers     threads that prepare batches; 0: the loop itself does
    collate     list of samples -> batch; by default arrays and numbers are stacked into tensors,
                through dicts, tuples and lists
    prefetch    batches each worker may be ahead of the loop
    device      where the batches' arrays go: "cpu", "torch", "cuda", …; by default tensors stay on
                their device, and numbers and NumPy's arrays come to the tensors of their sample
    transform   (sample, generator) -> sample; the generator is a function of seed, epoch and the
                sample's index: draw from it, and the result does not depend on the workers

    >>> import weft as wf
    >>> data = wf.train.TensorDataset(wf.arange(6))
    >>> loader = wf.train.DataLoader(data, batch_size=2, shuffle=True, seed=1)
    >>> batches = iter(loader)
    >>> first = next(batches)
    >>> state = loader.state_dict()
    >>> rest = [x.tolist() for (x,) in batches]
    >>> loader.epoch, loader.position
    (1, 0)
    >>> loader.load_state_dict(state)
    >>> [x.tolist() for (x,) in loader] == rest
    True
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int = 1,
        shuffle: bool = False,
        seed: int = 0,
        drop_last: bool = False,
        workers: int = 0,
        collate: Callable[[list[Any]], Any] | None = None,
        prefetch: int = 2,
        transform: Callable[[Any, Generator], Any] | None = None,
        device: Device | None = None,
    ):
        _check_dataset(dataset)
        self.device: str | None = None if device is None else canonical_device(device)
        self.dataset = dataset
        self.batch_size: int = _at_least(1, "batch_size", batch_size)
        self.shuffle: bool = bool(shuffle)
        demand_number("DataLoader: seed", seed)
        Generator(seed)  # refuses an invalid seed
        self.seed: int = int(seed)
        self.drop_last: bool = bool(drop_last)
        super().__init__(_at_least(0, "workers", workers), _at_least(1, "prefetch", prefetch))
        self.collate = collate
        self.transform = transform
        self._samples = len(dataset)
        if len(self) == 0:
            raise errors.ArgumentError(
                f"DataLoader: {self._samples} samples in batches of {self.batch_size} with "
                f"drop_last={self.drop_last} make no batch; give more samples, a smaller "
                "batch_size, or drop_last=False"
            )

    def __len__(self) -> int:
        """How many batches an epoch has."""
        whole, rest = divmod(self._samples, self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def _meaning(self) -> dict[str, int | bool]:
        return {
            "seed": self.seed,
            "samples": self._samples,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
        }

    def _check_length(self) -> None:
        if len(self.dataset) != self._samples:
            raise errors.ArgumentError(
                f"DataLoader: the dataset has {len(self.dataset)} samples now and had "
                f"{self._samples} when the loader was made; make a new loader"
            )

    def _maker(self, epoch: int) -> Callable[[int, Callable[[], bool]], Any]:
        """(k, stopped) -> batch k of an epoch; None if stopped before it was complete."""
        order, size, join = self._order(epoch), self.batch_size, self._joiner(epoch)
        return lambda k, stopped: join(order[k * size : (k + 1) * size], stopped)

    def _maker_of_parts(
        self, epoch: int, part: Part
    ) -> Callable[[int, Callable[[], bool]], Share | None]:
        order, size, join = self._order(epoch), self.batch_size, self._joiner(epoch)

        def make(k: int, stopped: Callable[[], bool]) -> Share | None:
            picked = order[k * size : (k + 1) * size]
            batch = join(part.of(picked), stopped)
            return None if stopped() else Share(batch, part.counts(len(picked)))

        return make

    def _order(self, epoch: int) -> Any:
        n = self._samples
        return epoch_order(n, self.seed, epoch) if self.shuffle else np.arange(n)

    def _joiner(self, epoch: int) -> Callable[[Any, Callable[[], bool]], Any]:
        """(indices, stopped) -> their batch; None if stopped before it was complete."""
        device = self.device
        plain = self.transform is None and self.collate is None
        gather = gatherer(self.dataset) if plain else None
        if gather is not None:
            return lambda picked, stopped: place_batch(gather(picked), device)
        dataset, transform, join = self.dataset, self.transform, self.collate or stacked
        streams = sample_streams(self.seed, epoch)

        def sample(i: int):
            try:
                found = dataset[i]
                return found if transform is None else transform(found, streams.fork(i))
            except Exception as e:
                e.add_note(f"DataLoader: at sample {i} of the dataset, in epoch {epoch}")
                raise

        def make(picked: Any, stopped: Callable[[], bool]):
            samples = []
            for i in picked.tolist():
                if stopped():
                    return None
                samples.append(sample(i))
            return place_batch(join(samples), device)

        return make


def _check_dataset(dataset) -> None:
    for name in ("__len__", "__getitem__"):
        if not hasattr(dataset, name):
            raise errors.ArgumentError(
                f"DataLoader: a dataset of type {type(dataset).__name__} has no {name}; expected "
                "an object with __len__ and __getitem__, such as a list or a TensorDataset"
            )


def _at_least(least: int, name: str, value) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise errors.ArgumentError(f"DataLoader: {name}={value!r}, expected an integer ≥ {least}")
    return int(value)
