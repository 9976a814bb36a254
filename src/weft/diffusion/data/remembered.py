"""The sizes of images, kept in a file beside a cache, so that each image is decoded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..digests import read_answers, write_answers
from .buckets import Size
from .images import require_pillow
from .scan import Measure, measure_with
from .settings import ScanSettings


class MeasuredImages:
    """The sizes of images by the digests of their files, so that each is decoded once.

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

    def measure(self, data: bytes, digest: str, is_mask: bool) -> Size:
        """The size of an image; raises `Refused` if it cannot be decoded."""
        name = f"{digest}/{'mask' if is_mask else 'image'}/{self._judged_by}"
        size = self._before.get(name)
        if size is None:
            size = list(self._decode(data, digest, is_mask))
        self._now[name] = size
        return size[0], size[1]

    def save(self) -> None:
        """Remember what this scan has seen, and nothing else."""
        if self._now != self._before:
            write_answers(self.path, self._now)
