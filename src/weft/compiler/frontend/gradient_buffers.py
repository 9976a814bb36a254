"""The gradients that a program replaces: in new memory, or in that of the old ones.

A training step replaces the `.grad`s of the step before, which are not read any more. Where only
the parameter refers to an old gradient, the new one is written into its memory: the gradients then
exist once, as in eager mode, and nothing is allocated. No graph can have saved an array without
other references. A call that a signal handler ends sets the gradients that it has begun to
overwrite to None, as an eager step does between zero_grad and backward. As with a parameter, no
other thread may read that memory during a call.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...core.node import Leaf
from ...core.record import record
from ...core.value import RESULT, wrap
from ..native.builtin import make_buffer_finder, make_kept_check
from ..native.words import WordArray, words
from ..raw.arrays import RawArrays
from ..raw.numpy_arrays import NUMPY
from ..target import Executable
from .inputs import Call
from .records import fields_of_tensors
from .severed import mark_of

_new = object.__new__


@record
class ReplacedGradient:
    """A leaf whose `.grad` a call replaces.

    position  of the new gradient among the outputs
    owner     the captured tensor of the leaf; None for an argument
    find      from a call to the leaf
    node      of the new gradient: None, a mark, or what makes a mark for each call
    """

    position: int
    owner: Any
    find: Callable[[Call], Leaf]
    node: Any


class GradientBuffers:
    """Finds memory for the gradients before a call, and sets them after it."""

    def __init__(
        self,
        replaced: Sequence[ReplacedGradient],
        executable: Executable,
        arrays: RawArrays = NUMPY,
    ):
        self._owned = [(r.position, r.owner, r.node) for r in replaced if r.owner is not None]
        self._others = [r for r in replaced if r.owner is None]
        whose: dict[int, ReplacedGradient] = {}  # by position among the fresh arrays
        self._written: list[tuple[int, int, Any]] = []
        for r in replaced:
            last = None if r.owner is None else executable.written_last(r.position)
            if last is not None:
                whose[last[0]] = r
                self._written.append((*last, r.owner))
        self._arrays = executable.fresh
        self._drop_shared = None if arrays is NUMPY else arrays.drop_shared
        self._new = [n for n in range(len(self._arrays)) if n not in whose]
        records = _records([whose.get(n) for n in range(len(self._arrays))])
        self._old, self._are = make_buffer_finder(records), make_kept_check(records)
        self._all = len(whose) == len(replaced)

    def room(self) -> list[Any]:
        """Arrays for the fresh outputs of a call: old gradients, and new memory for the others.

        Where the executable makes new arrays by itself, None stands for them.

        The caller must hold the inputs of the call by now: then an old gradient that is an input,
        or shares its memory with one, has another reference and is not taken.
        """
        found = self._old()
        complete, arrays = found.pop(), self._arrays
        if self._drop_shared is not None:
            return self._drop_shared(found)
        for n in self._new if complete else range(len(arrays)):
            if found[n] is None:
                found[n] = np.empty(*arrays[n])
        return found

    def forget(self, room: Sequence[np.ndarray], task: int) -> None:
        """Drop the old gradients that a call overwrote before it ended after this task."""
        for n, first, owner in self._written:
            gradient = owner._grad
            if first <= task and gradient is not None and gradient._data is room[n]:
                owner._grad = None

    def take(self, call: Call, raws: list[np.ndarray]) -> None:
        """Set the gradients to these arrays, unless they are already."""
        if self._all and self._are(raws):
            return
        kind = RESULT[0]
        for position, owner, node in self._owned:
            gradient = _new(kind)
            gradient._data, gradient._share = raws[position], None
            gradient._node = mark_of(node, call)
            owner._grad = gradient
        for r in self._others:
            r.find(call).held = wrap(raws[r.position], mark_of(r.node, call))


def _records(whose: Sequence[ReplacedGradient | None]) -> WordArray:
    """The addresses from which native code reads the gradients that these arrays can replace."""
    at = fields_of_tensors()
    numbers = [len(whose), id(RESULT[0]), at["_data"], at["_node"], at["_share"], id(None)]
    for r in whose:
        numbers += (0, 0, 0) if r is None else (id(r.owner) + at["_grad"], id(r.node), r.position)
    records = words(len(numbers), whose)
    records[:] = numbers
    return records
