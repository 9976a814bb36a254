"""Small images of shapes with captions, for demonstrations and tests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...errors import ArgumentError
from .caching import cache
from .dataset import CachedDataset
from .encoders import Encoders, HashTextEncoder, PixelEncoder
from .settings import BucketSettings, DataSettings, Source

COLOURS = {"red": (220, 40, 40), "green": (40, 180, 60), "blue": (40, 70, 220)}
SHAPES = ("circle", "square", "triangle")
_PAPER = 245
_FINE = 4  # points along a pixel's side: edges are smooth


def draw_shape(shape: str, colour: str, size: int, rng: np.random.Generator) -> np.ndarray:
    """A coloured shape on white: bytes (size, size, 3).

    shape   one of `SHAPES`, or "star"
    colour  one of `COLOURS`
    size    width and height
    rng     of its place and size

    >>> import numpy as np
    >>> from weft.diffusion.data.demo import draw_shape
    >>> picture = draw_shape("star", "red", 16, np.random.default_rng(0))
    >>> picture[8, 8].tolist(), picture[0, 0].tolist()
    ([220, 40, 40], [245, 245, 245])
    """
    centre, radius = rng.uniform(0.44, 0.56, 2), rng.uniform(0.28, 0.36)
    y, x = (np.mgrid[: size * _FINE, : size * _FINE] + 0.5) / (size * _FINE)
    inside = _inside(shape, x - centre[0], y - centre[1], radius)
    share = inside.reshape(size, _FINE, size, _FINE).mean((1, 3))[..., None]
    return np.rint(share * COLOURS[colour] + (1 - share) * _PAPER).astype(np.uint8)


def draw_shapes(
    folder: str | os.PathLike[str],
    images: int,
    size: int = 16,
    seed: int = 0,
    shapes: tuple[str, ...] = SHAPES,
) -> None:
    """Write PNG images of coloured shapes and their captions into a folder.

    folder  is made if it is not there
    images  how many
    size    width and height
    seed    of colours, shapes, places and sizes
    shapes  which: some of `SHAPES`, and "star"

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
        shape = shapes[rng.integers(len(shapes))]
        Image.fromarray(draw_shape(shape, colour, size, rng)).save(root / f"{i:04d}.png")
        (root / f"{i:04d}.txt").write_text(f"a {colour} {shape}\n", encoding="utf-8")


def _inside(shape: str, x: np.ndarray, y: np.ndarray, radius: float) -> np.ndarray:
    """Which points a shape around 0 covers."""
    if shape == "circle":
        return x * x + y * y <= radius * radius
    if shape == "square":
        return np.maximum(abs(x), abs(y)) <= radius * 0.88
    if shape == "triangle":
        return (abs(x) * 1.8 <= y + radius) & (y <= radius * 0.8)
    if shape != "star":
        raise ArgumentError(f"draw_shape: {shape!r}, expected one of {', '.join(SHAPES)}, star")
    # The tenth of a star between a point and the next inner corner, onto which all are folded.
    tenth, outer, inner = np.pi / 5, 1.25 * radius, 0.55 * radius
    angle = abs((np.arctan2(x, -y) + tenth) % (2 * tenth) - tenth)
    distance = np.hypot(x, y)
    corner = inner * np.cos(tenth) - outer, inner * np.sin(tenth)
    along, across = distance * np.cos(angle) - outer, distance * np.sin(angle)
    return corner[0] * across - corner[1] * along >= 0


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
