"""Small images of shapes with captions, for demonstrations and tests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .caching import cache
from .dataset import CachedDataset
from .encoders import Encoders, HashTextEncoder, PixelEncoder
from .settings import BucketSettings, DataSettings, Source

COLOURS = {"red": (220, 40, 40), "green": (40, 180, 60), "blue": (40, 70, 220)}
SHAPES = ("circle", "square", "triangle")


def draw_shapes(folder: str | os.PathLike[str], images: int, size: int = 16, seed: int = 0) -> None:
    """Write PNG images of coloured shapes and their captions into a folder.

    folder  is made if it is not there
    images  how many
    size    width and height
    seed    of colours, places and sizes

    >>> import os, tempfile
    >>> from weft.diffusion.data.demo import draw_shapes
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw_shapes(folder, images=1)
    ...     sorted(os.listdir(folder))
    ['0000.png', '0000.txt']
    """
    from PIL import Image

    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for i in range(images):
        colour = list(COLOURS)[rng.integers(len(COLOURS))]
        shape = SHAPES[rng.integers(len(SHAPES))]
        centre = rng.uniform(0.35, 0.65, 2) * size
        inside = _inside(shape, size, centre, rng.uniform(0.2, 0.33) * size)
        pixels = np.where(inside[..., None], np.array(COLOURS[colour]), 245).astype(np.uint8)
        Image.fromarray(pixels).save(root / f"{i:04d}.png")
        (root / f"{i:04d}.txt").write_text(f"a {colour} {shape}\n", encoding="utf-8")


def _inside(shape: str, size: int, centre: np.ndarray, radius: float) -> np.ndarray:
    """Which pixels a shape covers."""
    y, x = np.mgrid[:size, :size] + 0.5
    dy, dx = y - centre[1], x - centre[0]
    if shape == "circle":
        return dx * dx + dy * dy <= radius * radius
    if shape == "square":
        return np.maximum(abs(dx), abs(dy)) <= radius * 0.9
    return (abs(dx) * 2 <= dy + radius) & (dy <= radius * 0.8)


def shape_dataset(
    folder: str | os.PathLike[str], images: int, size: int = 16, prompts: Sequence[str] = ()
) -> CachedDataset:
    """Shapes in a folder, cached with pixels as latents and hashed words as embeddings.

    folder   where images and cache go
    images   how many
    size     width and height, a multiple of 8
    prompts  further texts to encode

    >>> import tempfile
    >>> from weft.diffusion.data.demo import shape_dataset
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     len(shape_dataset(folder, images=2))
    2
    """
    draw_shapes(Path(folder) / "images", images, size)
    sizes = BucketSettings((size,), step=8, min_side=8, max_side=2 * size)
    encoders = Encoders(PixelEncoder(2), HashTextEncoder())
    source = Source(Path(folder) / "images")
    settings, place = DataSettings(buckets=sizes), Path(folder) / "cache"
    dataset, _ = cache([source], encoders, settings, place, prompts=prompts)
    return dataset
