"""The beginning of a run of several ranks: the same settings, data, state and checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import errors
from ..arrays import random
from ..arrays.inplace import copy_
from ..backend.fingerprint import fingerprint
from ..core import dtypes
from ..core.value import TENSORS, wrap
from ..io import Checkpoint, load_checkpoint
from ..io.directory import MANIFEST, step_name
from ..transform.modes.backward import no_grad
from . import state
from .ranks import Ranks

if TYPE_CHECKING:
    from .trainer import Trainer


def joined_ranks(dist: bool) -> Ranks:
    """The ranks of a trainer: those of `wf.dist.init()`, or this process alone."""
    if not dist:
        return Ranks()
    from ..dist.world import world  # most runs have no other ranks

    return Ranks(world())  # type: ignore[arg-type]


def check_same(trainer: Trainer, resume: Any) -> None:
    """Raise on all ranks unless all have made the same trainer, and called `fit` alike."""
    if trainer.ranks.alone:
        return
    plan, loader = trainer._plan, trainer._plan.loader
    if not hasattr(loader, "parts"):
        raise errors.ArgumentError(
            f"Trainer.fit: dist=True needs a loader that gives each rank its part of a batch, and "
            f"a {type(loader).__name__} has no parts(part); take a wf.train.DataLoader, or define "
            "it: a loop over a Share of each batch"
        )
    trainer.ranks.agree("Weft", {"the version": fingerprint()["weft"]})
    trainer.ranks.agree(
        "Trainer",
        {
            "the model": {n: _kind(x) for n, x in trainer.model.state_dict().items()},
            "what is frozen": trainer.frozen.describe(),
            "the optimizer": _plain(trainer.optimizer.state_dict()),
            "the averages": None if trainer.own_ema is None else str(trainer.own_ema.decay),
            "settings": _plain(trainer.settings() | {"device": None}),  # each has its own
            "the directory's use": [trainer.directory is None, trainer.save_every, trainer.keep],
            "callbacks": list(trainer.callbacks.state_dict()),
            "the run": [trainer.step, trainer.epoch],
        },
    )
    trainer.ranks.agree(
        "Trainer.fit",
        {
            "loader": [type(loader).__name__, len(loader), _plain(dict(loader.state_dict()))],
            "epochs": plan.epochs,
            "steps": plan.steps,
            "validation": [plan.validation is None, plan.validate_every],
            "resume": "a path" if isinstance(resume, PathLike) else resume,
        },
    )


def _kind(x: Any) -> str:
    return f"{x.dtype}{list(x.shape)}"


def _plain(x: Any) -> Any:
    """A state as plain data: of arrays the kind, of the rest the values."""
    if isinstance(x, dict):
        return {str(name): _plain(value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        return [_plain(value) for value in x]
    if type(x) in TENSORS or hasattr(x, "dtype"):
        return _kind(x)
    return x if isinstance(x, str | int | float | bool | None) else str(x)


def share_state(trainer: Trainer) -> None:
    """Give all ranks what rank 0 begins with: model, optimizer, averages, random numbers."""
    ranks = trainer.ranks
    if ranks.alone:
        return
    random.set_state(ranks.from_first("the random state", random.get_state))
    if trainer._joined:
        return
    frozen = trainer.frozen.find()  # whose values are the same on all ranks: `check_same`
    tensors = trainer.model.state_dict(keep_vars=True).items()
    with no_grad():
        for name, x in tensors:
            if name not in frozen:
                copy_(x, _from_first(ranks, x))
        for part in (trainer.optimizer, trainer.own_ema):
            if part is not None:
                part.load_state_dict(_first_state(ranks, part.state_dict()))
    trainer._joined = True


def _from_first(ranks: Ranks, x: Any) -> Any:
    """What rank 0 has in place of a tensor."""
    assert ranks.group is not None
    is_bool = x.dtype == dtypes.bool_
    plain = x.detach().to(dtypes.uint8) if is_bool else x.detach()
    found = wrap(ranks.group.broadcast(plain._data, 0))
    return found.to(dtypes.bool_) if is_bool else found


def _first_state(ranks: Ranks, x: Any) -> Any:
    """A state with the tensors that rank 0 has."""
    if isinstance(x, dict):
        return {name: _first_state(ranks, value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        return type(x)(_first_state(ranks, value) for value in x)
    return _from_first(ranks, x) if type(x) in TENSORS else x


def load_together(trainer: Trainer, resume: str | PathLike[str] | None) -> Checkpoint | None:
    """The checkpoint that all ranks resume from: rank 0 says which one."""
    ranks = trainer.ranks
    if ranks.alone:
        return state.found_checkpoint(trainer.directory, resume)
    found: list[Checkpoint] = []

    def find() -> int | None:
        saved = state.found_checkpoint(trainer.directory, resume)
        found.extend([] if saved is None else [saved])
        return None if saved is None else saved.step

    step = ranks.from_first("finding the checkpoint", find)
    if step is None:
        return None
    place: Any = trainer.directory if resume == "auto" else resume
    here = next((p for p in _places(place, step) if (p / MANIFEST).exists()), Path(place))

    def load() -> str:
        if not found:
            found.append(load_checkpoint(here))
        return sha256((here / MANIFEST).read_bytes()).hexdigest()

    digests = ranks.together("loading the checkpoint", load)
    other = next((r for r, digest in enumerate(digests) if digest != digests[0]), None)
    if other is not None:
        raise errors.RanksDiffer(
            f"Trainer.fit: rank {other} finds another checkpoint of step {step} in its directory "
            f"than rank 0 (here: {here}); give all ranks one directory, on a file system that all "
            "machines share"
        )
    return found[0]


def _places(place: Any, step: int) -> Iterator[Path]:
    """Where the checkpoint of a step may be: in a run's folder, or in one of its own."""
    yield Path(place) / step_name(step)
    yield Path(place)
