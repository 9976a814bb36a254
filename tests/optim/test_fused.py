"""Steps of PyTorch's arrays as one kernel: the values, the memory, and states that change sides."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import weft as wf
from weft.optim import walk

SHAPES = [(7, 5), (3,), (), (2, 3, 4)]
OPTIMIZERS = {
    "sgd": (wf.optim.SGD, {"lr": 0.1, "weight_decay": 0.1}),
    "momentum": (wf.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.25}),
    "nesterov": (wf.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    "adam": (wf.optim.Adam, {"lr": 0.1, "weight_decay": 0.1}),
    "amsgrad": (wf.optim.Adam, {"lr": 0.1, "amsgrad": True, "maximize": True}),
    "adamw": (wf.optim.AdamW, {"lr": 0.1, "weight_decay": 0.1}),
    "uncorrected": (wf.optim.AdamW, {"lr": 0.1, "correct_bias": False, "amsgrad": True}),
    "small 8-bit": (wf.optim.AdamW8bit, {"lr": 0.1}),
}
ALL = pytest.mark.parametrize("name", OPTIMIZERS)


class Calls(TorchDispatchMode):
    """Counts ATen's calls."""

    def __init__(self):
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


def parameters(device, dtype="float32"):
    rng = np.random.default_rng(3)
    return [
        wf.Parameter(wf.tensor(rng.standard_normal(s), dtype=dtype, device=device)) for s in SHAPES
    ]


def gradients(step, device, dtype="float32"):
    rng = np.random.default_rng((7, step))
    return [wf.tensor(rng.standard_normal(s), dtype=dtype, device=device) for s in SHAPES]


def run(optimizer, steps, device, dtype="float32"):
    for step in steps:
        optimizer.step(gradients(step, device, dtype))


def made(name, device, dtype="float32"):
    kind, options = OPTIMIZERS[name]
    params = parameters(device, dtype)
    return params, kind(params, **options)


def write(targets, sources, device):
    with wf.no_grad():
        for p, q in zip(targets, sources, strict=True):
            p.copy_(q.detach().to(device))


def values(params):
    return [p.detach().numpy() for p in params]


def agree(ours, others, rtol):
    for a, b in zip(values(ours), values(others), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


def same(ours, others):
    assert all(np.array_equal(a, b) for a, b in zip(values(ours), values(others), strict=True))


@ALL
@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-12), ("float32", 1e-5)])
def test_trajectory_is_numpys(name, dtype, rtol):
    ours, optimizer = made(name, "torch", dtype)
    others, reference = made(name, "cpu", dtype)
    run(optimizer, range(100), "torch", dtype)
    run(reference, range(100), "cpu", dtype)
    agree(ours, others, rtol)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_parameters_compute_in_single(dtype, monkeypatch):
    monkeypatch.setattr(walk, "_ACCELERATOR", 16)  # so that arrays are cut, and joined
    ours, optimizer = made("adamw", "torch", dtype)
    others, reference = made("adamw", "cpu", dtype)
    for step in range(20):
        optimizer.step(gradients(step, "torch", dtype))
        reference.step(gradients(step, "cpu", dtype))
        wide = [[p.detach().to("float32").numpy() for p in ps] for ps in (ours, others)]
        for a, b in zip(*wide, strict=True):
            np.testing.assert_allclose(a, b, rtol=2.0**-7, atol=2.0**-7)
        write(ours, others, "torch")


@ALL
def test_resume_is_exact(name):
    straight, optimizer = made(name, "torch")
    run(optimizer, range(10), "torch")
    first, before = made(name, "torch")
    run(before, range(5), "torch")
    second, after = made(name, "torch")
    after.load_state_dict(before.state_dict())
    write(second, first, "torch")
    run(after, range(5, 10), "torch")
    same(second, straight)


@ALL
@pytest.mark.parametrize(("start", "end"), [("cpu", "torch"), ("torch", "cpu")])
def test_a_state_goes_on_on_the_other_side(name, start, end):
    others, reference = made(name, "cpu", "float64")
    run(reference, range(10), "cpu", "float64")
    first, before = made(name, start, "float64")
    run(before, range(5), start, "float64")
    second, after = made(name, end, "float64")
    after.load_state_dict(before.state_dict())
    write(second, first, end)
    run(after, range(5, 10), end, "float64")
    agree(second, others, 1e-12)


def test_betas_change_in_between():
    results = []
    for device in ("cpu", "torch"):
        params, optimizer = made("adam", device, "float64")
        run(optimizer, range(5), device, "float64")
        optimizer.param_groups[0]["beta1"], optimizer.param_groups[0]["beta2"] = 0.5, 0.9
        run(optimizer, range(5, 10), device, "float64")
        results.append(params)
    agree(*results, 1e-12)


def test_strided_and_complex_parameters():
    rng = np.random.default_rng(0)
    x, z = rng.standard_normal((4, 6)), rng.standard_normal((3, 2)) + 1j
    found = []
    for device in ("cpu", "torch"):
        base = wf.tensor(x, device=device)
        params = [wf.Parameter(base.mT), wf.Parameter(wf.tensor(z, device=device))]
        optimizer = wf.optim.AdamW(params, lr=0.1)
        for _ in range(3):
            optimizer.step([wf.tensor(x.T, device=device), wf.tensor(z * 1j, device=device)])
        found.append(params)
    agree(*found, 1e-12)


@pytest.mark.parametrize("name", ["adamw", "amsgrad", "nesterov"])
def test_a_step_is_one_kernel(name):
    _, optimizer = made(name, "torch")
    optimizer.step(gradients(0, "torch"))
    grads = gradients(1, "torch")
    with Calls() as calls:
        optimizer.step(grads)
    assert sum(calls.counts.values()) <= 2, calls.counts  # the step count as an array, the kernel


def test_gradients_are_only_read():
    _, optimizer = made("nesterov", "torch")
    grads = gradients(0, "torch")
    optimizer.step(grads)
    same(grads, gradients(0, "torch"))


def test_averages_are_one_kernel():
    params = parameters("torch")
    ema = wf.optim.EMA(params, 0.9)
    with Calls() as calls:
        ema.update()
    assert calls.counts["aten._foreach_lerp_.Scalar"] == 1
    assert sum(calls.counts.values()) == 1
    assert torch.is_tensor(next(iter(ema._averages.values())))
