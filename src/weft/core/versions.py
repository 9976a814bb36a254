"""Noticing that a value saved for the backward pass has been overwritten in place."""

from collections.abc import Collection, Iterable
from functools import partial
from typing import Any
from weakref import ref

from .. import errors
from .backends import BACKENDS, PYTHON_SCALARS
from .box import ground
from .node import Node, ids
from .types import Raw

# When each piece of memory was last overwritten, on the clock of node ids, which goes backwards. A
# saved value keeps its memory alive, so an address stamped after the node was made is that very
# memory. Stamps go with the arrays that own the memory.
_STAMPS: "dict[int, int | Shared]" = {}
_ARRAYS: dict[int, ref] = {}

# The last stamp of all: nodes that are younger need no check, and pay for none.
latest: int = 0


def stamp(raw: Raw) -> None:
    """Note that the memory of `raw` is being overwritten now."""
    stamp_all([watch_memory(raw)])


def watch_memory(raw: Raw) -> int:
    """What identifies the memory of `raw`; its stamp will go when the memory does.

    Of memory whose owner nothing can be told about (a buffer that another library lends) the stamp
    stays until another array is at its address.
    """
    xp = BACKENDS[type(raw)]
    owner = xp.owner(raw)
    if owner not in _ARRAYS:
        array = xp.owning(raw)
        if array is not None:
            _ARRAYS[owner] = ref(array, partial(_forget, owner))
    return owner


def _forget(owner: int, _: ref) -> None:
    _STAMPS.pop(owner, None)
    _ARRAYS.pop(owner, None)


def stamp_all(owners: Iterable[int]) -> None:
    """Note that memory is being overwritten now, by what identifies it (`watch_memory`)."""
    global latest, _taken
    now = next(ids)
    for owner in owners:
        if _STAMPS.get(owner).__class__ is Shared:
            _taken += 1
        _STAMPS[owner] = now
    latest = now


class Shared:
    """One stamp of several pieces of memory that are always overwritten together.

    owners  what identifies them (`watch_memory`)
    """

    __slots__ = ("_owners", "_seen", "at")
    at: int

    def __init__(self, owners: Collection[int]):
        self._owners, self._seen, self.at = owners, -1, 0

    def stamp(self) -> None:
        """Note that all of them are being overwritten now."""
        global latest, _taken
        if self._seen != _taken:  # some of them may have another's stamp
            for owner in self._owners:
                if _STAMPS.get(owner).__class__ is Shared:
                    _taken += 1
                _STAMPS[owner] = self
            self._seen = _taken
        latest = self.at = next(ids)


_taken = 0  # how often a shared stamp has lost a piece of memory


def overwritten(raw: Raw) -> int | None:
    """When the memory of `raw` was last overwritten; None: never."""
    found = _STAMPS.get(BACKENDS[type(raw)].owner(raw))
    return found.at if isinstance(found, Shared) else found


def check(node: Node, saved: tuple[Any, ...]) -> None:
    """Raise if something `node` saved has been overwritten since."""
    for value in saved:
        if type(value) is tuple:
            check(node, value)
        elif value is not None and type(value) not in PYTHON_SCALARS:
            when = overwritten(ground(value))
            if when is not None and when < node.id:
                raise errors.SavedValueOverwritten(
                    f"{node.name} (at {node.line}) saved a value of shape {tuple(value.shape)} "
                    "that was overwritten in place (out=, copy_ or an optimizer step) before its "
                    "backward pass; run backward() first, or give the operation a .clone()"
                )
