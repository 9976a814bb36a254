"""Noticing that a value saved for the backward pass has been overwritten in place."""

from functools import partial
from weakref import ref

from .. import errors
from .backends import BACKENDS, PYTHON_SCALARS
from .box import ground
from .node import Node, ids

# When each piece of memory was last overwritten, on the clock of node ids, which goes backwards. A
# saved value keeps its memory alive, so an address stamped after the node was made is that very
# memory. Stamps go with the arrays that own the memory.
_STAMPS: dict[int, int] = {}
_ARRAYS: dict[int, ref] = {}

# The last stamp of all: nodes that are younger need no check, and pay for none.
latest = 0


def stamp(raw) -> None:
    """Note that the memory of `raw` is being overwritten now."""
    stamp_all([watched(raw)])


def watched(raw) -> int:
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


def stamp_all(owners) -> None:
    """Note that memory is being overwritten now, by what identifies it (`watched`)."""
    global latest
    now = next(ids)
    for owner in owners:
        _STAMPS[owner] = now
    latest = now


def overwritten(raw) -> int | None:
    """When the memory of `raw` was last overwritten; None: never."""
    return _STAMPS.get(BACKENDS[type(raw)].owner(raw))


def check(node: Node, saved: tuple) -> None:
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
