"""Optimizers that torch does not have, beside their published formulas written out."""

import numpy as np
import pytest

import weft as wf

SHAPES = [(6, 4), (4,), (2, 3, 5)]


@pytest.fixture(params=["cpu", "torch"])
def device(request):
    return request.param


def run(optimizer_of, reference, device, steps=100, options=None):
    """Both from the same values over the same gradients, compared at every step."""
    rng = np.random.default_rng(11)
    values = [rng.standard_normal(s) for s in SHAPES]
    params = [wf.Parameter(wf.tensor(v, device=device)) for v in values]
    optimizer = optimizer_of(params)
    states = [{} for _ in values]
    for t in range(1, steps + 1):
        grads = [np.tanh(v) + 0.5 * rng.standard_normal(v.shape) for v in values]
        optimizer.step([wf.tensor(g, device=device) for g in grads])
        values = [
            reference(v, g, s, t, **(options or {}))
            for v, g, s in zip(values, grads, states, strict=True)
        ]
        for p, v in zip(params, values, strict=True):
            np.testing.assert_allclose(np.asarray(p.tolist()), v, rtol=1e-9, atol=1e-12)


def lion(p, g, s, t, lr, beta1, beta2, weight_decay):
    m = s.get("m", 0.0 * p)
    update = np.sign(beta1 * m + (1 - beta1) * g) + weight_decay * p
    s["m"] = beta2 * m + (1 - beta2) * g
    return p - lr * update


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_lion(device, weight_decay):
    options = {"lr": 1e-2, "beta1": 0.9, "beta2": 0.99, "weight_decay": weight_decay}
    config = wf.optim.LionConfig(**options)
    run(lambda ps: wf.optim.Lion(ps, config), lion, device, options=options)


def lamb(p, g, s, t, lr, weight_decay, correct_bias, beta1=0.9, beta2=0.999, eps=1e-6):
    s["m"] = beta1 * s.get("m", 0.0) + (1 - beta1) * g
    s["v"] = beta2 * s.get("v", 0.0) + (1 - beta2) * g**2
    m, v = s["m"], s["v"]
    if correct_bias:
        m, v = m / (1 - beta1**t), v / (1 - beta2**t)
    r = m / (np.sqrt(v) + eps) + weight_decay * p
    length, size = np.linalg.norm(p.ravel()), np.linalg.norm(r.ravel())
    return p - lr * (length / size if length > 0 and size > 0 else 1.0) * r


@pytest.mark.parametrize("correct_bias", [True, False])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_lamb(device, weight_decay, correct_bias):
    options = {"lr": 1e-2, "weight_decay": weight_decay, "correct_bias": correct_bias}
    run(lambda ps: wf.optim.LAMB(ps, **options), lamb, device, options=options)


def test_lamb_at_zero():
    p = wf.Parameter(np.zeros(3))
    wf.optim.LAMB([p], lr=0.5, eps=0.0, weight_decay=0.0).step([wf.tensor(np.ones(3))])
    np.testing.assert_allclose(p.tolist(), [-0.5] * 3)
    wf.optim.LAMB([p], lr=0.5, weight_decay=0.0).step([wf.tensor(np.zeros(3))])
    np.testing.assert_allclose(p.tolist(), [-0.5] * 3)


def rms(x):
    return np.sqrt(np.mean(x**2))


def adafactor(
    p, g, s, t, lr=None, scale_parameter=True, relative_step=True, warmup_init=False,
    beta1=None, weight_decay=0.0, clip_threshold=1.0, decay_rate=-0.8, eps=1e-30, eps2=1e-3,
):  # fmt: skip
    """Algorithms 4 to 6 of the paper with the options of transformers' Adafactor."""
    if relative_step:
        lr = min(1e-6 * t if warmup_init else 1e-2, 1 / np.sqrt(t))
    step = lr * max(eps2, rms(p)) if scale_parameter else lr
    beta2 = 1 - t**decay_rate
    squares = g**2 + eps
    if g.ndim >= 2:
        s["r"] = beta2 * s.get("r", 0.0) + (1 - beta2) * squares.mean(axis=-1)
        s["c"] = beta2 * s.get("c", 0.0) + (1 - beta2) * squares.mean(axis=-2)
        rows = s["r"] / s["r"].mean(axis=-1, keepdims=True)
        u = g / np.sqrt(rows[..., :, None] * s["c"][..., None, :])
    else:
        s["v"] = beta2 * s.get("v", 0.0) + (1 - beta2) * squares
        u = g / np.sqrt(s["v"])
    u = u / max(1.0, rms(u) / clip_threshold) * step
    if beta1 is not None:
        u = s["m"] = beta1 * s.get("m", 0.0) + (1 - beta1) * u
    return p - weight_decay * step * p - u


ADAFACTOR = {
    "default": {},
    "warm-up": {"warmup_init": True},
    "momentum": {"beta1": 0.9},
    "decay": {"weight_decay": 0.1},
    "unscaled": {"scale_parameter": False},
    "clip": {"clip_threshold": 0.5},
    "decay rate": {"decay_rate": -0.6},
    "absolute": {"lr": 1e-2, "relative_step": False},
    "absolute, unscaled": {"lr": 1e-2, "relative_step": False, "scale_parameter": False},
    "small": {"eps2": 10.0},
    "large eps": {"eps": 0.1},
}


@pytest.mark.parametrize("name", ADAFACTOR)
def test_adafactor_relative_step(device, name):
    options = ADAFACTOR[name]
    config = wf.optim.AdafactorConfig(**options)
    run(lambda ps: wf.optim.Adafactor(ps, config), adafactor, device, options=options)


@pytest.mark.parametrize("name", [n for n in ADAFACTOR if n not in ("small", "large eps")])
def test_adafactor_beside_transformers(name):
    import torch
    from transformers import optimization  # not above: it takes seconds to load

    rng = np.random.default_rng(5)
    values, options = [rng.standard_normal(s) for s in SHAPES], ADAFACTOR[name]
    theirs = [torch.tensor(v, requires_grad=True) for v in values]
    ours = [wf.Parameter(v) for v in values]
    yours = optimization.Adafactor(theirs, **options)
    mine = wf.optim.Adafactor(ours, wf.optim.AdafactorConfig(**options))
    for _ in range(100):
        grads = [rng.standard_normal(s) for s in SHAPES]
        for q, g in zip(theirs, grads, strict=True):
            q.grad = torch.tensor(g)
        yours.step()
        mine.step([wf.tensor(g) for g in grads])
    for p, q in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(p.tolist(), q.tolist(), rtol=1e-6, atol=1e-9)


def test_adafactor_keeps_rows_and_columns():
    p = wf.Parameter.zeros((300, 200))
    optimizer = wf.optim.Adafactor(wf.optim.AdafactorConfig())
    optimizer.apply_gradients([(p, wf.ones((300, 200)))])
    (own,) = optimizer.state_dict()["state"].values()
    assert {n: t.shape for n, t in own.items() if n != "step"} == {
        "row_var": (300, 1),
        "col_var": (1, 200),
    }
