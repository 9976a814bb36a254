"""Small folders, settings and encoders for tests of caches."""

from pathlib import Path

import numpy as np
from PIL import Image

from weft.diffusion.data import (
    Augmentation,
    BucketSettings,
    DataSettings,
    Encoders,
    HashTextEncoder,
    PixelEncoder,
    Source,
    TokenShuffle,
)
from weft.diffusion.data.encoders import digest_settings

from .random_folders import picture

BUCKETS = BucketSettings((32,), step=8, min_side=16, max_side=64, keep=0.1)
AUGMENTED = Augmentation(0.5, "random", 2, 0.2, TokenShuffle(variants=2))


class CountingPixels(PixelEncoder):
    """Pixels times a weight, which is the model that may change; counts its calls."""

    def __init__(self, weight=1.0, factor=2):
        super().__init__(factor)
        self.weight, self.calls, self.released = weight, 0, 0
        self.digest = digest_settings(pixels=factor, weight=weight)

    def encode(self, pixels):
        self.calls += 1
        return super().encode(pixels) * np.float32(self.weight)

    def release(self):
        self.released += 1


class CountingWords(HashTextEncoder):
    def __init__(self, weight=1.0):
        super().__init__(6, 8, 4)
        self.weight, self.calls, self.released = weight, 0, 0
        self.digest = digest_settings(hashes=1, weight=weight)

    def encode(self, captions):
        self.calls += len(captions)
        embeds, pooled = super().encode(captions)
        return embeds * np.float32(self.weight), pooled * np.float32(self.weight)

    def release(self):
        self.released += 1


def encoders(image=1.0, text=1.0) -> Encoders:
    return Encoders(CountingPixels(image), CountingWords(text))


def settings(augmentation=None, **more) -> DataSettings:
    return DataSettings(
        buckets=BUCKETS, augmentation=augmentation or Augmentation(), text_dtype="float32", **more
    )


def write_images(folder: Path, n: int, seed: int = 0, masks: bool = False) -> Source:
    """n images of several sizes, each with a caption of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for i in range(n):
        size = [(32, 32), (48, 40), (70, 33)][i % 3]
        picture(rng, size).save(folder / f"{i:02d}.png")
        (folder / f"{i:02d}.txt").write_text(f"picture {seed}, number {i}, tall")
        if masks and i % 2:
            Image.fromarray(rng.integers(0, 256, size[::-1], dtype=np.uint8)).save(
                folder / f"{i:02d}-mask.png"
            )
    return Source(folder, mask_suffix="-mask" if masks else None)


def expected_batch(dataset, found: Encoders, item: int, choice):
    """What a batch of one item must hold, computed from its files without a cache."""
    from weft.diffusion.data.augment import captions_of, crop_places
    from weft.diffusion.data.buckets import crop_box

    sample = dataset.samples[item]
    augmentation = dataset.settings.augmentation
    with Image.open(sample.path) as image:
        whole = np.asarray(image.convert("RGB"))
    at = crop_places(augmentation, sample.digest)[choice.crop]
    box = crop_box((whole.shape[1], whole.shape[0]), sample.bucket, at)
    part = Image.fromarray(whole).resize(sample.bucket, Image.Resampling.LANCZOS, box=box)
    pixels = np.asarray(part).astype(np.float32) / 255 * 2 - 1
    pixels = pixels[:, ::-1] if choice.flip else pixels
    latents = found.image.encode(np.ascontiguousarray(pixels.transpose(2, 0, 1)[None]))
    text = Path(sample.path).with_suffix(".txt").read_text()
    caption = "" if choice.drop else captions_of(augmentation, text)[choice.order]
    return latents, *found.text.encode([caption])
