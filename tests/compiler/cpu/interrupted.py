"""Programs into which signals come at random moments; run as a script with a name and a number.

What a script prints is a line of JSON: how many seconds each interruption took, by the clock, from
the signal to the exception. It fails if a program is not as before or as after the call that was
interrupted, bit by bit, or if a call that follows is wrong.
"""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from itertools import count
from typing import Any

import numpy as np

import weft as wf

nn, F = wf.nn, wf.nn.functional
RNG = np.random.default_rng(0)
ONES = wf.ones((3,))


def array(*shape, dtype="float32"):
    return wf.tensor(RNG.standard_normal(shape).astype(dtype))


# -- functions without a state -----------------------------------------------------------------


def endless():
    @wf.compile
    def f(x, n):
        start = x, wf.zeros_like(n)
        return wf.while_loop(lambda s: s[1] < n, lambda s: (s[0] * x, s[1] + 1.0), start)

    return lambda n: f(ONES, wf.tensor(n)), (3.0, np.inf)


def nested():
    """Loops in loops that only end by themselves."""

    def inner(s):
        return wf.while_loop(lambda t: t < 40.0, lambda t: t + 1.0, s * 0.0) * 0.0 + s + 1.0

    f = wf.compile(lambda n: wf.while_loop(lambda s: s < n, inner, wf.zeros_like(n)))
    return lambda n: f(wf.tensor(n)), (3.0, np.inf)


def scanned():
    """A scan of many steps; a few in the call that is looked at."""
    many, few = (
        wf.compile(lambda x, k=k: wf.scan(lambda c, _: (c * 0.5 + 1.0, None), x, None, length=k)[0])
        for k in (10**9, 50)
    )
    return lambda n: (few if n == 3.0 else many)(ONES), (3.0, np.inf)


def compiling():
    """Programs that are new; without a cache on disk, LLVM compiles each of them."""
    fresh = count(2)

    def call(n):
        scale = 1.0 if n == 3.0 else float(next(fresh))
        return wf.compile(lambda x: wf.sin(x * scale) + scale)(ONES)

    return call, (3.0, np.inf)


def large(make: Callable, *shapes) -> Callable:
    """A function of large arrays, called again and again."""

    def scenario():
        f = wf.compile(make)
        arrays = [array(*shape) for shape in shapes]
        return lambda n: f(*arrays), (3.0, 3.0)

    return scenario


def chain(x):
    for _ in range(12):
        x = wf.sin(wf.exp(-x * x)) + wf.softmax(x, 1)
    return x


def scattered(x):
    at = (wf.arange(x.shape[0]) * 7919) % x.shape[0]
    return wf.zeros(x.shape).at[at].add(x) + x[at]


def attended(q):
    return wf.grad(lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True).sum())(q)


def convolved(x, w):
    return wf.grad(lambda w: F.max_pool2d(F.conv2d(x, w, padding=1), 2).sum())(w)


PURE = {
    "while": endless,
    "loops in loops": nested,
    "scan": scanned,
    "compiling": compiling,
    "chain": large(chain, (2000, 2000)),
    "product": large(lambda a, b: wf.tanh(a @ b) @ b, (2000, 2000), (2000, 2000)),
    "convolution": large(convolved, (16, 32, 64, 64), (32, 32, 3, 3)),
    "attention": large(attended, (2, 8, 1024, 64)),
    "sort": large(lambda x: wf.sort(x, axis=-1), (100_000, 32)),
    "running sums": large(lambda x: wf.cumulative_sum(x, axis=0), (4000, 4000)),
    "scatter": large(scattered, (400_000, 16)),
    "draws": large(lambda x: x * wf.randn(x.shape), (3000, 3000)),
}


# -- training: what a call writes in place -------------------------------------------------------


@dataclass
class Training:
    """A model, what trains it, and a step; `state` is all that a step changes."""

    step: Callable[[], Any]
    arrays: Callable[[], dict[str, Any]]
    gradients: Callable[[], dict[str, Any]]
    count: Callable[[], int]

    def state(self) -> dict[str, str]:
        return {name: _digest(x) for name, x in self.arrays().items()}

    def slopes(self) -> dict[str, str]:
        return {name: _digest(x) for name, x in self.gradients().items()}


def _digest(x) -> str:
    if x is None:
        return "none"
    raw = x.detach().numpy() if isinstance(x, wf.Tensor) else np.asarray(x)
    return sha256(raw.tobytes()).hexdigest()


