"""The tape that native code records the spans of kernels on, and what it says."""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from threading import RLock
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from ..compiler.native.observers import Words, make_span, tables
from ..compiler.native.spans import DTYPES, PIECE, Kernel, SpanWords, Tape, Value
from ..core import dtypes, origin
from ..core.op import Op
from .clock import Mark
from .counter import Counter
from .origins import HELD
from .slots import THREADS

# An array as (shape, dtype); None in the place of a Python number.
Described = tuple[tuple[int, ...], Any] | None


class Span(NamedTuple):
    """What ran from `start` to `stop`, in nanoseconds.

    kind      `op`, `backward` (the pull-back of a recorded operation), `update` (of an optimizer)
              or `program` (a native segment of a compiled function)
    what      the row; the name of an update; (schedule, segment, times of its steps)
    place     the user's line, as code and instruction; None: unknown
    back      whether it belongs to a backward pass
    operands  with `results`: shapes and dtypes; None of what is not known
    static    the static parameters of an einsum
    live      bytes at its end, and `peak` the most since the span before
    marks     on a GPU, the events around it
    """

    kind: str
    what: Any
    start: int
    stop: int
    place: tuple[CodeType, int] | None
    back: bool
    thread: tuple[str, int]
    operands: Sequence[Described] | None
    results: Sequence[Described] | None
    static: tuple[Any, ...]
    live: int
    peak: int
    marks: tuple[Mark, Mark] | None = None


_NUMBERS = (float, int, bool, complex, type(None))
# The dtypes that native code knows, the most frequent first.
_FREQUENT = (dtypes.float32, dtypes.float64, dtypes.int64, dtypes.bool_)
_DTYPES: tuple[np.dtype[Any], ...] = tuple(dict.fromkeys((*_FREQUENT, *dtypes.ALL)))
assert len(_DTYPES) <= DTYPES


class SpanTape:
    """What native code has recorded of kernels.

    counter  of the bytes; None: they are not recorded
    peaked   is called when more bytes than ever were live: `Slot.LIVE` and `Slot.PEAK`
    """

    def __init__(self, counter: Counter | None, peaked: Callable[[], None]):
        self._head, self._more = Words(Tape.SIZE), self._extend
        self._scalars: list[Any] = []
        self._ops: list[Op] = []
        self._memories: list[tuple[Words, int]] = []  # those that are full, and how far
        self._memory = Words(PIECE)
        self._lock = RLock()
        self._hold = peaked, counter
        words = self._head.words
        addresses = {
            Tape.PLACES: tables().head.address,
            Tape.MEMORY: self._memory.address,
            Tape.ROOM: PIECE,
            Tape.MORE: id(self._more),
            Tape.COUNTER: 0 if counter is None else ctypes.addressof(counter._words),
            Tape.PEAKED: id(peaked),
            Tape.WRITTEN: id(origin._written),
        }
        objects = zip(range(Tape.NONE, Tape.SCALARS + 1), (
            *(None, np.ndarray, list, tuple, np.generic, self._scalars),
        ), strict=True)  # fmt: skip
        known = enumerate((*_NUMBERS, *_DTYPES), Tape.NUMBERS)
        for at, value in addresses.items():
            words[at] = value
        for at, value in (*objects, *known):
            words[at] = id(value)

    @property
    def words(self) -> memoryview:
        """Those of the recorder (`Tape`)."""
        return self._head.words

    @property
    def most(self) -> int:
        """The largest peak so far."""
        return self._head.words[_MOST]

    @most.setter
    def most(self, peak: int) -> None:
        self._head.words[_MOST] = peak

    def wrap(
        self,
        op: Op,
        kernel: Callable[..., Any],
        general: Callable[..., Any],
        record: Callable[..., None],
        notes: bool,
    ) -> Callable[..., Any]:
        """A kernel whose calls are recorded.

        general  called in its place where native code does not know enough
        record   called as record(result, arguments) for calls that native code cannot describe
        notes    whether arrays that it makes belong to the user's line
        """
        self._ops.append(op)
        odd = op.name == "einsum" or (op.arity is None and bool(op.views))
        fields = {
            Kernel.FUNCTION: id(kernel),
            Kernel.GENERAL: id(general),
            Kernel.RECORD: id(record),
            Kernel.TAPE: self._head.address,
            Kernel.OP: len(self._ops) - 1,
            Kernel.ARITY: -1 if op.arity is None else op.arity,
            Kernel.VIEWS: bool(op.views),
            Kernel.NOTES: notes,
            Kernel.ODD: odd,
        }
        hold = kernel, general, record, self
        return make_span([fields[at] for at in Kernel if at in fields], hold)

    def _extend(self) -> None:
        """Let the next spans be written to new memory, as the old one is full."""
        words, memory = self._head.words, Words(PIECE)
        with self._lock:
            if words[Tape.ROOM] - words[Tape.AT] > PIECE // 2:
                return  # another thread has done it
            words[Tape.ROOM] = 0
            self._memories.append((self._memory, words[Tape.AT]))
            self._memory = memory
            words[Tape.MEMORY], words[Tape.AT] = memory.address, 0
            words[Tape.ROOM] = PIECE

    # -- what was recorded -----------------------------------------------------------------------

    def spans(self) -> list[Span]:
        """The spans, in the order in which they ended."""
        last = self._memory, self._head.words[Tape.AT]
        return [s for memory, used in (*self._memories, last) for s in self._unpack(memory, used)]

    def _unpack(self, memory: Words, used: int) -> Iterator[Span]:
        at = 0
        while at < used:
            length = memory.words[at]
            yield self._span(memory.words[at : at + length].tolist())
            at += length

    def _span(self, record: list[int]) -> Span:
        values = iter(record[SpanWords.SIZE :])
        _, number, start, stop, code, lasti, back, thread, live, peak = record[:_OPERANDS]
        given = tuple([self._value(values) for _ in range(record[SpanWords.OPERANDS])])
        several = record[SpanWords.RESULTS]
        made = None if several < 0 else tuple([self._value(values) for _ in range(several)])
        head = ("op", self._ops[number], start, stop, (HELD[code], lasti), bool(back))
        return Span(*head, THREADS[thread], given, made, (), live, peak)

    def _value(self, values: Iterator[int]) -> Described:
        kind = next(values)
        if kind == Value.NUMBER:
            return None
        at = next(values)
        if kind == Value.SCALAR:
            return (), self._scalars[at].dtype
        return tuple([next(values) for _ in range(next(values))]), _DTYPES[at]


_MOST, _OPERANDS = int(Tape.MOST), int(SpanWords.OPERANDS)
