"""Random models: gradients of several ranks are NumPy's mean of each rank's without a group.

The kinds of step (shared parameters, loops, checkpoints, custom operations, views, …) × what a
rank uses × bucket sizes × micro-batches × ways (eager, compiled, averaged by hand).
"""

import numpy as np
import pytest

import weft as wf

from .test_programs import Choices
from .threads import run

SEEDS = range(24)
N, SLOTS = 4, 7


@wf.custom_op(vjp=lambda g, y, x: (g * 2 * x,))
def squared(x):
    return x * x


class Mixture(wf.nn.Module):
    """Steps that a seed chooses, of parameters that a seed chooses."""

    def __init__(self, seed):
        super().__init__()
        self.seed = seed
        rng = np.random.default_rng(seed)
        for k in range(SLOTS):
            shape = (N, N) if k % 3 else (N,)
            dtype = "float32" if k == 4 else "float64"
            x = (rng.normal(size=shape) / 2).astype(dtype)
            self.register_parameter(f"p{k}", wf.Parameter(wf.tensor(x)))

    def forward(self, x, branch=0):
        choose = Choices(self.seed)
        for _ in range(4):
            x = x + self.step(choose.randrange(8), self.pick(choose), self.pick(choose), x)
        if branch:  # what only some ranks do
            other = Choices(self.seed + 1000 * branch)
            x = x * self.step(other.randrange(8), self.pick(other), self.pick(other), x)
        return x

    def pick(self, choose):
        return getattr(self, f"p{choose.randrange(SLOTS - 1)}")  # the last one is never used

    def step(self, kind, p, q, x):
        def apply(w, x):
            return wf.tanh(x @ w if w.ndim == 2 else x * w)

        if kind == 0:
            return apply(p, apply(q, x))
        if kind == 1:
            return wf.scan(lambda c, k: (apply(p, c) + k * q.sum(), c), x, wf.arange(3.0) / 9)[0]
        if kind == 2:
            return wf.checkpoint(lambda x: apply(p, apply(q, x)), x)
        if kind == 3:
            return apply(p, squared(apply(q, x)))
        if kind == 4:
            return apply(p[::-1], x) + p.reshape(-1)[:N] * q.sum()
        if kind == 5:
            return wf.vmap(lambda row: apply(p, row))(x) * (q * q).mean()
        if kind == 6:
            return wf.cond(q.sum() > 0, lambda x: apply(p, x), lambda x: x * 0.5, x)
        return wf.grad(lambda x: apply(q, apply(p, x)).sum())(x)


def plan_of(seed, size):
    """(bucket size, micro-batches, branch of each rank in each micro-batch)."""
    choose = Choices(7 * seed + size)
    micro = 1 + choose.randrange(3)
    branches = [[choose.randrange(3) for _ in range(micro)] for _ in range(size)]
    return (1e-5, 1e-4, 25)[choose.randrange(3)], micro, branches


def inputs(seed, rank, part):
    return np.random.default_rng((seed, rank, part)).normal(size=(3, N))


def loss(model, seed, rank, part, branch):
    return (model(wf.tensor(inputs(seed, rank, part)), branch) ** 2).mean()


def gradients(model):
    return [None if p.grad is None else np.array(p.grad.numpy()) for p in model.parameters()]


def alone(seed, rank, micro, branches):
    model = Mixture(seed)
    for part in range(micro):
        loss(model, seed, rank, part, branches[part]).backward()
    return gradients(model)


def check(found, expected, compiled=False):
    """found: of each rank; expected: of each rank without a group.

    A compiled branch has zeros for what it does not use, and rounds float32 elsewhere.
    """
    for k in range(SLOTS):
        own = [e[k] for e in expected if e[k] is not None]
        for ranks in found:
            if not own:
                assert ranks[k] is None or (compiled and not ranks[k].any()), k
                continue
            mean = sum(own) / len(expected)
            bound = 1e-5 if compiled or mean.dtype == np.float32 else 1e-11
            np.testing.assert_allclose(ranks[k], mean, rtol=bound, atol=bound)
            np.testing.assert_array_equal(ranks[k], found[0][k])


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.filterwarnings("ignore:.*without a gradient on any rank")
def test_gradients_are_the_means_of_single_ranks(seed, size):
    nbytes, micro, branches = plan_of(seed, size)

    def rank(r):
        model = wf.dist.DataParallel(Mixture(seed), bucket_mb=nbytes)
        for _ in range(2):  # in the order of registration, then in that of use
            model.zero_grad()
            for part in range(micro):
                if part + 1 < micro:
                    with model.no_sync():
                        loss(model, seed, r, part, branches[r][part]).backward()
                else:
                    loss(model, seed, r, part, branches[r][part]).backward()
        return gradients(model)

    check(run(size, rank), [alone(seed, r, micro, branches[r]) for r in range(size)])


@pytest.mark.parametrize("seed", SEEDS)
def test_compiled_passes_give_the_same(seed):
    """All ranks use the same parameters there."""

    def rank(r):
        model = wf.dist.DataParallel(Mixture(seed), bucket_mb=1e-4)
        x = wf.tensor(inputs(seed, r, 0))
        step = wf.compile(lambda x: (model(x, 1) ** 2).mean().backward())
        step(x)
        return gradients(model)

    check(run(2, rank), [alone(seed, r, 1, [1]) for r in range(2)], compiled=True)


@pytest.mark.parametrize("seed", SEEDS[:8])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.filterwarnings("ignore:.*without a gradient on any rank")
def test_averages_of_given_gradients_are_the_same(seed, compiled):
    def rank(r):
        model = Mixture(seed)
        wrapped = wf.dist.DataParallel(model, bucket_mb=1e-4)

        def step(x):
            with wf.GradientTape() as tape:
                y = (model(x, 1) ** 2).mean()
            params = list(model.parameters())
            pairs = list(zip(params, tape.gradient(y, params), strict=True))
            means = wrapped.reducer.average(pairs)
            return [dict((id(p), g) for p, g in means).get(id(p)) for p in params]

        found = (wf.compile(step) if compiled else step)(wf.tensor(inputs(seed, r, 0)))
        return [None if g is None else np.array(g.numpy()) for g in found]

    check(run(2, rank), [alone(seed, r, 1, [1]) for r in range(2)], compiled)


@pytest.mark.filterwarnings("ignore:.*without a gradient on any rank")
def test_the_comparison_can_fail(monkeypatch):
    """A bucket that takes gradients before they are final is noticed."""
    from weft.transform.modes import watch

    monkeypatch.setattr(watch, "_last_uses", _first_uses(watch._last_uses))
    failed = 0
    for seed in SEEDS:
        try:
            test_gradients_are_the_means_of_single_ranks(seed, 2)
        except AssertionError:
            failed += 1
    assert failed > len(SEEDS) // 4


def _first_uses(last_uses):
    def found(start):
        return {leaf: at - 12 for leaf, at in last_uses(start).items()}

    return found
