"""What the profilers cost: training steps of several networks under each, beside plain steps.

Run: python bench/profiler.py [seconds for each network, 20]

Steps without a profiler and under each of them run in turns, in one process; medians of the ratios.
The first step of a turn is not timed: it binds kernels anew, and finds the lines of the program.
`cpu` is the same by the processor time of all threads. `begin, end` is what it takes to start
and stop a profiler once, beside a step.
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
from memory_budget.weft_side import NETWORKS, Block

import weft as wf

nn, F = wf.nn, wf.nn.functional
PROFILERS: dict[str, Callable[[], Any]] = {
    "none": nullcontext,
    "Counter": wf.profile.Counter,
    "GradientMemoryProfiler": wf.profile.GradientMemoryProfiler,
    "OpProfiler(memory=False)": lambda: wf.profile.OpProfiler(memory=False),
    "OpProfiler": wf.profile.OpProfiler,
}
TURN = 0.05  # seconds of timed steps in a turn, about


def small_gpt(rng):
    """A GPT of 3 blocks, whose operations are short."""
    width, length, words, batch = 64, 32, 65, 2
    blocks = [Block(width, 4, 0.0, True) for _ in range(3)]
    ends = nn.LayerNorm(width), nn.Linear(width, words)
    model = nn.Sequential(nn.Embedding(words, width), *blocks, *ends)
    ids, targets = (rng.integers(0, words, (batch, length)) for _ in range(2))
    return model, lambda y, t: F.cross_entropy(y.reshape(-1, words), t.reshape(-1)), ids, targets


NETS = {"small gpt": small_gpt, **{name: NETWORKS[name] for name in ("gpt", "cnn", "mlp")}}


def step_of(network, compiled: bool) -> Callable[[], Any]:
    """A training step without arguments."""
    wf.random.seed(0)
    model, loss, x, y = network(np.random.default_rng(0))
    optimizer = wf.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = wf.tensor(x), wf.tensor(y)

    def step(x, y):
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        return value

    run = wf.compile(step) if compiled else step
    return lambda: run(x, y)


def timed(f: Callable[[], Any]) -> tuple[float, float]:
    """Seconds by the clock, and of all threads' processor time."""
    wall, cpu = time.perf_counter(), time.process_time()
    f()
    return time.perf_counter() - wall, time.process_time() - cpu


def turn(step: Callable[[], Any], profiler: Any, count: int) -> tuple[float, float, float]:
    """Medians of a step's times under a profiler, and what begin and end of that took."""
    gc.collect()
    begin, _ = timed(profiler.__enter__)
    step()
    times = [timed(step) for _ in range(count)]
    end, _ = timed(lambda: profiler.__exit__(None, None, None))
    wall, cpu = (statistics.median(column) for column in zip(*times, strict=True))
    return wall, cpu, begin + end


def measure(step: Callable[[], Any], seconds: float) -> dict[str, list[tuple[float, ...]]]:
    """For each profiler, the times of its turns."""
    count = max(2, round(TURN / statistics.median(timed(step)[0] for _ in range(5))))
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in PROFILERS}
    began = time.perf_counter()
    while time.perf_counter() < began + seconds or len(found["none"]) < 5:
        for name, make in PROFILERS.items():
            found[name].append(turn(step, make(), count))
    return found


def report(title: str, found: dict[str, list[tuple[float, ...]]]) -> None:
    """Print what each profiler adds to a step."""
    plain = found.pop("none")
    wall = statistics.median(wall for wall, _, _ in plain)
    print(f"{title}: {1e3 * wall:.2f} ms a step, {len(plain)} turns")
    for name, turns in found.items():
        added = [
            100 * (statistics.median(t[k] / p[k] for t, p in zip(turns, plain, strict=True)) - 1)
            for k in (0, 1)
        ]
        once = statistics.median(t[2] for t in turns)
        print(
            f"  {name:26} {added[0]:+6.1f} %   cpu {added[1]:+6.1f} %   "
            f"begin, end {1e3 * once:6.1f} ms",
            flush=True,
        )


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    for name, network in NETS.items():
        for compiled in (False, True):
            step = step_of(network, compiled)
            for _ in range(3):
                step()
            report(f"{name}, {'compiled' if compiled else 'eager'}", measure(step, seconds))


if __name__ == "__main__":
    main()
