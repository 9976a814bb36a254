"""The native code of profilers, loaded when the first one runs, and the tables that it reads."""

import ctypes
from collections.abc import Callable, Sequence
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Any

import numpy as np

from ...core.once import once
from ...core.record import record
from ..emit.code import LLModule
from . import layout
from .builtin import make_builtin
from .machine import Loaded
from .objects import PROVIDERS, load_written
from .places import ROOM, SLOTS, CodeEntry, PlaceEntry, Slot, Tables, write_places
from .spans import write_spans
from .words import WordArray

_EXPORTS = ["weft_note", "weft_span"]


class Words:
    """Zeros at an address, in memory that neither counters nor tracemalloc count."""

    words: memoryview
    address: int

    def __init__(self, count: int):
        memory = mmap(-1, 8 * count, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        self.words = memoryview(memory).cast("q")
        self.address = ctypes.addressof(ctypes.c_int64.from_buffer(memory))


@record
class ObserverTables:
    """The tables of `places`: the head, code objects, places and threads."""

    head: Words
    codes: Words
    places: Words
    threads: Words


@once
def tables() -> ObserverTables:
    """The tables; they live as long as the process."""
    made = ObserverTables(
        *(Words(Tables.SIZE), Words(ROOM * CodeEntry.SIZE)),
        *(Words(ROOM * PlaceEntry.SIZE), Words(SLOTS * Slot.SIZE)),
    )
    made.head.words[Tables.CODES] = made.codes.address
    made.head.words[Tables.PLACES] = made.places.address
    made.head.words[Tables.SLOTS] = made.threads.address
    return made


PROVIDERS.append(lambda symbol: tables().head.address if symbol == "weft_places" else None)


@once
def _functions() -> Loaded:
    layout.verify_layout()
    return load_written("observers", (layout.TYPE, layout.DATA), _write, _EXPORTS)


def _write(module: LLModule) -> None:
    write_places(module)
    write_spans(module)


def note_address() -> int:
    """The address of the function that the allocator calls to find where an array is made."""
    return _functions().addresses["weft_note"]


def make_span(fields: Sequence[int], hold: object) -> Callable[..., Any]:
    """A function in the place of a kernel; the words of `spans.Kernel`, and what they refer to."""
    memory = np.frombuffer(bytearray(8 * len(fields)), np.int64).view(WordArray)
    memory[:] = fields
    memory.hold = hold
    return make_builtin(_functions().addresses["weft_span"], memory)
