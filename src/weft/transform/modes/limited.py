"""Sweeps through graphs whose memory is limited by a budget."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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
    with _inside(_limits_behind(starts)):
        yield


@contextmanager
def _inside(limits: list[Limit]) -> Iterator[None]:
    """The blocks of limits. Not by an ExitStack, which keeps an exception in a cycle."""
    if not limits:
        yield
        return
    with limits[0].around_sweep(), _inside(limits[1:]):
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
