"""Errors that a device tells of after the call: they are raised where its results are read."""

from typing import Protocol
from weakref import WeakSet


class Teller(Protocol):
    """Something whose errors come late."""

    def raise_late(self) -> None:
        """Raise the error of an earlier call, if there is one, once."""
        ...


# Those that may have something to tell.
TELLERS: WeakSet[Teller] = WeakSet()


def raise_late() -> None:
    """Raise the first error that is there."""
    for teller in list(TELLERS):
        teller.raise_late()
