"""Checkpoints of a training run: saved so that a kill at any moment costs none of them."""

from __future__ import annotations

import math
import warnings
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..backend.device import canonical_device
from ..core.aval import integer_in
from ..core.value import aval_of
from ..errors import ArgumentError, CheckpointError, CheckpointNotFound, CheckpointWarning
from . import directory as folder
from . import disk, manifest, tensor_file
from .durable import make_directories, write_file
from .lock import locked
from .manifest import Manifest
from .paths import path_first
from .room import disk_full, is_full
from .tree import Flattener, Restorer

if TYPE_CHECKING:
    from os import PathLike

    from ..arrays.types import Device


@dataclass(frozen=True)
class Checkpoint:
    """All that a run needs in order to continue exactly where it was.

    model_state, optimizer_state  what `state_dict()` gives
    epoch, step                   where the run is; `save_checkpoint(step=…)` may set the step
    rng                           `wf.random.get_state()`
    scaler, ema, schedule, data   states of the loss scaler, the averaged parameters, the
                                  learning rate schedule and the data loader
    extra                         anything else

    Every field is a tree: tensors, numbers, strings, None, in lists, tuples and dicts. What is
    loaded equals what was saved, to the bit; tensors come back detached.

    >>> import weft as wf
    >>> state = wf.Checkpoint({"w": wf.ones(2)}, step=5)
    >>> state.step, state.epoch
    (5, 0)
    """

    model_state: Any = None
    optimizer_state: Any = None
    epoch: int = 0
    step: int | None = None
    rng: Any = None
    scaler: Any = None
    ema: Any = None
    schedule: Any = None
    data: Any = None
    extra: Any = None


_FIELDS = tuple(f.name for f in fields(Checkpoint))


def save_checkpoint(
    directory: str | PathLike[str] | Checkpoint,
    checkpoint: Checkpoint | str | PathLike[str],
    *,
    step: int | None = None,
    keep_last: int | None = None,
) -> Path:
    """Save a checkpoint as `directory/step-00000100`, atomically and durably; returns that path.

    directory   where the run's checkpoints are
    checkpoint  a `Checkpoint`
    step        the number of the checkpoint, else `checkpoint.step`
    keep_last   remove all but this many of the newest checkpoints afterwards

    When the call returns, the checkpoint is on the disk; if it is interrupted, even by a power
    cut, the earlier ones are as they were (also the one of the same step). The two positional
    arguments may come in either order.

    >>> import weft as wf
    >>> import tempfile
    >>> import weft as wf
    >>> state = wf.Checkpoint({"w": wf.tensor([1.0, 2.0])}, epoch=3, rng=wf.random.get_state())
    >>> with tempfile.TemporaryDirectory() as run:
    ...     path = wf.save_checkpoint(run, state, step=100, keep_last=2)
    ...     loaded = wf.load_checkpoint(run)
    >>> path.name, loaded.step, loaded.epoch, loaded.model_state["w"].tolist()
    ('step-00000100', 100, 3, [1.0, 2.0])
    """
    root, checkpoint = path_first("save_checkpoint", directory, checkpoint)
    checkpoint, step = _number(checkpoint, step)
    if keep_last is not None and integer_in("save_checkpoint", "keep_last", keep_last) < 1:
        raise ArgumentError(f"save_checkpoint: keep_last={keep_last}, expected 1 or more, or None")
    trees, arrays = _flatten(checkpoint)
    make_directories(root)
    with locked(root) as turn, turn:
        folder.sweep(root, step)
        path = root / folder.step_name(step)
        try:
            _write(path, step, trees, arrays)
        except Exception as e:
            with suppress(OSError):  # the first error is the one to report
                folder.sweep(root, step)
            if isinstance(e, OSError) and is_full(e):
                raise disk_full(path, e, _size(arrays)) from e
            raise
        folder.sweep(root, step)
        if keep_last is not None:
            folder.prune(root, step, keep_last)
    return path


def _number(checkpoint, step: int | None) -> tuple[Checkpoint, int]:
    if not isinstance(checkpoint, Checkpoint):
        raise ArgumentError(
            f"save_checkpoint: got a {type(checkpoint).__name__}, expected a wf.Checkpoint"
        )
    given = [s for s in (step, checkpoint.step) if s is not None]
    if not given or any(s != given[0] for s in given):
        raise ArgumentError(
            f"save_checkpoint: step={step}, checkpoint.step={checkpoint.step}: expected one of "
            "them, or both the same"
        )
    step = int(integer_in("save_checkpoint", "step", given[0]))
    epoch = int(integer_in("save_checkpoint", "epoch", checkpoint.epoch))
    if not 0 <= step < 1 << 63:
        raise ArgumentError(f"save_checkpoint: step={step}, expected 0 or more")
    return replace(checkpoint, step=step, epoch=epoch), step


