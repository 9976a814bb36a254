"""The arguments of a call of `Trainer.fit`."""

from collections.abc import Iterable
from math import ceil
from typing import TYPE_CHECKING, Any

from ..core.record import record

if TYPE_CHECKING:
    from .cursor import Loader


@record
class TrainingPlan:
    """Data, and when to validate and to end; epochs and steps count from the run's beginning."""

    loader: "Loader"
    epochs: int | None
    steps: int | None
    validation: Iterable[Any] | None
    validate_every: int | None

    @property
    def validates_epochs(self) -> bool:
        """Whether to validate at the end of each epoch."""
        return self.validation is not None and self.validate_every is None

    def is_done(self, step: int, epoch: int) -> bool:
        """Whether a run at this step and epoch is complete."""
        return (self.steps is not None and step >= self.steps) or (
            self.epochs is not None and epoch >= self.epochs
        )

    def last_step(self, step: int, epoch: int, position: int, accumulate: int) -> int:
        """The last step of a run that is at this step and epoch, if none is skipped."""
        ends = [] if self.steps is None else [self.steps]
        if self.epochs is not None:
            each = ceil(len(self.loader) / accumulate)
            taken = ceil(position / accumulate)
            ends.append(step + each * (self.epochs - epoch) - taken)
        return max(min(ends), step)

    def nothing_to_do(self, step: int, epoch: int, stopped: str | None) -> str | None:
        """The message for a run that is already complete; None if it is not, or a limit is 0."""
        asked = {"epochs": self.epochs, "steps": self.steps}
        given = ", ".join(f"{name}={n}" for name, n in asked.items() if n is not None)
        where = f"the run is at step {step}, epoch {epoch}"
        if stopped is not None:
            return f"Trainer.fit({given}): nothing to do, {where}: {stopped}"
        if 0 in asked.values() or not self.is_done(step, epoch):
            return None
        return (
            f"Trainer.fit({given}): nothing to do: {where}, and epochs and steps count from the "
            "run's beginning; give larger numbers to go on, or make a new Trainer to begin again"
        )
