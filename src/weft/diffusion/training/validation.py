"""Validation: images kept apart, with the same noise at the same levels each time."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import numpy as np

from ..data import CachedDataset, Sample
from .build import arrays_of


def split_samples(
    samples: tuple[Sample, ...], share: float, source: int | None
) -> tuple[list[Sample], list[Sample]]:
    """The samples that are trained on, and those that are validated on.

    samples  all of them
    share    of the images that are validated on, by their digests: which they are does not depend
             on other images, but one is where none is by chance
    source   the number of a folder all of whose images are; None: none

    Images that regularise are trained on. Copies of an image are on one side.
    """
    numbers = {s.digest: _number(s) for s in samples if s.source != source and not s.regularisation}
    limit = max(share * 2**64, min(numbers.values(), default=0) + 1) if share else 0
    trained, kept = [], []
    for sample in samples:
        apart = sample.source == source or numbers.get(sample.digest, limit) < limit
        (kept if apart and not sample.regularisation else trained).append(sample)
    return trained, kept


def _number(sample: Sample) -> int:
    """A number below 2⁶⁴ that an image always has."""
    return int.from_bytes(sha256(sample.digest.encode()).digest()[:8], "big")


class ValidationBatches:
    """Batches of one image, at each of some levels of noise, with noise by image and level.

    dataset  the images
    levels   how many levels; they divide (0, 1) evenly
    seed     of the noise
    """

    def __init__(self, dataset: CachedDataset, levels: int, seed: int):
        self.dataset, self.levels, self.seed = dataset, levels, seed

    def __len__(self) -> int:
        return len(self.dataset.samples) * self.levels

    def __iter__(self) -> Iterator[dict[str, Any]]:
        first = dict.fromkeys(self._firsts())
        for item in first:
            batch = self.dataset.batch([item])
            digest = self.dataset.samples[int(batch.indexes[0])].digest
            for level in range(self.levels):
                rng = np.random.default_rng([self.seed, level, int(digest[:15], 16)])
                noise = rng.standard_normal(batch.latents.shape).astype(np.float32)
                sigma = np.full(1, (level + 0.5) / self.levels, np.float32)
                weights = np.ones(1, np.float32)
                yield arrays_of(batch) | {"noise": noise, "sigma": sigma, "weights": weights}

    def _firsts(self) -> Iterator[int]:
        """The first item of each sample."""
        item = 0
        for sample in self.dataset.samples:
            yield item
            item += sample.repeats
