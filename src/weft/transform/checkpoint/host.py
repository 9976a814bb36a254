"""A budget of bytes in NumPy's memory: its allocator keeps the limit.

What a block makes is counted by the allocator. What was there before is known by array: sources,
gradients, what optimizers hold, and all other tensors. To find those takes a walk over all of
Python's objects. It is repeated only if the memory that the C library has given out for other
things than known arrays has changed since the last walk, but for a small share of the budget, which
counts as taken.
"""

from collections.abc import Callable, Iterable
from itertools import count
from threading import local
from typing import Any
from weakref import ref

import numpy as np

from ... import errors
from ...arrays.memory import allocated_bytes
from ...core.backends import BACKENDS
from ...core.objects import live_objects
from ...core.types import Raw
from ...core.value import GROUND
from .limits import ALONE, DropOne, Limit, holders
from .values import Kept

# The share of a budget by which what malloc has given out may differ from what is known, and after
# how many limits there is a walk in any case: something else may have been freed.
_TOLERANCE, _LIMITS = 1 / 512, 16


class Above:
    """What the layers above install (`weft._assemble`).

    new_counter    makes a counter of the bytes that NumPy's allocator has given
    held           the arrays that optimizers hold
    bytes_to_come  on a device, of moments that optimizers make at their first step
    """

    new_counter: Callable[[], Any]
    held: Callable[[], Iterable[Raw]]
    bytes_to_come: Callable[[str], int]


above: Above = Above()


_NUMBERS = count(1)


class Known:
    """The arrays that a thread knows of, and since when."""

    def __init__(self) -> None:
        # By id: the owner of memory, its bytes, and the number of limits that there were.
        self._owners: dict[int, tuple[ref[Any], int, int]] = {}
        self._changed = [0]  # a new number at each change
        self._others: int | None = None  # malloc's bytes of other things, at the last walk
        self._walked = 0  # the number of limits then
        self.limits = 0

    @property
    def version(self) -> int:
        return self._changed[0]

    def nbytes(self, since: int) -> int:
        """The bytes of arrays that are known since so many limits were made, or longer."""
        return sum([n for _, n, when in list(self._owners.values()) if when <= since])

    def add(self, array: Raw, since: int, counters: Iterable[Any] = ()) -> None:
        """Note an array, unless it is known or counted."""
        owner = BACKENDS[array.__class__].owning(array)
        if owner is None or id(owner) in self._owners or any(c.counts(owner) for c in counters):
            return
        forget = _forgetting(self._owners, self._changed, id(owner))
        self._owners[id(owner)] = ref(owner, forget), owner.nbytes, since
        self._changed[0] = next(_NUMBERS)

    def note(self, counters: Iterable[Any]) -> None:
        """Note what optimizers hold, which may be new."""
        for raw in above.held():
            self._add_ours(raw, counters)

    def walk(self, counters: Iterable[Any]) -> None:
        """Note all tensors but those that are counted."""
        for x in live_objects(GROUND):
            self._add_ours(getattr(x, "_data", None), counters)
        self._others = self._other_bytes()
        self._walked = self.limits

    def _other_bytes(self) -> int | None:
        """What malloc has given out for other things than known arrays; None: it does not say."""
        taken = allocated_bytes()
        return None if taken is None else taken - self.nbytes(self.limits)

    def unknown(self, tolerance: int) -> int | None:
        """The most bytes of unknown tensors, if there are but few; None if that is not known."""
        now = self._other_bytes()
        if now is None or self._others is None or self.limits - self._walked >= _LIMITS:
            return None
        if abs(now - self._others) > tolerance:
            return None
        return now - self._others + tolerance

    def _add_ours(self, raw: Any, counters: Iterable[Any]) -> None:
        # Those on other devices are not in this memory.
        if type(raw) in BACKENDS and BACKENDS[type(raw)].array_type is np.ndarray:
            self.add(raw, self.limits, counters)


