"""A dataset over a cache: batches of latents and embeddings as NumPy's arrays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ...core.record import record
from ...errors import CheckpointError, DatasetError
from ...io import disk, strict_json
from ...io.lock import locked
from .augment import Choice, captions_of, crop_places
from .buckets import Box, crop_box
from .encoders import Encoders
from .entries import Entry, describe, orphans, read_entry
from .folders import printable
from .plan import item_samples
from .report import Sample
from .settings import DataSettings

# Raised whenever the same image, caption, encoder and settings give other values than before.
VERSION = 1

_FIRST = Choice(flip=False, crop=0, drop=False, order=0)


class Batch(NamedTuple):
    """A batch of training data.

    latents         (N, C, H, W), shifted and scaled as the encoder's config says
    prompt_embeds   (N, length, width)
    pooled          (N, width)
    mask            (N, 1, H, W) in [0, 1]; None if no image of the dataset has one
    weights         (N,): factors of the losses; zero for images that only fill the batch
    regularisation  (N,): whether an image regularises
    indexes         (N,): numbers of the images among the dataset's samples
    paths           of the images

    >>> from weft.diffusion.data import Batch
    >>> Batch._fields[:3]
    ('latents', 'prompt_embeds', 'pooled')
    """

    latents: np.ndarray
    prompt_embeds: np.ndarray
    pooled: np.ndarray
    mask: np.ndarray | None
    weights: np.ndarray
    regularisation: np.ndarray
    indexes: np.ndarray
    paths: tuple[str, ...]


@record
class SampleEntries:
    """The entries of a sample: latents by crop and flip, masks by crop, texts by order."""

    boxes: tuple[Box, ...]
    latents: tuple[tuple[Entry, ...], ...]
    masks: tuple[Entry, ...]
    captions: tuple[str, ...]
    texts: tuple[Entry, ...]


def sample_entries(sample: Sample, encoders: Encoders, settings: DataSettings) -> SampleEntries:
    """The entries of a sample: a function of content, encoders and settings alone."""
    augmentation = settings.augmentation
    places = crop_places(augmentation, sample.digest)
    boxes = tuple([crop_box(sample.size, sample.bucket, at) for at in places])
    flips = (False, True) if augmentation.flip else (False,)
    latents = tuple(
        [tuple([_latents_entry(sample, b, f, encoders, settings) for f in flips]) for b in boxes]
    )
    masks = () if sample.mask is None else boxes
    captions = tuple(captions_of(augmentation, sample.caption))
    return SampleEntries(
        boxes,
        latents,
        tuple([_mask_entry(sample, box, encoders) for box in masks]),
        captions,
        tuple([text_entry(caption, encoders, settings) for caption in captions]),
    )


def _latents_entry(
    sample: Sample, box: Box, flip: bool, encoders: Encoders, settings: DataSettings
) -> Entry:
    return describe(
        "latents",
        version=VERSION,
        image=sample.digest,
        box=list(map(float, box)),
        size=list(sample.bucket),
        flip=flip,
        filter=settings.buckets.filter,
        alpha=settings.scan.alpha,
        encoder=encoders.image.digest,
        dtype=settings.latents_dtype,
    )


def _mask_entry(sample: Sample, box: Box, encoders: Encoders) -> Entry:
    return describe(
        "masks",
        version=VERSION,
        mask=sample.mask_digest,
        box=list(map(float, box)),
        size=list(sample.bucket),
        factor=encoders.image.factor,
    )


def text_entry(caption: str, encoders: Encoders, settings: DataSettings) -> Entry:
    """The entry of a caption."""
    return describe(
        "text",
        version=VERSION,
        caption=sha256(caption.encode("utf-8")).hexdigest(),
        encoder=encoders.text.digest,
        dtype=settings.text_dtype,
    )


def _flat(latents: tuple[tuple[Entry, ...], ...]) -> list[Entry]:
    return [entry for flips in latents for entry in flips]


class CachedDataset:
    """Images with captions, whose latents and embeddings are in a cache; `cache` makes it.

    Everything is verified when it is read; an entry that is damaged or missing is an error.

    samples    the images
    encoders   that the cache was made with; nothing is loaded here
    settings   that the cache was made with
    directory  of the cache
    prompts    further texts, whose embeddings `embeddings` gives

    >>> import tempfile
    >>> from weft.diffusion.data.demo import shape_dataset
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dataset = shape_dataset(folder, images=3)
    ...     batch = dataset.batch([0, 2])
    >>> len(dataset), batch.latents.shape, batch.indexes.tolist()
    (3, (2, 12, 8, 8), [0, 2])
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        encoders: Encoders,
        settings: DataSettings,
        directory: str | os.PathLike[str],
        prompts: Sequence[str] = (),
    ):
        self.samples: tuple[Sample, ...] = tuple(samples)
        self.settings: DataSettings = settings
        self.directory: Path = Path(directory)
        self.shift: float = encoders.image.shift
        self.scale: float = encoders.image.scale
        self.entries: tuple[SampleEntries, ...] = tuple(
            [sample_entries(sample, encoders, settings) for sample in self.samples]
        )
        self.empty: Entry = text_entry("", encoders, settings)
        self.prompts: dict[str, Entry] = {t: text_entry(t, encoders, settings) for t in prompts}
        self.has_masks: bool = any(sample.mask is not None for sample in self.samples)
        self._items = item_samples([sample.repeats for sample in self.samples])

    def __len__(self) -> int:
        """How many items an epoch has: images, each as often as it is repeated."""
        return len(self._items)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of names, contents, captions, encoders and settings, in the samples' order."""
        rows = [
            [s.source, s.name, s.repeats, s.weight, s.regularisation]
            + [entry.description for entry in (*_flat(e.latents), *e.masks, *e.texts)]
            for s, e in zip(self.samples, self.entries, strict=True)
        ]
        whole = [asdict(self.settings.augmentation), self.shift, self.scale, rows]
        return sha256(strict_json.dumps(whole).encode("ascii")).hexdigest()

    def item_buckets(self) -> np.ndarray:
        """The number of each item's bucket, buckets by width and height.

        >>> import tempfile
        >>> from weft.diffusion.data.demo import shape_dataset
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     shape_dataset(folder, images=3).item_buckets().tolist()
        [0, 0, 0]
        """
        sizes = sorted({sample.bucket for sample in self.samples})
        numbers = np.array([sizes.index(sample.bucket) for sample in self.samples])
        return numbers[self._items]

    def needed(self) -> list[Entry]:
        """All entries that some epoch may ask for.

        >>> import tempfile
        >>> from weft.diffusion.data.demo import shape_dataset
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     len(shape_dataset(folder, images=2).needed())
        4
        """
        found = [entry for e in self.entries for entry in (*_flat(e.latents), *e.masks, *e.texts)]
        if self.settings.augmentation.caption_dropout:
            found.append(self.empty)
        return list(dict.fromkeys([*found, *self.prompts.values()]))

    def orphans(self) -> list[str]:
        """The entries in the cache's directory that this dataset does not use, as paths below it.

        >>> import tempfile
        >>> from weft.diffusion.data.demo import shape_dataset
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     shape_dataset(folder, images=2).orphans()
        []
        """
        return orphans(self.directory, self.needed())

    def remove_orphans(self) -> list[str]:
        """Remove the entries that this dataset does not use; those of others that share the cache!

        >>> import tempfile
        >>> from weft.diffusion.data.demo import shape_dataset
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     shape_dataset(folder, images=2).remove_orphans()
        []
        """
        with locked(self.directory):
            found = self.orphans()
            for path in found:
                disk.remove(self.directory / path)
        return found

    def batch(
        self,
        items: Sequence[int] | np.ndarray,
        choices: Sequence[Choice | None] | None = None,
        real: int | None = None,
    ) -> Batch:
        """The batch of some items, which must be of one bucket.

        items    numbers of items
        choices  what each is: crop, flip, caption; None: the first crop and order, unmirrored
        real     the weights of items from this number on are zero; None: of no item

        >>> import tempfile
        >>> from weft.diffusion.data.demo import shape_dataset
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     shape_dataset(folder, images=2).batch([1, 0], real=1).weights.tolist()
        [1.0, 0.0]
        """
        indexes = self._items[np.asarray(items, dtype=np.int64)]
        taken = [_FIRST if c is None else c for c in choices or [None] * len(indexes)]
        pairs = list(zip(indexes.tolist(), taken, strict=True))
        latents = np.stack([self._latents(i, c) for i, c in pairs])
        texts = [self._text(i, c) for i, c in pairs]
        masks = [self._mask(i, c, latents.shape[2:]) for i, c in pairs] if self.has_masks else None
        weights = np.array([self.samples[i].weight for i in indexes], np.float32)
        weights[len(indexes) if real is None else real :] = 0
        return Batch(
            latents=latents,
            prompt_embeds=np.stack([t["prompt_embeds"] for t in texts]),
            pooled=np.stack([t["pooled"] for t in texts]),
            mask=None if masks is None else np.stack(masks),
            weights=weights,
            regularisation=np.array([self.samples[i].regularisation for i in indexes]),
            indexes=indexes,
            paths=tuple([self.samples[i].path for i in indexes]),
        )

    def embeddings(self, prompt: str) -> tuple[np.ndarray, np.ndarray]:
        """The embeddings of a prompt: (length, width) and (width,).

        prompt  one of those that the dataset was made with

        >>> import tempfile
        >>> from weft.diffusion.data.demo import shape_dataset
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     dataset = shape_dataset(folder, images=1, prompts=["a red circle"])
        ...     [x.shape for x in dataset.embeddings("a red circle")]
        [(16, 32), (32,)]
        """
        if prompt not in self.prompts:
            raise DatasetError(
                f"embeddings: {prompt[:60]!r} is not one of the {len(self.prompts)} prompts that "
                "this dataset was made with; give it to cache(…, prompts=…)"
            )
        found = self._read(self.prompts[prompt], f"the prompt {prompt[:60]!r}")
        return found["prompt_embeds"], found["pooled"]

    def _latents(self, index: int, choice: Choice) -> np.ndarray:
        entry = self.entries[index].latents[choice.crop][choice.flip]
        raw = self._read(entry, self._name(index))["latents"]
        return (raw - np.float32(self.shift)) * np.float32(self.scale)

    def _text(self, index: int, choice: Choice) -> dict[str, np.ndarray]:
        entry = self.empty if choice.drop else self.entries[index].texts[choice.order]
        return self._read(entry, self._name(index))

    def _mask(self, index: int, choice: Choice, size: tuple[int, ...]) -> np.ndarray:
        if self.samples[index].mask is None:
            return np.ones((1, *size), np.float32)
        mask = self._read(self.entries[index].masks[choice.crop], self._name(index))["mask"]
        return mask[..., ::-1] if choice.flip else mask

    def _name(self, index: int) -> str:
        return printable(self.samples[index].path)

    def _read(self, entry: Entry, whose: str) -> dict[str, np.ndarray]:
        try:
            return read_entry(self.directory, entry)
        except CheckpointError as e:
            raise DatasetError(
                f"{whose}: its cached {entry.kind} cannot be used: "
                f"{e.message}; run `weft cache` again, which makes it anew"
            ) from e
