"""The memory profiler: live bytes at named points of a program, by line, and leaks."""

from collections import Counter as Sums
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from types import TracebackType

from ..core.node import ids
from ..errors import ArgumentError
from ..transform.modes.reverse import BEFORE_SWEEP, OBSERVERS
from . import gpu
from .counter import Counter, note_origins
from .leaks import LeakReport, find_leaks
from .origins import Place, SweepPlaces, live_by_place, note_origins_of

_MIB = 2**20


@dataclass(frozen=True)
class MemoryCheckpoint:
    """The memory at a named point of a program.

    name       as it was recorded
    seconds    since profiling began
    live       bytes of the NumPy arrays that were made since then and are alive
    peak       the most since the checkpoint before
    cuda_live  bytes that PyTorch has allocated on the GPU
    cuda_peak  the most since the checkpoint before
    by_place   live bytes by where arrays of 16 KiB and more were made

    >>> import weft as wf
    >>> profiler = wf.profile.GradientMemoryProfiler()
    >>> profiler.start_profiling()
    >>> x = wf.ones((1000, 1000))
    >>> point = profiler.record_checkpoint("made")
    >>> profiler.stop_profiling()
    >>> point.live, [place.op for place in point.by_place]
    (4000000, [...])
    """

    name: str
    seconds: float
    live: int
    peak: int
    cuda_live: int = 0
    cuda_peak: int = 0
    by_place: dict[Place, int] = field(default_factory=dict)

    @property
    def by_line(self) -> dict[str, int]:
        """Live bytes by the line that made the arrays; a backward pass counts at its forward."""
        return self._sums(lambda place: place.line)

    @property
    def by_op(self) -> dict[str, int]:
        """Live bytes by the operation that made the arrays."""
        return self._sums(lambda place: place.op or "other")

    def _sums(self, key: Callable[[Place], str]) -> dict[str, int]:
        found: Sums[str] = Sums()
        for place, n in self.by_place.items():
            found[key(place)] += n
        return dict(found.most_common())


