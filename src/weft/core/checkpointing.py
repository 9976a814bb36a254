"""Checkpoint strategies, as they are asked for."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from .. import errors


class CheckpointStrategy(Enum):
    """What is kept for the backward pass, and what is computed again.

    None_      everything is kept
    Selective  what is expensive to compute is kept
    Block      every n-th value is kept
    Full       only inputs are kept
    Auto       as much is kept as a budget of bytes allows

    >>> import weft as wf
    >>> wf.CheckpointStrategy("full")
    <CheckpointStrategy.Full: 'full'>
    """

    None_ = "none"
    Selective = "selective"
    Block = "block"
    Full = "full"
    Auto = "auto"


@dataclass(frozen=True)
class CheckpointConfig:
    """Which values are kept for the backward pass.

    strategy            a `CheckpointStrategy`, or its name
    checkpoint_every_n  Block: one value in this many is kept
    min_compute_cost    Selective: operations for each element from which on a value is kept
    memory_budget_mb    Auto: the most memory, in MiB (2²⁰ bytes), parameters included
    verify              compare what is computed again with a digest of what it was
    offload             instead of computing values again, move them out: "cpu" from a GPU to host
                        memory (see `wf.save_on_cpu`), "disk" to a temporary file (see
                        `wf.save_on_disk`). What cannot be moved, since it is there already, is
                        computed again

    >>> import weft as wf
    >>> config = wf.CheckpointConfig(strategy=wf.CheckpointStrategy.Block, checkpoint_every_n=2)
    >>> x = wf.ones(1000, requires_grad=True)
    >>> with wf.GradientTape(checkpoint=config) as tape:
    ...     y = wf.exp(wf.exp(wf.sin(x))).sum()
    >>> round(tape.gradient(y, x)[0].item(), 3)
    12.751
    """

    strategy: CheckpointStrategy | str = CheckpointStrategy.Selective
    checkpoint_every_n: int = 3
    min_compute_cost: float = 100.0
    memory_budget_mb: float | None = None
    verify: bool = False
    offload: Literal["cpu", "disk"] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.strategy, CheckpointStrategy):
            try:
                object.__setattr__(self, "strategy", CheckpointStrategy(str(self.strategy).lower()))
            except ValueError:
                names = ", ".join(s.value for s in CheckpointStrategy)
                raise errors.ArgumentError(
                    f"CheckpointConfig: strategy={self.strategy!r}, expected one of {names}"
                ) from None
        if (
            isinstance(self.checkpoint_every_n, bool)
            or not isinstance(self.checkpoint_every_n, int)
            or self.checkpoint_every_n < 1
        ):
            raise errors.ArgumentError(
                f"CheckpointConfig: checkpoint_every_n={self.checkpoint_every_n!r}, expected an "
                "integer of 1 or more"
            )
        if not self.min_compute_cost >= 0:
            raise errors.ArgumentError(
                f"CheckpointConfig: min_compute_cost={self.min_compute_cost!r}, expected a number "
                "of operations for each element, 0 or more"
            )
        budget = self.memory_budget_mb
        if budget is not None and not budget > 0:
            raise errors.ArgumentError(
                f"CheckpointConfig: memory_budget_mb={budget!r}, expected MiB, more than 0"
            )
        if (self.strategy is CheckpointStrategy.Auto) != (budget is not None):
            name = CheckpointStrategy(self.strategy).name
            raise errors.ArgumentError(
                f"CheckpointConfig: strategy {name} with "
                f"memory_budget_mb={budget!r}; Auto needs a budget, and only Auto has one"
            )
        self._check_offload()

    def _check_offload(self) -> None:
        if self.offload not in (None, "cpu", "disk"):
            raise errors.ArgumentError(
                f"CheckpointConfig: offload={self.offload!r}, expected 'cpu', 'disk' or None"
            )
        if self.offload is not None and self.strategy is CheckpointStrategy.None_:
            raise errors.ArgumentError(
                f"CheckpointConfig: offload={self.offload!r} moves what a strategy does not keep, "
                "and None_ keeps everything; strategy='full' moves all"
            )
        if self.offload == "cpu" and self.strategy is CheckpointStrategy.Auto:
            raise errors.ArgumentError(
                "CheckpointConfig: offload='cpu' with Auto, whose budget is of host memory; "
                "offload='disk' moves out of that"
            )
