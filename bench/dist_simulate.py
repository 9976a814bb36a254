"""Predicted and measured steps of data-parallel training on the processes of this machine.

Run: python bench/dist_simulate.py [seconds]
     python bench/dist_simulate.py slow
On 1, 2 and 4 processes with one thread each: the step of each model by itself, which all processes
measure at the same time, the link between them (gloo, over loopback), and steps of DataParallel.
Steps on n processes are predicted from the step that one process measured alone, and from the one
that n measured side by side. Other programs must leave the processors alone: that is watched, and
times during which they did not are left out. For each figure the processes wait up to so many
seconds; then the least disturbed one is taken, and marked ~. Figures are medians.

`slow`: what is computed and sent takes its time asleep, as if a GPU computed and a network of
40 MB/s and 2 ms a message sent: the processors have little to do, so nothing need be watched.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import weft as wf

SIZES, STEPS, WANTED, PATIENCE = (1, 2, 4), 10, 3, 20.0
QUIET = 0.05  # the share of the processors that others may use
F = wf.nn.functional


def perceptron(width: int):
    model = wf.nn.Sequential(
        *(wf.nn.Linear(784, width), wf.nn.ReLU(), wf.nn.Linear(width, width), wf.nn.ReLU()),
        wf.nn.Linear(width, 10),
    )
    return model, (784,)


def convolutions():
    layers: list = []
    for before, after in ((3, 32), (32, 64), (64, 128)):
        layers += [wf.nn.Conv2d(before, after, 3, padding=1), wf.nn.ReLU(), wf.nn.MaxPool2d(2)]
    return wf.nn.Sequential(*layers, wf.nn.Flatten(), wf.nn.Linear(2048, 10)), (3, 32, 32)


class Pause(wf.CustomOp):
    """The identity, computed for a while by something that is not this processor."""

    def __init__(self, forward: float, backward: float):
        self._forward, self._backward = forward, backward

    def forward(self, inputs):
        time.sleep(self._forward)
        return inputs[0] + 0

    def backward(self, grad_output, _inputs):
        time.sleep(self._backward)
        return grad_output + 0


class Paused(wf.nn.Module):
    """A layer of 512 × 512 with pauses."""

    def __init__(self, forward: float, backward: float):
        super().__init__()
        self.linear = wf.nn.Linear(512, 512)
        self.pause = Pause(forward, backward)

    def forward(self, x):
        return self.pause(self.linear(x))


def blocks(forward: float, backward: float):
    layers = [Paused(forward, backward) for _ in range(8)]
    return wf.nn.Sequential(*layers, wf.nn.Linear(512, 10)), (512,)


@dataclass(frozen=True)
class Case:
    """A model, the batch of a rank, and what `DataParallel` and `simulate` are given."""

    make: Callable
    batch: int
    options: dict = field(default_factory=dict)


CASES = {
    "perceptron 1024, batch 256": Case(lambda: perceptron(1024), 256),
    "perceptron 1024, batch 64": Case(lambda: perceptron(1024), 64),
    "perceptron 2048, batch 128": Case(lambda: perceptron(2048), 128),
    "convolutions, batch 32": Case(convolutions, 32),
}
SHORT, LONG = partial(blocks, 5e-3, 10e-3), partial(blocks, 20e-3, 40e-3)
SLOW = {
    "network-bound": Case(SHORT, 8),
    "network-bound, 2 MB": Case(SHORT, 8, {"bucket_mb": 2}),
    "computing-bound": Case(LONG, 8),
    "computing-bound, 2 MB": Case(LONG, 8, {"bucket_mb": 2}),
    "bfloat16, 2 MB": Case(SHORT, 8, {"bucket_mb": 2, "compression": "bfloat16"}),
    "PowerSGD, 2 MB": Case(SHORT, 8, {"bucket_mb": 2, "compression": wf.dist.PowerSGD(4, start=0)}),
    "TopK, 2 MB": Case(SHORT, 8, {"bucket_mb": 2, "compression": wf.dist.TopK(0.05)}),
}


class SlowLink:
    """An engine whose messages take 2 ms, and a second for 40 MB."""

    LATENCY, BANDWIDTH = 2e-3, 40e6

    def __init__(self, engine):
        self._engine, self.rank, self.size = engine, engine.rank, engine.size

    def __getattr__(self, name: str):
        return getattr(self._engine, name)

    def _wait(self, turns: int, nbytes: float) -> None:
        time.sleep(turns * (self.LATENCY + nbytes / self.BANDWIDTH))

    def all_reduce(self, x, *rest):
        self._wait(2 * (self.size - 1), x.nbytes / self.size)
        return self._engine.all_reduce(x, *rest)

    def all_gather(self, x):
        self._wait(self.size - 1, x.nbytes)
        return self._engine.all_gather(x)

    def all_to_all(self, x):
        self._wait(self.size - 1, x.nbytes / self.size)
        return self._engine.all_to_all(x)


def prepare(case: Case, wrap: bool):
    """(loss, optimizer) of a case."""
    wf.random.seed(0)
    model, shape = case.make()
    model = wf.dist.DataParallel(model, **case.options) if wrap else model
    x, y = wf.rand((case.batch, *shape)), wf.zeros((case.batch,), dtype="int64")

    def loss():
        return F.cross_entropy(model(x), y)

    return loss, wf.optim.AdamW(model.parameters(), lr=1e-4)


def used() -> np.ndarray:
    """Seconds that processors have worked for all programs, that this one has, and the time."""
    user, nice, system, _, _, irq, soft, steal = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
    )
    everyone = (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")
    return np.array([everyone, time.process_time(), time.perf_counter()])


class Watch:
    """Repeats measurements while other programs leave the processors alone."""

    def __init__(self, group, patience: float, limit: float):
        self._group, self._patience, self._limit = group, patience, limit

    def _others(self, before: np.ndarray) -> float:
        """The share of the processors that other programs have used since then."""
        everyone, own, wall = used() - before
        all_own = float(self._group.all_reduce(np.array([own]))[0])
        share = (everyone - all_own) / (wall * len(os.sched_getaffinity(0)))
        return float(self._group.broadcast(np.array([share]))[0])

    def quiet(self, measured: Callable[[], Any]) -> tuple[list, bool]:
        """What was measured without disturbance, several times; and whether that was so."""
        found: list = []
        end = time.monotonic() + self._patience
        while sum(share < self._limit for share, _ in found) < WANTED:
            late = float(self._group.broadcast(np.array([time.monotonic() > end]))[0])
            if late and found:
                break
            before = used()
            time.sleep(0.2)
            if self._others(before) > self._limit and not late:
                continue
            before = used()
            value = measured()
            found.append((self._others(before), value))
        good = [value for share, value in found if share < self._limit]
        if good:
            return good, True
        return [min(found, key=lambda f: f[0])[1]], False


def step_time(loss, optimizer) -> float:
    """The median of a step's seconds, after some."""
    times = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - begin)
    return statistics.median(times[3:])