class GradientMemoryProfiler:
    """Measures live bytes at named points, says which lines hold them, and finds leaks.

    What is counted, and what is not, is said at `wf.profile.Counter`; arrays on a GPU are counted
    by PyTorch. The lines of arrays from 16 KiB on are noted, a microsecond or two each. Nothing of
    it costs anything while no profiler runs.

    >>> import weft as wf
    >>> with wf.profile.GradientMemoryProfiler() as profiler:
    ...     _ = profiler.record_checkpoint("before_forward")
    ...     x = wf.ones((512, 512), requires_grad=True)
    ...     y = wf.tanh(x @ x)
    ...     _ = profiler.record_checkpoint("after_forward")
    >>> print(f"{profiler.get_memory_delta('before_forward', 'after_forward'):.2f} MB")
    2.00 MB
    >>> profiler.detect_leaks().num_suspicious
    0
    """

    def __init__(self) -> None:
        self._counter: Counter | None = None
        self._began = 0.0
        self._start = 0
        self._ticks: list[int] = []
        self._before: dict[Place, int] = {}
        self._timeline: list[MemoryCheckpoint] = []
        self._sweeps = SweepPlaces()

    # -- the block -------------------------------------------------------------------------------

    def start_profiling(self) -> None:
        """Begin: forget earlier checkpoints, and count from now on.

        >>> import weft as wf
        >>> profiler = wf.profile.GradientMemoryProfiler()
        >>> profiler.start_profiling()
        >>> profiler.is_profiling
        True
        >>> profiler.stop_profiling()
        """
        if self.is_profiling:
            raise ArgumentError("start_profiling: it is profiling already; stop_profiling() first")
        self._counter = Counter().start()
        note_origins_of(self._counter)
        self._began, self._start = perf_counter(), -next(ids)
        self._ticks, self._timeline, self._before = [], [], live_by_place()
        BEFORE_SWEEP.append(self._tick)
        OBSERVERS.append(self._sweeps)
        gpu.reset_peak()

    def stop_profiling(self) -> None:
        """End; what was measured stays, and leaks can still be looked for.

        >>> import weft as wf
        >>> profiler = wf.profile.GradientMemoryProfiler()
        >>> profiler.start_profiling()
        >>> profiler.stop_profiling()
        >>> profiler.is_profiling
        False
        """
        counter = self._running("stop_profiling")
        counter.stop()
        note_origins(counter, 0, 0)
        BEFORE_SWEEP.remove(self._tick)
        OBSERVERS.remove(self._sweeps)

    def __enter__(self) -> "GradientMemoryProfiler":
        self.start_profiling()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop_profiling()

    @property
    def is_profiling(self) -> bool:
        """Whether it was started and not stopped."""
        return self._counter is not None and self._counter.is_counting

    def _running(self, what: str) -> Counter:
        if self._counter is None or not self._counter.is_counting:
            raise ArgumentError(f"{what}: nothing is profiled; call start_profiling() first")
        return self._counter

    def _tick(self) -> None:
        """An iteration begins or ends."""
        self._ticks.append(-next(ids))

    # -- measurements ----------------------------------------------------------------------------

    @property
    def live_bytes(self) -> int:
        """Bytes of the NumPy arrays that were made since the start and are alive."""
        return 0 if self._counter is None else self._counter.live

    @property
    def peak_bytes(self) -> int:
        """The most of them that were alive at once, up to the last checkpoint and since it."""
        last = 0 if self._counter is None else self._counter.peak
        return max([last, *(c.peak for c in self._timeline)])

    @property
    def timeline(self) -> tuple[MemoryCheckpoint, ...]:
        """The checkpoints in order."""
        return tuple(self._timeline)

    def record_checkpoint(self, name: str) -> MemoryCheckpoint:
        """Measure the memory at this point of the program; what was measured.

        name  of the point; a name that is used again, in a loop, names the latest

        >>> import weft as wf
        >>> with wf.profile.GradientMemoryProfiler() as profiler:
        ...     for step in range(3):
        ...         x = wf.ones(1000, dtype="float64")
        ...         _ = profiler.record_checkpoint("step")
        >>> [c.live for c in profiler.timeline]
        [8000, 8000, 8000]
        """
        counter = self._running("record_checkpoint")
        self._tick()
        grown = Sums(live_by_place())
        grown.subtract(self._before)
        point = MemoryCheckpoint(
            *(name, perf_counter() - self._began, counter.live, counter.peak),
            *(gpu.live(), gpu.peak()),
            {place: n for place, n in grown.most_common() if n > 0},
        )
        counter.reset_peak()
        gpu.reset_peak()
        self._timeline.append(point)
        return point

    def checkpoint(self, name: str) -> MemoryCheckpoint:
        """The latest checkpoint of a name.

        name  as it was recorded

        >>> import weft as wf
        >>> with wf.profile.GradientMemoryProfiler() as profiler:
        ...     _ = profiler.record_checkpoint("begin")
        >>> profiler.checkpoint("begin").live
        0
        """
        return self._find("checkpoint", name, len(self._timeline))[1]

    def _find(self, what: str, name: str, before: int) -> tuple[int, MemoryCheckpoint]:
        for i in range(before - 1, -1, -1):
            if self._timeline[i].name == name:
                return i, self._timeline[i]
        known = ", ".join(sorted({repr(c.name) for c in self._timeline})) or "none"
        raise ArgumentError(f"{what}: no checkpoint {name!r}; recorded are {known}")

    def get_memory_delta(self, before: str, after: str) -> float:
        """How many MiB more were live at a checkpoint than at one before; negative: fewer.

        before, after  their names; of names used again the latest `after`, and `before` before it

        >>> import weft as wf
        >>> with wf.profile.GradientMemoryProfiler() as profiler:
        ...     _ = profiler.record_checkpoint("a")
        ...     x = wf.ones((1024, 1024))
        ...     _ = profiler.record_checkpoint("b")
        >>> profiler.get_memory_delta("a", "b")
        4.0
        """
        i, last = self._find("get_memory_delta", after, len(self._timeline))
        known = any([c.name == before for c in self._timeline[:i]])
        _, first = self._find("get_memory_delta", before, i if known else len(self._timeline))
        return (last.live + last.cuda_live - first.live - first.cuda_live) / _MIB

    def detect_leaks(self) -> LeakReport:
        """Look for values that a line makes again and again, and that nothing frees.

        A leak is a line whose values are alive from at least five iterations, from the begin of
        the profile to its end; backward passes and checkpoints separate iterations. Values with a
        graph are looked for at any size, others from 1 MiB on. Parameters, gradients and the state
        of optimizers are no leaks.

        >>> import weft as wf
        >>> x = wf.ones(3, requires_grad=True)
        >>> with wf.profile.GradientMemoryProfiler() as profiler:
        ...     total = 0.0
        ...     for _ in range(10):
        ...         loss = (x * x).sum()
        ...         _ = loss.backward()
        ...         total = total + loss
        >>> report = profiler.detect_leaks()
        >>> report.num_suspicious
        1
        >>> "graph reaches back" in report.leaks[0].reason
        True
        """
        return find_leaks(list(self._ticks), self._start)

    def report(self) -> str:
        """The checkpoints, and the lines that hold the most at the fullest one.

        >>> import weft as wf
        >>> with wf.profile.GradientMemoryProfiler() as profiler:
        ...     x = wf.ones((1000, 1000))
        ...     _ = profiler.record_checkpoint("made")
        >>> print(profiler.report())
        checkpoint                 seconds        live bytes        peak bytes
        made                         ...           4,000,000               ...
        live at made, by the line that made it:
        ...
        """
        rows = [f"{'checkpoint':<24}{'seconds':>10}{'live bytes':>18}{'peak bytes':>18}"]
        for c in self._timeline:
            live, peak = c.live + c.cuda_live, c.peak + c.cuda_peak
            rows.append(f"{c.name:<24}{c.seconds:>10.3f}{live:>18,}{peak:>18,}")
        if self._timeline:
            fullest = max(self._timeline, key=lambda c: c.live)
            rows.append(f"live at {fullest.name}, by the line that made it:")
            rows += [f"  {n:>16,}  {p}" for p, n in list(fullest.by_place.items())[:20]]
            known = sum(fullest.by_place.values())
            rows.append(f"  {fullest.live - known:>16,}  smaller arrays")
        return "\n".join(rows)
