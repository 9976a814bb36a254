"""All live objects of some types."""

import gc
from collections.abc import Iterable
from typing import Any


def live_objects(kinds: Iterable[type]) -> list[Any]:
    """The live objects of exactly these types, which are Python's own classes.

    Objects refer to their class. `gc.get_objects` would also give those that another thread is
    still making, whose making then fails: a tuple that somebody else refers to cannot grow.
    """
    wanted = frozenset(kinds)
    return [x for x in gc.get_referrers(*wanted) if type(x) in wanted]


def with_subclasses(*classes: type) -> set[type]:
    """These classes and all classes that inherit from them."""
    found, waiting = set(classes), list(classes)
    while waiting:
        new = [c for c in type.__subclasses__(waiting.pop()) if c not in found]
        found.update(new)
        waiting += new
    return found
