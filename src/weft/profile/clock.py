"""The GPU's clock: events of PyTorch, and their times on the clock of the processor."""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple


class Mark(NamedTuple):
    """A moment of a GPU: when an event was reached, and not before `since` on the other clock."""

    device: int
    event: Any
    since: int = 0


class CudaClock:
    """Marks moments of the GPU's work without waiting for it.

    now  the processor's clock, in nanoseconds
    """

    def __init__(self, now: Callable[[], int]):
        self._now = now
        self._cuda = sys.modules["torch"].cuda
        self._starts: dict[int, tuple[Any, int]] = {}  # an event, and when it was, by device
        self._last: dict[int, Any] = {}  # the event that was recorded last, by device

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
        self._last[device] = event
        return Mark(device, event)

    def begin(self) -> Mark:
        """The moment from which on work is done that is launched now: after all that was marked.

        It takes no event of its own.
        """
        device = self._cuda.current_device()
        last = self._last.get(device)
        return self.mark() if last is None else Mark(device, last, self._now())

    def time(self, mark: Mark) -> int:
        """When a mark was reached, in nanoseconds of the processor's clock."""
        start, at = self._starts[mark.device]
        return max(at + int(1e6 * start.elapsed_time(mark.event)), mark.since)
