"""Sweeps through graphs whose memory is limited by a budget."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol
from weakref import WeakSet

from ...core.node import Node


class Limit(Protocol):
    """A budget of bytes: what was recorded under it is swept under it, too."""

    def around_sweep(self) -> Any: ...

    def keep(self, array: Any) -> None:
        """Take note of a gradient that a sweep hands out."""
        ...


# The limits whose graphs may be alive.
alive: WeakSet[Any] = WeakSet()


@contextmanager
def around_sweep(starts: Iterable[Any]) -> Iterator[Callable[[Any], Any]]:
    """The block of a sweep: inside those of all limits that its graph was recorded under.

    It gives a function that notes and returns what is handed out: a list or dict of gradients.
    """
    limits = _limits_behind(starts)

    def keep(gradients: Any) -> Any:
        for g in gradients.values() if isinstance(gradients, dict) else gradients:
            for limit in limits:
                limit.keep(getattr(g, "_data", g))
        return gradients

    with _inside(limits):
        yield keep


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
