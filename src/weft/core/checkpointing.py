"""Checkpoint strategies, as they are asked for."""

from dataclasses import dataclass
from enum import Enum
from numbers import Real
from typing import Literal

from .. import errors

MIB = 1 << 20


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
    memory_budget_mb    the most memory, in MiB (2²⁰ bytes): of all tensors, parameters included;
                        where the strategy takes more, more is computed again
    verify              compare what is computed again with a digest of what it was, and name the
                        first operation that differs; for debugging eager programs
    offload             instead of computing values again, move them out: "cpu" from a GPU to host
                        memory (see `wf.save_on_cpu`), "disk" to a temporary file (see
                        `wf.save_on_disk`). What cannot be moved, since it is there already, is
                        computed again. For eager programs

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
        self._check_types()
        names = [s.value for s in CheckpointStrategy]
        if not isinstance(self.strategy, CheckpointStrategy):
            name = str(self.strategy).lower()
            if name not in names:
                raise _unlike("strategy", self.strategy, f"one of {', '.join(names)}")
            object.__setattr__(self, "strategy", CheckpointStrategy(name))
        every, budget = self.checkpoint_every_n, self.memory_budget_mb
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise _unlike("checkpoint_every_n", every, "an integer of 1 or more")
        if not self.min_compute_cost >= 0:
            raise _unlike("min_compute_cost", self.min_compute_cost, "operations, 0 or more")
        if budget is not None and not budget > 0:
            raise _unlike("memory_budget_mb", budget, "MiB, more than 0")
        if self.strategy is CheckpointStrategy.Auto and budget is None:
            raise errors.ArgumentError(
                "CheckpointConfig: the strategy Auto needs a budget; give memory_budget_mb="
            )
        if self.offload is not None:
            self._check_offload()

    def _check_types(self) -> None:
        for name in ("min_compute_cost", "memory_budget_mb"):
            given = getattr(self, name)
            if given is not None and (isinstance(given, bool) or not isinstance(given, Real)):
                raise _unlike(name, given, "a number")
        if not isinstance(self.verify, bool):
            raise _unlike("verify", self.verify, "True or False")

    def _check_offload(self) -> None:
        if self.offload not in ("cpu", "disk"):
            raise _unlike("offload", self.offload, "'cpu', 'disk' or None")
        if self.strategy is CheckpointStrategy.None_ and self.budget is None:
            raise errors.ArgumentError(
                f"CheckpointConfig: offload={self.offload!r} moves what a strategy does not keep, "
                "and None_ keeps everything; strategy='full' moves all"
            )

    @property
    def budget(self) -> int | None:
        """The budget in bytes."""
        return None if self.memory_budget_mb is None else int(self.memory_budget_mb * MIB)


def _unlike(name: str, given: object, expected: str) -> errors.ArgumentError:
    return errors.ArgumentError(f"CheckpointConfig: {name}={given!r}, expected {expected}")
