"""A memory whose bytes are limited: room is made by dropping saved values."""

import gc
from collections.abc import Callable
from sys import getrefcount
from typing import Any

from ...core.types import Raw
from .values import Kept

# Drops the values that are cheapest to lose in a memory; False if that frees nothing.
DropOne = Callable[["Limit"], bool]


class Limit:
    """A budget in one memory: NumPy's, or that of a PyTorch device.

    budget   the bytes that may be live at once
    allowed  the same, or more once the budget was found too small
    reserved  bytes that are left to others
    in_use   whether values of the program lie in this memory
    """

    def __init__(self, budget: int, drop_one: DropOne):
        self.budget = self.allowed = budget
        self.reserved = 0
        self.in_use = False
        self._drop_one = drop_one
        self._collected = False  # whether garbage was

    @property
    def live(self) -> int:
        """The bytes that count now, the reserved ones included."""
        raise NotImplementedError

    @property
    def before(self) -> int:
        """Those of them that were there before the block."""
        raise NotImplementedError

    def count(self, array: Raw) -> None:
        """Count memory that was there before: parameters, batches. From now on the limit holds."""
        raise NotImplementedError

    def is_exact(self) -> bool:
        """Whether `live` is exact; if not, it is from now on."""
        return True

    def check(self) -> None:
        """Note whether the budget was passed without our knowledge."""

    def piece(self, array: Raw) -> int | None:
        """The identity of an array's memory; None if it is in another memory."""
        raise NotImplementedError

    def frees(self, group: list[Kept]) -> bool:
        """Whether dropping what is kept of one piece of memory frees it: nobody else holds it."""
        raise NotImplementedError

    def make_room(self, size: int) -> bool:
        """Drop saved values until `size` more bytes fit.

        If nothing is left to drop, garbage is collected; then what is allowed rises to what is
        needed: the step is refused at its end, with that many bytes.
        """
        while self.live + size > self.allowed:
            if self._drop_one(self) or not self.is_exact():
                continue
            if not self._collected:  # what is left of earlier steps may wait for that
                self._collected = True
                gc.collect()
            else:
                self.allowed = self.live + size
        return True


def holders(x: Any) -> int:
    """How many hold an object, some of Python's stack included; see `ALONE`."""
    return getrefcount(x)


def _alone() -> int:
    """What `holders` says of an array that only a Kept holds, asked as `frees` asks."""
    kept = Kept(None, object(), None)  # type: ignore[arg-type]
    array = kept.array
    return holders(array)


ALONE = _alone()
