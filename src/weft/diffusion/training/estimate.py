"""What a run will take, before it: memory, time, and room on the disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any

from weft.profile.valueless import ASSUMED, device_of_plan

from ..files import has_weights
from . import build
from .config import TrainConfig, read_config, refuse
from .contradictions import schedule_misfits
from .disk import disk_bytes
from .fitting import check_fit, needed_budget, over_budget
from .footprint import Footprint, RunBytes
from .free import free_bytes
from .kinds import RunKinds, find_kinds
from .rehearsal import measure_seconds
from .remedies import find_remedies
from .throwaway import BatchKind

PROGRAMS = 32  # of a trainer's steps


@dataclass(frozen=True)
class RunEstimate:
    """What a run will take; `wf.diffusion.estimate` makes it, and `weft estimate` prints it.

    device     where it trains
    memory     the most bytes, by part and by kind of batch
    free       bytes that are free on the device now; None: it is not here
    batches    how many batches of each kind an epoch has
    steps      of the run
    accumulate  batches of a step
    seconds    of a step on each kind of batch; None: they were not measured
    disk       bytes on the disk, by what they are for
    refused    why the budget is refused; "" if it is not
    remedies   what would make it fit, where it does not
    notes      what this says nothing of
    budget     bytes that the run may take; None: it has no budget

    >>> import weft as wf
    >>> wf.diffusion.estimate("none.toml")
    Traceback (most recent call last):
        ...
    weft.errors.ConfigError: none.toml: cannot be read: No such file or directory (at ...)
    """

    device: str
    memory: RunBytes
    free: int | None
    batches: dict[BatchKind, int]
    steps: int
    accumulate: int
    seconds: dict[BatchKind, float] | None
    disk: dict[str, int]
    refused: str = ""
    remedies: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    budget: int | None = None

    @property
    def peak(self) -> int:
        """The most bytes that are there at once; at least so many, if the budget is refused."""
        return self.memory.peak

    def parts(self) -> dict[str, int]:
        """What the peak is made of, the largest part first.

        >>> import weft as wf
        >>> from weft.diffusion.training.footprint import RunBytes
        >>> from weft.diffusion.training.throwaway import BatchKind
        >>> one = BatchKind(1, 64, 64)
        >>> memory = RunBytes({"base": 300, "batch": 100}, {one: 400}, one)
        >>> found = wf.diffusion.RunEstimate("cpu", memory, 500, {one: 3}, 6, 1, None, {})
        >>> found.parts()
        {'base': 300, 'batch': 100}
        """
        return dict(self.memory.parts)

    @property
    def largest(self) -> tuple[int, int]:
        """Width and height of the bucket with the largest steps."""
        return self.memory.largest.width, self.memory.largest.height

    @property
    def smallest_budget(self) -> int | None:
        """The smallest budget in bytes that works, where the given one is refused."""
        return needed_budget(self.memory) if self.refused else None

    @property
    def fits(self) -> bool | None:
        """Whether the device has that much free; None: it is not known."""
        if self.refused:
            return False
        return None if self.free is None else self.peak <= self.free

    @property
    def seconds_per_step(self) -> float | None:
        """The mean over an epoch."""
        if self.seconds is None:
            return None
        total = sum([self.seconds[kind] * n for kind, n in self.batches.items()])
        return total / sum(self.batches.values())

    @property
    def images_per_second(self) -> float | None:
        """The mean over an epoch."""
        per_step = self.seconds_per_step
        if not per_step:
            return None
        images = sum([kind.count * n for kind, n in self.batches.items()])
        return images / sum(self.batches.values()) * self.accumulate / per_step

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON.

        >>> import weft as wf
        >>> from weft.diffusion.training.footprint import RunBytes
        >>> from weft.diffusion.training.throwaway import BatchKind
        >>> one = BatchKind(1, 64, 64)
        >>> memory = RunBytes({"base": 300, "batch": 100}, {one: 400}, one)
        >>> found = wf.diffusion.RunEstimate("cpu", memory, 500, {one: 3}, 6, 1, None, {})
        >>> found.to_dict()["peak"], found.to_dict()["fits"]
        (400, True)
        """
        per_step = self.seconds_per_step
        return {
            "device": self.device,
            "peak": self.peak,
            "parts": self.parts(),
            "free": self.free,
            "budget": self.budget,
            "fits": self.fits,
            "refused": self.refused,
            "smallest_budget": self.smallest_budget,
            "kinds": [
                {
                    "images": kind.count,
                    "width": kind.width,
                    "height": kind.height,
                    "batches": n,
                    "peak": self.memory.kinds[kind],
                    "seconds": None if self.seconds is None else self.seconds[kind],
                }
                for kind, n in self.batches.items()
            ],
            "steps": self.steps,
            "seconds_per_step": per_step,
            "images_per_second": self.images_per_second,
            "seconds": None if per_step is None else per_step * self.steps,
            "disk": self.disk,
            "remedies": list(self.remedies),
            "notes": list(self.notes),
        }


