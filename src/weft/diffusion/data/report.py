"""What was found in the folders: the images that are used, and every other file with its reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .folders import Ignored, printable
from .settings import PROBLEMS

if TYPE_CHECKING:
    from .buckets import Size


@dataclass(frozen=True)
class Sample:
    """An image with its caption.

    path            of the image
    name            below its source's folder
    source          the number of its source
    digest          SHA-256 of the image's file
    size            width and height, upright
    bucket          width and height after cropping and scaling
    caption         text
    caption_file    where the caption is from; None: it is the source's default
    mask            path of its mask, or None
    mask_digest     SHA-256 of the mask's file, or None
    repeats         how often it comes in an epoch
    weight          factor of its loss
    regularisation  whether it regularises

    >>> from weft.diffusion.data import Sample
    >>> Sample("a/b.png", "b.png", 0, "00", (64, 64), (64, 64), "a cat").repeats
    1
    """

    path: str
    name: str
    source: int
    digest: str
    size: Size
    bucket: Size
    caption: str
    caption_file: str | None = None
    mask: str | None = None
    mask_digest: str | None = None
    repeats: int = 1
    weight: float = 1.0
    regularisation: bool = False


@dataclass(frozen=True)
class Refusal:
    """An image that is not used.

    path     of the image
    problem  its name, which `ScanSettings.problems` takes
    detail   what was found
    source   the number of its source
    action   "skip" or "stop"

    >>> from weft.diffusion.data import Refusal
    >>> print(Refusal("a/b.gif", "animated", "a GIF of several frames", 0, "skip"))
    a/b.gif: animated: a GIF of several frames; save one frame as an image of its own
    """

    path: str
    problem: str
    detail: str
    source: int
    action: str

    def __str__(self) -> str:
        detail = printable(self.detail)
        return f"{printable(self.path)}: {self.problem}: {detail}; {PROBLEMS[self.problem]}"


@dataclass(frozen=True)
class ScanReport:
    """Every file and folder that was found, once.

    samples   the images that are used, by source and name
    refused   the images that are not, and masks and captions without an image
    ignored   what is neither image nor caption nor mask in use, with the reason
    captions  how many files are captions, of an image or of none
    masks     how many files are masks of images
    entries   how many files and folders there are

    >>> from weft.diffusion.data import ScanReport
    >>> print(ScanReport((), (), (), 0, 0, 0))
    0 images: 0 used, 0 refused
    0 files: 0 images, 0 captions, 0 masks, 0 ignored
    """

    samples: tuple[Sample, ...]
    refused: tuple[Refusal, ...]
    ignored: tuple[Ignored, ...]
    captions: int
    masks: int
    entries: int

    @property
    def images(self) -> int:
        """How many images there are, used or not."""
        return len(self.samples) + len([r for r in self.refused if r.problem != "orphan-caption"])

    def adds_up(self) -> bool:
        """Whether every file and folder was accounted for once.

        >>> from weft.diffusion.data import ScanReport
        >>> ScanReport((), (), (), 0, 0, 1).adds_up()
        False
        """
        return self.entries == self.images + self.captions + self.masks + len(self.ignored)

    def buckets(self) -> dict[Size, int]:
        """How many images each bucket has, repeats not counted; by width.

        >>> from weft.diffusion.data import ScanReport
        >>> ScanReport((), (), (), 0, 0, 0).buckets()
        {}
        """
        return dict(sorted(Counter(s.bucket for s in self.samples).items()))

    def _summary(self) -> list[str]:
        lines = [
            f"{self.images} images: {len(self.samples)} used, "
            f"{self.images - len(self.samples)} refused",
            f"{self.entries} files: {self.images} images, {self.captions} captions, "
            f"{self.masks} masks, {len(self.ignored)} ignored",
        ]
        orphans = len(self.samples) + len(self.refused) - self.images
        if orphans:
            lines.append(f"{orphans} captions have no image")
        defaults = sum(s.caption_file is None for s in self.samples)
        if defaults:
            lines.append(f"{defaults} images have their source's default caption")
        return lines

    def __str__(self) -> str:
        lines = self._summary()
        lines += [f"bucket {w}×{h}: {n} images" for (w, h), n in self.buckets().items()]
        lines += [f"refused ({r.action}): {r}" for r in self.refused]
        lines += [f"ignored: {printable(i.path)}: {i.reason}" for i in self.ignored]
        return "\n".join(lines)
