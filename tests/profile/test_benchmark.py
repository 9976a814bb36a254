"""The benchmark: its statistics against SciPy and NumPy, its runs, its memory."""

from random import Random

import numpy as np
import pytest
from scipy import stats

import weft as wf
from weft.profile import BenchmarkConfig, PerformanceBenchmark, benchmark


@pytest.fixture
def clock(monkeypatch):
    """A clock that only runs when it is told to: a function of nanoseconds."""
    now = [0]
    monkeypatch.setattr(benchmark, "perf_counter_ns", lambda: now[0])

    def wait(ns):
        now[0] += ns

    return wait


@pytest.mark.parametrize("count", [1, 2, 3, 20, 101])
def test_statistics_are_those_of_scipy(count, clock):
    draw = Random(count)
    times = [draw.randrange(1000, 10_000_000) for _ in range(3 + count)]
    left = iter(times)
    config = BenchmarkConfig(num_warmup=3, num_iterations=count, measure_memory=False)
    result = PerformanceBenchmark(config).run(lambda: clock(next(left)), "f")
    ms = np.array(times[3:]) / 1e6
    assert result.times_ms == tuple(ms)
    np.testing.assert_allclose(result.mean_time_ms, ms.mean())
    np.testing.assert_allclose(result.median_ms, np.median(ms))
    np.testing.assert_allclose(result.p95_ms, np.percentile(ms, 95))
    np.testing.assert_allclose(result.throughput_ops_per_sec, 1000 / ms.mean())
    assert result.min_ms == ms.min()
    if count == 1:
        assert result.std_ms == 0.0 and result.ci95 is None
    else:
        np.testing.assert_allclose(result.std_ms, ms.std(ddof=1))
        expected = stats.t.interval(0.95, count - 1, ms.mean(), stats.sem(ms))
        np.testing.assert_allclose(result.ci95, expected)
    assert f"{count} runs" in str(result)


def test_what_is_not_asked_for_is_none():
    config = BenchmarkConfig(1, 3, False, False, False)
    result = PerformanceBenchmark(config).run(lambda: None)
    assert (result.throughput_ops_per_sec, result.peak_bytes, result.ci95) == (None, None, None)
    assert result.name == "<lambda>" and len(result.times_ms) == 3


def test_how_often_the_function_runs():
    calls = []
    PerformanceBenchmark(BenchmarkConfig(num_warmup=4, num_iterations=7)).run(
        lambda: calls.append(1)
    )
    assert len(calls) == 4 + 7 + 1  # one to measure memory
    calls.clear()
    config = BenchmarkConfig(num_warmup=4, num_iterations=7, measure_memory=False)
    PerformanceBenchmark(config).run(lambda: calls.append(1))
    assert len(calls) == 11


def test_runs_between_two_calls(clock):
    bench = PerformanceBenchmark(BenchmarkConfig(num_warmup=2))
    for i in range(5):
        bench.start_benchmark("outer")
        clock(1_000_000 * (i + 1))
        with bench.measure("inner"):
            clock(500_000)
        result = bench.end_benchmark("outer")
        assert len(result.times_ms) == (i + 1 if i < 2 else i - 1)  # warm-up, once there is more
    assert result.times_ms == (3.5, 4.5, 5.5) and bench.result("outer") == result
    assert bench.result("inner").times_ms == (0.5,) * 3


def test_memory_is_the_peak_of_new_arrays():
    bench, before = PerformanceBenchmark(BenchmarkConfig(0, 1)), np.zeros(1000)

    def work():
        a = np.zeros(1000)
        np.zeros(2000)
        return a

    assert bench.run(work).peak_bytes == 8 * 3000
    for _ in range(2):
        with bench.measure("block"):
            kept = work()
    assert bench.result("block").peak_bytes == 8 * 3000 and kept.nbytes == before.nbytes


def test_a_block_that_raises_is_ended():
    bench = PerformanceBenchmark()
    with pytest.raises(ZeroDivisionError), bench.measure("fails"):
        raise ZeroDivisionError
    with bench.measure("fails"):
        pass
    assert len(bench.result("fails").times_ms) == 2


def test_misuse_is_refused():
    bench = PerformanceBenchmark()
    with pytest.raises(wf.errors.ArgumentError, match="'a' is not running"):
        bench.end_benchmark("a")
    with pytest.raises(wf.errors.ArgumentError, match="nothing was measured as 'a'; there is none"):
        bench.result("a")
    with bench.measure("a"), pytest.raises(wf.errors.ArgumentError, match="'a' is running"):
        bench.start_benchmark("a")
    bench.start_benchmark("outer")
    bench.start_benchmark("inner")
    with pytest.raises(wf.errors.ArgumentError, match="'inner' was started inside 'outer'"):
        bench.end_benchmark("outer")
    bench.end_benchmark("inner")
    bench.end_benchmark("outer")
    for bad in ({"num_iterations": 0}, {"num_warmup": -1}, {"num_iterations": 2.5}):
        with pytest.raises(wf.errors.ArgumentError, match=next(iter(bad))):
            BenchmarkConfig(**bad)
    with pytest.raises(TypeError, match="iterations"):
        BenchmarkConfig(iterations=3)
