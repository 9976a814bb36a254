"""Watches: who takes leaves' cotangents out of a `backward()` that is still running."""

from collections.abc import Callable
from typing import Any, Protocol

from ...core.node import Leaf, Node
from ...core.types import Array

# Ids are negative, and the sweep goes from the newest node (the least id) to the oldest.
BEFORE, NEVER = -(1 << 62), 1

# By leaf, the id of the oldest node that uses it: after that node its cotangent is final.
LastUses = dict[Leaf, int]
Visit = Callable[[Any, Array], Array]


class Watch(Protocol):
    """What takes part in one backward pass.

    due  the sweep calls `advance` when it is done with the node of this id
    """

    due: int

    def advance(self, at: int, pending: dict[Any, Any]) -> int:
        """Take out of `pending` what is final: all nodes whose ids are less than `at` are done.

        At the end of the sweep `at` is NEVER. Returns the next `due`.
        """
        ...

    def finish(self) -> dict[Leaf, Any]:
        """The cotangents that the pass delivers for the leaves that were taken."""
        ...

    def abort(self) -> bool:
        """The pass has raised; `finish` is not called. Returns whether `tell` must be."""
        ...

    def tell(self, error: BaseException) -> None:
        """Say what the pass has raised to those who take part in it elsewhere."""
        ...


# Called at the begin of every `backward()`: (last uses, whether it is recorded, what runs leaves'
# hooks) -> a watch, or None where it has no leaf among them.
Watcher = Callable[[LastUses, bool, Visit], "Watch | None"]
WATCHERS: list[Watcher] = []


class Watches:
    """The watches of one pass, one after the other, so that all ranks have one order."""

    def __init__(self, watches: list[Watch]):
        self._all, self._ended = watches, 0
        self.due = watches[0].due

    def advance(self, at: int, pending: dict[Any, Any]) -> int:
        """As of a watch."""
        while self._ended < len(self._all):
            self.due = self._all[self._ended].advance(at, pending)
            if self.due != NEVER:
                return self.due
            self._ended += 1
        return NEVER

    def finish(self) -> dict[Leaf, Any]:
        """What all watches deliver."""
        found: dict[Leaf, Any] = {}
        for watch in self._all:
            found |= watch.finish()
        return found

    def abort(self, error: BaseException) -> None:
        """End all watches, as the pass has raised."""
        untold = [watch for watch in self._all if watch.abort()]
        if untold:
            untold[0].tell(error)


def begin_watch(start: Leaf | Node, record: bool, visit: Visit) -> Watches | None:
    """What watches a pass that starts at a node; None: nobody."""
    uses = _last_uses(start)
    found: list[Watch] = []
    try:
        for watcher in list(WATCHERS):
            watch = watcher(uses, record, visit)
            found += [] if watch is None else [watch]
    except BaseException as e:
        if found:
            Watches(found).abort(e)
        raise
    return Watches(found) if found else None


def _last_uses(start: Leaf | Node) -> LastUses:
    """The leaves behind a node."""
    if isinstance(start, Leaf):
        return {start: BEFORE}
    uses: LastUses = {}
    waiting, seen = [start], {start}
    while waiting:
        node = waiting.pop()
        number = node.id
        for p in node.parents or ():
            if p is None:
                continue
            if p.__class__ is Leaf:
                if uses.get(p, BEFORE) < number:
                    uses[p] = number
            elif p not in seen:
                seen.add(p)
                waiting.append(p)
    return uses
