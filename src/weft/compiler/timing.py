"""How long the stages of compiling take, for those who ask."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import perf_counter

_times: ContextVar[dict[str, float] | None] = ContextVar("weft_stages", default=None)


@contextmanager
def time_stages() -> Iterator[dict[str, float]]:
    """A block whose stages are measured, in seconds."""
    times: dict[str, float] = {}
    token = _times.set(times)
    try:
        yield times
    finally:
        _times.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """A block that is a stage of compiling."""
    times, began = _times.get(), perf_counter()
    yield
    if times is not None:
        times[name] = times.get(name, 0.0) + perf_counter() - began
