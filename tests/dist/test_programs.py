"""Random programs with collectives: compiled ones call the same collectives in the same order.

A collective is kept if nothing reads it, is not merged with an equal one, does not pass another
one, and is neither hoisted out of a loop nor computed again.
"""

import threading

import numpy as np
import pytest

import weft as wf
from weft.graph import structured

from .threads import run

SEEDS = range(12)
N = 6


class Choices:
    """Choices by a linear congruence: a traced function may not read Python's generator."""

    def __init__(self, seed):
        self.state = seed * 2654435761 + 12345

    def randrange(self, low, high=None):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        low, high = (0, low) if high is None else (low, high)
        return low + (self.state >> 33) % (high - low)

    def choice(self, values):
        return values[self.randrange(len(values))]


def collective(rng, x):
    """A collective of an array (N,), back in that shape."""
    kind = rng.randrange(5)
    if kind == 0:
        return wf.dist.all_reduce(x)
    if kind == 1:
        return wf.dist.all_reduce(x, rng.choice(["max", "min", "mean"]))
    if kind == 2:
        return wf.dist.all_gather(x).mean(0)
    if kind == 3:
        return wf.dist.broadcast(x, wf.dist.size() - 1)
    return wf.dist.reduce_scatter(wf.stack([x * (k + 1) for k in range(wf.dist.size())]))


def plain(rng, x, y):
    """Arithmetic that keeps numbers small."""
    return rng.choice([lambda: wf.tanh(x + y), lambda: x * y / 4, lambda: x - y, lambda: x[::-1]])()


def line(rng, x, y, depth):
    """One step of a program: a new value."""
    kind = rng.randrange(10)
    if kind < 3:
        return plain(rng, x, y)
    if kind < 7 or depth:
        return collective(rng, x)
    seed = rng.randrange(1 << 20)
    if kind == 7:
        carry, ys = wf.scan(lambda c, x: (block(seed, c, x + c, 1), c), x, wf.stack([x, y]))
        return wf.tanh(carry + ys.sum(0))
    if kind == 8:
        far = wf.dist.all_reduce(x).sum() > 0  # the same on all ranks
        return wf.cond(
            far, lambda a, b: block(seed, a, b, 1), lambda a, b: block(seed + 1, a, b, 1), x, y
        )
    twice = collective(Choices(seed), x), collective(Choices(seed), x)
    return twice[0] + twice[1]


def block(seed, x, y, depth=0):
    """A program of several lines, of which some are not read by the result."""
    rng = Choices(seed)
    values = [x, y]
    for _ in range(3 if depth else 8):
        values.append(line(rng, rng.choice(values), rng.choice(values), depth))
    return wf.tanh(values[-1] + values[rng.randrange(2, len(values))])


def compare(size, seed, gradient):
    """(eager value, compiled value, eager collectives, compiled ones) of each rank."""

    def program(x, y):
        def of(x):
            return block(seed, x, y)

        return wf.value_and_grad(lambda x: of(x).sum())(x) if gradient else (of(x), x)

    def rank(r):
        rng = np.random.default_rng(100 * seed + r)
        x, y = (wf.tensor(rng.normal(size=N)) for _ in range(2))
        member, outputs, calls = wf.dist.world.world(), [], []
        agree = member._agree

        def listen(what, *rest):
            calls[-1].append(what)
            return agree(what, *rest)

        member._agree = listen
        for f in (program, wf.compile(program)):
            calls.append([])
            outputs.append([np.array(v.numpy()) for v in f(x, y)])
        return outputs, calls

    return run(size, rank)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_compiled_programs_call_the_collectives_of_eager_ones(seed, size):
    for gradient in (False, True):
        results = compare(size, seed, gradient)
        for (eager, compiled), (calls, compiled_calls) in results:
            for a, b in zip(eager, compiled, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)
            assert calls == results[0][1][0]
            assert compiled_calls == results[0][1][1]
            if not gradient:
                assert compiled_calls == calls


def test_the_comparison_can_fail(monkeypatch):
    """Without the column, equations with collectives are treated like any other."""
    for module in ("dead", "common", "loops"):
        path = f"weft.compiler.passes.{module}.communicates"
        monkeypatch.setattr(path, lambda e: False)
    assert structured.communicates is not None
    differ = 0
    for seed in SEEDS:
        results = compare(2, seed, False)
        differ += any(calls[0] != calls[1] for _, calls in results)
    assert differ > 6


def test_compiled_programs_compute_while_a_sum_is_on_its_way():
    """The link is down until work that comes later in the program is done."""

    def rank(r):
        worked, waited = threading.Event(), []

        @wf.custom_op(vjp=lambda g, y, x: (g,))
        def work(x):
            worked.set()
            return x + 1

        def before(collective, nbytes):
            if collective == "all_reduce":
                waited.append(worked.wait(10))

        def program(x, y):
            total = wf.dist.all_reduce(x)
            return total * 2 + work(y)

        wf.dist.world.world().engine._before = before
        compiled = wf.compile(program)
        x, y = wf.ones(5000) * (r + 1), wf.ones(5000)
        for _ in range(2):
            worked.clear()
            np.testing.assert_array_equal(compiled(x, y).numpy(), 8.0)
        return waited

    assert run(2, rank) == [[True, True]] * 2


def test_inputs_are_unchanged_if_a_sum_fails():
    """A result that nothing reads until the end is waited for before an input is written to."""

    def rank(r):
        p, q = wf.Parameter([1.0] * 5000), wf.Parameter([2.0] * 5000)

        def fail(collective, nbytes):
            if collective == "all_reduce":
                raise RuntimeError("link down")

        @wf.compile
        def step(x):
            total = wf.dist.all_reduce(x)
            with wf.no_grad():
                p.copy_(p + x)
                q.copy_(q * 2 + x[:1])
            return total

        step(wf.ones(5000))
        kept = p.detach().numpy().copy(), q.detach().numpy().copy()
        wf.dist.world.world().engine._before = fail
        with pytest.raises(RuntimeError, match="link down"):
            step(wf.ones(5000))
        np.testing.assert_array_equal(p.detach().numpy(), kept[0])
        np.testing.assert_array_equal(q.detach().numpy(), kept[1])

    run(2, rank)
