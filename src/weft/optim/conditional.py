"""Steps of a compiled function that are taken only where a flag holds: those with a loss scale."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .. import errors
from ..ops.elementwise import where


@dataclass(frozen=True)
class Condition:
    """A flag of the program, and how to ask for it after a call."""

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
    """What the step that is being written down depends on, if on anything."""
    inside = _conditions(staging)
    return inside[-1] if inside else None


def choose_if_taken(staging: Any, new: Any, old: Any) -> Any:
    """What is there after a step: the old value, if the step is not taken."""
    condition = condition_of(staging)
    return new if condition is None else where(condition.flag, new, old)


def count_if_taken(
    staging: Any, count: Callable[[], None], otherwise: Callable[[], None] | None = None
) -> Any:
    """What is done after a call, if the step was taken in it; else `otherwise`."""
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
    """Refuse another step in a program where one may be left out: how far would it be?"""
    if condition_of(staging) is not None:
        slots["conditional"] = True
    if ahead > 1 and "conditional" in slots:
        raise errors.StagingError(
            f"{name}.step: in a compiled function, a second step of an optimizer follows one that "
            "GradScaler.step may leave out; compile one step, and call it twice"
        )
