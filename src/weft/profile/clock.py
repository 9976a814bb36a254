"""The GPU's clock: events of PyTorch, and their times on the clock of the processor."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple


class Mark(NamedTuple):
    """An event on a GPU's stream."""

    device: int
    event: Any


class CudaClock:
    """Marks moments of the GPU's work without waiting for it.

    now  the processor's clock, in nanoseconds
    """

    def __init__(self, now: Callable[[], int]):
        self._now = now
        self._cuda = sys.modules["torch"].cuda
        self._starts: dict[int, tuple[Any, int]] = {}  # an event, and when it was, by device

    def mark(self) -> Mark:
        """An event on the current stream of the current device."""
        cuda = self._cuda
        device = cuda.current_device()
        if device not in self._starts:
            start = cuda.Event(enable_timing=True)
            cuda.synchronize()
            start.record()
            start.synchronize()
            self._starts[device] = start, self._now()
        event = cuda.Event(enable_timing=True)
        event.record()
        return Mark(device, event)

    def time(self, mark: Mark) -> int:
        """When a mark was reached, in nanoseconds of the processor's clock."""
        start, at = self._starts[mark.device]
        return at + int(1e6 * start.elapsed_time(mark.event))
