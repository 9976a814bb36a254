"""Measuring the stages of compiling, inside a `time_stages` block."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter

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
