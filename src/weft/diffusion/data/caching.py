"""`cache`: latents and embeddings of all samples, computed once and kept in files."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ArgumentError, CheckpointError, DatasetError
from ...io import disk
from ...io.durable import make_directories
from ...io.lock import locked
from ..read_only import why_read_only
from .buckets import Box
from .dataset import CachedDataset
from .encoders import Encoders
from .entries import Entry, read_entry, sweep, write_entry
from .folders import printable
from .images import (
    Refused,
    decode_image,
    decode_mask,
    digest_of,
    read_bytes,
    scale_crop,
    to_pixels,
    to_weights,
)
from .remembered import MeasuredImages
from .report import Sample, ScanReport
from .scan import scan
from .settings import DataSettings, Source

Progress = Callable[[str, int, int], Any]
IMAGE_SIZES = "images.json"


@dataclass(frozen=True)
class CacheReport:
    """What was found and what was done.

    scan        the images
    computed    how many entries of each kind were made
    reused      how many were there already, and whole
    repaired    those that were damaged and made anew: a line each
    truncated   captions, of those that were encoded now, that are longer than the encoder takes
    unfinished  files that killed writers had left, removed
    orphans     entries that this data does not use

    >>> from weft.diffusion.data import CacheReport, ScanReport
    >>> print(CacheReport(ScanReport((), (), (), 0, 0, 0), {"text": 2}, {}))
    0 images: 0 used, 0 refused
    0 files: 0 images, 0 captions, 0 masks, 0 ignored
    text: 2 computed, 0 reused
    """

    scan: ScanReport
    computed: Mapping[str, int] = field(default_factory=dict)
    reused: Mapping[str, int] = field(default_factory=dict)
    repaired: tuple[str, ...] = ()
    truncated: tuple[str, ...] = ()
    unfinished: int = 0
    orphans: int = 0

    def _lines(self) -> list[str]:
        kinds = sorted({*self.computed, *self.reused})
        lines = [
            f"{k}: {self.computed.get(k, 0)} computed, {self.reused.get(k, 0)} reused"
            for k in kinds
        ]
        lines += [f"damaged, made anew: {line}" for line in self.repaired]
        lines += [f"caption cut: {line}" for line in self.truncated]
        if self.unfinished:
            lines.append(f"{self.unfinished} unfinished files were removed")
        if self.orphans:
            lines.append(f"{self.orphans} entries are of other data or settings")
        return lines

    def __str__(self) -> str:
        return "\n".join([str(self.scan), *self._lines()])


def cache(
    sources: Sequence[Source],
    encoders: Encoders,
    settings: DataSettings,
    directory: str | os.PathLike[str],
    progress: Progress | None = None,
    prompts: Sequence[str] = (),
    examine: Callable[[ScanReport], Any] | None = None,
) -> tuple[CachedDataset, CacheReport]:
    """Compute what is missing of a cache; the dataset over it, and what was done.

    Entries are named by digests of all that they depend on, and written in one step: whenever
    this is interrupted, the next call goes on, and what belongs to an image, a caption or a model
    that has changed is never used. Entries that are there are read and verified; damaged ones are
    made anew. One image and one caption are encoded at a time, so that entries do not depend on
    what else is missing.

    sources    the folders
    encoders   for images and captions; weights are loaded only if something is missing
    settings   a `DataSettings`
    directory  of the cache; one process at a time may write there. One that cannot be written to
               does if nothing is missing
    progress   called with a stage ("scan", "check", "latents", "text"), how much of it is
               done, and how much there is
    prompts    further texts to encode
    examine    called with what was found, before anything is encoded; it may raise

    >>> import tempfile
    >>> from weft.diffusion.data.demo import draw_shapes
    >>> from weft.diffusion.data import (
    ...     BucketSettings, DataSettings, Encoders, HashTextEncoder, PixelEncoder, Source, cache
    ... )
    >>> small = DataSettings(buckets=BucketSettings((16,), step=8, min_side=8, max_side=32))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw_shapes(f"{folder}/images", images=3, size=16)
    ...     encoders = Encoders(PixelEncoder(2), HashTextEncoder())
    ...     sources = [Source(f"{folder}/images")]
    ...     dataset, report = cache(sources, encoders, small, f"{folder}/cache")
    >>> len(dataset), report.computed["latents"]
    (3, 3)
    """
    _check_factor(encoders, settings)
    tell: Progress = progress or (lambda stage, done, total: None)
    root = Path(directory)
    make_directories(root)
    read_only = why_read_only(root)
    with nullcontext() if read_only else locked(root):
        unfinished = 0 if read_only else sweep(root)
        report = _scan_folders(sources, settings, root, tell)
        if examine is not None:
            examine(report)
        dataset = CachedDataset(report.samples, encoders, settings, root, prompts)
        work = _Work(dataset, encoders, tell)
        work.check_entries()
        if read_only and work.missing:
            raise DatasetError(missing_there(root, read_only, len(work.missing)))
        work.encode_images()
        encoders.image.release()
        work.encode_captions()
        encoders.text.release()
        work.sync()
        done = CacheReport(
            report,
            dict(work.computed),
            dict(work.reused),
            tuple(work.repaired),
            tuple(work.truncated),
            unfinished,
            len(dataset.orphans()),
        )
    return dataset, done


def missing_there(directory: Path, reason: str, count: int) -> str:
    """What is wrong with a cache that cannot be written to, and lacks entries."""
    return (
        f"{directory} cannot be written to ({reason}), and {count} entries of the cache are "
        "missing or damaged there; give a folder that can be written to"
    )


def _check_factor(encoders: Encoders, settings: DataSettings) -> None:
    if settings.buckets.step % encoders.image.factor:
        raise ArgumentError(
            f"cache: step={settings.buckets.step} of the buckets is no multiple of the encoder's "
            f"factor {encoders.image.factor}; give a step that is, such as 64"
        )


def _scan_folders(
    sources: Sequence[Source], settings: DataSettings, root: Path, tell: Progress
) -> ScanReport:
    sizes = MeasuredImages(root / IMAGE_SIZES, settings.scan)
    report = scan(
        sources, settings.scan, settings.buckets, tell, sizes.measure, settings.augmentation
    )
    sizes.save()
    if not report.samples:
        raise DatasetError(f"cache: no image can be used:\n{report}")
    return report


class _Work:
    """The entries that are missing, and how they are made."""

    def __init__(self, dataset: CachedDataset, encoders: Encoders, tell: Progress):
        self.dataset = dataset
        self.encoders = encoders
        self.tell = tell
        self.missing: set[Entry] = set()
        self.computed: Counter[str] = Counter()
        self.reused: Counter[str] = Counter()
        self.repaired: list[str] = []
        self.truncated: list[str] = []

    def check_entries(self) -> None:
        """Read every entry that is there; those that are not, or are damaged, are missing."""
        needed = self.dataset.needed()
        for i, entry in enumerate(needed):
            path = self.dataset.directory / entry.path
            try:
                read_entry(self.dataset.directory, entry)
                self.reused[entry.kind] += 1
            except CheckpointError as e:
                self.missing.add(entry)
                if os.path.lexists(path):
                    self.repaired.append(e.message)
            self.tell("check", i + 1, len(needed))

    def _images(self) -> Iterator[tuple[int, Sample]]:
        """The samples of which something is missing."""
        for i, sample in enumerate(self.dataset.samples):
            e = self.dataset.entries[i]
            if self.missing.intersection([*(x for flips in e.latents for x in flips), *e.masks]):
                yield i, sample

    def encode_images(self) -> None:
        """Latents and masks, image by image."""
        waiting = list(self._images())
        for done, (i, sample) in enumerate(waiting):
            entries = self.dataset.entries[i]
            if self.missing.intersection(x for flips in entries.latents for x in flips):
                image = self._open(sample.path, sample.digest, sample, decode_image)
                for box, flips in zip(entries.boxes, entries.latents, strict=True):
                    self._encode_crop(sample, image, box, flips)
            if self.missing.intersection(entries.masks):
                mask = self._open(sample.mask or "", sample.mask_digest, sample, decode_mask)
                for box, entry in zip(entries.boxes, entries.masks, strict=True):
                    self._scale_mask(sample, mask, box, entry)
            self.tell("latents", done + 1, len(waiting))

    def _open(self, path: str, digest: str | None, sample: Sample, decode: Any) -> Any:
        """A decoded image whose file is the one that was scanned."""
        settings = self.dataset.settings.scan
        try:
            data = read_bytes(path, settings.max_bytes, "unreadable", "huge")
            image = decode(data, settings) if digest_of(data) == digest else None
        except Refused as e:
            raise DatasetError(f"cache: {printable(path)}: {e.problem}: {e.detail}") from None
        if image is None or image.size != sample.size:
            raise DatasetError(
                f"cache: {printable(path)} changed while it was being cached; run it again"
            )
        return image

    def _encode_crop(self, sample: Sample, image: Any, box: Box, flips: Sequence[Entry]) -> None:
        if not self.missing.intersection(flips):
            return
        filter = self.dataset.settings.buckets.filter
        pixels = to_pixels(scale_crop(image, box, sample.bucket, filter))
        for flip, entry in enumerate(flips):
            if entry in self.missing:
                shown = np.ascontiguousarray(pixels[..., ::-1]) if flip else pixels
                latents = self.encoders.image.encode(shown)
                self._check_shape(latents, sample)
                dtype = self.dataset.settings.latents_dtype
                self._store(entry, {"latents": latents[0]}, dtype, sample.path)

    def _check_shape(self, latents: np.ndarray, sample: Sample) -> None:
        image = self.encoders.image
        wide, high = sample.bucket
        expected = (1, image.channels, high // image.factor, wide // image.factor)
        if latents.shape != expected:
            raise DatasetError(
                f"cache: the image encoder gave latents of shape {latents.shape} for "
                f"{wide}×{high} pixels, expected {expected} by its channels and its factor"
            )

    def _scale_mask(self, sample: Sample, mask: Any, box: Box, entry: Entry) -> None:
        if entry in self.missing:
            factor = self.encoders.image.factor
            size = (sample.bucket[0] // factor, sample.bucket[1] // factor)
            weights = to_weights(scale_crop(mask, box, size, "area"))
            if not weights.any():
                raise DatasetError(
                    f"cache: {printable(sample.mask or '')}: black at the resolution of latents, "
                    f"{size[0]}×{size[1]}: nothing of its image would count; make its white part "
                    "larger, or remove it"
                )
            self._store(entry, {"mask": weights}, "float32", sample.mask or "")

    def encode_captions(self) -> None:
        """Embeddings, caption by caption."""
        wanted = {e: c for e, c in self._captions().items() if e in self.missing}
        for done, (entry, caption) in enumerate(wanted.items()):
            embeds, pooled = self.encoders.text.encode([caption])
            cut = self.encoders.text.truncation(caption)
            if cut is not None:
                self.truncated.append(f"{caption[:60]!r}: {cut}")
            arrays = {"prompt_embeds": embeds[0], "pooled": pooled[0]}
            self._store(
                entry, arrays, self.dataset.settings.text_dtype, f"caption {caption[:60]!r}"
            )
            self.tell("text", done + 1, len(wanted))

    def _captions(self) -> dict[Entry, str]:
        found = {}
        for e in self.dataset.entries:
            found |= dict(zip(e.texts, e.captions, strict=True))
        if self.dataset.settings.augmentation.caption_dropout:
            found[self.dataset.empty] = ""
        return found | {entry: text for text, entry in self.dataset.prompts.items()}

    def _store(self, entry: Entry, arrays: Mapping[str, np.ndarray], dtype: str, what: str) -> None:
        write_entry(self.dataset.directory, entry, arrays, dtype, printable(what))
        self.missing.discard(entry)
        self.computed[entry.kind] += 1

    def sync(self) -> None:
        """Make the names of new entries durable."""
        if self.computed:
            needed = {Path(entry.path).parent for entry in self.dataset.needed()}
            for shard in sorted(needed):
                disk.sync_directory(self.dataset.directory / shard)
