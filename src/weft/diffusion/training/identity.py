"""What has to stay as it is when a run goes on: settings that make its numbers, and its base."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import weft as wf
from weft.io.directory import read_manifest, step_name

from ..digests import FileDigests, content_digest
from ..files import find_files
from .data_identity import data_differences, describe_data

if TYPE_CHECKING:
    from ..data import CachedDataset
    from .config import TrainConfig

# Sections whose settings stay, without those that may change (the rate follows the configuration).
_STAYS: dict[str, tuple[str, ...]] = {"adapter": ("start",), "noise": ()}
_SINGLE = (
    *(("model", "guidance"), ("train", "ema"), ("train", "unet_lr_scale"), ("train", "seed")),
    ("train", "batch"),
)


class RunIdentity(wf.train.Callback):
    """Settings and digests of a run, in its checkpoints; a run that differs does not go on.

    config  the configuration
    data    what is trained on; None: the loader alone compares it

    Files of the base count by their content: another folder may have them.
    """

    def __init__(self, config: TrainConfig, data: CachedDataset | None = None):
        self._now = {**dict(_settings(config)), **dict(_base(config))}
        self._data = None if data is None else describe_data(config, data)

    def state_dict(self) -> dict[str, Any]:
        return self._now if self._data is None else {**self._now, _DATA: self._data}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        refuse_other(self._now, self._data, saved)


def refuse_other(
    now: Mapping[str, str], data: dict[str, Any] | None, saved: Mapping[str, Any]
) -> None:
    """Raise if a run's settings or data are others than a checkpoint's.

    now    settings of the run
    data   what `describe_data` gave
    saved  the state of a `RunIdentity`
    """
    before = {name: text for name, text in saved.items() if name != _DATA}
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    lines = [f"{n} is {now.get(n, 'absent')}, it was {before.get(n, 'absent')}" for n in names]
    if _DATA in saved and data is not None:
        lines += data_differences(data, saved[_DATA])
    if lines:
        raise wf.errors.StateMismatch(
            f"{'; '.join(lines)}. Give what it was, or another output.directory"
        )


def check_resume(
    config: TrainConfig, data: Callable[[], CachedDataset], last: int | None = None
) -> None:
    """Raise if the run in `output.directory` is another one; weights are not looked at.

    config  the configuration
    data    gives what is trained on, if there is a checkpoint to compare it with
    last    the step that the run goes on from, if that is said
    """
    directory = config.output.directory
    for step in reversed(wf.io.steps(directory)):
        if last is not None and step > last:
            continue
        try:
            trees = read_manifest(directory / step_name(step)).trees
            saved = dict(trees["extra"]["callbacks"]["RunIdentity"])
        except (wf.errors.CheckpointError, KeyError, TypeError):
            continue  # damaged, or of something else, which the trainer says
        known = {name: text for name, text in saved.items() if not name.startswith(_WEIGHTS)}
        try:
            refuse_other(dict(_settings(config)), describe_data(config, data()), known)
        except wf.errors.StateMismatch as e:
            raise wf.errors.StateMismatch(
                f"the checkpoint of step {step} in {directory} is of another run: {e.message}"
            ) from None
        return


_DATA = "data"
_WEIGHTS = "model.path"


def _settings(config: TrainConfig) -> Iterator[tuple[str, str]]:
    """All that stays but the base, as text by its place in the configuration."""
    for section, free in _STAYS.items():
        yield from _texts(section, getattr(config, section), free)
    yield "optimizer.name", repr(config.optimizer.name)
    yield from _texts("optimizer", config.optimizer.config, ("lr",))
    for section, name in _SINGLE:
        yield f"{section}.{name}", repr(getattr(getattr(config, section), name))
    start = config.adapter.start
    yield "adapter.start", "none" if start is None else f"a file of digest {content_digest(start)}"


def _base(config: TrainConfig) -> Iterator[tuple[str, str]]:
    """The files of the base, by their content."""
    paths, sizes = find_files(config.model.path)
    digests = FileDigests((config.model.cache or config.encoders.cache) / "digests.json")
    for n, path in enumerate(paths):
        yield f"{_WEIGHTS} (weights, file {n + 1})", f"of digest {digests.of(path)}"
    if sizes is not None:
        yield f"{_WEIGHTS} (config.json)", repr(sorted(sizes.to_dict().items()))


def _texts(place: str, value: Any, free: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The fields of dataclasses in dataclasses, as text, but some."""
    if isinstance(value, tuple) and any(map(is_dataclass, value)):
        value = {f"{n}": v for n, v in enumerate(value)}
    if is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    if not isinstance(value, dict):
        yield place, str(value) if isinstance(value, Path) else repr(value)
        return
    for name, part in value.items():
        if name not in free:
            yield from _texts(f"{place}.{name}", part, free)
