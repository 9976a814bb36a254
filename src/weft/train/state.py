"""The contents of a run's checkpoint, and restoring a run from it."""

import warnings
from os import PathLike
from pathlib import Path
from typing import Any

from .. import errors
from ..arrays import random
from ..backend.fingerprint import differences as fingerprint_differences
from ..backend.fingerprint import fingerprint
from ..core.differences import differences
from ..io import Checkpoint, load_checkpoint, steps
from ..io.directory import step_name
from .arguments import self_averaging
from .frozen import TrainedState

# Those of earlier versions have no table of frozen parameters.
_EXTRA = ("history", "callbacks", "settings", "fingerprint", "skips")


class _RandomStreams:
    """The streams of `wf.random`, as a part of a run."""

    state_dict = staticmethod(random.get_state)
    load_state_dict = staticmethod(random.set_state)


def capture(trainer: Any) -> Checkpoint:
    """The checkpoint of a run: everything needed to continue it exactly."""
    frozen = None if trainer.save_frozen else trainer.frozen.describe()
    parts = _parts(trainer, trainer.cursor.loader, frozen)
    states = {name: part.state_dict() for name, part in parts.items()}
    return Checkpoint(
        model_state=states["model"],
        optimizer_state=states["optimizer"],
        epoch=trainer.epoch,
        step=trainer.step,
        rng=states["rng"],
        scaler=states.get("scaler"),
        ema=states.get("ema"),
        schedule=states.get("schedule"),
        data=trainer.cursor.state,
        extra={
            "history": states["history"],
            "callbacks": states["callbacks"],
            "settings": trainer.settings(),
            "fingerprint": fingerprint(),
            "skips": trainer.skips,
            "frozen": frozen,
        },
    )


def _parts(trainer, loader, frozen: dict[str, Any] | None) -> dict[str, Any]:
    """The parts that have a state, by their names in messages; frozen ones have none."""
    parts = {
        "model": trainer.model if frozen is None else TrainedState(trainer.model, frozen),
        "optimizer": trainer.optimizer,
        "scaler": trainer.scaler,
        "ema": trainer.own_ema,
        "schedule": trainer.schedule if hasattr(trainer.schedule, "state_dict") else None,
        "rng": _RandomStreams,
        "data": loader,
        "history": trainer.history,
        "callbacks": trainer.callbacks,
    }
    return {name: part for name, part in parts.items() if part is not None}


def restore(trainer: Any, loader: Any, saved: Checkpoint) -> None:
    """Restore a run from a checkpoint, or raise with all differences and change nothing."""
    if not isinstance(saved.extra, dict) or set(saved.extra) - {"frozen"} != set(_EXTRA):
        found = sorted(saved.extra) if isinstance(saved.extra, dict) else saved.extra
        raise errors.StateMismatch(
            f"Trainer: the checkpoint of step {saved.step} has {found!s:.200} beside model and "
            f"optimizer, expected {sorted(_EXTRA)}: it was not saved by a Trainer"
        )
    states = {
        "model": saved.model_state,
        "optimizer": saved.optimizer_state,
        **{name: getattr(saved, name) for name in ("rng", "scaler", "ema", "schedule", "data")},
        **{name: saved.extra[name] for name in ("history", "callbacks")},
    }
    frozen = saved.extra.get("frozen")
    parts = _parts(trainer, loader, frozen)
    given = {name: state for name, state in states.items() if state is not None}
    _load_all(parts, given, saved, trainer.frozen.differences(frozen or {}))
    trainer.step, trainer.skips = saved.step, saved.extra["skips"]
    if not trainer.ranks.first:
        return
    before = {"ranks": 1} | saved.extra["settings"]  # earlier versions saved fewer
    settings = {"ranks": 1} | trainer.settings()
    now = {name: value for name, value in settings.items() if name in before}
    _warn_of("settings", fingerprint_differences(before, now))
    _warn_of("versions or hardware", _changed_machine(saved.extra["fingerprint"]))


def _load_all(
    parts: dict[str, Any], states: dict[str, Any], saved: Checkpoint, problems: list[str]
) -> None:
    """Load every part; if one fails, all are rolled back and the error lists all reasons.

    problems  reasons that are known already
    """
    problems += [f"{name}: not in the checkpoint" for name in parts if name not in states]
    problems += [f"{name}: in the checkpoint, but not here" for name in states if name not in parts]
    problems += _other_dtypes(parts["model"].state_dict(), saved.model_state)
    before = {}
    for name in [name for name in parts if name in states]:
        before[name] = _copy(parts[name].state_dict())
        try:
            parts[name].load_state_dict(states[name])
        except errors.WeftError as e:
            problems.append(f"{name}: {e.message}")
    if problems:
        for name, state in before.items():
            parts[name].load_state_dict(state)
        raise errors.StateMismatch(
            f"Trainer: the checkpoint of step {saved.step} is of another run; nothing was loaded. "
            "What differs:\n  " + "\n  ".join(problems)
        )


