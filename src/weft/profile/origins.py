"""Where arrays were made: the user's line and the operation, stored beside each array's memory."""

import ctypes
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import CO_OPTIMIZED
from types import CodeType, FrameType
from typing import Any

import numpy as np
from numpy._core.multiarray import get_handler_name

from ..backend.numpy.namespace import owning
from ..compiler.native.allocations import ORIGIN_BITS, origin_bytes, origin_word
from ..core.node import ids
from ..core.origin import INTERNAL, line_of, user_frame
from ..transform.modes import reverse

# The bytes from which on an array's origin is noted: that takes some microseconds.
SMALLEST = 1 << 14
_MASK = (1 << ORIGIN_BITS) - 1
_SWEEP: CodeType = reverse._carry.__code__


@dataclass(frozen=True)
class Place:
    """A place in the user's program where arrays are made.

    line  `train.py:41`
    op    the operation there; None: not one of the table
    back  whether it is the backward pass of that line
    """

    line: str
    op: str | None = None
    back: bool = False

    def __str__(self) -> str:
        what = f"{self.op or 'an array'} at {self.line}"
        return f"backward of {what}" if self.back else what


# The numbers of places, and the places by number; number 0 is unknown.
_numbers: dict[tuple[CodeType, int, bool], int] = {}
_places: list[Place] = [Place("unknown")]


class Running(threading.local):
    """In each thread, the number of the place where arrays are made; 0: `_note` looks for it."""

    number = 0


RUNNING = Running()


def number_of(code: CodeType, lasti: int, back: bool, op: str | None) -> int:
    """The number of a place; 0 if there are too many."""
    number = _numbers.get((code, lasti, back))
    if number is None:
        if len(_places) > _MASK:
            return 0
        number = _numbers[code, lasti, back] = len(_places)
        _places.append(Place(line_of(code, lasti), op, back))
    return number


def _note(size: int) -> int:
    """Where the array is made whose memory is being allocated, and when, as one word."""
    number = RUNNING.number or _find()
    return -next(ids) << ORIGIN_BITS | number if number else 0


def _find() -> int:
    """The number of the user's line that is running, or of the one whose backward pass is."""
    first = frame = sys._getframe(2)
    # Spelled out: it runs at every large array, for a dozen frames.
    is_internal, sweep, back = INTERNAL.get, _SWEEP, False
    while True:
        code, lasti = frame.f_code, frame.f_lasti
        if code is sweep:
            node = local(frame, "node")
            code, lasti, back = node.code, node.lasti, True
            break
        internal = is_internal(code.co_filename)
        if internal is None:
            internal = user_frame(frame) is not frame
        if not internal:
            break
        outer = frame.f_back
        if outer is None:
            return 0
        frame = outer
    number = _numbers.get((code, lasti, back))
    if number is not None:
        return number
    return number_of(code, lasti, back, _op_in(first, code, back))


def local(frame: FrameType, name: str) -> Any:
    """A variable of a running function, or None."""
    return variables_of(frame).get(name)


def variables_of(frame: FrameType) -> dict[str, Any]:
    """The variables of a frame.

    Before Python 3.13 `f_locals` is a copy that stays with the frame: it would keep arrays alive.
    """
    found = frame.f_locals
    copy = dict(found)
    if isinstance(found, dict) and frame.f_code.co_flags & CO_OPTIMIZED:
        found.clear()
    return copy


def _op_in(frame: FrameType | None, code: CodeType, back: bool) -> str | None:
    """The operation that runs in the frames from this one out to that of `code`."""
    op = None
    while frame is not None and op is None and frame.f_code is not code:
        if not back or frame.f_code is _SWEEP:
            op = getattr(local(frame, "node" if back else "op"), "name", None)
        frame = frame.f_back
    return op


CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(_note)
ADDRESS: int = ctypes.cast(CALLBACK, ctypes.c_void_p).value or 0


@dataclass(frozen=True)
class Origin:
    """Where an array was made, and when: on the clock that numbers recorded operations."""

    place: Place
    time: int


def origin_of(array: Any) -> Origin | None:
    """Where and when the memory of a NumPy array was made; None if that was not noted."""
    owner = owning(array) if isinstance(array, np.ndarray) else None
    if owner is None or not owner.flags.owndata:
        return None
    if get_handler_name(owner) != "weft_counter":
        return None
    word = origin_word(owner)
    return Origin(_places[word & _MASK], word >> ORIGIN_BITS) if word else None


def place_count() -> int:
    """How many numbers of places there are; 0 is one of them."""
    return len(_places)


def live_by_place(held: Sequence[int] | None = None) -> dict[Place, int]:
    """The live bytes of arrays by where they were made, of those of `SMALLEST` bytes and more.

    held  bytes by number, as they were at some time; None: now
    """
    found: dict[Place, int] = {}
    counts: Sequence[int] = origin_bytes() if held is None else held
    for place, n in zip(_places[1:], counts[1 : len(_places)], strict=False):
        if n:
            found[place] = found.get(place, 0) + n
    return found
