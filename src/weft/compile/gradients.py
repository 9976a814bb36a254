"""The gradients that a program replaces: in new memory, or in that of the old ones.

A step that ends with new `.grad`s has old ones from the step before, which nobody reads any more.
Where nobody holds an old gradient but its parameter, the new one is written into its memory: a step
then has its gradients once, as in eager mode, and no memory to ask for. No graph has saved what
nobody holds. A call that a signal's handler ends leaves None in the place of what it has begun to
write over, as an eager step does between zero_grad and backward. Like a parameter's own, that
memory is not to be read by another thread while a call is under way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from sys import getrefcount
from typing import Any

import numpy as np

from ..core.node import Leaf
from ..core.value import RESULT, Value, wrap
from .places import Call
from .runtime import Executable

_new, _empty = object.__new__, np.empty


@dataclass(frozen=True)
class Replaced:
    """A leaf whose `.grad` is another one after a call.

    position  of the gradient among the outputs
    owner     the tensor whose leaf it is; None for one among the arguments: then `find` has it
    node      of the new gradient
    """

    position: int
    owner: Any
    find: Callable[[Call], Leaf]
    node: Any


class Gradients:
    """Takes gradients over after a call, and finds memory for them before it."""

    def __init__(self, replaced: Sequence[Replaced], executable: Executable):
        self._owned = [(r.position, r.owner, r.node) for r in replaced if r.owner is not None]
        self._others = [r for r in replaced if r.owner is None]
        at = [(executable.written_last(position), owner) for position, owner, _ in self._owned]
        whose = {n[0]: owner for n, owner in at if n is not None}
        # For each array that a call makes: its shape, its dtype, and whose gradient it can replace.
        self._arrays = [(*kind, whose.get(n)) for n, kind in enumerate(executable.fresh)]
        self._written = [(*n, owner) for n, owner in at if n is not None]

    def room(self) -> list[np.ndarray]:
        """Arrays for what a call makes: old gradients, and new memory for the others.

        The inputs of the call must be in hand by now: then an old gradient that is one of them, or
        in whose memory one of them lies, is held by somebody.
        """
        found = []
        for shape, dtype, owner in self._arrays:
            if owner is not None:
                raw, tensors, arrays = _counted(owner)
                if tensors == _TENSORS and arrays == _ARRAYS:
                    found.append(raw)
                    continue
            found.append(_empty(shape, dtype))
        return found

    def forget(self, room: Sequence[np.ndarray], task: int) -> None:
        """Give up the old gradients that a call has written over which ended behind this task."""
        for n, first, owner in self._written:
            gradient = owner._grad
            if first <= task and gradient is not None and gradient._data is room[n]:
                owner._grad = None

    def take(self, call: Call, raws: Sequence[np.ndarray]) -> None:
        """Make these arrays the gradients."""
        kind = RESULT[0]
        for position, owner, node in self._owned:
            gradient = _new(kind)
            gradient._data, gradient._node, gradient._share = raws[position], node, None
            owner._grad = gradient
        for r in self._others:
            r.find(call).held = wrap(raws[r.position], r.node)


def _counted(owner) -> tuple[Any, int, int]:
    """The array of a tensor's gradient, and the references to the gradient and to the array."""
    gradient = owner._grad
    if gradient is None:
        return None, 0, 0
    raw = gradient._data
    return raw, getrefcount(gradient), getrefcount(raw)


def _alone() -> tuple[int, int]:
    """The references to a gradient that nobody holds but its tensor, and to its array."""
    owner = Value()
    owner._grad = wrap(np.empty(1))
    return _counted(owner)[1:]


_TENSORS, _ARRAYS = _alone()
