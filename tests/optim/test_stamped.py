"""Rules that are stamped: the program of each parameter is its own, and draws are not repeated."""

import numpy as np
import pytest

import weft as wf
from weft.optim.stamped import Stamps


def parameters():
    rng = np.random.default_rng(0)
    shapes = [(3, 4), (4,), (3, 4), (3, 4), (4,), (2, 3, 4), (3, 4)]
    return [wf.Parameter(rng.standard_normal(s).astype(np.float32)) for s in shapes]


def loss_of(params, x):
    return sum(((p * (k + 1) - x[k]) ** 2).sum() for k, p in enumerate(params))


def step_of(make, params):
    optimizer = make(params)

    def step(x):
        optimizer.zero_grad()
        loss = loss_of(params, x)
        loss.backward()
        optimizer.step()
        return loss

    return step


@pytest.mark.parametrize(
    "make",
    [
        lambda p: wf.optim.AdamW(p, lr=1e-2),
        lambda p: wf.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True),
        lambda p: wf.optim.Lion(p, lr=1e-2),
        lambda p: wf.optim.LAMB(p, lr=1e-2),
        lambda p: wf.optim.Adafactor(p),
        lambda p: wf.optim.AdamW([{"params": p[:3], "lr": 1e-3}, {"params": p[3:], "lr": 1e-1}]),
    ],
    ids=["AdamW", "SGD", "Lion", "LAMB", "Adafactor", "groups"],
)
def test_compiled_steps_are_the_eager_ones(make):
    x = wf.tensor(np.linspace(-1, 1, 7, dtype=np.float32))
    eager, compiled = parameters(), parameters()
    one, other = step_of(make, eager), wf.compile(step_of(make, compiled))
    for _ in range(4):
        assert np.isclose(one(x).item(), other(x).item(), rtol=1e-5)
    for p, q in zip(eager, compiled, strict=True):
        np.testing.assert_allclose(q.detach().numpy(), p.detach().numpy(), rtol=2e-5, atol=2e-6)


def test_a_rule_is_run_once_for_each_kind(monkeypatch):
    runs = []
    monkeypatch.setattr(
        Stamps,
        "_stamp",
        lambda self, *a, stamped=Stamps._stamp: runs.append(a) or stamped(self, *a),
    )
    x = wf.tensor(np.linspace(-1, 1, 7, dtype=np.float32))
    step = wf.compile(step_of(lambda p: wf.optim.AdamW(p, lr=1e-2), parameters()))
    step(x)
    # Seven parameters of three kinds; the first one of all enters the numbers of the step.
    assert len(runs) == 3


def test_a_rule_that_draws_is_not_stamped():
    def noisy(p, g):
        return [p - g * wf.rand(p.shape)]

    params = [p.detach() for p in parameters()]

    @wf.compile
    def f(x):
        stamps = Stamps(wf.core.settings.current.get().staging)
        with wf.no_grad():
            return [stamps(noisy, [p + x, p * x], {})[0] for p in params]

    made = [y.numpy() for y in f(wf.tensor(1.0))]
    shares = [(p.numpy() + 1 - y) / p.numpy() for p, y in zip(params, made, strict=True)]
    assert not np.allclose(shares[0], shares[2])
