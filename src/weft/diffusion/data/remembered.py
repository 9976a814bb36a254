"""Answers that take long to find, kept in files beside a cache: digests of weights, image sizes.

Such a file may be lost or damaged at any time: it carries its own digest, and answers that cannot
be read are found again.
"""

from __future__ import annotations

import os
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from ...errors import CheckpointError, DatasetError
from ...io import disk, strict_json
from ...io.durable import write_file
from ...io.tensor_file import read_whole
from .buckets import Size
from .folders import printable
from .images import require_pillow
from .scan import Measure, measure_with
from .settings import ScanSettings

_LONGEST = 1 << 30
# A file that was changed so shortly before it was read may change again under the same times.
_SETTLED_NS = 2_000_000_000


def read_answers(path: Path) -> dict[str, Any]:
    """The answers in a file; none if it is missing, damaged or of another version."""
    try:
        found = strict_json.loads(read_whole(path, _LONGEST), str(path))
    except CheckpointError:
        return {}
    if not isinstance(found, dict) or set(found) != {"sha256", "answers"}:
        return {}
    answers = found["answers"]
    whole = isinstance(answers, dict) and found["sha256"] == _digest(answers)
    return answers if whole else {}


def write_answers(path: Path, answers: dict[str, Any]) -> None:
    """Replace the answers in a file."""
    whole = {"sha256": _digest(answers), "answers": answers}
    write_file(path, [strict_json.dumps(whole).encode("ascii")])


def _digest(answers: dict[str, Any]) -> str:
    return sha256(strict_json.dumps(answers).encode("ascii")).hexdigest()


class FileDigests:
    """The SHA-256 of files, remembered as long as size, times and inode stay the same.

    path  the file that remembers them; None: nothing outlives the process

    >>> import tempfile
    >>> from pathlib import Path
    >>> from weft.diffusion.data import FileDigests
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     size = Path(folder, "a").write_bytes(b"abc")
    ...     FileDigests().of(f"{folder}/a")[:8]
    'ba7816bf'
    """

    def __init__(self, path: str | os.PathLike[str] | None = None):
        self.path: Path | None = None if path is None else Path(path)
        self._answers = {} if self.path is None else read_answers(self.path)

    def of(self, path: str | os.PathLike[str]) -> str:
        """The digest of a file's content.

        path  the file

        >>> import tempfile
        >>> from pathlib import Path
        >>> from weft.diffusion.data import FileDigests
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     size = Path(folder, "a").write_bytes(b"")
        ...     FileDigests().of(f"{folder}/a")[:8]
        'e3b0c442'
        """
        name = os.path.realpath(path)
        mark = _mark(os.stat(name))
        known = self._answers.get(name)
        if isinstance(known, list) and known[:-1] == mark:
            return known[-1]
        begun = time.time_ns()
        digest = sha256()
        with disk.open_to_read(name) as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
        if _mark(os.stat(name)) != mark:
            raise DatasetError(f"{printable(name)} changed while it was read; run it again")
        answer = digest.hexdigest()
        if begun - max(mark[1:3]) > _SETTLED_NS:
            self._answers[name] = [*mark, answer]
            if self.path is not None:
                write_answers(self.path, self._answers)
        return answer


def _mark(found: os.stat_result) -> list[int]:
    """What changes when a file's content does."""
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev]


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
