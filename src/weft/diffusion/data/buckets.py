"""Aspect buckets: which sizes there are, which of them an image gets, and what is cut off."""

from __future__ import annotations

from functools import lru_cache
from math import log
from typing import NamedTuple

from .settings import BucketSettings

Size = tuple[int, int]  # width, height
Box = tuple[float, float, float, float]  # left, top, right, bottom in pixels of the image

CENTRE = (0.5, 0.5)


class Unfit(NamedTuple):
    """Why an image gets no bucket: the problem and its figures."""

    problem: str
    detail: str


def bucket_sizes(resolution: int, step: int, min_side: int, max_side: int) -> list[Size]:
    """The sizes whose area is about resolution², by width.

    For each width the largest height with width·height ≤ resolution², both multiples of the
    step, and the same with width and height exchanged.

    resolution  side of the square of this area
    step        widths and heights are multiples of it
    min_side    the least width and height
    max_side    the largest width and height

    >>> from weft.diffusion.data import bucket_sizes
    >>> bucket_sizes(256, 64, 128, 512)
    [(128, 512), (192, 320), (256, 256), (320, 192), (512, 128)]
    """
    return list(_sizes(resolution, step, min_side, max_side))


@lru_cache(maxsize=64)  # of a run's few resolutions, asked for by every image
def _sizes(resolution: int, step: int, min_side: int, max_side: int) -> tuple[Size, ...]:
    found = set()
    for width in range(-(-min_side // step) * step, max_side + 1, step):
        height = min(resolution * resolution // width, max_side) // step * step
        if height >= min_side and height:
            found |= {(width, height), (height, width)}
    # Of widths with one height, the largest: a narrower one has less area for no other shape.
    widest: dict[int, int] = {}
    for width, height in found:
        widest[height] = max(width, widest.get(height, 0))
    # The set is symmetric, so that the largest height of a width is the largest width of it.
    return tuple(sorted((w, h) for w, h in found if widest[h] == w and widest[w] == h))


def nearest_bucket(size: Size, sizes: list[Size]) -> Size:
    """The bucket whose aspect ratio is nearest, by the ratio of both; then the largest."""
    aspect = log(size[0] / size[1])
    return min(sizes, key=lambda b: (abs(log(b[0] / b[1]) - aspect), -b[0] * b[1], b))


def assign_bucket(size: Size, settings: BucketSettings) -> Size | Unfit:
    """The bucket of an image of this size, or why it gets none.

    size      the image's width and height
    settings  a `BucketSettings`

    >>> from weft.diffusion.data import BucketSettings, assign_bucket
    >>> assign_bucket((3000, 2000), BucketSettings(resolutions=(512,)))
    (640, 384)
    >>> assign_bucket((300, 200), BucketSettings(resolutions=(512,))).problem
    'too-small'
    """
    bucket = (0, 0)
    for resolution in sorted(settings.resolutions, reverse=True):
        sizes = bucket_sizes(resolution, settings.step, settings.min_side, settings.max_side)
        if not sizes:
            between = f"from {settings.min_side} to {settings.max_side}"
            what = f"no size of the area {resolution}² has sides that are multiples of"
            return Unfit("too-small", f"{what} {settings.step} {between}")
        bucket = nearest_bucket(size, sizes)
        if size[0] >= bucket[0] and size[1] >= bucket[1]:
            break
    else:
        if not settings.upscale:
            wide, high = bucket
            return Unfit("too-small", f"{size[0]}×{size[1]} is smaller than its {wide}×{high}")
    left, top, right, bottom = crop_box(size, bucket)
    kept = (right - left) * (bottom - top) / (size[0] * size[1])
    if kept < settings.keep:
        return Unfit("aspect", f"{size[0]}×{size[1]}: a crop of {bucket} keeps {kept:.1%} of it")
    return bucket


def crop_box(size: Size, bucket: Size, at: tuple[float, float] = CENTRE) -> Box:
    """The part of an image that is scaled to a bucket: the largest one of its aspect ratio.

    size    the image's width and height
    bucket  the width and height after scaling
    at      where the part is, from (0, 0) at the upper left to (1, 1) at the lower right

    >>> from weft.diffusion.data import crop_box
    >>> crop_box((300, 200), (64, 64))
    (50, 0, 250.0, 200.0)
    """
    width, height = size
    if bucket[0] * height >= bucket[1] * width:
        wide, high = float(width), bucket[1] * width / bucket[0]
    else:
        wide, high = bucket[0] * height / bucket[1], float(height)
    # Whole pixels: a part that is not scaled is copied, and not interpolated.
    left, top = int(at[0] * (width - wide)), int(at[1] * (height - high))
    return left, top, left + wide, top + high
