"""Conditional steps in a compiled function: those that a loss scaler may skip."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .. import errors
from ..core.record import record
from ..ops.elementwise import where


@record
class Condition:
    """A flag of the program, and a function that reads it after a call."""

    flag: Any
    held: Callable[[], bool]


@contextmanager
def taken_if(staging: Any, condition: Condition) -> Iterator[None]:
    """A block whose steps change nothing where the flag is false."""
    inside = _conditions(staging)
    inside.append(condition)
    try:
        yield
    finally:
        inside.pop()


def _conditions(staging) -> list[Condition]:
    return staging.state(("the conditions of steps",), list)


def condition_of(staging: Any) -> Condition | None:
    """The condition of the step that is being traced; None: unconditional."""
    inside = _conditions(staging)
    return inside[-1] if inside else None


def choose_if_taken(staging: Any, new: Any, old: Any) -> Any:
    """The value after a step: the old one if the step is skipped."""
    condition = condition_of(staging)
    return new if condition is None else where(condition.flag, new, old)


def count_if_taken(
    staging: Any, count: Callable[[], None], otherwise: Callable[[], None] | None = None
) -> Any:
    """The commit of a step: `count` after a call that took it, else `otherwise`."""
    condition = condition_of(staging)
    if condition is None:
        return count

    def settle() -> None:
        if condition.held():
            count()
        elif otherwise is not None:
            otherwise()

    return settle


def refuse_second(staging: Any, name: str, ahead: int, slots: dict[str, Any]) -> None:
    """Refuse a second step in a program whose first may be skipped: its step count is unknown."""
    if condition_of(staging) is not None:
        slots["conditional"] = True
    if ahead > 1 and "conditional" in slots:
        raise errors.StagingError(
            f"{name}.step: in a compiled function, a second step of an optimizer follows one that "
            "GradScaler.step may leave out; compile one step, and call it twice"
        )
