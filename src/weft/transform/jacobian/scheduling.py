"""What the planner may choose from: `SchedulerConfig`."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from ... import errors


class SchedulingStrategy(Enum):
    """Which family of plans a scheduler may choose from.

    AUTO, FORWARD, REVERSE and MIXED; a config takes a member or its lower-case name.

    >>> import weft as wf
    >>> wf.SchedulingStrategy("reverse")
    <SchedulingStrategy.REVERSE: 'reverse'>
    """

    AUTO = "auto"
    FORWARD = "forward"
    REVERSE = "reverse"
    MIXED = "mixed"
    Auto = AUTO
    Forward = FORWARD
    Reverse = REVERSE
    Mixed = MIXED


@dataclass(frozen=True)
class SchedulerConfig:
    """What the planner may choose.

    strategy                a `SchedulingStrategy` or its lower-case name
    forward_mode_threshold  from this ratio outputs/inputs on, forward mode is taken
    reverse_mode_threshold  up to this ratio, reverse mode is taken
    enable_mixed_mode       whether both modes may be combined: cuts and bicolouring

    >>> import weft as wf
    >>> wf.SchedulerConfig(strategy="forward").strategy
    <SchedulingStrategy.FORWARD: 'forward'>
    """

    strategy: SchedulingStrategy | str = SchedulingStrategy.AUTO
    forward_mode_threshold: float = 10.0
    reverse_mode_threshold: float = 0.1
    enable_mixed_mode: bool = True

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "strategy", SchedulingStrategy(self.strategy))
        except ValueError:
            names = ", ".join(repr(s.value) for s in SchedulingStrategy)
            raise errors.ArgumentError(
                f"SchedulerConfig: strategy={self.strategy!r}, expected one of {names}"
            ) from None
        if not 0 <= self.reverse_mode_threshold <= self.forward_mode_threshold:
            raise errors.ArgumentError(
                f"SchedulerConfig: reverse_mode_threshold={self.reverse_mode_threshold} must not "
                f"be negative or above forward_mode_threshold={self.forward_mode_threshold}"
            )

    def families(self, m: int, n: int) -> tuple[str, ...]:
        """The kinds of plan that are allowed for m outputs and n inputs.

        m, n  the numbers of outputs and of inputs

        >>> import weft as wf
        >>> wf.SchedulerConfig().families(100, 2)
        ('forward', 'columns')
        """
        strategy = self.strategy
        if strategy is SchedulingStrategy.AUTO:
            ratio = m / max(n, 1)
            if ratio >= self.forward_mode_threshold:
                strategy = SchedulingStrategy.FORWARD
            elif ratio <= self.reverse_mode_threshold:
                strategy = SchedulingStrategy.REVERSE
        by_strategy: dict[Any, tuple[str, ...]] = {
            SchedulingStrategy.FORWARD: ("forward", "columns"),
            SchedulingStrategy.REVERSE: ("reverse", "rows"),
            SchedulingStrategy.MIXED: ("mixed", "both"),
            SchedulingStrategy.AUTO: ("forward", "reverse", "columns", "rows", "star"),
        }
        found = by_strategy[strategy]
        if strategy is SchedulingStrategy.AUTO and self.enable_mixed_mode:
            found += ("mixed", "both")
        return found