def _flatten(checkpoint: Checkpoint) -> tuple[dict[str, Any], dict[str, dict]]:
    """Each field's skeleton, and the arrays of those that have any."""
    trees, arrays = {}, {}
    for name in _FIELDS:
        flattener = Flattener(name)
        trees[name] = flattener.skeleton(getattr(checkpoint, name))
        if flattener.arrays:
            arrays[name] = flattener.arrays
    return trees, arrays


def _size(arrays: dict[str, dict]) -> int:
    """The bytes of all arrays."""
    avals = [aval_of(raw) for named in arrays.values() for raw in named.values()]
    return sum(math.prod(aval.shape) * aval.dtype.itemsize for aval in avals)


def _write(path: Path, step: int, trees: dict, arrays: dict[str, dict]) -> None:
    if path.is_symlink():
        raise CheckpointError(
            f"{path}: a link to {path.resolve()}, whose checkpoint a save would overwrite; remove "
            "the link, or save into another directory"
        )
    make_directories(path)
    files = {}
    for field, named in arrays.items():
        name = folder.unused_name(path, field)
        files[field] = name, tensor_file.write(path / name, named)
    text = manifest.encode(Manifest(step, files, trees))
    disk.sync_directory(path)  # the files are on disk before the manifest
    write_file(path / folder.MANIFEST, [text])
    disk.sync_directory(path)


def load_checkpoint(
    directory: str | PathLike[str],
    step: int | Literal["latest"] | None = None,
    *,
    device: Device = "cpu",
) -> Checkpoint:
    """Load a checkpoint: that of a step, or the newest one whose every byte is as it was saved.

    directory  what was given to `save_checkpoint`, or the path that it returned
    step       a step, or "latest" or None for the newest that is intact
    device     where the tensors go

    Unfinished saves are passed over; a damaged checkpoint is passed over with a
    `wf.errors.CheckpointWarning`, or refused with a `CheckpointError` if its step was asked for.

    >>> import weft as wf
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as run:
    ...     path = wf.save_checkpoint(run, wf.Checkpoint({"w": wf.ones(2)}), step=5)
    ...     wf.load_checkpoint(run).model_state["w"].tolist()
    [1.0, 1.0]
    """
    root = Path(directory)
    if (root / folder.MANIFEST).exists() and step is None:
        return _load(root, device)
    if step is None or step == "latest":
        return _load_newest(root, device)
    path = root / folder.step_name(integer_in("load_checkpoint", "step", step))
    if not (path / folder.MANIFEST).exists():
        raise CheckpointNotFound(
            f"load_checkpoint: no checkpoint of step {step} in {root}, only {folder.steps(root)}"
        )
    return _load(path, device)


def _load_newest(root: Path, device) -> Checkpoint:
    found, damaged = None, []
    while found != (there := folder.steps(root)):  # again if a writer has replaced them meanwhile
        found, damaged = there, []
        for step in reversed(found):
            try:
                loaded = _load(root / folder.step_name(step), device)
            except CheckpointError as e:
                damaged.append(e.message)
                continue
            _warn_of(damaged)
            return loaded
    said = f": {'; '.join(damaged)}" if found else ""
    raise CheckpointNotFound(f"load_checkpoint: no valid checkpoint in {root}{said}")


def _warn_of(damaged: list[str]) -> None:
    for message in damaged:
        warnings.warn(f"passed over: {message}", CheckpointWarning, stacklevel=4)


def latest(directory: str | PathLike[str]) -> int | None:
    """The step of the newest checkpoint whose every byte is as it was saved; None without one.

    directory  where the run's checkpoints are

    >>> import weft as wf
    >>> import tempfile
    >>> import weft as wf
    >>> with tempfile.TemporaryDirectory() as run:
    ...     wf.io.latest(run) is None
    True
    """
    root = Path(directory)
    valid = (s for s in reversed(folder.steps(root)) if folder.is_valid(root / folder.step_name(s)))
    return next(valid, None)


def _load(path: Path, device) -> Checkpoint:
    device = canonical_device(device)
    described = folder.read_manifest(path)
    where = str(path / folder.MANIFEST)
    if set(described.trees) != set(_FIELDS):
        raise CheckpointError(
            f"{where}: fields {str(sorted(described.trees))[:200]}, expected {sorted(_FIELDS)}"
        )
    values = {}
    for field, skeleton in described.trees.items():
        arrays: dict = {}
        if field in described.files:
            name, stored = described.files[field]
            arrays = tensor_file.read(path / name, stored)
        values[field] = Restorer(arrays, device, f"{where}: {field}").tree(skeleton)
    if values["step"] != described.step or type(values["epoch"]) is not int:
        raise CheckpointError(
            f"{where}: damaged: its step is not that of the manifest, or its epoch no integer"
        )
    return Checkpoint(**values)