def _other_dtypes(own: dict[str, Any], saved: dict[str, Any]) -> list[str]:
    """The tensors whose dtypes differ: loading would round them and change the run."""
    return [
        f"model: {name} is {x.dtype}, in the checkpoint {saved[name].dtype}"
        for name, x in own.items()
        if name in saved and x.dtype != getattr(saved[name], "dtype", x.dtype)
    ]


def _copy(state: dict[str, Any]) -> dict[str, Any]:
    """A state with its tensors copied, since a module's state aliases its own."""
    return {k: v.clone() if hasattr(v, "clone") else v for k, v in state.items()}


def _changed_machine(saved: dict[str, Any]) -> list[str]:
    """What differs in versions and hardware; of PyTorch only if both runs had it loaded."""
    now = fingerprint()
    if saved.get("torch") is None or now["torch"] is None:
        saved, now = saved | {"torch": None}, now | {"torch": None}
    return fingerprint_differences(saved, now)


def _warn_of(what: str, changes: list[str]) -> None:
    if changes:
        warnings.warn(
            f"Trainer: the run goes on under other {what}, so it is not bitwise the one that was "
            f"interrupted: {'; '.join(changes)}",
            errors.ResumeWarning,
            stacklevel=2,
        )


def found_checkpoint(directory: Path | None, resume: Any) -> Checkpoint | None:
    """The checkpoint to resume from: that of a path, the newest intact one, or None."""
    if resume is None:
        return None
    if not isinstance(resume, str | PathLike):
        raise errors.ArgumentError(
            f"Trainer.fit: resume={resume!r:.40}, expected None, 'auto' or the path of a checkpoint"
        )
    if resume != "auto":
        return load_checkpoint(resume)
    if directory is None:
        raise errors.ArgumentError(
            "Trainer.fit: resume='auto' needs a directory; make it Trainer(…, directory=…)"
        )
    there = steps(directory)
    if not there:
        return None
    loaded = load_checkpoint(directory)
    if loaded.step is not None and loaded.step != there[-1]:
        warnings.warn(
            f"Trainer: the newest checkpoint {directory / step_name(there[-1])} is damaged; going "
            f"on from {directory / step_name(loaded.step)}",
            errors.CheckpointWarning,
            stacklevel=2,
        )
    return loaded


def check_directory(directory: Path, resume: Any, step: int) -> None:
    """Refuse to mix the checkpoints of two runs: `resume="auto"` could load the wrong one."""
    there = steps(directory)
    if resume is not None and resume != "auto":
        chosen, home = Path(resume).resolve(), directory.resolve()
        there = [s for s in there if s > step] if chosen.parent == home else there
        there = [] if chosen == home else there
    if there and resume != "auto":
        raise errors.ArgumentError(
            f"Trainer.fit: {directory} holds checkpoints of steps {there[:10]}, and this run "
            f"begins at step {step}; continue from the newest with resume='auto', move them away, "
            "or give another directory"
        )


def weights(trainer: Any) -> dict[str, Any]:
    """Copies of the model's state and of its averages, if there are any."""
    frozen = {} if trainer.save_frozen else trainer.frozen.find()
    kept = {"model": _copy(TrainedState(trainer.model, frozen).state_dict())}
    if trainer.ema is not None:
        kept["ema"] = trainer.ema.state_dict()
    own = self_averaging(trainer.optimizer)
    if own is not None:  # the average is between the parameters and its state
        kept["optimizer"] = own.state_dict()
    return kept


def set_weights(trainer: Any, kept: dict[str, Any]) -> None:
    """Put `weights` back."""
    differences({part: {} for part in weights(trainer)}, kept).refuse("Trainer.set_weights")
    frozen = {n: p for n, p in trainer.frozen.find().items() if n not in kept["model"]}
    TrainedState(trainer.model, frozen).load_state_dict(kept["model"])
    if "ema" in kept:
        trainer.ema.load_state_dict(kept["ema"])
    own = self_averaging(trainer.optimizer)
    if own is not None:
        own.load_state_dict(kept["optimizer"])
