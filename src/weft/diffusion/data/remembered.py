"""What was measured of images, kept in a file beside a cache: each image is decoded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..digests import read_answers, write_answers
from ..read_only import unless_read_only
from .images import require_pillow
from .scan import Measure, Measured, measure_with
from .settings import ScanSettings


class MeasuredImages:
    """The measures of images by the digests of their files, so that each is decoded once.

    Only images that could be decoded are remembered.
    """

    def __init__(self, path: Path, settings: ScanSettings):
        require_pillow()
        from PIL import __version__ as pillow

        self.path = path
        self._before = read_answers(path)
        self._now: dict[str, Any] = {}
        self._decode: Measure = measure_with(settings)
        self._judged_by = f"{settings.max_pixels}/{settings.alpha}/{pillow}"

    def measure(self, data: bytes, digest: str, is_mask: bool) -> Measured:
        """The measures of an image; raises `Refused` if it cannot be decoded."""
        name = f"{digest}/{'mask' if is_mask else 'image'}/{self._judged_by}"
        known = self._before.get(name)
        if known is None or len(known) != 6:  # those of earlier versions have the size only
            found = self._decode(data, digest, is_mask)
            known = [*found.size, *found.shown]
        self._now[name] = known
        width, height, *box = known
        return Measured((width, height), (box[0], box[1], box[2], box[3]))

    def save(self) -> None:
        """Remember what this scan has seen, and nothing else."""
        if self._now != self._before:
            with unless_read_only():
                write_answers(self.path, self._now)
