"""Sweeps through graphs whose memory is limited by a budget."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol
from weakref import WeakSet

from ...core.node import Node
from ...core.recording import Packed


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
            for limit in _owners(node.saved or ()):
                found[limit] = None
    return list(found)


def _owners(saved: tuple[Any, ...]) -> Iterator[Any]:
    """The limits that a node's saved values were recorded under."""
    for v in (*saved, *getattr(saved, "bridges", ())):
        if v.__class__ is tuple:
            yield from _owners(v)
            continue
        owner = getattr(v.handle if v.__class__ is Packed else v, "owner", None)
        if owner is not None and owner in alive:
            yield owner
