"""Sweeps through graphs whose memory is limited by a budget."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol
from weakref import WeakSet

from ...core.node import Node


class Limit(Protocol):
    """A budget of bytes: what was recorded under it is swept under it, too."""

    def around_sweep(self) -> Any: ...


# The limits whose graphs may be alive.
alive: WeakSet[Any] = WeakSet()


@contextmanager
def around_sweep(starts: Iterable[Any]) -> Iterator[None]:
    """The block of a sweep: inside those of all limits that its graph was recorded under."""
    with ExitStack() as blocks:
        for limit in _limits_behind(starts):
            blocks.enter_context(limit.around_sweep())
        yield


def _limits_behind(starts: Iterable[Any]) -> list[Limit]:
    found: dict[Limit, None] = {}
    stack, seen = list(starts), set()
    while stack:
        node = stack.pop()
        if node.__class__ is Node and node not in seen:
            seen.add(node)
            stack += [p for p in node.parents or () if p is not None]
            limit = None if node.extra is None else node.extra.limit
            if limit is not None:
                found[limit] = None
    return list(found)
