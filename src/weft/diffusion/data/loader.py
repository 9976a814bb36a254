"""Batches of a cached dataset, bucket by bucket, with a cursor that resumes exactly."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import TYPE_CHECKING, Any

from ...core.counter import Generator
from ...errors import ArgumentError
from ...train.epochs import EpochLoader
from ...train.parts import Part, Share
from .augment import choose
from .plan import PlannedBatch, count_batches, plan_epoch

if TYPE_CHECKING:
    from .dataset import Batch, CachedDataset


class BucketLoader(EpochLoader):
    """The batches of a `CachedDataset`, epoch after epoch; `wf.train.Trainer.fit` takes it.

    Every image comes as often in an epoch as its source says, in batches of one bucket. Loops,
    epochs, workers and states are as those of a `wf.train.DataLoader`. A state is refused where
    images, captions, buckets or settings are others than those it was saved with.

    dataset     what `cache` gave
    batch_size  images in a batch
    seed        of order and augmentation
    shuffle     whether images and batches come in a random order
    fill        whether each bucket's last batch is filled with images that come again, with a
                weight of zero, so that all batches have one size; else it is smaller
    augment     whether images and captions are changed at random, as the settings say; else the
                first crop, unmirrored, and the first order of the caption
    workers     threads that prepare batches; 0: the loop itself does
    prefetch    batches each worker may be ahead of the loop

    >>> import tempfile
    >>> from weft.diffusion.data import BucketLoader
    >>> from weft.diffusion.data.demo import shape_dataset
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     loader = BucketLoader(shape_dataset(folder, images=6), batch_size=4)
    ...     [batch.latents.shape for batch in loader]
    [(4, 12, 8, 8), (2, 12, 8, 8)]
    """

    def __init__(
        self,
        dataset: CachedDataset,
        batch_size: int = 1,
        seed: int = 0,
        shuffle: bool = True,
        fill: bool = False,
        augment: bool = True,
        workers: int = 0,
        prefetch: int = 2,
    ):
        super().__init__(
            _at_least(0, "workers", workers),
            _at_least(1, "prefetch", prefetch),
        )
        Generator(seed)  # refuses an invalid seed
        self.dataset = dataset
        self.batch_size: int = _at_least(1, "batch_size", batch_size)
        self.seed: int = int(seed)
        self.shuffle: bool = bool(shuffle)
        self.fill: bool = bool(fill)
        self.augment: bool = bool(augment)
        self._buckets = dataset.item_buckets()

    def __len__(self) -> int:
        """How many batches an epoch has."""
        return count_batches(self._buckets, self.batch_size)

    def _meaning(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "items": len(self._buckets),
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "fill": self.fill,
            "augment": self.augment,
            "data": self.dataset.digest,
        }

    def _check_length(self) -> None:
        """Datasets over a cache do not change."""

    def _maker(self, epoch: int) -> Callable[[int, Callable[[], bool]], Any]:
        plan, join = self._plan(epoch), self._joiner(epoch)
        return lambda k, stopped: None if stopped() else join(*plan[k])

    def _maker_of_parts(
        self, epoch: int, part: Part
    ) -> Callable[[int, Callable[[], bool]], Share | None]:
        plan, join = self._plan(epoch), self._joiner(epoch)

        def make(k: int, stopped: Callable[[], bool]) -> Share | None:
            if stopped():
                return None
            items, real = plan[k]
            mine, counts = part.of(items), part.counts(len(items))
            begin = part.bounds(len(items))[0] if counts else 0
            return Share(join(mine, max(real - begin, 0)), counts)

        return make

    def _plan(self, epoch: int) -> list[PlannedBatch]:
        return plan_epoch(self._buckets, self.batch_size, self.seed, epoch, self.shuffle, self.fill)

    def _joiner(self, epoch: int) -> Callable[[Any, int], Any]:
        """(items, real) -> their batch; those from number `real` on count for nothing."""
        settings = self.dataset.settings.augmentation if self.augment else None

        def join(items: Any, real: int) -> Any:
            choices = [
                None if settings is None else choose(settings, self.seed, epoch, int(item))
                for item in items
            ]
            return self._present(self.dataset.batch(items, choices, real))

        return join

    def _present(self, batch: Batch) -> Any:
        """What loops get of a batch."""
        return batch


def _at_least(least: int, name: str, value: Any) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ArgumentError(f"BucketLoader: {name}={value!r}, expected an integer ≥ {least}")
    return int(value)
