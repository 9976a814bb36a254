"""Runs of several ranks: the processes that a launcher started as one run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

import weft as wf
from weft.dist.world import world
from weft.train.ranks import Ranks

from .config import refuse

if TYPE_CHECKING:
    from .config import TrainConfig

Value = TypeVar("Value")
Progress = Callable[[str, int, int], None]

# How many processes a launcher has started, by the names that launchers give it.
_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
# Seconds after which ranks that wait for another one's data hear from it.
_BEAT = 10.0


def launched(environment: Mapping[str, str]) -> tuple[str, int] | None:
    """The name under which a launcher says how many processes it has started, and the number.

    environment  of this process

    >>> from weft.diffusion.training.joining import launched
    >>> launched({"WORLD_SIZE": "2"}), launched({"WORLD_SIZE": "1"})
    (('WORLD_SIZE', 2), None)
    """
    for name in _SIZES:
        text = environment.get(name, "")
        if text.isdecimal() and int(text) > 1:
            return name, int(text)
    return None


@contextmanager
def joined(config: TrainConfig) -> Iterator[tuple[TrainConfig, Ranks]]:
    """A block in which the processes of a run are joined, if `train.dist` says so.

    config  the configuration

    Gives the configuration for this process, whose GPU is its own, and the ranks. Several
    processes without `train.dist` are refused: each would train by itself, into one folder.
    """
    started = launched(os.environ)
    if not config.train.dist:
        if started is not None:
            text = (
                f"is false, and a launcher has started {started[1]} processes ({started[0]}), each "
                "of which would train by itself into the same folder; give true, or start one "
                "process"
            )
            refuse(config, [(("train", "dist"), text)])
        yield config, Ranks()
        return
    if wf.dist.is_initialized():
        yield _on_own_device(config), Ranks(world())  # type: ignore[arg-type]
        return
    wf.dist.init("torch" if started is None or started[0] == "WORLD_SIZE" else "mpi")
    yield _on_own_device(config), Ranks(world())  # type: ignore[arg-type]
    wf.dist.finalize()  # after an error, ranks that wait are told of it when the process ends


def _on_own_device(config: TrainConfig) -> TrainConfig:
    """The configuration with this process's GPU in the place of any."""
    number = os.environ.get("LOCAL_RANK", "")
    if config.train.device != "cuda" or not number.isdecimal():
        return config
    return replace(config, train=replace(config.train, device=f"cuda:{number}"))


def in_turn(
    ranks: Ranks, what: str, action: Callable[[Progress], Value], progress: Progress | None
) -> Value:
    """What an action gives here; ranks do it one after the other, rank 0 first.

    ranks     of the run
    what      that is done, for messages
    action    called with a function that is to be called with its progress: the others, which
              wait, hear of it
    progress  called with the same; None: nothing
    """
    found: list[Value] = []

    def act() -> str:
        found.append(action(_Beat(ranks, what, progress)))
        return "done"

    for turn in range(ranks.size):
        if turn == ranks.rank:
            ranks.together(what, act)
        else:
            while ranks.together(what, lambda: None)[turn] != "done":
                pass
    return found[0]


class _Beat:
    """Progress, of which ranks that wait hear now and then."""

    def __init__(self, ranks: Ranks, what: str, progress: Progress | None):
        self._ranks, self._what, self._progress = ranks, what, progress
        self._last = monotonic()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(stage, done, total)
        if not self._ranks.alone and monotonic() - self._last > _BEAT:
            self._ranks.together(self._what, lambda: "going on")
            self._last = monotonic()
