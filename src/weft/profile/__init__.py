"""Where bytes and time go: counters, a memory profiler, a census of live arrays, benchmarks."""

from .counter import Counter

__all__ = ["Counter"]


def __dir__() -> list[str]:
    return list(__all__)
