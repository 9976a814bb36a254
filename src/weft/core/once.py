"""What a process builds once: the first thread that asks builds it, the others wait."""

import os
from collections.abc import Callable, Hashable
from functools import update_wrapper
from threading import RLock
from typing import Any, Generic, TypeVar, TypeVarTuple
from weakref import WeakSet

Args = TypeVarTuple("Args")
R = TypeVar("R")

_ALL: "WeakSet[Any]" = WeakSet()


class once(Generic[R, *Args]):
    """A function of hashable arguments that is called once for each of them.

    With `lru_cache`, two threads may both call it, and one of the results is dropped: native code
    that is in use by then. Each function has a lock of its own, so that a thread which holds one
    may wait for an import, or for what another function builds.
    """

    def __init__(self, build: Callable[[*Args], R]):
        self._build, self._lock = build, RLock()
        self._results: dict[tuple[Hashable, ...], R] = {}
        update_wrapper(self, build)
        _ALL.add(self)

    def __call__(self, *args: *Args) -> R:
        if args not in self._results:
            with self._lock:
                if args not in self._results:
                    self._results[args] = self._build(*args)
        return self._results[args]

    def built(self) -> bool:
        """Whether it was called before."""
        return bool(self._results)


def _free_locks() -> None:
    """Replace all locks in a forked child, where the threads that held them do not exist."""
    for function in _ALL:
        function._lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_locks)
