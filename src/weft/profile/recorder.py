"""Recording when operations begin and end: kernels, pull-backs, updates, and compiled steps."""

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial, wraps
from time import CLOCK_MONOTONIC, clock_gettime_ns
from types import CodeType
from typing import Any, NamedTuple

import numpy as np

from ..compiler.ir.schedule import LibraryStep, Schedule
from ..compiler.native.allocations import origin_bytes
from ..compiler.timing import time_steps
from ..core import origin as origins
from ..core.backends import BACKENDS, guard, unguard
from ..core.node import Node
from ..core.op import Op
from ..optim import walk
from ..optim.walk import Job
from ..transform.modes import reverse
from .clock import CudaClock, Mark
from .origins import RUNNING, number_of, place_count

# The clock that native code reads, in nanoseconds.
now: Callable[[], int] = partial(clock_gettime_ns, CLOCK_MONOTONIC)

_new = tuple.__new__  # a third of the time of a named tuple's own constructor

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


class _Running(threading.local):
    """What is running in a thread.

    sweeps  for each sweep, the node that it is at: (node, start, mark)
    """

    def __init__(self) -> None:
        self.sweeps: list[tuple[Node, int, Mark | None] | None] = []
        self.thread = threading.current_thread().name, threading.get_ident()


class Fullest(NamedTuple):
    """The moment with the most live bytes, and the bytes of each place then."""

    live: int
    peak: int
    held: bytes


