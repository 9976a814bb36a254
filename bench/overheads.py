"""What recording costs, what Python costs in compiled calls, what `import weft` costs.

Run: python bench/overheads.py

Recording is compared with `no_grad`. Watching is the comparison of all Python values that a
program is built on; calls with and without it are timed in turns. Without it programs go stale.
"""

import statistics
import subprocess
import sys
import time
from functools import partial

import numpy as np
from scoreboard.networks import gpt as network
from scoreboard.problems import BATCH, LENGTH, VOCABULARY

import weft as wf

ROUNDS = 41


def chain(x, y):
    """Eight operations on whole arrays."""
    for _ in range(2):
        x = wf.tanh(x * y + y) - y
    return x


def products(a, b):
    """Four matrix products."""
    for _ in range(4):
        a = a @ b
    return a


def recording(f, *args) -> tuple[float, float]:
    """Medians of seconds recorded and under no_grad, measured in turns."""
    taken = {True: [], False: []}
    for _ in range(ROUNDS):
        for recorded in (True, False):
            start = time.perf_counter()
            if recorded:
                out = f(*args)
            else:
                with wf.no_grad():
                    out = f(*args)
            taken[recorded].append(time.perf_counter() - start)
            del out
    return statistics.median(taken[True]), statistics.median(taken[False])


def import_seconds() -> tuple[float, float]:
    """Best of five fresh interpreters: weft, and NumPy alone."""
    best = []
    for name in ("weft", "numpy"):
        program = (
            f"import time; t = time.perf_counter(); import {name}; print(time.perf_counter() - t)"
        )
        runs = [
            float(subprocess.run([sys.executable, "-c", program], capture_output=True).stdout)
            for _ in range(5)
        ]
        best.append(min(runs))
    return best[0], best[1]


def best(f, number: int, rounds: int = 9) -> float:
    """The best of some rounds, in microseconds a call."""
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(number):
            f()
        found.append((time.perf_counter() - start) / number)
    return 1e6 * min(found)


class Unwatched:
    """A program's values are not compared, inside of a block."""

    def __init__(self, compiled):
        self.watch = compiled._last().watch

    def __enter__(self):
        self.places_match, self.watch.places_match = self.watch.places_match, lambda: True

    def __exit__(self, *exc):
        self.watch.places_match = self.places_match


def compiled_calls() -> None:
    """Small functions: with what they find outside of themselves, and with none of it watched."""
    x, scale, w = wf.ones(16), 0.5, wf.ones(16)
    layer = wf.nn.Sequential(wf.nn.Linear(4, 4), wf.nn.GELU(), wf.nn.Linear(4, 4))
    batch = wf.ones((2, 4))
    cases = {
        "x·tanh x": (lambda x: (x * wf.tanh(x)).sum(), x),
        "a global and a tensor": (lambda x: (x * w * scale).sum(), x),
        "three layers": (lambda x: layer(x), batch),
    }
    for name, (f, argument) in cases.items():
        compiled = wf.compile(f)
        with wf.no_grad():
            compiled(argument)
            call = partial(compiled, argument)
            on, off = [], []
            for _ in range(5):
                on.append(best(call, 2000, 3))
                with Unwatched(compiled):
                    off.append(best(call, 2000, 3))
        ratio = min(on) / min(off)
        print(f"compiled {name:22} {min(on):6.2f} µs   unwatched {min(off):6.2f} µs   {ratio:.2f}")


def gpt_step() -> None:
    """What Python does in a training step of a GPT: native code is left out."""
    model = network(wf)
    optimizer = wf.optim.AdamW(model.parameters(), lr=1e-3)
    rng = np.random.default_rng(0)
    ids = wf.tensor(rng.integers(0, VOCABULARY, (BATCH, LENGTH)))
    targets = wf.tensor(rng.integers(0, VOCABULARY, BATCH * LENGTH))

    @wf.compile
    def step(ids, targets):
        optimizer.zero_grad()
        logits = model(ids).reshape(-1, VOCABULARY)
        loss = wf.nn.functional.cross_entropy(logits, targets)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step(ids, targets)
    program = step._last()
    (memory,) = program.executable._idle
    memory.first = lambda *arrays: 0  # in the place of native code
    python = best(lambda: step(ids, targets), 500)
    watching = best(program.watch.places_match, 2000)
    print(f"GPT step           {python:6.1f} µs of Python, of which watching {watching:.1f} µs")


def main():
    rng = np.random.default_rng(0)
    x, y = (wf.tensor(rng.random(10**6, np.float32), requires_grad=True) for _ in range(2))
    a, b = (wf.tensor(rng.random((512, 512), np.float32), requires_grad=True) for _ in range(2))
    for name, f, args in (("n = 10^6, 8 ops", chain, (x, y)), ("512x512 @", products, (a, b))):
        on, off = recording(f, *args)
        print(f"{name:18} recorded {1e3 * on:8.2f} ms   no_grad {1e3 * off:8.2f} ms   "
              f"{100 * (on / off - 1):+.1f} %")  # fmt: skip
    compiled_calls()
    gpt_step()
    weft, numpy = import_seconds()
    print(f"import weft        {weft:.3f} s, of which NumPy {numpy:.3f} s")


if __name__ == "__main__":
    main()
