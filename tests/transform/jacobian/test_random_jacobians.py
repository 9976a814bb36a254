"""Random programs: every way to a Jacobian or a Hessian gives reverse mode's, row by row."""

import os

import numpy as np
import pytest
from tests.transform.jacobian.dag_checks import COUNTS, problems, row_by_row

import weft as wf
from weft.transform.jacobian import cut, sweeps, tape_jacobian
from weft.transform.modes import trace

SOAK = os.environ.get("WEFT_SOAK") == "1"
SEEDS = 20_000 if SOAK else 240
SHARDS = 40
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("shard", range(SHARDS))
def test_some_ways_to_each_of_many_programs(shard):
    found = {s: problems(s, COUNTS[s % 4]) for s in range(shard, SEEDS, SHARDS)}
    assert {s: p for s, p in found.items() if p} == {}


@pytest.mark.parametrize("seed", [1, 5, 7, 9, 12, 15, 17, 55])
def test_all_ways_to_some_programs(seed):
    assert problems(seed) == []


def T(x):
    return wf.asarray(np.asarray(x, np.float64))


W = T(np.linspace(1, 2, 40))
NARROW, WIDE = T(np.cos(np.arange(90.0)).reshape(3, 30)), T(np.sin(np.arange(120.0)).reshape(40, 3))


def sums(x):
    a = x.sum()
    b = (x * a).sum()
    return W * a + W * W * b


def normalised(x):
    s = wf.sqrt((x * x).mean())
    return s * (WIDE @ wf.tanh(NARROW @ (x / s)))


def kept(x):
    """A value of the cut is a result, too."""
    a = x.sum()
    return W * wf.sin((x * a).sum()) + a, a


@pytest.mark.parametrize("f", [sums, normalised, kept])
def test_cuts_of_values_that_depend_on_each_other(f):
    x = T(np.linspace(0.5, 1.5, 30))
    want = row_by_row(f, [x])
    assert wf.plan_jacobian(f, x).chosen.kind == "mixed"
    ways = [wf.jacobian(f), wf.compile(wf.jacobian(f)), wf.jacobian(f, memory_limit=1)]
    for J in [*ways, wf.jacobian(f)]:  # the last one has the plan that was made while compiling
        found = J(x)
        got = np.concatenate([b.numpy().reshape(-1, 30) for b in (*found,)], 0)
        np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("f", [sums, normalised])
def test_derivatives_of_a_product_at_a_cut(f):
    x = T(np.linspace(0.5, 1.5, 30))
    want = wf.grad(lambda x: (wf.jacrev(f)(x) ** 2).sum())(x).numpy()
    mixed = wf.jacobian(f, mode="mixed")
    np.testing.assert_allclose(wf.grad(lambda x: (mixed(x) ** 2).sum())(x).numpy(), want, 1e-10)
    slope = wf.jvp(lambda x: (mixed(x) ** 2).sum(), (x,), (x * x,))[1].item()
    np.testing.assert_allclose(slope, want @ x.numpy() ** 2, 1e-10)
    config = wf.SchedulerConfig(strategy="mixed")
    tape = wf.GradientTape(persistent=True, scheduler=config)
    x = tape.watch(x)
    J = tape.jacobian(f(x), x)
    np.testing.assert_allclose(tape.gradient((J**2).sum(), x).detach().numpy(), want, 1e-10)


def test_exact_numbers():
    assert wf.jacobian(sums)(T(np.ones(30)))[0, 0].item() == 61
    with wf.GradientTape() as tape:
        x = tape.watch(T(np.ones(30)))
        y = sums(x)
    assert tape.jacobian(y, x)[0, 0].item() == 61
    H = wf.hessian(lambda x: (x.sum() * x).sum() ** 2)
    assert wf.compile(H)(T(np.ones(12)))[0, 0].item() == 1728
    assert H(T(np.ones(12)))[0, 0].item() == 1728


def test_indices_are_no_part_of_a_cut():
    def f(x):
        best, at = wf.topk(x, 1)
        return W * wf.take(x * x, at) + best

    x = T(np.linspace(0.5, 1.5, 30))
    np.testing.assert_array_equal(wf.jacobian(f, mode="mixed")(x).numpy(), row_by_row(f, [x]))


def test_a_hessian_by_a_rule_that_is_not_symmetric():
    """A custom rule may be any: then no entry stands for its mirror image."""

    @wf.custom_op
    def clipped(x):
        return x * 1.0

    clipped.def_vjp(lambda g, inputs: wf.clip(g, -1.0, 1.0))
    clipped.def_jvp(lambda tangents, inputs: tangents[0])

    def f(x):
        return (3 * clipped(x[:-1]) * x[1:] ** 2).sum()

    x = T(np.linspace(-0.4, 1.4, 20))
    H = wf.hessian(f)(x).numpy()
    np.testing.assert_allclose(H, wf.jacfwd(wf.grad(f))(x).numpy(), rtol=1e-12, atol=1e-12)
    assert (H != H.T).any()


# Planted errors: each is found by some of the programs.


def _found() -> bool:
    return any(problems(s) for s in (5, 7, 9))


def _without_starts(trace_, equations, tangents, starts, *rest):
    return trace.forward(trace_, equations, tangents, (), *rest)


def test_a_cut_that_is_no_set_of_independent_variables(monkeypatch):
    monkeypatch.setattr(sweeps, "forward", _without_starts)
    assert _found()


def test_a_tape_that_goes_on_behind_the_cut(monkeypatch):
    real = tape_jacobian.sweep
    monkeypatch.setattr(tape_jacobian, "sweep", lambda *a, **k: real(*a, **k | {"beyond": True}))
    assert _found()


def test_a_cut_that_does_not_separate(monkeypatch):
    real = cut.minimum_cut
    monkeypatch.setattr(cut, "minimum_cut", lambda *args: real(*args)[1:])
    with pytest.raises(wf.errors.PlanError, match="does not meet its cut"):
        wf.jacobian(lambda x: sums(x))(T(np.ones(30)))
    with pytest.raises(wf.errors.PlanError, match="does not meet its cut"):
        wf.compile(wf.jacobian(lambda x: sums(x)))(T(np.ones(30)))