class Recorder:
    """Records spans while it is installed.

    sample  () -> (live bytes, the most since the last time); None: memory is not recorded
    """

    def __init__(self, sample: Callable[[], tuple[int, int]] | None):
        self.spans: list[Span] = []
        self.fullest: Fullest | None = None
        self._sample = sample
        self._most = 0
        self._running = _Running()
        self._places = memoryview(origin_bytes()).cast("B")
        self.cuda: CudaClock | None = None

    def install(self) -> ExitStack:
        """Begin to record; closing the result ends it."""
        with ExitStack() as undo:
            guard(None, self._bind)
            undo.callback(unguard, None, self._bind)
            reverse.OBSERVERS.append(self)
            undo.callback(reverse.OBSERVERS.remove, self)
            walk.AROUND.append(self._around_update)
            undo.callback(walk.AROUND.remove, self._around_update)
            time_steps(self._note_steps, True)
            undo.callback(time_steps, self._note_steps, False)
            return undo.pop_all()

    # -- kernels ---------------------------------------------------------------------------------

    def _bind(self, op: Op, kernel: Callable[..., Any]) -> Callable[..., Any]:
        """The kernel of a row, which records a span at each call."""
        local, arity, number, name = self._running, op.arity, number_of, op.name
        keeps_static, views, array = op.name == "einsum", bool(op.views), np.ndarray
        sample, append = self._sample, self.spans.append
        # Arrays that the user's own code makes belong to its lines.
        notes = sample is not None and not op.foreign

        @wraps(kernel, assigned=())
        def timed(*args: Any, **kwargs: Any) -> Any:
            # Spelled out, as all of this is: it runs at every operation.
            mark = None if args[0].__class__ is array else self._mark(args[0])
            sweeps = local.sweeps
            if sweeps and sweeps[-1] is not None:  # at the forward line of the node
                node = sweeps[-1][0]
                place, back = (node.code, node.lasti), True
                start = now()
                z = kernel(*args, **kwargs)
                stop = now()
            else:
                place, back = origins.origin(2), False
                if notes:
                    RUNNING.number = number(*place, False, name)
                start = now()
                try:
                    z = kernel(*args, **kwargs)
                finally:
                    stop = now()
                    RUNNING.number = 0
            marks = None if mark is None else (mark, self._mark_now())
            given = _describe(args[0] if arity is None else args[:arity])
            if views and _is_view(z[0] if z.__class__ is tuple else z, args[0]):
                results = None
            elif z.__class__ is array:
                results = ((z.shape, z.dtype),)
            else:
                results = _describe(z if z.__class__ is tuple else (z,))
            static = args[1:] if keeps_static else ()
            live = peak = 0
            if sample is not None:
                live, peak = sample()
                if peak > self._most:
                    self._note_peak(live, peak)
            what = ("op", op, start, stop, place, back, local.thread, given, results, static)
            append(_new(Span, (*what, live, peak, marks)))
            return z

        return timed

    def _record(
        self,
        kind: str,
        what: Any,
        start: int,
        stop: int,
        place: tuple[CodeType, int] | None,
        back: bool,
        operands: Sequence[Described] | None = None,
        results: Sequence[Described] | None = None,
        static: tuple[Any, ...] = (),
        marks: tuple[Mark, Mark] | None = None,
    ) -> None:
        live = peak = 0
        if self._sample is not None:
            live, peak = self._sample()
            if peak > self._most:
                self._note_peak(live, peak)
        thread = self._running.thread
        fields = (kind, what, start, stop, place, back, thread, operands, results, static)
        self.spans.append(_new(Span, (*fields, live, peak, marks)))

    def _note_peak(self, live: int, peak: int) -> None:
        """Note the live bytes of all places, in an object that the counter does not count."""
        self._most = peak
        self.fullest = Fullest(live, peak, bytes(self._places[: 8 * place_count()]))

    # -- sweeps ----------------------------------------------------------------------------------

    def begin_sweep(self) -> None:
        self._running.sweeps.append(None)

    def begin_node(self, node: Node, g: Any) -> None:
        """The span of a node lasts until the next one begins: sums of cotangents belong to it."""
        local = self._running
        if not local.sweeps:  # a sweep that had begun before
            return
        self._end_node(local)
        mark = self._mark(g)
        local.sweeps[-1] = node, now(), mark
        self._note_at(node)

    def end_sweep(self) -> None:
        local = self._running
        self._end_node(local)
        local.sweeps.pop()
        if local.sweeps and local.sweeps[-1] is not None:  # a pull-back had a sweep of its own
            self._note_at(local.sweeps[-1][0])

    def _note_at(self, node: Node) -> None:
        """Let arrays belong to a node, until the next one begins."""
        if self._sample is not None and not node.op.foreign:
            RUNNING.number = number_of(node.code, node.lasti, True, node.op.name)

    def _end_node(self, local: _Running) -> None:
        if not local.sweeps or local.sweeps[-1] is None:
            return
        node, start, mark = local.sweeps[-1]
        local.sweeps[-1] = None
        RUNNING.number = 0
        stop = now()
        marks = None if mark is None else (mark, self._mark_now())
        place = node.code, node.lasti
        self._record("backward", node.op, start, stop, place, True, marks=marks)

    # -- optimizers ------------------------------------------------------------------------------

    def _around_update(self, run: Callable[[], None], jobs: list[Job]) -> None:
        mark = self._mark(jobs[0].columns[0] if jobs else None)
        start = now()
        run()
        stop = now()
        marks = None if mark is None else (mark, self._mark_now())
        read = _describe([c for job in jobs for c in job.columns])
        written = _describe([c for job in jobs for c in (job.columns[0], *job.columns[2:])])
        name = getattr(jobs[0].rule, "__name__", "update") if jobs else "update"
        place = origins.origin(2)
        self._record("update", name, start, stop, place, False, read, written, (), marks)

    # -- compiled programs -----------------------------------------------------------------------

    def _note_steps(self, schedule: Schedule, segment: int, times: list[int]) -> None:
        """A native segment ran."""
        if segment:
            self._place_library_call(schedule, segment)
        what, place = (schedule, segment, times), origins.origin(2)
        self._record("program", what, times[0], times[-1], place, False)

    def _place_library_call(self, schedule: Schedule, segment: int) -> None:
        """Let the library call before a segment be at its own line, not at that of the program."""
        step = [s for s in schedule.steps if isinstance(s, LibraryStep)][segment - 1]
        thread = self._running.thread
        for k in range(len(self.spans) - 1, -1, -1):  # other threads may have recorded since
            span = self.spans[k]
            if span.thread == thread:
                if span.kind == "op" and span.what is step.op:
                    self.spans[k] = span._replace(place=step.origin)
                return

    # -- the GPU ---------------------------------------------------------------------------------

    def _mark(self, x: Any) -> Mark | None:
        """An event on the GPU, before work on an array that is there."""
        if x.__class__ is np.ndarray or "torch" not in sys.modules:
            return None
        x = x[0] if x.__class__ in (list, tuple) and x else x
        if not getattr(x, "is_cuda", False):
            return None
        self.cuda = self.cuda or CudaClock(now)
        return self.cuda.mark()

    def _mark_now(self) -> Mark:
        assert self.cuda is not None
        return self.cuda.mark()


def _describe(values: Sequence[Any]) -> tuple[Described, ...]:
    # Tuples of these, unlike lists, are nothing that Python's garbage collector looks at again.
    a = np.ndarray
    return tuple([(x.shape, x.dtype) if x.__class__ is a else _describe_other(x) for x in values])


def _describe_other(x: Any) -> Described:
    shape = getattr(x, "shape", None)
    return None if shape is None else (tuple(shape), x.dtype)


def _is_view(z: Any, x: Any) -> bool:
    return z.__class__ in BACKENDS and BACKENDS[z.__class__].lies_in(z, x)
