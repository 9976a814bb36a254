"""Walking memory: blocks, packs, traced programs and threads give the same bits as the rule."""

import os

import numpy as np
import pytest
import torch

import weft as wf
from weft.backend.shared import threads
from weft.optim import rules, walk
from weft.optim.program import UpdateProgram
from weft.optim.quantise import adam8bit

RATES = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "weight_decay": 0.1}
LION = {k: v for k, v in RATES.items() if k != "eps"}
SGD = {"lr": 0.1, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1}
RMS = {"lr": 0.1, "alpha": 0.9, "eps": 1e-8, "weight_decay": 0.1}
NADAM = {**RATES, "momentum_decay": 4e-3, "mu_product": 0.4}
RULES = {
    "sgd": (rules.sgd, 0, {**SGD, "nesterov": False, "maximize": False, "t": 3}),
    "sgd's first": (rules.sgd, 1, {**SGD, "nesterov": False, "maximize": False, "t": 1}),
    "nesterov": (rules.sgd, 1, {**SGD, "nesterov": True, "maximize": True, "t": 2}),
    "adam": (rules.adam, 2, {**RATES, "maximize": False, "t": 3}),
    "amsgrad": (rules.adam, 3, {**RATES, "maximize": True, "t": 3}),
    "adamw": (rules.adamw, 2, {**RATES, "correct_bias": True, "maximize": False, "t": 3}),
    "nadam": (
        rules.nadam,
        2,
        {**NADAM, "decoupled_weight_decay": True, "maximize": False, "t": 3},
    ),
    "radam": (
        rules.radam,
        2,
        {**RATES, "decoupled_weight_decay": False, "maximize": False, "t": 9},
    ),
    "radam's first": (
        rules.radam,
        2,
        {**RATES, "decoupled_weight_decay": True, "maximize": False, "t": 1},
    ),
    "rmsprop": (rules.rmsprop, 1, {**RMS, "momentum": 0.0, "centered": False, "maximize": False}),
    "centred": (rules.rmsprop, 3, {**RMS, "momentum": 0.5, "centered": True, "maximize": False}),
    "adagrad": (
        rules.adagrad,
        1,
        {"lr": 0.1, "lr_decay": 0.5, "weight_decay": 0.1, "eps": 0.1, "maximize": False, "t": 3},
    ),
    "lion": (rules.lion, 1, {**LION, "maximize": False}),
}


def columns(count, size, dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(size).astype(dtype) for _ in range(2)]
    return [*arrays, *(rng.random(size).astype(dtype) for _ in range(count))]


def expected(rule, arrays, hyper):
    p, *state = rule(*[a.copy() for a in arrays], **hyper)
    return [p, arrays[1], *state]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", RULES)
def test_programs_are_their_rules(name, dtype):
    rule, count, hyper = RULES[name]
    arrays = columns(count, 1000, dtype)
    right = expected(rule, arrays, hyper)
    UpdateProgram(rule, len(arrays), np.dtype(dtype), hyper)(arrays)
    for found, value in zip(arrays, right, strict=True):
        assert found.dtype == dtype and np.array_equal(found, value)


def test_other_numbers_need_no_other_kernel():
    rule, _, hyper = RULES["adamw"]
    one, other = (
        UpdateProgram(rule, 4, np.dtype("float32"), hyper | {"lr": lr}) for lr in (0.1, 0.02)
    )
    assert one._kernel is other._kernel


def exchanging(p, g, m, v):
    """A rule whose results are the others' arguments."""
    return v, p, p + v


def test_results_that_are_other_columns():
    arrays = columns(2, 50)
    p, g, _, v = (a.copy() for a in arrays)
    UpdateProgram(exchanging, 4, np.dtype("float32"), {})(arrays)
    for found, value in zip(arrays, (v, g, p, p + v), strict=True):
        assert np.array_equal(found, value)


SIZES = [5, 1, 65_536, 70_000, 65_535, 0, 31_000, 2_000, 700_000, 8_191, 12]


@pytest.mark.parametrize("name", RULES)
def test_blocks_and_threads_do_not_matter(name, monkeypatch):
    rule, count, hyper = RULES[name]
    found = {}
    for cores in (1, 2, 4):
        monkeypatch.setattr(threads, "cores", lambda n=cores: n)
        jobs = [walk.Job(rule, tuple(columns(count, n, seed=n)), hyper) for n in SIZES]
        walk.walk(jobs)
        found[cores] = [c for job in jobs for c in job.columns]
    right = [e for n in SIZES for e in expected(rule, columns(count, n, seed=n), hyper)]
    for results in found.values():
        for a, b in zip(results, right, strict=True):
            assert np.array_equal(a, b)


@pytest.mark.parametrize("name", RULES)
def test_rules_on_every_kind_of_array(name):
    rule, count, hyper = RULES[name]
    arrays = columns(count, 100, np.float64)
    right = rule(*arrays, **hyper)
    on_torch = rule(*[torch.from_numpy(a) for a in arrays], **hyper)
    on_tensors = rule(*[wf.tensor(a) for a in arrays], **hyper)
    traced = wf.vmap(lambda *a: rule(*a, **hyper))(
        *[wf.tensor(a).reshape((10, 10)) for a in arrays]
    )
    for value, a, b, c in zip(right, on_torch, on_tensors, traced, strict=True):
        np.testing.assert_allclose(a.numpy(), value, rtol=1e-14)
        np.testing.assert_allclose(b.numpy(), value, rtol=1e-14)
        np.testing.assert_allclose(c.numpy().reshape(-1), value, rtol=1e-14)


def test_eight_bit_blocks_do_not_depend_on_threads(monkeypatch):
    hyper = {**RATES, "maximize": False, "block_size": 100, "t": 2}
    found = []
    for cores in (1, 2):
        monkeypatch.setattr(threads, "cores", lambda n=cores: n)
        n = 800_003
        p, g = columns(0, n)
        state = [np.zeros(n, np.uint8), np.zeros(8001, np.float32)] * 2
        state = [a.copy() for a in state]
        every = (1, 1, 1, 100, 1, 100)
        job = walk.Job(adam8bit, (p, g, *state), hyper, every, traced=False)
        for _ in range(2):
            walk.walk([job])
        found.append(job.columns)
    for a, b in zip(*found, strict=True):
        assert np.array_equal(a, b)
    direct = adam8bit(*columns(0, n), *[0 * a for a in state], **hyper)
    again = adam8bit(direct[0], columns(0, n)[1], *direct[1:], **hyper)
    assert np.array_equal(again[0], found[0][0])


def test_a_fault_in_a_thread_is_raised(monkeypatch):
    def faulty(p, g):
        if p[0] == 7.0:
            raise ZeroDivisionError
        return (p - g,)

    monkeypatch.setattr(threads, "cores", lambda: 2)
    p = np.zeros(1_000_000, np.float32)
    p[900_000:] = 7.0
    with pytest.raises(ZeroDivisionError):
        walk.walk([walk.Job(faulty, (p, p.copy()), {}, traced=False)])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_steps(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 2)

    def step():
        p = wf.Parameter(wf.ones(900_000))
        wf.optim.SGD([p], lr=0.5).step([wf.ones(900_000)])
        return bool((p == 0.5).all())

    assert step() and threads._queue is not None
    child = os.fork()
    if child == 0:
        os._exit(0 if step() else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0 and step()
