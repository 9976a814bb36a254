"""The time of a run's steps, measured on throwaway weights."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import weft as wf

from .build import make_trainer
from .throwaway import BatchKind, BatchMaker, Repeated, fill_model, make_model

if TYPE_CHECKING:
    from weft.train import Trainer

    from ..config import FluxConfig
    from .config import TrainConfig
    from .kinds import RunKinds

STEPS = 6
_FIRST = 3  # steps that compile, capture and warm up


class Clock(wf.train.Callback):
    """The times at the ends of steps, when the device is done.

    device  that is waited for
    """

    def __init__(self, device: str):
        self.device = device
        self.times: list[float] = []

    def note(self) -> None:
        """Note the time now."""
        if self.device.startswith("cuda"):
            import torch

            torch.cuda.synchronize(self.device)
        self.times.append(perf_counter())

    def on_fit_start(self, trainer: Trainer) -> None:
        self.note()

    def on_step_end(self, trainer: Trainer, row: dict[str, float]) -> None:
        self.note()

    def seconds(self) -> list[float]:
        """Of each step."""
        return [b - a for a, b in zip(self.times, self.times[1:], strict=False)]


def measure_seconds(
    config: TrainConfig,
    sizes: FluxConfig,
    data: RunKinds,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[BatchKind, float]:
    """Seconds of a step on each kind of batch: the median of a few.

    config    the configuration
    sizes     of the model
    data      the batches of the run
    progress  called with "time", how many kinds are measured, and how many there are
    """
    device = config.train.device
    model = make_model(config, sizes, device)
    fill_model(model)
    maker = BatchMaker(
        data.channels, data.factor, config.encoders.tokens, sizes, data.masks[0], "cpu"
    )
    found: dict[BatchKind, float] = {}
    clock = Clock(device)
    trainer: Any = make_trainer(config, model, STEPS, [clock])
    for n, kind in enumerate(data.trained):
        if progress is not None:
            progress("time", n, len(data.trained))
        clock.times.clear()
        batches = [maker.make(kind)] * (STEPS * config.train.accumulate)
        trainer.fit(Repeated(batches), steps=trainer.step + STEPS)
        found[kind] = median(clock.seconds()[_FIRST:])
    if progress is not None:
        progress("time", len(data.trained), len(data.trained))
    return found
