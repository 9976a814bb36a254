"""Where arrays were made: the user's line and the operation, stored beside each array's memory."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import CO_OPTIMIZED
from types import CodeType, FrameType
from typing import Any

import numpy as np
from numpy._core.multiarray import get_handler_name

from ..backend.numpy.namespace import owning
from ..compiler.native.allocations import ORIGIN_BITS, origin_bytes, origin_word
from ..compiler.native.observers import note_address, tables
from ..compiler.native.places import (
    MOST,
    ROOM,
    CodeEntry,
    CodeKind,
    PlaceEntry,
    Slot,
    Tables,
    hash_of,
)
from ..core import origin as origins
from ..core.node import Node, ids
from ..core.origin import is_generated, is_internal, line_of
from ..transform.modes import reverse
from .counter import Counter, note_origins
from .slots import SweepStack

# The bytes from which on an array's origin is noted: that takes about a microsecond.
SMALLEST = 1 << 14
_MASK = (1 << ORIGIN_BITS) - 1
_SWEEP: CodeType = reverse._carry.__code__
_AT_SWEEP = int(Slot.SWEEP)


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


# The numbers of places, by the address of the code object, and the places by number; number 0 is
# unknown. All code objects that addresses refer to are held.
_numbers: dict[tuple[int, int, bool], int] = {}
_places: list[Place] = [Place("unknown")]
HELD: dict[int, CodeType] = {}


def number_of(code: CodeType, lasti: int, back: bool, op: str | None) -> int:
    """The number of a place; 0 if there are too many."""
    number = _numbers.get((id(code), lasti, back))
    if number is None:
        if len(_places) > _MASK:
            return 0
        HELD[id(code)] = code
        number = _numbers[id(code), lasti, back] = len(_places)
        _places.append(Place(line_of(code, lasti), op, back))
    return number


# -- the tables of native code -----------------------------------------------------------------

_kinds: dict[int, int] = {}  # of the code objects in the table
_entries: dict[tuple[int, int], int] = {}  # of the places in the table: where their entries are


def _kind_of(frame: FrameType) -> int:
    """Whose code a frame runs; native code then knows it, too."""
    code = frame.f_code
    kind = _kinds.get(id(code))
    if kind is None:
        internal = is_internal(code.co_filename) or is_generated(frame)
        kind = CodeKind.LIBRARY if internal else CodeKind.USER
        kind = int(CodeKind.SWEEP if code is _SWEEP else kind)
        table = tables().codes.words
        if len(_kinds) < MOST:
            HELD[id(code)], _kinds[id(code)] = code, kind
            at = _free_entry(table, CodeEntry.SIZE, id(code), 0)
            table[at + CodeEntry.KIND] = kind
            table[at + CodeEntry.CODE] = id(code)
    return kind


def _enter_place(code: CodeType, lasti: int, number: int) -> None:
    """Let native code know a place; −1: it has no number."""
    table, at = tables().places.words, _entries.get((id(code), lasti))
    if at is None:
        if len(_entries) >= MOST:
            return
        HELD[id(code)] = code
        at = _entries[id(code), lasti] = _free_entry(table, PlaceEntry.SIZE, id(code), lasti)
        table[at + PlaceEntry.INSTRUCTION] = lasti
        table[at + PlaceEntry.NUMBER] = number
        table[at + PlaceEntry.CODE] = id(code)
    elif number != -1:
        table[at + PlaceEntry.NUMBER] = number


def _free_entry(table: memoryview, size: int, code: int, instruction: int) -> int:
    i = hash_of(code, instruction)
    while table[i * size]:
        i = (i + 1) & (ROOM - 1)
    return i * size


def place_of_call(depth: int, op: str | None) -> origins.Origin:
    """The user's call in progress; native code then knows it, and its number if `op` is given.

    depth  of the frame to begin at
    """
    if origins._written.get() is not None:
        return origins.origin()
    frame = sys._getframe(depth)
    while _kind_of(frame) != CodeKind.USER and frame.f_back is not None:
        frame = frame.f_back
    code, lasti = frame.f_code, frame.f_lasti
    _enter_place(code, lasti, -1 if op is None else number_of(code, lasti, False, op))
    return code, lasti


def _find() -> int:
    """The number of the user's line that is running, or of the one whose backward pass is."""
    first = frame = sys._getframe(1)
    while (kind := _kind_of(frame)) == CodeKind.LIBRARY:
        outer = frame.f_back
        if outer is None:
            return 0
        frame = outer
    code, lasti, back = frame.f_code, frame.f_lasti, kind == CodeKind.SWEEP
    if back:
        node = local(frame, "node")
        code, lasti = node.code, node.lasti
    number = _numbers.get((id(code), lasti, back))
    if number is None:
        number = number_of(code, lasti, back, _op_in(first, code, back))
    if not back:
        _enter_place(code, lasti, number)
    return number


def note_origins_of(counter: Counter) -> None:
    """Have the origin of each large array stored beside it, as a counter counts it."""
    head = tables().head.words
    head[Tables.FIND], head[Tables.CLOCK] = id(_find), id(ids)
    note_origins(counter, note_address(), SMALLEST)


class SweepPlaces:
    """Says, while it observes sweeps, at which node each is."""

    def __init__(self) -> None:
        self._running = SweepStack()

    def begin_sweep(self) -> None:
        self._running.sweeps.append(0)
        self._tell(0)

    def begin_node(self, node: Node, g: Any) -> None:
        running = self._running
        slot, number = running.slot, None
        if running.sweeps:  # or it had begun before: `_find` looks for the node
            number = _numbers.get((id(node.code), node.lasti, True))
            if number is None:
                number = number_of(node.code, node.lasti, True, node.op.name)
            running.sweeps[-1] = number
        slot.words[slot.at + _AT_SWEEP] = number or 0

    def end_sweep(self) -> None:
        sweeps = self._running.sweeps
        sweeps.pop()
        self._tell(sweeps[-1] if sweeps else 0)

    def _tell(self, number: int) -> None:
        slot = self._running.slot
        slot.words[slot.at + Slot.SWEEP] = number


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
