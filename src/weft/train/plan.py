"""What a call of `Trainer.fit` is asked for."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Any


@dataclass(frozen=True)
class Plan:
    """Data, and when to validate and to end; epochs and steps count from the run's beginning."""

    loader: Any
    epochs: int | None
    steps: int | None
    validation: Iterable | None
    validate_every: int | None

    @property
    def out_of_epochs(self) -> bool:
        """Whether all epochs have been gone through."""
        return self.epochs is not None and self.loader.epoch >= self.epochs

    @property
    def validates_epochs(self) -> bool:
        """Whether the end of an epoch is the time to validate."""
        return self.validation is not None and self.validate_every is None

    def last_step(self, step: int, accumulate: int) -> int:
        """The step at which a run that is at `step` will be over, if none is left out."""
        ends = [] if self.steps is None else [self.steps]
        if self.epochs is not None:
            each = ceil(len(self.loader) / accumulate)
            taken = ceil(self.loader.position / accumulate)
            ends.append(step + each * (self.epochs - self.loader.epoch) - taken)
        return max(min(ends), step)
