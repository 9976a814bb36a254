"""002 TenfloweRS Autograd: Comprehensive Guide, where time and memory go.

Sections: 4. Performance Benchmarking; 5. Memory Profiling; Issue 2: Out of Memory ("Profile
memory"); Issue 3: Slow Gradient Computation.

`start_benchmark` measures the code up to `end_benchmark` once; `benchmark.run(f)` does the warm-up
and the iterations that the config names.
"""

import weft as wf
from weft import GradientTape
from weft.profile import BenchmarkConfig, GradientMemoryProfiler, PerformanceBenchmark


def loss_of(tape: GradientTape, parameters: list[wf.Parameter]) -> wf.Tensor:
    weight, bias = (tape.watch(p) for p in parameters)
    return wf.ones([32, 8]).matmul(weight).add(bias).square().mean()


def performance_benchmarking():
    config = BenchmarkConfig(
        num_warmup=10,
        num_iterations=100,
        measure_throughput=True,
        measure_memory=True,
        statistical_analysis=True,
    )
    assert config == BenchmarkConfig()
    benchmark = PerformanceBenchmark(config)
    parameters = [wf.Parameter.randn((8, 4)), wf.Parameter.zeros((4,))]
    tape = GradientTape()
    loss = loss_of(tape, parameters)

    benchmark.start_benchmark("backward_pass")
    grads = tape.gradient([loss], parameters)
    result = benchmark.end_benchmark("backward_pass")

    assert [g.shape for g in grads] == [(8, 4), (4,)]
    assert f"Mean time: {result.mean_time_ms:.2f}ms" != "Mean time: 0.00ms"
    throughput = result.throughput_ops_per_sec
    assert throughput is not None
    assert abs(throughput * result.mean_time_ms - 1000) < 1e-6
    assert f"Throughput: {throughput:.0f} ops/sec" != "Throughput: 0 ops/sec"
    assert result.peak_bytes is not None and result.peak_bytes >= sum(g.nbytes for g in grads)

    def backward_pass():
        tape = GradientTape()
        return tape.gradient([loss_of(tape, parameters)], parameters)

    measured = benchmark.run(backward_pass)
    assert len(measured.times_ms) == 100
    assert measured.min_ms <= measured.median_ms <= measured.p95_ms
    assert measured.ci95 is not None
    assert measured.ci95[0] <= measured.mean_time_ms <= measured.ci95[1]


def memory_profiling():
    profiler = GradientMemoryProfiler()
    profiler.start_profiling()
    model = wf.nn.Linear(256, 512)
    tape = GradientTape()
    input = tape.watch(wf.ones([1024, 256]))

    profiler.record_checkpoint("before_forward")
    output = model.forward(input)
    profiler.record_checkpoint("after_forward")

    grads = tape.gradient([output], [input])
    profiler.record_checkpoint("after_backward")

    forward_memory = profiler.get_memory_delta("before_forward", "after_forward")
    assert f"Forward pass used: {forward_memory:.2f}MB" == "Forward pass used: 2.00MB"
    assert output.nbytes == 2 * 2**20 and grads[0].shape == (1024, 256)

    leak_report = profiler.detect_leaks()
    assert leak_report.num_suspicious == 0
    profiler.stop_profiling()


def a_leak_is_found():
    profiler = GradientMemoryProfiler()
    losses = []
    with profiler:
        for _ in range(10):
            x = wf.ones([64, 64], requires_grad=True)
            loss = x.square().mean()
            loss.backward()
            losses.append(loss)
        leak_report = profiler.detect_leaks()
    assert leak_report.num_suspicious == 1
    (leak,) = leak_report.leaks
    assert leak.place.op == "mean" and leak.place.line.startswith("doc002_profiling.py:")
    assert "list `losses` of function a_leak_is_found" in leak.reason and len(losses) == 10


def profile_memory():
    """Identify which operations use most memory."""
    x = wf.zeros([512, 512], requires_grad=True)
    with GradientMemoryProfiler() as profiler:
        y = x.matmul(x).exp().sum()
        point = profiler.record_checkpoint("forward")
    assert [place.op for place in point.by_place] == ["exp"] and y.requires_grad
    assert point.live >= point.by_place.popitem()[1] == 2**20 and point.peak >= 2 * 2**20


def slow_gradient_computation():
    benchmark = PerformanceBenchmark()
    params = [wf.Parameter.randn((8, 4)), wf.Parameter.zeros((4,))]
    tape = GradientTape()
    loss = loss_of(tape, params)
    benchmark.start_benchmark("backward")
    tape.gradient([loss], params)
    result = benchmark.end_benchmark("backward")
    assert result.mean_time_ms == result.median_ms > 0  # of a single run


def main():
    performance_benchmarking()
    memory_profiling()
    a_leak_is_found()
    profile_memory()
    slow_gradient_computation()


if __name__ == "__main__":
    main()
