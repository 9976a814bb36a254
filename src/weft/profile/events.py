"""From recorded spans to events: what ran, at which line, how long by itself, with what work."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..compiler.ir.schedule import GuardStep, LibraryStep, Schedule, ScheduleStep
from ..core.origin import line_of
from .clock import CudaClock
from .tape import Span
from .work import Work, dtype_name, segment_of, step_work, work_of


@dataclass(frozen=True)
class OpEvent:
    """An operation that ran.

    name          the operation; of a pull-back `tanh backward`, of a compiled step what it computes
    kind          `op`, `backward`, `update` (of an optimizer), `program` (a compiled function's
                  native code) or `step` (one of its steps); `launch` if a GPU does the work
    line          the user's; a backward pass counts at its forward
    back          whether it is part of a backward pass
    start         seconds since the profile began
    seconds       how long it ran
    self_seconds  without the events inside of it
    thread        the name of the thread, or of the GPU
    sizes         the shapes of its arguments
    dtype         that it computes in; "" if it is not known
    flops         floating-point operations; None: not known
    nbytes        bytes that it reads and writes; None: not known
    live          bytes that are live at its end
    peak          the most since the event before; both are 0 of the steps of a compiled function,
                  whose memory is there before it runs

    >>> import weft as wf
    >>> x = wf.ones((100, 200))
    >>> with wf.profile.OpProfiler() as profiler:
    ...     y = x @ x.mT
    >>> event = profiler.events[-1]
    >>> event.name, event.sizes, event.flops
    ('matmul', '100×200, 200×100', 4000000)
    """

    name: str
    kind: str
    line: str
    back: bool
    start: float
    seconds: float
    self_seconds: float
    thread: str
    sizes: str = ""
    dtype: str = ""
    flops: int | None = None
    nbytes: int | None = None
    live: int = 0
    peak: int = 0


@dataclass
class _Open:
    """A span whose parent has not been met: when it began, and how long it was on each clock."""

    start: int
    seconds: float
    device_seconds: float


class Events:
    """Makes events of spans.

    began  nanoseconds at which the profile began
    """

    def __init__(self, began: int, cuda: CudaClock | None):
        self._began = began
        self._cuda = cuda
        self._known: dict[Any, Work] = {}
        self._steps: dict[tuple[int, int], tuple[list[ScheduleStep], list[Work]]] = {}
        self._lines: dict[Any, str] = {}
        self._names: dict[tuple[str, int], str] = {}
        # Of each thread, the spans that have ended and wait for the one around them: spans are
        # recorded when they end, so the spans inside of one are those that began after it did.
        self._waiting: dict[tuple[str, int], list[_Open]] = {}

    def of(self, spans: list[Span]) -> Iterator[OpEvent]:
        """The events of spans, in the order in which they ended."""
        for span in spans:
            if span.kind == "program":
                yield from self._program(span)
            else:
                yield from self._event(span, work_of(span, self._known))

    def _event(self, span: Span, work: Work) -> Iterator[OpEvent]:
        seconds, on_device = (span.stop - span.start) / 1e9, 0.0
        begin = 0
        if span.marks is not None and self._cuda is not None:
            begin, end = (self._cuda.time(m) for m in span.marks)
            on_device = (end - begin) / 1e9
        own, device_own = self._close(span, seconds, on_device)
        event = OpEvent(
            *(work.name, span.kind, self._line(span.place), span.back),
            *((span.start - self._began) / 1e9, seconds, own, self._name(span.thread)),
            *(work.sizes, "" if work.dtype is None else dtype_name(work.dtype)),
            flops=work.flops,
            nbytes=work.nbytes,
            live=span.live,
            peak=span.peak,
        )
        if span.marks is None:
            yield event
            return
        yield replace(event, kind="launch")
        yield replace(
            event,
            start=(begin - self._began) / 1e9,
            seconds=on_device,
            self_seconds=device_own,
            thread=f"cuda:{span.marks[0].device}",
        )

    def _close(self, span: Span, seconds: float, on_device: float) -> tuple[float, float]:
        """The time that a span takes by itself, on both clocks."""
        waiting = self._waiting.setdefault(span.thread, [])
        own, device_own = seconds, on_device
        while waiting and waiting[-1].start >= span.start:
            inside = waiting.pop()
            own -= inside.seconds
            device_own -= inside.device_seconds
        waiting.append(_Open(span.start, seconds, on_device))
        return max(own, 0.0), max(device_own, 0.0)

    def _program(self, span: Span) -> Iterator[OpEvent]:
        """The steps of a native segment, and the segment itself."""
        schedule, segment, times = span.what
        steps, works = self._segment(schedule, segment)
        for step, work, start, stop in zip(steps, works, times[:-1], times[1:], strict=True):
            place = step.origin if isinstance(step, GuardStep | LibraryStep) else None
            origins = () if place else getattr(step, "origins", ())
            place = place or (origins[0] if origins else span.place)
            inside = span._replace(kind="step", start=start, stop=stop, place=place, live=0, peak=0)
            yield from self._event(inside, work)
        yield from self._event(span, Work("compiled program"))

    def _segment(self, schedule: Schedule, segment: int) -> tuple[list[ScheduleStep], list[Work]]:
        key = id(schedule), segment  # the spans keep the schedule alive
        if key not in self._steps:
            steps = segment_of(schedule, segment)
            self._steps[key] = steps, [step_work(schedule, s) for s in steps]
        return self._steps[key]

    def _line(self, place: Any) -> str:
        if place is None:
            return ""
        if place not in self._lines:
            self._lines[place] = line_of(*place)
        return self._lines[place]

    def _name(self, thread: tuple[str, int]) -> str:
        """The name of a thread; a number is added where another one has it."""
        if thread not in self._names:
            taken = set(self._names.values())
            name, _ = thread
            number = 2
            while name in taken:
                name, number = f"{thread[0]} ({number})", number + 1
            self._names[thread] = name
        return self._names[thread]
