"""Going back in a run: which checkpoint is sound, and setting later ones aside."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ..errors import CheckpointNotFound
from ..io import directory, disk, locked, save_checkpoint, steps
from ..io.durable import make_directories
from . import state

if TYPE_CHECKING:
    from .history import History

ASIDE = "aside"
# A loss of more than so many times the median of those before says that a run diverges.
_MOST = 10


def sound_step(history: History, among: Iterable[int]) -> int | None:
    """The newest checkpoint whose parameters have given a loss of the usual size; None: none has.

    history  of the run
    among    the steps of the checkpoints

    The loss of a step is that of the parameters before it: it tells of the checkpoint before.
    """
    if not len(history):
        return None
    numbers, losses = history.train["step"], history.train["loss"]
    rows = {int(step): row for row, step in enumerate(numbers)}
    for step in sorted(among, reverse=True):
        row = rows.get(step + 1)
        if row is not None and _is_usual(losses[row], losses[: row + 1]):
            return step
    return None


def _is_usual(loss: float, losses: list[float]) -> bool:
    return isfinite(loss) and abs(loss) <= _MOST * median(map(abs, losses))


def rewind(trainer: Any, whole: Any = None) -> tuple[int | None, list[int]]:
    """Set aside the state of a run that has diverged, and the checkpoints that are not sound.

    trainer  whose directory it is
    whole    the checkpoint of the state; None: it is made here

    Returns the checkpoint that the run goes on from, and the steps that are aside.
    """
    root = trainer.directory
    kept = sound_step(trainer.history, steps(root))
    later = [s for s in steps(root) if kept is None or s > kept]
    aside: list[int] = sorted({*later, *([trainer.step] if trainer.step else [])})
    if aside:
        make_directories(root / ASIDE)
    if trainer.step and trainer.step not in later:
        save_checkpoint(root / ASIDE, state.capture(trainer) if whole is None else whole)
    _move(root, later, root / ASIDE)
    return kept, aside


def check_step(root: Path, step: int) -> None:
    """Raise unless a run has a checkpoint of a step, or the step is 0.

    root  its directory
    step  the step
    """
    there, aside = steps(root), steps(root / ASIDE)
    if step and step not in (*there, *aside):
        more = f", and {aside} in {root / ASIDE}" if aside else ""
        raise CheckpointNotFound(
            f"{root}: no checkpoint of step {step}; there are {there or 'none'}{more}"
        )


def go_back(root: Path, step: int) -> None:
    """Make a checkpoint the newest one of a run: later ones are set aside.

    root  the run's directory
    step  of the checkpoint, which may be one that was set aside; 0: the run begins anew
    """
    check_step(root, step)
    if not steps(root) and not steps(root / ASIDE):
        return
    with locked(root):
        _move(root, [s for s in steps(root) if s > step], root / ASIDE)
        if step and step not in steps(root):
            _move(root / ASIDE, [step], root)


def _move(source: Path, numbers: list[int], target: Path) -> None:
    """Move checkpoints into another directory, in the place of those of the same steps."""
    if not numbers:
        return
    make_directories(target)
    for name in map(directory.step_name, sorted(numbers, reverse=True)):
        if directory.is_own(target / name):
            directory.remove(target / name)
        disk.rename(source / name, target / name)
    disk.sync_directory(target)
    disk.sync_directory(source)
