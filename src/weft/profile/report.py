"""Profiling a step, and what it would take under each checkpoint strategy, in one HTML file."""

from collections.abc import Callable
from os import PathLike
from time import perf_counter
from typing import Any

from ..core.checkpointing import CheckpointConfig, CheckpointStrategy
from ..errors import ArgumentError
from ..transform.checkpoint.choose import checkpointing
from . import gpu
from .counter import Counter
from .ops import OpProfiler
from .page import StrategyCost

_STRATEGIES = (
    *(CheckpointStrategy.None_, CheckpointStrategy.Selective),
    *(CheckpointStrategy.Block, CheckpointStrategy.Full),
)


def report(
    step: Callable[..., Any],
    *args: Any,
    path: str | PathLike[str],
    warmup: int = 1,
    strategies: bool = True,
    **kwargs: Any,
) -> OpProfiler:
    """Profile a step of a program, and write one HTML file: a timeline, the memory with what its
    peak consists of, a table of operations, and what each checkpoint strategy would save.

    step          the function, for instance one step of training
    args, kwargs  its arguments
    path          of the file
    warmup        how often it is called before it is measured: compiling, first moments
    strategies    whether it is called under each checkpoint strategy, too; it must have a backward
                  pass that is not compiled

    The step is really run: `warmup` times, once with the profiler, and twice for each strategy.
    Returns the profiler.

    >>> import tempfile, weft as wf
    >>> model = wf.nn.Sequential(wf.nn.Linear(8, 64), wf.nn.Tanh(), wf.nn.Linear(64, 1))
    >>> def step(x):
    ...     return model(x).sum().backward()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     profiler = wf.profile.report(step, wf.ones((100, 8)), path=f"{folder}/report.html")
    >>> profiler.peak_bytes > 0
    True
    """
    if not callable(step):
        raise ArgumentError(
            f"report: got a {type(step).__name__}, expected a function that runs one step; pass "
            "its arguments after it"
        )
    for _ in range(warmup):
        step(*args, **kwargs)
    with OpProfiler() as profiler:
        step(*args, **kwargs)
    costs = []
    if strategies and any(e.kind == "backward" for e in profiler.events):
        costs = [_cost(s, lambda: step(*args, **kwargs)) for s in _STRATEGIES]
    name = getattr(step, "__name__", type(step).__name__)
    profiler._write_report(path, f"Profile of {name}", costs)
    return profiler


def _cost(strategy: CheckpointStrategy, run: Callable[[], Any]) -> StrategyCost:
    config = CheckpointConfig(strategy=strategy)
    with checkpointing(config), Counter() as counter:
        run()
    gpu.wait()
    begin = perf_counter()
    with checkpointing(config):
        run()
    gpu.wait()
    every = f", every {config.checkpoint_every_n}"
    name = strategy.name.strip("_") + (every if strategy is CheckpointStrategy.Block else "")
    return StrategyCost(name, counter.peak, perf_counter() - begin)
