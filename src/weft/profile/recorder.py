"""Recording when operations begin and end: kernels, pull-backs, updates, and compiled steps."""

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from operator import itemgetter
from time import CLOCK_MONOTONIC, clock_gettime_ns
from typing import Any, NamedTuple

import numpy as np

from ..compiler.ir.schedule import LibraryStep, Schedule
from ..compiler.native.allocations import origin_bytes
from ..compiler.native.places import Slot
from ..compiler.native.spans import Tape
from ..compiler.timing import time_steps
from ..core import origin as origins
from ..core.backends import BACKENDS, guard, unguard
from ..core.node import Node
from ..core.op import Op
from ..optim import walk
from ..optim.walk import Job
from ..transform.modes import reverse
from .clock import CudaClock, Mark
from .counter import Counter, sampler
from .origins import HELD, number_of, place_count, place_of_call
from .slots import SweepStack
from .sweeps import Moment, OpenSweeps, SweepMark
from .tape import Described, Span, SpanTape

# The clock that native code reads, in nanoseconds.
now: Callable[[], int] = partial(clock_gettime_ns, CLOCK_MONOTONIC)

_ARRAY, _BYTE = np.ndarray, np.dtype(np.uint8)
_COUNT = int(Tape.COUNT)
_NUMBER, _CODE, _INSTRUCTION = int(Slot.NUMBER), int(Slot.CODE), int(Slot.INSTRUCTION)


class Fullest(NamedTuple):
    """The moment with the most live bytes, and the bytes of each place then."""

    live: int
    peak: int
    held: bytes


