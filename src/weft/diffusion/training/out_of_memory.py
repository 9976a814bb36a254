"""What is said when a run is out of memory: what it takes, what is free, and which budget fits."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from traceback import clear_frames
from typing import TYPE_CHECKING, Any

import weft as wf

from ..weights import model_sizes
from .build import make_encoders
from .footprint import Footprint, RunBytes, budget_text
from .free import free_bytes
from .kinds import find_kinds

if TYPE_CHECKING:
    from .config import TrainConfig

_IMPOSSIBLE = 1 / 1024  # MiB: a budget that is refused, with the smallest that works
_SHARE = 0.95  # of what is free: the rest is for what budgets do not count


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error is that of NumPy, of PyTorch or of a budget for want of memory.

    error  what was raised

    >>> from weft.diffusion.training.out_of_memory import is_out_of_memory
    >>> is_out_of_memory(MemoryError()), is_out_of_memory(ValueError())
    (True, False)
    """
    torch: Any = sys.modules.get("torch")
    kinds = MemoryError if torch is None else (MemoryError, torch.OutOfMemoryError)
    return isinstance(error, kinds)


@contextmanager
def out_of_memory_explained(config: TrainConfig) -> Iterator[None]:
    """A block in which running out of memory says what would fit.

    config  of the run
    """
    why = None
    try:
        yield
    except Exception as e:
        if not is_out_of_memory(e):
            raise
        why = str(getattr(e, "message", e)) or type(e).__name__
        clear_frames(e.__traceback__)  # what they hold is in the way of a plan
    if why is not None:
        gc.collect()
        raise explain(config, why)


def explain(config: TrainConfig, why: str) -> wf.errors.BudgetExceeded:
    """The error of a run that was out of memory; its own memory is free again.

    config  of the run
    why     the text of what was raised
    """
    first = why.strip().splitlines()[0][:200]
    free = free_bytes(config.train.device)
    if config.train.device != "cpu" and not config.train.compile:
        text = f"{_mib(free)} MiB are free; train.compile = true takes less, and budgets are kept"
        return wf.errors.BudgetExceeded(f"out of memory: {text} ({first}). {_stays(config)}")
    sizes = model_sizes(config.model.path)
    data = find_kinds(config, make_encoders(config.encoders, sizes))
    memory = Footprint(config, sizes, data).find()
    smallest = memory.smallest
    if smallest is None and config.train.compile:
        tight = replace(config, train=replace(config.train, memory_budget_mb=_IMPOSSIBLE))
        smallest = Footprint(tight, sizes, data).find().smallest
    head = f"out of memory on {config.train.device!r}: {_needed(config, memory)}"
    text = f"{head}, and {_mib(free)} MiB are free. {_fitting(memory, smallest, free)}"
    text += f" ({first})" if memory.smallest is None else ""
    failure = wf.errors.BudgetExceeded(f"{text}. {_stays(config)}")
    failure.smallest = smallest
    return failure


def _needed(config: TrainConfig, memory: RunBytes) -> str:
    if memory.smallest is not None:
        given = config.train.memory_budget_mb
        least = budget_text(memory.smallest)
        return f"train.memory_budget_mb = {given:g} is refused, as steps take {least} MiB at least"
    return f"the run takes {_mib(memory.peak)} MiB"


def _fitting(memory: RunBytes, smallest: int | None, free: int | None) -> str:
    """Which budget would fit."""
    ways = "`weft estimate` looks for other ways"
    if smallest is None:
        return f"Give train.compile = true, whose budgets are planned; {ways}"
    if free is not None and smallest > free * _SHARE:
        return f"No budget fits: the smallest is {budget_text(smallest)} MiB; {ways}"
    chosen = smallest if free is None else max(smallest, min(int(free * _SHARE), memory.peak))
    least = budget_text(smallest)
    return f"train.memory_budget_mb = {budget_text(chosen)} fits, and {least} is the smallest"


def _stays(config: TrainConfig) -> str:
    """What is there of the run."""
    saved = sorted(config.output.directory.glob("step-*"))
    if not saved:
        return "No step was saved, and the cache of latents and embeddings stays"
    return f"The checkpoint {saved[-1].name} stays: the same command goes on from it"


def _mib(nbytes: int | None) -> str:
    return "an unknown number of" if nbytes is None else f"{nbytes / 2**20:,.1f}"
