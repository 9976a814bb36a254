"""What the user says about the data: folders, limits, buckets, augmentation."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from numbers import Integral, Real
from typing import Any

from ...errors import ArgumentError

_WRITE = "write the caption, or give its folder one (TOML: caption; Python: default_caption)"
# Each problem that an image can have, and what to do about it.
PROBLEMS = {
    "unreadable": "save the image again, or mend the link to it",
    "truncated": "copy or save the image again",
    "huge": "scale the image down, or raise max_pixels or max_bytes (TOML: in [images])",
    "animated": "save one frame as an image of its own",
    "too-small": "take a larger image, add a lower resolution, or allow upscale",
    "aspect": "crop the image, or lower keep",
    "missing-caption": _WRITE,
    "empty-caption": _WRITE,
    "caption-encoding": "save the caption as UTF-8",
    "caption-too-long": "shorten the caption",
    "caption-unreadable": "make the caption a file that can be read, or a link to one",
    "duplicate-caption": "keep one of the captions",
    "orphan-caption": "put the image beside its caption, or take the file away",
    "duplicate-stem": "rename one of the images and its caption",
    "mask-size": "save the mask in the size of its image",
    "mask-unreadable": "save the mask again, or mend the link to it",
    "empty-mask": "make the mask white where the loss counts, or remove it",
    "duplicate-mask": "keep one of the masks",
    "orphan-mask": "put the image there, or take the mask away or rename it",
    "unsupported-mode": "save the image as 8-bit RGB",
    "unsupported-format": "save the image as PNG, JPEG or WebP",
    "transparent": "flatten the image, or set alpha='white'",
}
DTYPES = ("float32", "bfloat16", "float16")
PILLOW_LIMIT = 89_478_485  # above this number of pixels Pillow refuses by itself


@dataclass(frozen=True)
class Source:
    """A folder of images with captions beside them.

    folder             where the images are
    repeats            how often each image comes in an epoch
    caption_extension  of the caption's file, which has the image's stem
    default_caption    for images whose caption is missing or empty; None: that is a problem
    mask_folder        masks with the images' stems. An image without a mask counts whole.
    mask_suffix        for masks beside their images: of `cat.png` that is `cat-mask.png` for the
                       suffix '-mask'; None: all files are images
    regularisation     whether these images regularise, rather than show what is to be learned
    loss_weight        factor of the loss of these images
    recursive          whether folders inside are searched; masks must then be beside their images

    >>> from weft.diffusion.data import Source
    >>> Source("cats", repeats=2).caption_extension
    '.txt'
    """

    folder: str | os.PathLike[str]
    repeats: int = 1
    caption_extension: str = ".txt"
    default_caption: str | None = None
    mask_folder: str | os.PathLike[str] | None = None
    mask_suffix: str | None = None
    regularisation: bool = False
    loss_weight: float = 1.0
    recursive: bool = False

    def __post_init__(self):
        _check_integer("Source: repeats", self.repeats, 1)
        extension = self.caption_extension
        if not extension.startswith(".") or len(extension) < 2 or {"/", os.sep} & set(extension):
            raise ArgumentError(
                f"Source: caption_extension={extension!r}, expected a dot and letters, as '.txt'"
            )
        _check_number("Source: loss_weight", self.loss_weight, 0.0, float("inf"))
        if self.recursive and self.mask_folder is not None:
            raise ArgumentError(
                "Source: mask_folder together with recursive: stems are not unique there; put "
                "masks beside their images, and give mask_suffix"
            )
        suffix = self.mask_suffix
        if suffix is not None and (not suffix or {"/", os.sep} & set(suffix)):
            raise ArgumentError(
                f"Source: mask_suffix={suffix!r}, expected the end of names without extension, as "
                "'-mask'"
            )
        if suffix is not None and self.mask_folder is not None:
            raise ArgumentError("Source: mask_folder and mask_suffix; give one of them")


@dataclass(frozen=True)
class ScanSettings:
    """Which images are taken, and what happens with the others.

    max_pixels  images with more are refused before they are decoded
    max_bytes   files with more are refused before they are read
    alpha       transparent images: "white" puts them on white, "refuse" makes them a problem
    otherwise   what happens at a problem: "skip" lists the image, "stop" ends with the whole list
    problems    other choices by problem, as {"missing-caption": "stop"}

    >>> from weft.diffusion.data import ScanSettings
    >>> ScanSettings(problems={"truncated": "stop"}).action("truncated")
    'stop'
    """

    max_pixels: int = 64_000_000
    max_bytes: int = 256 << 20
    alpha: str = "white"
    otherwise: str = "skip"
    problems: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self):
        _check_integer("ScanSettings: max_pixels", self.max_pixels, 1, PILLOW_LIMIT)
        _check_integer("ScanSettings: max_bytes", self.max_bytes, 1)
        check_choice("ScanSettings: alpha", self.alpha, ("white", "refuse"))
        check_choice("ScanSettings: otherwise", self.otherwise, ("skip", "stop"))
        for problem, action in self.problems.items():
            check_choice("ScanSettings: problems", problem, tuple(PROBLEMS))
            check_choice(f"ScanSettings: problems[{problem!r}]", action, ("skip", "stop"))

    def action(self, problem: str) -> str:
        """What happens at a problem: "skip" or "stop".

        problem  one of those that reports name

        >>> from weft.diffusion.data import ScanSettings
        >>> ScanSettings().action("animated")
        'skip'
        """
        return self.problems.get(problem, self.otherwise)


@dataclass(frozen=True)
class BucketSettings:
    """The sizes to which images are cropped and scaled.

    resolutions  sides of the squares whose areas the sizes have; an image goes to the largest one
                 that it reaches without being enlarged
    step         widths and heights are multiples of this
    min_side     the least width and height
    max_side     the largest width and height
    upscale      whether images that reach no resolution are enlarged to the lowest one
    keep         the least part of an image's area that its crop must keep
    filter       "lanczos", or "area": the mean of the pixels that become one

    >>> from weft.diffusion.data import BucketSettings
    >>> BucketSettings(resolutions=(512,), step=64).step
    64
    """

    resolutions: tuple[int, ...] = (1024,)
    step: int = 64
    min_side: int = 256
    max_side: int = 2048
    upscale: bool = False
    keep: float = 0.5
    filter: str = "lanczos"

    def __post_init__(self):
        _check_integer("BucketSettings: step", self.step, 1)
        _check_integer("BucketSettings: min_side", self.min_side, self.step)
        _check_integer("BucketSettings: max_side", self.max_side, self.min_side, 1 << 16)
        if not self.resolutions:
            raise ArgumentError("BucketSettings: resolutions is empty; give one or more")
        for side in self.resolutions:
            _check_integer("BucketSettings: resolutions", side, self.min_side, self.max_side)
        _check_number("BucketSettings: keep", self.keep, 0.0, 1.0)
        check_choice("BucketSettings: filter", self.filter, ("lanczos", "area"))


@dataclass(frozen=True)
class TokenShuffle:
    """Captions whose parts come in other orders.

    separator  between the parts of a caption
    keep       how many parts at the beginning stay where they are
    variants   how many orders of each caption are cached; an epoch takes one of them

    >>> from weft.diffusion.data import TokenShuffle
    >>> TokenShuffle(keep=1).variants
    4
    """

    separator: str = ","
    keep: int = 0
    variants: int = 4

    def __post_init__(self):
        if not self.separator:
            raise ArgumentError("TokenShuffle: separator is empty; give what stands between parts")
        _check_integer("TokenShuffle: keep", self.keep, 0)
        _check_integer("TokenShuffle: variants", self.variants, 1, 1000)


@dataclass(frozen=True)
class Augmentation:
    """Random changes of samples; all variants that can be chosen are cached.

    flip             probability that an image is mirrored; latents of both are cached
    crop             "center", or "random": one of `crops` places, fixed for each image
    crops            how many places are cached for random crops
    caption_dropout  probability that a caption is replaced by the empty one
    shuffle          a `TokenShuffle`; None: captions stay as they are

    >>> from weft.diffusion.data import Augmentation
    >>> Augmentation(flip=0.5, crop="random", crops=4).crops
    4
    """

    flip: float = 0.0
    crop: str = "center"
    crops: int | None = None
    caption_dropout: float = 0.0
    shuffle: TokenShuffle | None = None

    def __post_init__(self):
        _check_number("Augmentation: flip", self.flip, 0.0, 1.0)
        _check_number("Augmentation: caption_dropout", self.caption_dropout, 0.0, 1.0)
        check_choice("Augmentation: crop", self.crop, ("center", "random"))
        if self.crop == "random" and self.crops is None:
            raise ArgumentError(
                "Augmentation: crop='random' without crops: latents are cached, so that the number "
                "of places must be known; give crops=4, or take crop='center'"
            )
        if self.crop == "center" and self.crops is not None:
            raise ArgumentError(
                f"Augmentation: crops={self.crops} with crop='center', which has one place; take "
                "crop='random', or leave crops out"
            )
        if self.crops is not None:
            _check_integer("Augmentation: crops", self.crops, 1, 1000)


@dataclass(frozen=True)
class DataSettings:
    """Everything about the data but the folders and the encoders.

    scan           which images are taken
    buckets        the sizes to which they are cropped and scaled
    augmentation   random changes
    latents_dtype  of cached latents: "float32", "bfloat16" or "float16"
    text_dtype     of cached text embeddings; T5's take 4 MB a caption in half precision

    >>> from weft.diffusion.data import DataSettings
    >>> DataSettings().text_dtype
    'bfloat16'
    """

    scan: ScanSettings = field(default_factory=ScanSettings)
    buckets: BucketSettings = field(default_factory=BucketSettings)
    augmentation: Augmentation = field(default_factory=Augmentation)
    latents_dtype: str = "float32"
    text_dtype: str = "bfloat16"

    def __post_init__(self):
        check_choice("DataSettings: latents_dtype", self.latents_dtype, DTYPES)
        check_choice("DataSettings: text_dtype", self.text_dtype, DTYPES)


def _check_integer(what: str, value: Any, least: int, most: int | None = None) -> None:
    number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
    if number is None or number < least or (most is not None and number > most):
        upper = "" if most is None else f" and ≤ {most}"
        raise ArgumentError(f"{what}={value!r}, expected an integer ≥ {least}{upper}")


def _check_number(what: str, value: Any, least: float, most: float) -> None:
    real = isinstance(value, Real) and not isinstance(value, bool)
    if not real or not isfinite(value) or not least <= float(value) <= most:
        raise ArgumentError(f"{what}={value!r}, expected a number from {least} to {most}")


def check_choice(what: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise unless a value is one of the choices."""
    if value not in choices:
        raise ArgumentError(f"{what}: {value!r}, expected one of {', '.join(map(repr, choices))}")