def _forgetting(owners: dict[int, Any], changed: list[int], key: int) -> Callable[[Any], None]:
    """What is called when an array is freed, in any thread; its id may be another one's by then."""

    def forget(gone: Any) -> None:
        if key in owners and owners[key][0] is gone:
            del owners[key]
            changed[0] = next(_NUMBERS)

    return forget


class _Local(local):
    def __init__(self) -> None:
        self.known = Known()


_LOCAL = _Local()


class HostLimit(Limit):
    """A budget of NumPy's arrays."""

    def __init__(self, budget: int, drop_one: DropOne):
        super().__init__(budget, drop_one)
        self.known = _LOCAL.known  # of this thread: room is made in others, too
        self._counters: list[Any] = []
        self._since = 0  # the number of limits when this one began
        self._unknown = 0
        self._known_bytes = (-1, 0)  # the version of what is known, and its bytes
        self._is_counting = False
        me = ref(self)  # weakly: what it owns calls it

        def press(size: int) -> bool:
            limit = me()
            return limit is not None and limit.make_room(size)

        self._press = press

    @property
    def live(self) -> int:
        return self.before + sum([c.live for c in self._counters])

    @property
    def before(self) -> int:
        version = self.known.version
        if self._known_bytes[0] != version:
            self._known_bytes = version, self.known.nbytes(self._since)
        return self._known_bytes[1] + self._unknown + self.reserved

    def use(self) -> None:
        """Values of the program lie here: from now on the limit holds."""
        if self.in_use:
            return
        self.in_use = True
        self.known.limits += 1
        self._since = self.known.limits
        self.reserved += above.bytes_to_come("cpu")
        self.known.note(self._counters)
        unknown = self.known.unknown(int(self.budget * _TOLERANCE))
        if unknown is None:
            self.known.walk(self._counters)
        self._unknown = unknown or 0
        if self._is_counting:  # and has, what the block made until now
            made = self._counters[-1].peak
            self.allowed = max(self.allowed, self.before + made)
            self._set_limit()

    def count(self, array: Raw) -> None:
        self.use()
        self.known.add(array, self._since, self._counters)
        if self._is_counting and self.live > self.allowed:
            self.make_room(0)

    def keep(self, array: Raw) -> None:
        """Let later limits know of an array that a block made."""
        self.known.add(array, self._since + 1)

    def is_exact(self) -> bool:
        exact, self._unknown = not self._unknown, 0
        if not exact:
            self.known.walk(self._counters)
        return exact

    def make_room(self, size: int) -> bool:
        super().make_room(size)
        self._set_limit()
        return True

    def piece(self, array: Raw) -> int | None:
        if not isinstance(array, np.ndarray):
            return None
        return id(array if array.base is None else array.base)

    def frees(self, group: list[Kept]) -> bool:
        bases = [id(kept.array.base) for kept in group if kept.array.base is not None]
        views = {key: bases.count(key) for key in bases}
        for kept in group:
            array = kept.array
            if holders(array) != ALONE + views.pop(id(array), 0):
                return False
        base = group[0].array.base
        return not views or (base is not None and holders(base) == ALONE + views[id(base)] - 1)

    # -- blocks ----------------------------------------------------------------------------------

    def start(self) -> Any:
        """Count: by the counter of the last block if it fits in here, else by a new one."""
        counter = self._counters[-1] if self._counters else None
        if counter is not None:
            try:
                counter.start()
            except errors.ArgumentError:  # it counted in another block
                counter.limit(None)
                counter = None
        if counter is None:
            counter = above.new_counter()
            counter.start()
            self._counters.append(counter)
        self._is_counting = True
        self._set_limit()
        return counter

    def stop(self, counter: Any) -> None:
        self._is_counting = False
        counter.stop()

    def _set_limit(self) -> None:
        if self._counters and self.in_use:
            counter = self._counters[-1]
            counter.limit(max(0, self.allowed - (self.live - counter.live)), self._press)