def worker(path: str, patience: float) -> None:
    """What a rank measures; rank 0 writes it down. Without patience, over a slow link."""
    group, slow = wf.dist.init(), not patience
    if slow:
        group.engine = SlowLink(group.engine)
    watch = Watch(group, patience, 2.0 if slow else QUIET)
    found: dict = {"profiles": {}, "steps": {}, "link": None}
    for name, case in (SLOW if slow else CASES).items():
        loss, optimizer = prepare(case, False)
        good, quiet = watch.quiet(
            partial(wf.dist.measure_step, loss, optimizer, samples=case.batch, steps=STEPS)
        )
        profile = sorted(good, key=lambda p: p.step)[len(good) // 2]
        found["profiles"][name] = asdict(profile), quiet
        if group.size > 1:
            loss, optimizer = prepare(case, True)
            step_time(loss, optimizer)
            good, quiet = watch.quiet(partial(step_time, loss, optimizer))
            found["steps"][name] = statistics.median(good), quiet
    if group.size > 1:
        good, quiet = watch.quiet(partial(wf.dist.measure_link, repeats=4 if slow else 10))
        found["link"] = asdict(sorted(good, key=lambda x: x.bandwidth)[len(good) // 2]), quiet
    if group.rank == 0:
        Path(path).write_text(json.dumps(found))
    wf.dist.finalize()


def launched(size: int, patience: float) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/found.json"
        run = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        own = [__file__, "--worker", path, str(patience)]
        subprocess.run([sys.executable, *run, *own], check=True, env=env)
        return json.loads(Path(path).read_text())


def profile_of(found: dict) -> wf.dist.StepProfile:
    gradients = [
        wf.dist.GradientProfile(tuple(g["shape"]), g["ready"], g["itemsize"])
        for g in found["gradients"]
    ]
    return wf.dist.StepProfile(**{**found, "gradients": tuple(gradients)})


def main(patience: float) -> None:
    one = launched(1, patience)["profiles"]
    titles = ("one ms", "side by side", "measured", "from one", "side by side")
    print(f"{'':26} n {''.join([t.rjust(14) for t in titles])}")
    for n in SIZES[1:]:
        found = launched(n, patience)
        link, still = wf.dist.Link(**found["link"][0]), found["link"][1]
        print(f"{n} processes{'' if still else ' ~'}: {link}")
        for name, (measured, quiet) in found["steps"].items():
            cells, quiet = [], quiet and still
            for given, undisturbed in (one[name], found["profiles"][name]):
                profile, quiet = profile_of(given), quiet and undisturbed
                options = (CASES | SLOW)[name].options
                (p,) = wf.dist.simulate(profile, link, [n], **options)
                cells.append((profile.step, p.step / measured - 1, p.step))
            (a, error, p), (b, error_b, q) = cells
            predicted = f"{1e3 * p:7.2f} {error:+6.1%}{1e3 * q:7.2f} {error_b:+6.1%}"
            print(
                f"{name:26} {n} {1e3 * a:13.2f} {1e3 * b:13.2f} {1e3 * measured:13.2f} "
                f"{predicted}{'' if quiet else ' ~'}",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        worker(sys.argv[2], float(sys.argv[3]))
    else:
        main(0.0 if sys.argv[1:] == ["slow"] else float((sys.argv[1:] or [PATIENCE])[0]))
