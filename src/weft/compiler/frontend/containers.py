"""The containers among the arguments of a call: copies for the traced function, and their changes.

A traced function gets staged tensors instead of the caller's, so the lists, dicts and deques among
its arguments are copies that hold those. A change of a copy does not reach the caller's container.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

import optree

from ...core.record import record
from ...core.value import TENSORS
from ...graph.picture import shorten
from .records import MISSING

# Types whose equal values are interchangeable: identity does not matter.
CONSTANTS = frozenset((bool, int, float, complex, str, bytes, type(None)))
CONTAINERS = (dict, list, tuple, deque)
Path = tuple[Any, ...]  # a position or name of an argument, and the keys from there


def is_whole(x: Any) -> bool:
    """Whether x is not flattened: a module is captured, and changed, as it is."""
    return getattr(x.__class__, "_keeps_state", False)


def sharing(containers: list[Any]) -> tuple[int, ...]:
    """By container, the position of the first one that is the same object; () if all differ."""
    if len(set(map(id, containers))) == len(containers):
        return ()
    first: dict[int, int] = {}
    which = [k if _is_constant(x) else first.setdefault(id(x), k) for k, x in enumerate(containers)]
    return tuple(which) if which != list(range(len(which))) else ()


def _is_constant(x) -> bool:
    if x.__class__ in CONSTANTS:
        return True
    return x.__class__ is tuple and all([_is_constant(v) for v in x])


@record
class Copy:
    """The copy of a container that the traced function gets.

    position  among the containers of the call; None for a class registered with optree
    path      the argument, and the keys from it to the container
    items     its items when it was copied
    """

    position: int | None
    path: Path
    made: Any
    items: dict[Any, Any]

    def changes(self) -> list[tuple[Path, str]]:
        """The items that differ from those at first: the path and a text for each."""
        was, now = self.items, _items(self.made)
        if not isinstance(self.made, dict) and len(was) != len(now):
            return [(self.path, f"had {len(was)} elements and has {len(now)}")]
        found = [
            (key, _how(was.get(key, MISSING), now.get(key, MISSING))) for key in {**was, **now}
        ]
        changed = [((*self.path, key), how) for key, how in found if how is not None]
        if not changed and list(was) != list(now):
            return [(self.path, "has its keys in another order")]
        return changed


class ContainerCopies:
    """Copies the arguments around other leaves; each container is copied once."""

    def __init__(self, leaves: list[Any]):
        self._leaves = iter(leaves)
        self._known: dict[int, Any] = {}
        self._visited = 0
        self.made: list[Copy] = []

    def copy(self, x: Any, path: Path) -> Any:
        """A copy of x in which the next leaves replace its own."""
        position = self._position(x)
        if optree.tree_is_leaf(x, is_leaf=is_whole):
            return next(self._leaves)
        children, metadata, entries, unflatten = optree.tree_flatten_one_level(x)
        parts = [self.copy(v, (*path, k)) for k, v in zip(entries, children, strict=True)]
        if id(x) in self._known:
            return self._known[id(x)]
        made: Any = unflatten(metadata, parts)
        if isinstance(x, dict):  # optree sorts the keys
            given = dict(zip(entries, parts, strict=True))
            made.clear()
            made.update({k: given[k] for k in x})
        if not _is_constant(x):
            self._known[id(x)] = made
            self.made.append(Copy(position, path, made, _items(made)))
        return made

    def _position(self, x) -> int | None:
        """The position of x among the containers of the call; None if it is not a container."""
        if not isinstance(x, CONTAINERS):
            return None
        self._visited += 1
        return self._visited - 1

    def changes(self) -> Iterator[tuple[Path, str]]:
        """All changes of the copies."""
        for copy in self.made:
            yield from copy.changes()

    def find_unchanged(self) -> dict[int, int]:
        """The positions of the copies that are unchanged inside, by the copies' identity."""
        changed = {id(c.made) for c in self.made if c.changes()}
        known = [(c.made, c.position) for c in self.made if c.position is not None]
        return {id(made): k for made, k in known if not _reaches(made, changed)}


def _reaches(x, ids: set[int]) -> bool:
    """Whether an object is one of these, or holds one inside its containers."""
    inside = _items(x).values() if isinstance(x, CONTAINERS) else ()
    return id(x) in ids or any([_reaches(v, ids) for v in inside])


def _items(x) -> dict[Any, Any]:
    """The items of a container by key or position, in its order."""
    if isinstance(x, dict):
        return dict(x.items())
    if isinstance(x, CONTAINERS):
        return dict(enumerate(x))
    children, _, entries, _ = optree.tree_flatten_one_level(x)
    return dict(zip(entries, children, strict=True))


def _how(was, now) -> str | None:
    """A text for a change; None if there is none."""
    if was is now:
        return None
    if was is MISSING:
        return "is new"
    if now is MISSING:
        return "was deleted"
    if was.__class__ in CONSTANTS and now.__class__ in CONSTANTS:
        same = was.__class__ is now.__class__ and repr(was) == repr(now)
        text = f"was {shorten(repr(was), 24)} and is {shorten(repr(now), 24)}"
        return None if same else text
    kind = "a tensor" if now.__class__ in TENSORS else f"a {type(now).__name__}"
    return f"was given {kind}"