class Recorder:
    """Records spans while it is installed: of kernels on NumPy's arrays by native code.

    counter  of the bytes; None: memory is not recorded
    """

    def __init__(self, counter: Counter | None):
        self.fullest: Fullest | None = None
        self.cuda: CudaClock | None = None
        self._sample = None if counter is None else sampler(counter)
        self._tape = SpanTape(counter, self._note_native_peak)
        # Spans that Python records, each with how many native ones there were before.
        self._made: list[tuple[int, Span] | Moment] = []
        self._count = self._tape.words
        self._running = SweepStack()
        self._nodes: dict[tuple[int, int], int] = {}
        self._places = memoryview(origin_bytes()).cast("B")
        self._spans: list[Span] | None = None

    def install(self) -> ExitStack:
        """Begin to record; closing the result ends it."""
        with ExitStack() as undo:
            guard(None, self._bind)
            undo.callback(unguard, None, self._bind)
            undo.callback(self._tell_node, None)
            reverse.OBSERVERS.append(self)
            undo.callback(reverse.OBSERVERS.remove, self)
            walk.AROUND.append(self._around_update)
            undo.callback(walk.AROUND.remove, self._around_update)
            time_steps(self._note_steps, True)
            undo.callback(time_steps, self._note_steps, False)
            return undo.pop_all()

    @property
    def spans(self) -> list[Span]:
        """What was recorded, in the order in which it ended."""
        if self._spans is None:
            self._spans = _join(self._tape.spans(), self._made)
        return self._spans

    # -- kernels ---------------------------------------------------------------------------------

    def _bind(self, op: Op, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """The kernel of a row, which records a span at each call."""
        # Arrays that the user's own code makes belong to its lines.
        notes = self._sample is not None and not op.foreign

        def record(z: Any, args: tuple[Any, ...]) -> None:
            """Record a call that native code has made, on other values than arrays and numbers."""
            slot = self._running.slot
            at, words = slot.at, slot.words
            start, stop, code, lasti, back, live, peak = words[at + Slot.START : at + Slot.PEAK + 1]
            place = HELD[code], lasti
            self._add_call(op, start, stop, place, bool(back), args, z, (live, peak))

        return self._tape.wrap(op, kernel, self._general(op, kernel, notes), record, notes)

    def _general(self, op: Op, kernel: Callable[..., Any], notes: bool) -> Callable[..., Any]:
        """The kernel of a row, of which Python records a span at each call."""
        local, name = self._running, op.name if notes else None

        def timed(*args: Any, **kwargs: Any) -> Any:
            mark = self._mark(args[0], True)
            slot = local.slot
            words, at = slot.words, slot.at + Slot.NUMBER
            node = words[slot.at + Slot.CODE]
            if node:  # at the forward line of the node
                place: origins.Origin = HELD[node], words[slot.at + Slot.INSTRUCTION]
            else:
                place = place_of_call(2, name)
            before = words[at]
            if notes and not node:
                words[at] = number_of(*place, False, name)
            start = now()
            try:
                z = kernel(*args, **kwargs)
            finally:
                stop = now()
                words[at] = before
            marks = None if mark is None else (mark, self._mark_now())
            self._add_call(op, start, stop, place, bool(node), args, z, self._measure(), marks)
            return z

        return timed

    def _add_call(
        self,
        op: Op,
        start: int,
        stop: int,
        place: origins.Origin,
        back: bool,
        args: tuple[Any, ...],
        z: Any,
        memory: tuple[int, int],
        marks: tuple[Mark, Mark] | None = None,
    ) -> None:
        given = _describe(args[0] if op.arity is None else args[: op.arity])
        several = z.__class__ is tuple
        is_view = op.views and _is_view(z[0] if several else z, args[0])
        results = None if is_view else _describe(z if several else (z,))
        static = args[1:] if op.name == "einsum" else ()
        thread = self._running.slot.thread
        what = ("op", op, start, stop, place, back, thread, given, results, static)
        self._add(Span(*what, *memory, marks))

    def _add(self, span: Span) -> None:
        self._made.append((self._count[_COUNT], span))

    def _measure(self) -> tuple[int, int]:
        """Live bytes, and the most since the last time."""
        if self._sample is None:
            return 0, 0
        live, peak = self._sample()
        if peak > self._tape.most:
            self._note_peak(live, peak)
        return live, peak

    def _note_native_peak(self) -> None:
        slot = self._running.slot
        self._note_peak(slot.words[slot.at + Slot.LIVE], slot.words[slot.at + Slot.PEAK])

    def _note_peak(self, live: int, peak: int) -> None:
        """Note the live bytes of all places, in an object that the counter does not count."""
        self._tape.most = peak
        self.fullest = Fullest(live, peak, bytes(self._places[: 8 * place_count()]))

    # -- sweeps ----------------------------------------------------------------------------------

    def begin_sweep(self) -> None:
        local = self._running
        local.sweeps.append(None)
        self._made.append(SweepMark(self._count[_COUNT], True, now(), local.slot.thread))
        self._tell_node(None)

    def begin_node(self, node: Node, g: Any) -> None:
        """The span of a node lasts until the next one begins: sums of cotangents belong to it."""
        local = self._running
        sweeps = local.sweeps
        if not sweeps:  # a sweep that had begun before
            return
        sweeps[-1] = node
        # Spelled out: it runs at every node.
        code, lasti, slot = node.code, node.lasti, local.slot
        memory = self._measure()
        mark = None if g.__class__ is _ARRAY else self._mark(g)
        last = mark if mark is not None or self.cuda is None else self._mark_now()
        number = None if node.op.foreign else self._nodes.get((id(code), lasti))
        if number is None:
            number = self._enter_node(node)
        words, at = slot.words, slot.at
        words[at + _NUMBER] = number
        words[at + _CODE] = id(code)
        words[at + _INSTRUCTION] = lasti
        live, peak = memory
        self._made.append(
            (self._count[_COUNT], now(), node.op, code, lasti, slot.thread, live, peak, mark, last)
        )

    def end_sweep(self) -> None:
        local = self._running
        local.sweeps.pop()
        stop = now()
        mark = None if self.cuda is None else self._mark_now()
        memory = self._measure()
        self._made.append(
            SweepMark(self._count[_COUNT], False, stop, local.slot.thread, *memory, mark)
        )
        # A pull-back may have had a sweep of its own.
        self._tell_node(local.sweeps[-1] if local.sweeps else None)

    def _tell_node(self, node: Node | None) -> None:
        """Let operations and arrays belong to a node, until the next one begins."""
        slot = self._running.slot
        at = slot.at
        slot.words[at + _NUMBER] = 0 if node is None else self._enter_node(node)
        slot.words[at + _CODE] = 0 if node is None else id(node.code)
        slot.words[at + _INSTRUCTION] = 0 if node is None else node.lasti

    def _enter_node(self, node: Node) -> int:
        """The number of a node's place; 0 if its arrays do not belong to it."""
        code, lasti = node.code, node.lasti
        HELD[id(code)] = code
        if node.op.foreign:
            return 0
        number = 0 if self._sample is None else number_of(code, lasti, True, node.op.name)
        self._nodes[id(code), lasti] = number
        return number

    # -- optimizers ------------------------------------------------------------------------------

    def _around_update(self, run: Callable[[], None], jobs: list[Job]) -> None:
        mark = self._mark(jobs[0].columns[0] if jobs else None, True)
        start = now()
        run()
        stop = now()
        marks = None if mark is None else (mark, self._mark_now())
        read = _sum([c for job in jobs for c in job.columns])
        written = _sum([c for job in jobs for c in (job.columns[0], *job.columns[2:])])
        name = getattr(jobs[0].rule, "__name__", "update") if jobs else "update"
        what = ("update", name, start, stop, origins.origin(2), False, self._running.slot.thread)
        self._add(Span(*what, read, written, (), *self._measure(), marks))

    # -- compiled programs -----------------------------------------------------------------------

    def _note_steps(self, schedule: Schedule, segment: int, times: list[int]) -> None:
        """A native segment ran."""
        what, place = (schedule, segment, times), origins.origin(2)
        thread = self._running.slot.thread
        head = ("program", what, times[0], times[-1], place, False, thread)
        self._add(Span(*head, None, None, (), *self._measure()))

    # -- the GPU ---------------------------------------------------------------------------------

    def _mark(self, x: Any, begins: bool = False) -> Mark | None:
        """A moment of the GPU, before work on an array that is there; None: on no other one.

        begins  whether it need not be an event of its own
        """
        if x.__class__ is np.ndarray or "torch" not in sys.modules:
            return None
        x = x[0] if x.__class__ in (list, tuple) and x else x
        if not getattr(x, "is_cuda", False):
            return None
        self.cuda = self.cuda or CudaClock(now)
        return self.cuda.begin() if begins else self.cuda.mark()

    def _mark_now(self) -> Mark:
        assert self.cuda is not None
        return self.cuda.mark()


def _join(native: list[Span], made: list[tuple[int, Span] | Moment]) -> list[Span]:
    """All spans in order: `made` says after how many of the native ones each comes."""
    spans: list[Span] = []
    sweeps, done = OpenSweeps(), 0
    for entry in sorted(made, key=itemgetter(0)):  # threads may have overtaken each other
        before = entry[0]
        spans += native[done:before]
        done = max(done, before)
        if isinstance(entry, SweepMark) or len(entry) != 2:
            spans += sweeps.spans(entry)
            continue
        spans.append(entry[1])
        if spans[-1].kind == "program" and spans[-1].what[1]:
            _place_library_call(spans)
    return spans + native[done:]


def _place_library_call(spans: list[Span]) -> None:
    """Let the library call before a segment be at its own line, not at that of the program."""
    schedule, segment, _ = spans[-1].what
    step = [s for s in schedule.steps if isinstance(s, LibraryStep)][segment - 1]
    for k in range(len(spans) - 2, -1, -1):  # other threads may have recorded since
        if spans[k].thread == spans[-1].thread:
            if spans[k].kind == "op" and spans[k].what is step.op:
                spans[k] = spans[k]._replace(place=step.origin)
            return


def _describe(values: Sequence[Any]) -> tuple[Described, ...]:
    # Tuples of these, unlike lists, are nothing that Python's garbage collector looks at again.
    a = np.ndarray
    return tuple([(x.shape, x.dtype) if x.__class__ is a else _describe_other(x) for x in values])


def _sum(arrays: Sequence[Any]) -> tuple[Described, ...]:
    """The first of some arrays, and the bytes of the others as one array."""
    if not arrays:
        return ()
    rest = sum([x.nbytes for x in arrays[1:]])
    return *_describe(arrays[:1]), ((rest,), _BYTE)


def _describe_other(x: Any) -> Described:
    shape = getattr(x, "shape", None)
    return None if shape is None else (tuple(shape), x.dtype)


def _is_view(z: Any, x: Any) -> bool:
    return z.__class__ in BACKENDS and BACKENDS[z.__class__].lies_in(z, x)
