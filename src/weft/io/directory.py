"""The checkpoints of a directory: listing, verifying, and removing old and unfinished ones.

A checkpoint is a directory `step-00000100`. Its manifest, written last, names its other files; a
directory without a manifest is an unfinished save. A save over an existing step writes new files
beside the old ones, and replaces the manifest in one step.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CheckpointError
from . import disk, manifest, tensor_file
from .durable import UNFINISHED, Stored
from .manifest import Manifest

if TYPE_CHECKING:
    from os import PathLike


MANIFEST = "manifest.json"
_STEP = re.compile("step-([0-9]{8,19})")


def step_name(step: int) -> str:
    """The directory of a step."""
    return f"step-{step:08d}"


def steps(directory: str | PathLike[str]) -> list[int]:
    """The steps whose checkpoints are finished, in increasing order.

    directory  where the run's checkpoints are

    >>> import weft as wf
    >>> import tempfile
    >>> import weft as wf
    >>> with tempfile.TemporaryDirectory() as run:
    ...     for step in (20, 10):
    ...         path = wf.save_checkpoint(run, wf.Checkpoint({"w": wf.ones(2)}), step=step)
    ...     wf.io.steps(run)
    [10, 20]
    """
    root = Path(directory)
    return sorted(s for s in _directories(root) if (root / step_name(s) / MANIFEST).exists())


def _directories(root: Path) -> Iterator[int]:
    for name in os.listdir(root) if root.is_dir() else ():
        found = _STEP.fullmatch(name)
        if found and name == step_name(int(found[1])):
            yield int(found[1])


def is_own(path: Path) -> bool:
    """Whether a checkpoint is a real directory; a link's target belongs to another run."""
    return path.is_dir() and not path.is_symlink()


def read_manifest(path: Path) -> Manifest:
    """The manifest of the checkpoint at `path`."""
    where = path / MANIFEST
    found = manifest.decode(tensor_file.read_whole(where, manifest.LONGEST), str(where))
    if _STEP.fullmatch(path.name) and path.name != step_name(found.step):
        raise CheckpointError(
            f"{where}: the manifest is of step {found.step}, but its directory is named "
            f"{path.name}; was it renamed or copied?"
        )
    return found


def verify(path: Path, digests: bool = True) -> None:
    """Raise unless a checkpoint's files have the sizes (and digests) in its manifest."""
    for name, stored in read_manifest(path).files.values():
        if digests:
            tensor_file.check_digest(path / name, stored)
        else:
            check_size(path / name, stored)


def check_size(path: Path, stored: Stored) -> None:
    """Raise unless a file has the size that was stored."""
    try:
        size = path.stat().st_size
    except OSError as e:
        raise CheckpointError(f"{path}: cannot be read: {e.strerror}") from e
    tensor_file.check_size(str(path), size, stored)


def is_valid(path: Path, digests: bool = True) -> bool:
    """Whether `verify` passes."""
    try:
        verify(path, digests)
    except CheckpointError:
        return False
    return True


def unused_name(path: Path, field: str) -> str:
    """A name for a field's tensors that no file of the checkpoint has."""
    names = (f"{field}{f'-{n}' if n else ''}.safetensors" for n in count())
    return next(name for name in names if not (path / name).exists())


def sweep(root: Path, step: int) -> None:
    """Remove unfinished saves, and files of `step` that its manifest lacks; needs the lock."""
    for unfinished in set(_directories(root)).difference(steps(root)):
        if is_own(root / step_name(unfinished)):
            remove(root / step_name(unfinished))
    path = root / step_name(step)
    if is_own(path):
        with suppress(CheckpointError):  # a damaged one stays as it is
            _remove_except(path, {name for name, _ in read_manifest(path).files.values()})


def remove(path: Path) -> None:
    """Remove a checkpoint, its manifest first: from then on it is an unfinished save."""
    if (path / MANIFEST).exists():
        disk.remove(path / MANIFEST)
        disk.sync_directory(path)
    _remove_except(path, set())
    if not os.listdir(path):  # the user has other files there
        disk.remove_directory(path)


def _remove_except(path: Path, kept: set[str]) -> None:
    for name in os.listdir(path):
        if name not in kept and (UNFINISHED.fullmatch(name) or manifest.FILE.fullmatch(name)):
            disk.remove(path / name)


def remove_unfinished(*folders: Path) -> int:
    """Remove what killed writers have left in folders; returns how many files. Needs the lock."""
    left = [f / name for f in folders for name in os.listdir(f) if UNFINISHED.fullmatch(name)]
    for path in left:
        disk.remove(path)
    return len(left)


def prune(root: Path, saved: int, keep_last: int, also: int | None = None) -> None:
    """Remove all but the newest checkpoints, the one just saved, and one `also` of another step.

    Nothing is removed before a newer one has been read back and verified. Damaged checkpoints and
    links to other runs' are neither counted nor removed.
    """
    finished, kept = steps(root)[::-1], 0
    if len(finished) <= keep_last:
        return
    for step in finished:
        path = root / step_name(step)
        if not is_own(path) or not is_valid(path, digests=not kept):
            continue
        if kept < keep_last or step == saved:
            kept += 1
        elif step != also:
            remove(path)
