"""Objects of Python's library whose contents only a call shows."""

import functools
from operator import attrgetter, methodcaller
from typing import Any
from weakref import WeakKeyDictionary

# By cached function: how often its cache was cleared, and its hits and misses at the last look.
_seen: WeakKeyDictionary[Any, tuple[int, int, int]] = WeakKeyDictionary()


def names_in(x: Any) -> tuple[str, ...]:
    """The attributes that `attrgetter` and `methodcaller` read."""
    if type(x) is attrgetter:
        return tuple([part for name in x.__reduce__()[1] for part in name.split(".")])
    if type(x) is methodcaller:
        found = x.__reduce__()[1]
        return tuple([n for n in found if isinstance(n, str)][:1])
    return ()


def is_cached(x: object) -> bool:
    """Whether x is a function with `functools.lru_cache`."""
    return isinstance(x, functools._lru_cache_wrapper)


def times_cleared(x: Any) -> int:
    """How often the cache of such a function was found cleared."""
    times, hits, misses = _seen.get(x, (0, 0, 0))
    now = x.cache_info()
    times += now.hits < hits or now.misses < misses
    _seen[x] = times, now.hits, now.misses
    return times
