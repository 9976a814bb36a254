"""The sizes of the batches that a run has, from a scan of its folders alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import weft as wf

from ..data import Sample, assign_bucket, scan
from ..data.buckets import Unfit
from . import build
from .throwaway import BatchKind
from .validation import split_samples

if TYPE_CHECKING:
    from ..data import DataSettings, Encoders, ScanReport
    from .config import TrainConfig


@dataclass(frozen=True)
class RunKinds:
    """The batches of an epoch, and the data behind them.

    trained     how many batches of each kind an epoch has
    validated   the kinds of batches that are validated on
    masks       whether training data has masks, and validation data
    samples     the images that are trained on, and those that are validated on
    channels    of latents
    factor      pixels along a side of a latent
    """

    trained: dict[BatchKind, int]
    validated: tuple[BatchKind, ...]
    masks: tuple[bool, bool]
    samples: tuple[tuple[Sample, ...], tuple[Sample, ...]]
    channels: int
    factor: int

    @property
    def batches(self) -> int:
        """How many batches an epoch has."""
        return sum(self.trained.values())

    def again(self, config: TrainConfig) -> RunKinds | None:
        """The same images under another configuration; None if none of them can be used."""
        settings = build.make_settings(config)
        trained, kept = (tuple(_assigned(part, settings)) for part in self.samples)
        return _kinds_of(config, trained, kept, self.channels, self.factor) if trained else None


def _assigned(samples: Sequence[Sample], settings: DataSettings) -> list[Sample]:
    """Images in other buckets, without those that have none."""
    found = [(s, assign_bucket(s.size, settings.buckets)) for s in samples]
    return [replace(s, bucket=b) for s, b in found if not isinstance(b, Unfit)]


def find_kinds(
    config: TrainConfig,
    encoders: Encoders,
    progress: Callable[[str, int, int], None] | None = None,
) -> RunKinds:
    """Scan the folders; no encoder runs, and nothing is written.

    config    the configuration
    encoders  of the run
    progress  called with "scan", how many images were looked at, and how many there are
    """
    sources, settings = build.make_sources(config), build.make_settings(config)
    report = scan(sources, settings.scan, settings.buckets, progress)
    return kinds_of_report(config, encoders, report)


def kinds_of_report(config: TrainConfig, encoders: Encoders, report: ScanReport) -> RunKinds:
    """The batches of the images that a scan has found; an error if there are none to train on.

    config    the configuration
    encoders  of the run
    report    of the folders
    """
    apart = len(config.data) if config.validation.folder is not None else None
    trained, kept = split_samples(report.samples, config.validation.share, apart)
    if not trained:
        raise wf.errors.DatasetError(
            "no image is left to train on; `weft train --check` lists them: mend them, or lower "
            "validation.share"
        )
    image: Any = encoders.image
    return _kinds_of(config, tuple(trained), tuple(kept), image.channels, image.factor)


def _kinds_of(
    config: TrainConfig,
    trained: tuple[Sample, ...],
    kept: tuple[Sample, ...],
    channels: int,
    factor: int,
) -> RunKinds:
    """Full batches of each bucket, and its rest."""
    items: Counter[tuple[int, int]] = Counter()
    for sample in trained:
        items[sample.bucket] += sample.repeats
    found: dict[BatchKind, int] = {}
    for bucket, count in sorted(items.items()):
        full, rest = divmod(count, config.train.batch)
        if full:
            found[BatchKind(config.train.batch, *bucket)] = full
        if rest:
            found[BatchKind(rest, *bucket)] = 1
    validated = sorted({BatchKind(1, *s.bucket) for s in kept})
    masks = [any([s.mask is not None for s in part]) for part in (trained, kept)]
    return RunKinds(
        *(found, tuple(validated), (masks[0], masks[1]), (trained, kept), channels, factor)
    )
