"""What has to stay as it is when a run goes on: settings that make its numbers, and its base."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import weft as wf

from ..digests import FileDigests, content_digest
from ..files import find_files

if TYPE_CHECKING:
    from .config import TrainConfig

# Sections whose settings stay, without those that may change (the rate follows the configuration).
_STAYS: dict[str, tuple[str, ...]] = {"adapter": ("start",), "noise": ()}
_SINGLE = (("model", "guidance"), ("train", "ema"), ("train", "unet_lr_scale"), ("train", "seed"))


class RunIdentity(wf.train.Callback):
    """Settings and digests of a run, in its checkpoints; a run that differs does not go on.

    config  the configuration

    Files of the base count by their content: another folder may have them.
    """

    def __init__(self, config: TrainConfig):
        self._now = dict(_settings(config))

    def state_dict(self) -> dict[str, str]:
        return self._now

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        names = [name for name in {**saved, **self._now} if saved.get(name) != self._now.get(name)]
        if names:
            lines = [f"{n} is {self._now.get(n, 'absent')}, it was {saved.get(n)}" for n in names]
            raise wf.errors.StateMismatch(
                f"{'; '.join(lines)}. Give what it was, or another output.directory"
            )


def _settings(config: TrainConfig) -> Iterator[tuple[str, str]]:
    """All that stays, as text by its place in the configuration."""
    for section, free in _STAYS.items():
        yield from _texts(section, getattr(config, section), free)
    yield "optimizer.name", repr(config.optimizer.name)
    yield from _texts("optimizer", config.optimizer.config, ("lr",))
    for section, name in _SINGLE:
        yield f"{section}.{name}", repr(getattr(getattr(config, section), name))
    start = config.adapter.start
    yield "adapter.start", "none" if start is None else f"a file of digest {content_digest(start)}"
    paths, sizes = find_files(config.model.path)
    digests = FileDigests((config.model.cache or config.encoders.cache) / "digests.json")
    for n, path in enumerate(paths):
        yield f"model.path (weights, file {n + 1})", f"of digest {digests.of(path)}"
    if sizes is not None:
        yield "model.path (config.json)", repr(sorted(sizes.to_dict().items()))


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
