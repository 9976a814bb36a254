"""Measuring how long a piece of a program takes, with its spread, and what memory it needs."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import sqrt
from statistics import mean, median, stdev
from time import perf_counter_ns
from typing import Any

from ..errors import ArgumentError
from . import gpu
from .counter import Counter

_NS_PER_MS, _NS_PER_S = 1e6, 1e9


@dataclass(frozen=True)
class BenchmarkConfig:
    """How a `PerformanceBenchmark` measures.

    num_warmup            runs before the measured ones
    num_iterations        runs that are measured
    measure_throughput    whether runs per second are reported
    measure_memory        whether the peak of live bytes is measured, in one more run
    statistical_analysis  whether the 95 % confidence interval of the mean is reported

    Without one of the last three, what it is about is None in the result.

    >>> import weft as wf
    >>> wf.profile.BenchmarkConfig(num_warmup=2).num_iterations
    100
    """

    num_warmup: int = 10
    num_iterations: int = 100
    measure_throughput: bool = True
    measure_memory: bool = True
    statistical_analysis: bool = True

    def __post_init__(self) -> None:
        for name, least in (("num_warmup", 0), ("num_iterations", 1)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ArgumentError(
                    f"BenchmarkConfig: {name}={value!r}, expected an integer of at least {least}"
                )


@dataclass(frozen=True)
class BenchmarkResult:
    """The measured times of a piece of a program, and its memory.

    name                    what was measured
    times_ms                the milliseconds of each run, in order
    throughput_ops_per_sec  runs per second, from the mean
    ci95                    bounds of the 95 % confidence interval of the mean, in milliseconds
    peak_bytes              the most bytes of new arrays that were live at once

    The confidence interval is Student's t, for runs that do not depend on each other.

    >>> import weft as wf
    >>> result = wf.profile.BenchmarkResult("step", (1.0, 2.0, 3.0))
    >>> result.mean_time_ms, result.median_ms, result.std_ms
    (2.0, 2.0, 1.0)
    """

    name: str
    times_ms: tuple[float, ...] = field(repr=False)
    throughput_ops_per_sec: float | None = None
    ci95: tuple[float, float] | None = None
    peak_bytes: int | None = None

    @property
    def mean_time_ms(self) -> float:
        """The mean of the times."""
        return mean(self.times_ms)

    @property
    def median_ms(self) -> float:
        """The median of the times."""
        return median(self.times_ms)

    @property
    def min_ms(self) -> float:
        """The shortest time."""
        return min(self.times_ms)

    @property
    def p95_ms(self) -> float:
        """The time that 95 % of the runs do not exceed, interpolated between two."""
        ordered = sorted(self.times_ms)
        at = 0.95 * (len(ordered) - 1)
        i = int(at)
        following = ordered[min(i + 1, len(ordered) - 1)]
        return ordered[i] + (at - i) * (following - ordered[i])

    @property
    def std_ms(self) -> float:
        """The standard deviation of the times; 0 for a single run."""
        return stdev(self.times_ms) if len(self.times_ms) > 1 else 0.0

    def __str__(self) -> str:
        text = f"{self.name}: {self.mean_time_ms:.3f} ms"
        if self.ci95 is not None:
            text += f" (95 %: {self.ci95[0]:.3f} to {self.ci95[1]:.3f})"
        text += f", median {self.median_ms:.3f}, p95 {self.p95_ms:.3f}, {len(self.times_ms)} runs"
        if self.throughput_ops_per_sec is not None:
            text += f", {self.throughput_ops_per_sec:.0f} per second"
        return text if self.peak_bytes is None else f"{text}, peak {self.peak_bytes:,} bytes"


class PerformanceBenchmark:
    """Measures functions, blocks, or what is between two calls.

    config  how; None: `BenchmarkConfig()`

    `run(f)` does the warm-up and all runs. A block `measure(name)`, or `start_benchmark(name)` and
    `end_benchmark(name)`, measures the code between once; measured again under the same name, in a
    loop, it adds a run, and the first `num_warmup` of them do not count once there are more.

    The GPU's work is waited for. Memory of blocks is counted while they are timed, which costs
    about a tenth of a microsecond for each array; `run` measures it in a run of its own.

    >>> import weft as wf
    >>> benchmark = wf.profile.PerformanceBenchmark(
    ...     wf.profile.BenchmarkConfig(num_warmup=2, num_iterations=20)
    ... )
    >>> x = wf.ones((100, 100))
    >>> result = benchmark.run(lambda: x @ x, "matmul")
    >>> result.mean_time_ms > 0, len(result.times_ms), result.peak_bytes
    (True, 20, 40000)
    """

    def __init__(self, config: BenchmarkConfig | None = None):
        self.config: BenchmarkConfig = BenchmarkConfig() if config is None else config
        self._running: dict[str, tuple[Counter | None, int, int]] = {}  # with GPU bytes before
        self._times: dict[str, list[int]] = {}
        self._peaks: dict[str, int] = {}

    def run(self, f: Callable[[], Any], name: str | None = None) -> BenchmarkResult:
        """Measure a function without arguments.

        f     the function
        name  for the result; None: the function's

        >>> import weft as wf
        >>> config = wf.profile.BenchmarkConfig(num_warmup=0, num_iterations=3)
        >>> wf.profile.PerformanceBenchmark(config).run(lambda: wf.ones(3), "ones").name
        'ones'
        """
        title = getattr(f, "__name__", type(f).__name__) if name is None else name
        for _ in range(self.config.num_warmup):
            f()
        peak = _peak_of(f) if self.config.measure_memory else None
        times = []
        with _uncollected():
            for _ in range(self.config.num_iterations):
                gpu.wait()
                begin = perf_counter_ns()
                f()
                gpu.wait()
                times.append(perf_counter_ns() - begin)
        return self._result(title, times, peak)

    def start_benchmark(self, name: str) -> None:
        """Begin to measure.

        name  of what is measured

        >>> import weft as wf
        >>> benchmark = wf.profile.PerformanceBenchmark()
        >>> benchmark.start_benchmark("backward")
        >>> benchmark.end_benchmark("backward").mean_time_ms > 0
        True
        """
        if name in self._running:
            raise ArgumentError(f"start_benchmark: {name!r} is running; call end_benchmark first")
        counter, before = None, 0
        gpu.wait()
        if self.config.measure_memory:
            gpu.reset_peak()
            counter, before = Counter().start(), gpu.live()
        self._running[name] = counter, before, perf_counter_ns()

    def end_benchmark(self, name: str) -> BenchmarkResult:
        """End to measure; the result of all runs under this name.

        name  as it was begun

        >>> import weft as wf
        >>> benchmark = wf.profile.PerformanceBenchmark()
        >>> for _ in range(3):
        ...     benchmark.start_benchmark("step")
        ...     last = benchmark.end_benchmark("step")
        >>> len(benchmark.result("step").times_ms)
        3
        """
        gpu.wait()
        now = perf_counter_ns()
        if name not in self._running:
            raise ArgumentError(f"end_benchmark: {name!r} is not running; start_benchmark first")
        last = next(reversed(self._running))
        if self.config.measure_memory and last != name:
            raise ArgumentError(
                f"end_benchmark: {last!r} was started inside {name!r}; end it first, or set "
                "measure_memory=False: the memory of blocks that overlap cannot be told apart"
            )
        counter, before, begin = self._running.pop(name)
        times = self._times.setdefault(name, [])
        times.append(now - begin)
        if counter is not None:
            counter.stop()
            self._peaks[name] = max(counter.peak + gpu.peak() - before, self._peaks.get(name, 0))
        return self.result(name)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """A block that is measured; `result(name)` has what was found.

        name  of what is measured

        >>> import weft as wf
        >>> benchmark = wf.profile.PerformanceBenchmark()
        >>> with benchmark.measure("make"):
        ...     x = wf.ones(1000, dtype="float64")
        >>> (benchmark.result("make").peak_bytes or 0) >= x.nbytes
        True
        """
        self.start_benchmark(name)
        try:
            yield
        finally:
            self.end_benchmark(name)

    def result(self, name: str) -> BenchmarkResult:
        """The result of the runs so far that were measured under a name.

        name  as it was begun

        >>> import weft as wf
        >>> benchmark = wf.profile.PerformanceBenchmark()
        >>> with benchmark.measure("nothing"):
        ...     pass
        >>> benchmark.result("nothing").name
        'nothing'
        """
        if name not in self._times:
            known = ", ".join(map(repr, self._times)) or "none"
            raise ArgumentError(f"result: nothing was measured as {name!r}; there is {known}")
        times = self._times[name]
        counted = times[self.config.num_warmup :] or times
        return self._result(name, counted, self._peaks.get(name))

    def _result(self, name: str, times: list[int], peak: int | None) -> BenchmarkResult:
        average = mean(times)
        return BenchmarkResult(
            name,
            tuple([t / _NS_PER_MS for t in times]),
            _NS_PER_S / average if self.config.measure_throughput and average else None,
            _interval(times) if self.config.statistical_analysis else None,
            peak,
        )


def _interval(times: list[int]) -> tuple[float, float] | None:
    """Student's 95 % confidence interval of the mean, in milliseconds; None for a single run."""
    if len(times) < 2:
        return None
    from scipy.special import stdtrit

    half = float(stdtrit(len(times) - 1, 0.975)) * stdev(times) / sqrt(len(times))
    return (mean(times) - half) / _NS_PER_MS, (mean(times) + half) / _NS_PER_MS


def _peak_of(f: Callable[[], Any]) -> int:
    """The most bytes of new arrays that are live at once in a run, on the CPU and the GPU."""
    gpu.reset_peak()
    before = gpu.live()
    with Counter() as counter:
        f()
        gpu.wait()
    return counter.peak + gpu.peak() - before


@contextmanager
def _uncollected() -> Iterator[None]:
    """A block in which garbage is not collected, as `timeit` does it."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
