"""Detecting that a value saved for the backward pass was overwritten in place."""

from collections.abc import Collection, Iterable
from functools import partial
from typing import Any
from weakref import ref

from .. import errors
from .backends import BACKENDS, PYTHON_SCALARS
from .box import ground
from .node import Node, ids
from .types import Raw
from .value import HIGHER

# When each piece of memory was last overwritten, in node ids, which decrease with time. A saved
# value keeps its memory alive, so an address that was stamped after the node was recorded is that
# very memory. A stamp is dropped when the array that owns the memory dies.
_STAMPS: "dict[int, int | SharedStamp]" = {}
_ARRAYS: dict[int, ref] = {}

# The latest stamp: nodes recorded after it need no check.
latest: int = 0


def stamp(raw: Raw) -> None:
    """Record that the memory of `raw` is overwritten now."""
    stamp_all([watch_memory(raw)])


def watch_memory(raw: Raw) -> int:
    """The key of the memory of `raw`; its stamp is dropped when the memory is freed.

    If the owner is unknown (a buffer that another library lends), the stamp stays until another
    array has that address.
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
    """Record that memory is overwritten now, given its keys (`watch_memory`)."""
    global latest, _taken
    now = next(ids)
    for owner in owners:
        if _STAMPS.get(owner).__class__ is SharedStamp:
            _taken += 1
        _STAMPS[owner] = now
    latest = now


class SharedStamp:
    """One stamp of several pieces of memory that are always overwritten together.

    owners  their keys (`watch_memory`)
    """

    __slots__ = ("_owners", "_seen", "at")
    at: int

    def __init__(self, owners: Collection[int]):
        self._owners, self._seen, self.at = owners, -1, 0

    def stamp(self) -> None:
        """Record that all of them are overwritten now."""
        global latest, _taken
        if self._seen != _taken:  # some of them may have another's stamp
            for owner in self._owners:
                if _STAMPS.get(owner).__class__ is SharedStamp:
                    _taken += 1
                _STAMPS[owner] = self
            self._seen = _taken
        latest = self.at = next(ids)


_taken = 0  # how often a shared stamp has lost a piece of memory


def last_write(raw: Raw) -> int | None:
    """When the memory of `raw` was last overwritten; None: never."""
    found = _STAMPS.get(BACKENDS[type(raw)].owner(raw))
    return found.at if isinstance(found, SharedStamp) else found


def check(node: Node, saved: tuple[Any, ...]) -> None:
    """Raise if something `node` saved has been overwritten since."""
    for value in saved:
        if value is None:
            continue
        cls = value.__class__
        if cls is tuple:
            check(node, value)
        elif cls not in PYTHON_SCALARS:
            raw = ground(value) if cls in HIGHER else value
            when = _STAMPS.get(BACKENDS[raw.__class__].owner(raw))
            if when is not None:
                when = when.at if isinstance(when, SharedStamp) else when
            if when is not None and when < node.id:
                raise errors.SavedValueOverwritten(
                    f"{node.name} (at {node.line}) saved a value of shape {tuple(value.shape)} "
                    "that was overwritten in place (out=, copy_ or an optimizer step) before its "
                    "backward pass; run backward() first, or give the operation a .clone()"
                )
