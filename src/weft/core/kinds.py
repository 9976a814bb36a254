"""Refusing arguments of a wrong kind by their names."""

from collections.abc import Iterable
from typing import Any

from ..errors import ArgumentError


def demand_number(what: str, x: Any) -> None:
    """Raise unless x is a number, or something that can be read as one; `what` names it."""
    if not hasattr(type(x), "__float__"):
        raise ArgumentError(f"{what}={x!r:.60}, expected a number")


def demand_iterable(what: str, x: Any, expected: str) -> None:
    """Raise unless x can be iterated and is no text."""
    if isinstance(x, str | bytes) or not isinstance(x, Iterable):
        raise ArgumentError(f"{what}={x!r:.60}, expected {expected}")


def demand(what: str, x: Any, kind: type | tuple[type, ...], expected: str) -> None:
    """Raise unless x is an instance of a class, or of one of several."""
    if not isinstance(x, kind):
        raise ArgumentError(f"{what}={x!r:.60}, expected {expected}")