def estimate(
    config: TrainConfig | str | PathLike[str],
    time: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> RunEstimate:
    """What a run will take: the most memory, room on the disk, and maybe time.

    config    a TOML file, or what `read_config` gave
    time      whether a few steps are run on throwaway weights, if there is room for them
    progress  called with a stage, how much of it is done, and how much there is

    The folders are scanned, and the model's sizes read; its weights are not, no encoder runs and
    nothing is written. Memory is predicted from the plans of the programs that the run compiles (or
    by running eager mode on arrays without values), and takes none of what it predicts.

    >>> import weft as wf
    >>> wf.diffusion.estimate("none.toml")
    Traceback (most recent call last):
        ...
    weft.errors.ConfigError: none.toml: cannot be read: No such file or directory (at ...)
    """
    if not isinstance(config, TrainConfig):
        config = read_config(config)
    sizes, encoders = check_fit(config, writes=False)
    data = find_kinds(config, encoders, progress)
    refuse(config, schedule_misfits(config, build.run_length(config, data.batches)))
    memory = Footprint(config, sizes, data).find(progress)
    free = free_bytes(config.train.device)
    refused = over_budget(config, memory)
    refused = f"train.memory_budget_mb: {refused}" if refused else ""
    fits = not refused and (free is None or memory.peak <= free)
    remedies: tuple[str, ...] = ()
    if not fits:
        remedies = find_remedies(config, sizes, data, memory, free, progress)
    seconds, budget = None, config.train.memory_budget_mb
    if time and fits and free is not None:
        seconds = measure_seconds(config, sizes, data, progress)
    return RunEstimate(
        config.train.device,
        memory,
        free,
        data.trained,
        build.run_length(config, data.batches),
        config.train.accumulate,
        seconds,
        disk_bytes(config, sizes, data, memory),
        refused,
        remedies,
        tuple(_notes(config, data, time and seconds is None)),
        None if budget is None else int(budget * (1 << 20)),
    )


def _notes(config: TrainConfig, data: RunKinds, untimed: bool) -> list[str]:
    found = []
    device, train = config.train.device, config.train
    if device_of_plan(device) != device:
        found.append(
            f"there is no {device!r} here: programs are planned for a GPU of compute capability "
            f"{ASSUMED / 10:g}; whether its memory is enough, and times, are not known"
        )
    elif untimed:
        found.append("no step was timed, as it would not fit")
    if device != "cpu" and config.preview.prompts:
        found.append(
            "previews are drawn in eager mode, whose memory on a GPU is not predicted: leave room"
        )
    if not train.compile and train.memory_budget_mb is not None:
        found.append("eager mode finds out while it runs whether its budget is enough")
    if train.compile and len(data.trained) > PROGRAMS:
        found.append(
            f"{len(data.trained)} kinds of batches, and a run compiles {PROGRAMS} at most: give "
            "fewer images.resolutions, a larger images.step, or batch = 1"
        )
    if not has_weights(config.model.path):
        found.append(f"{config.model.path} has no weights yet: its config.json was believed")
    if config.adapter.start is not None:
        found.append("adapter.start is taken to have the adapters that the configuration names")
    return found
