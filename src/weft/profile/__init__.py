"""Where bytes and time go: counters, profilers of memory and operations, a census, benchmarks.

>>> import weft as wf
>>> with wf.profile.Counter() as counter:
...     x = wf.ones((1000, 1000))
>>> counter.live
4000000
"""

from .benchmark import BenchmarkConfig, BenchmarkResult, PerformanceBenchmark
from .census import Census, LiveArray, census
from .counter import Counter
from .estimate import Content, MemoryEstimate, estimate
from .events import OpEvent
from .health import GradientHealthReport, GradientStats, grad_stats
from .leaks import Leak, LeakReport
from .memory import GradientMemoryProfiler, MemoryCheckpoint
from .ops import OpProfiler, OpRow, OpTable
from .peaks import Peaks, peaks
from .report import report

__all__ = [
    "BenchmarkConfig",
    "BenchmarkResult",
    "Census",
    "Content",
    "Counter",
    "GradientHealthReport",
    "GradientMemoryProfiler",
    "GradientStats",
    "Leak",
    "LeakReport",
    "LiveArray",
    "MemoryCheckpoint",
    "MemoryEstimate",
    "OpEvent",
    "OpProfiler",
    "OpRow",
    "OpTable",
    "Peaks",
    "PerformanceBenchmark",
    "census",
    "estimate",
    "grad_stats",
    "peaks",
    "report",
]


def __dir__() -> list[str]:
    return list(__all__)