def training(loops: bool, size: int) -> Training:
    rng = np.random.default_rng(1)
    wf.random.seed(0)
    layers = [nn.Linear(size, size), nn.BatchNorm1d(size), nn.GELU(), nn.Linear(size, size)]
    model = nn.Sequential(*layers)
    optimizer = wf.optim.AdamW(model.parameters(), lr=1e-3)
    average = wf.optim.EMA(model.parameters(), decay=0.9)
    x, y = (wf.tensor(rng.standard_normal((size, size)).astype("float32")) for _ in range(2))
    count = wf.tensor(0.0)

    def penalty(p):
        """A loop that only ends by itself, of a value that the step has already changed."""
        start = p, wf.zeros_like(p)
        return wf.while_loop(lambda s: s[1] < 2e6, lambda s: (s[0] * 0.5 + p, s[1] + 1.0), start)[0]

    @wf.compile
    def step():
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        average.update()
        count.copy_(count + 1.0)
        if loops:
            count.copy_(count + 0.0 * penalty(count))
        return loss

    def arrays() -> dict[str, Any]:
        state = {f"p {k}": p for k, p in enumerate(model.parameters())}
        state |= {f"b {k}": b for k, b in enumerate(model.buffers())}
        for key, own in optimizer.state.items():
            state |= {f"{key} {name}": v for name, v in own.items()}
        state |= {f"average {k}": a for k, a in average.state_dict()["averages"].items()}
        return state | {"updates": average.updates, "count": count}

    own = list(model.parameters())
    return Training(
        *(step, arrays, lambda: {f"g {k}": p.grad for k, p in enumerate(own)}),
        lambda: average.updates,
    )


TRAINING = {"step": (False, 500), "small step": (False, 12), "step with a loop": (True, 64)}


# -- interruptions -----------------------------------------------------------------------------


class Interruption:
    """A signal some time after it is armed, and when it came.

    It comes again after a second, as a user presses Ctrl-C again: Python drops an exception that is
    raised in a callback of a weak reference.
    """

    def __init__(self):
        self.at = 0.0
        signal.signal(signal.SIGALRM, self._raise)

    def _raise(self, *_) -> None:
        raise KeyboardInterrupt

    def arm(self, after: float) -> None:
        self.at = time.perf_counter() + after
        signal.setitimer(signal.ITIMER_REAL, after, 1.0)

    def disarm(self) -> float:
        """End it; the seconds since the signal."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        return time.perf_counter() - self.at


def pure(name: str, times: int) -> list[float]:
    """Interruptions of a function without a state; it gives the same before and after."""
    call, (quick, long) = PURE[name]()
    before = None if name == "draws" else _leaves(call(quick))
    interruption, took = Interruption(), []
    for _ in range(times):
        began = time.perf_counter()
        if long == quick:
            call(quick)
        usual = max(time.perf_counter() - began, 0.05)
        try:
            interruption.arm(float(RNG.uniform(0.005, usual)))
            while True:
                call(long)
        except KeyboardInterrupt:
            took.append(interruption.disarm())
        if before is not None:
            assert _leaves(call(quick)) == before, "a call after an interruption is wrong"
    return took


def _leaves(result) -> list[str]:
    parts = result if isinstance(result, tuple | list) else [result]
    return [_digest(x) for x in parts]


def trained(name: str, times: int) -> list[float]:
    """Interruptions of steps: each has happened, or has not, as another run that has as many."""
    ideal, real = training(*TRAINING[name]), training(*TRAINING[name])
    real.step()
    began = time.perf_counter()
    real.step()
    usual = time.perf_counter() - began
    done, took, interruption = 0, [], Interruption()
    for _ in range(times):
        try:
            interruption.arm(float(RNG.uniform(1e-5, 4 * usual)))
            while True:
                real.step()
        except KeyboardInterrupt:
            took.append(interruption.disarm())
        done = _advanced(ideal, done, real.count())
        now, then = real.state(), ideal.state()
        assert now == then, f"half a step: {[k for k in now if now[k] != then[k]]}"
        for (key, g), as_after in zip(real.slopes().items(), ideal.slopes().values(), strict=True):
            assert g in ("none", as_after), f"the gradient {key} is neither as before nor none"
    real.step()
    _advanced(ideal, done, done + 1)
    assert real.state() == ideal.state(), "a step after an interruption is wrong"
    return took


def _advanced(run: Training, done: int, wanted: int) -> int:
    for _ in range(wanted - done):
        run.step()
    return wanted


def main(name: str, times: int) -> None:
    progress, over = [0], []

    def count() -> None:
        while not over:
            progress[0] += 1
            time.sleep(1e-4)

    other = threading.Thread(target=count)
    other.start()
    try:
        took = trained(name, times) if name in TRAINING else pure(name, times)
    finally:
        over.append(True)
        other.join()
    print(json.dumps({"took": took, "progress": progress[0]}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
