"""Measuring the stages of compiling, and the steps of programs that run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import RLock
from time import perf_counter
from typing import Any, Protocol
from weakref import ref

_times: ContextVar[dict[str, float] | None] = ContextVar("weft_stages", default=None)


@contextmanager
def time_stages() -> Iterator[dict[str, float]]:
    """A block that measures the stages inside it: seconds by name."""
    times: dict[str, float] = {}
    token = _times.set(times)
    try:
        yield times
    finally:
        _times.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """A block that is measured as a stage of compiling."""
    times, began = _times.get(), perf_counter()
    yield
    if times is not None:
        times[name] = times.get(name, 0.0) + perf_counter() - began


# -- the steps of programs that run ------------------------------------------------------------

# to(schedule, segment, times): called after each native segment of a program, with nanoseconds of
# `time.monotonic_ns` when its steps began, and when each ended.
StepTimes = Callable[[Any, int, list[int]], None]


class _Frame(Protocol):
    """The memory of a call that is under way or may come."""

    def report_times(self, to: StepTimes | None) -> None: ...


_frames: list[ref[_Frame]] = []  # no WeakSet: Ctrl-C is lost in Python's callbacks of weak ones
_observers: list[StepTimes] = []
_lock = RLock()  # a signal handler may compile, and so enter a frame, while it is held


def watch_frame(frame: _Frame) -> None:
    """Enter a new frame, whose steps are timed while anyone asks for that."""
    with _lock:
        _frames[:] = [weak for weak in _frames if weak() is not None]
        _frames.append(ref(frame))
        if _observers:
            frame.report_times(_tell)


def time_steps(to: StepTimes, on: bool) -> None:
    """Have the steps of all programs timed from now on, or (`on` False) no longer.

    Programs that nobody times run as if this did not exist: what changes is in the frames.
    """
    with _lock:
        before = bool(_observers)
        _observers.append(to) if on else _observers.remove(to)
        if before != bool(_observers):
            for frame in [weak() for weak in _frames]:
                if frame is not None:
                    frame.report_times(_tell if _observers else None)


def _tell(schedule: Any, segment: int, times: list[int]) -> None:
    for to in tuple(_observers):
        to(schedule, segment, times)
