"""What would make a run fit that does not: each remedy is planned as a run is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .fitting import needed_budget, over_budget
from .footprint import Footprint, RunBytes, budget_text

if TYPE_CHECKING:
    from ..config import FluxConfig
    from .config import TrainConfig
    from .kinds import RunKinds

_IMPOSSIBLE = 1 / 1024  # MiB


def find_remedies(
    config: TrainConfig,
    sizes: FluxConfig,
    data: RunKinds,
    memory: RunBytes,
    free: int | None,
    progress: Callable[[str, int, int], None] | None = None,
) -> tuple[str, ...]:
    """Changes of a configuration with which a run fits, the mildest first.

    config    the configuration
    sizes     of the model
    data      the batches of the run
    memory    what it takes
    free      bytes that are free; None: it is not known, and budgets are not compared with it
    progress  called with "remedies", how many were looked at, and how many there are
    """
    found, tries = [], list(_changes(config))
    for n, (text, changed) in enumerate(tries):
        if progress is not None:
            progress("remedies", n, len(tries))
        own = data.again(changed)
        if own is None:
            continue
        planned = Footprint(changed, sizes, own).find()
        if over_budget(changed, planned):
            least = needed_budget(planned)
            if free is None or least <= free:
                found.append(f"{text}train.memory_budget_mb = {budget_text(least)}")
        elif free is None or planned.peak <= free:
            found.append(f"{text.removesuffix(' and ')} ({_gib(planned.peak)} GiB)")
    if progress is not None:
        progress("remedies", len(tries), len(tries))
    if not found:
        found.append(_nothing(config, memory))
    return tuple(found)


def _changes(config: TrainConfig) -> Iterator[tuple[str, TrainConfig]]:
    """Changed configurations, with how they read. A budget that was given stays, or a larger one is
    named; an impossible one is given where the smallest is to be found."""
    if config.train.compile:
        yield "", _with_budget(config, _IMPOSSIBLE)
    if config.model.quantise is None:
        eight: Any = replace(config, model=replace(config.model, quantise="int8"))
        yield 'model.quantise = "int8" and ', eight
        if config.train.compile and config.train.memory_budget_mb is None:
            yield 'model.quantise = "int8" and ', _with_budget(eight, _IMPOSSIBLE)
    if config.train.batch > 1:
        yield "train.batch = 1 and ", replace(config, train=replace(config.train, batch=1))
    smaller = tuple(max(r // 2, config.images.shortest) for r in config.images.resolutions)
    if smaller != config.images.resolutions:
        half = replace(config, images=replace(config.images, resolutions=smaller))
        yield f"images.resolutions = {list(smaller)} and ", half


def _with_budget(config: TrainConfig, mib: float | None) -> TrainConfig:
    return replace(config, train=replace(config.train, memory_budget_mb=mib))


def _nothing(config: TrainConfig, memory: RunBytes) -> str:
    base = memory.parts.get("base", 0)
    return (
        f"no budget, 8-bit base, batch of 1 or half of the resolution is enough: the base alone "
        f"takes {_gib(base)} GiB; take a device with more memory, or a smaller base"
    )


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:.2f}"
