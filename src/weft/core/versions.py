"""Noticing that a value saved for the backward pass has been overwritten in place."""

from .. import errors
from .backends import BACKENDS, PYTHON_SCALARS
from .box import ground
from .node import Node, ids

# When each piece of memory was last overwritten, on the clock of node ids. A saved value keeps
# its memory alive, so an address stamped after the node was made is that very memory.
STAMPS: dict[int, int] = {}


def stamp(raw) -> None:
    """Note that the memory of `raw` is being overwritten now."""
    STAMPS[BACKENDS[type(raw)].owner(raw)] = next(ids)


def check(node: Node, saved: tuple) -> None:
    """Raise if something `node` saved has been overwritten since."""
    for value in saved:
        if type(value) is tuple:
            check(node, value)
        elif value is not None and type(value) not in PYTHON_SCALARS:
            raw = ground(value)
            when = STAMPS.get(BACKENDS[type(raw)].owner(raw))
            if when is not None and when < node.id:
                raise errors.SavedValueOverwritten(
                    f"{node.name} (at {node.line}) saved a value of shape {tuple(value.shape)} "
                    "that was overwritten in place (out=, copy_ or an optimizer step) before its "
                    "backward pass; run backward() first, or give the operation a .clone()"
                )
