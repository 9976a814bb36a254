"""Max pools of random windows beside PyTorch's: values, indices, and where gradients go."""

import os

import numpy as np
import pytest
import torch

import weft as wf

F, TORCH = wf.nn.functional, torch.nn.functional
SOAK = bool(os.environ.get("WEFT_SOAK"))
KINDS = ("ties", "infinities", "NaN", "−∞ alone")


def _values(rng, shape, kind: str) -> np.ndarray:
    """Few different numbers, so that many are equal; much −∞, so that windows hold nothing else."""
    x = rng.integers(-3, 4, shape).astype("float64")
    if kind in ("infinities", "NaN"):
        x = np.where(rng.random(shape) < 0.6, -np.inf, x)
        x = np.where(rng.random(shape) < 0.1, np.nan if kind == "NaN" else np.inf, x)
    return np.full(shape, -np.inf) if kind == "−∞ alone" else x


def _pool(rng) -> tuple[str, np.ndarray, dict]:
    """A random call that PyTorch takes: name, array, options."""
    axes = int(rng.integers(1, 4))
    kernel = rng.integers(1, 5, axes).tolist()
    # PyTorch's padding is half of a window at most, dilation not counted.
    options = {
        "kernel_size": kernel,
        "stride": rng.integers(1, 4, axes).tolist(),
        "padding": [int(rng.integers(0, k // 2 + 1)) for k in kernel],
        "dilation": rng.integers(1, 3, axes).tolist(),
        "ceil_mode": bool(rng.integers(2)),
    }
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, options["dilation"], strict=True)]
    size = [int(n + rng.integers(0, 5)) for n in spans]
    kind = KINDS[int(rng.integers(len(KINDS)))]
    return f"max_pool{axes}d", _values(rng, (2, 2, *size), kind), options


def _of_torch(name: str, x: np.ndarray, options: dict) -> list[np.ndarray]:
    """Result, indices, gradient; the cotangents are 1, 2, 3, …"""
    given = torch.tensor(x, requires_grad=True)
    y, at = getattr(TORCH, name)(given, **options, return_indices=True)
    y.backward(torch.arange(1.0, y.numel() + 1, dtype=y.dtype).reshape(y.shape))
    return [y.detach().numpy(), at.numpy(), given.grad.numpy()]


def _of_weft(name: str, x: np.ndarray, options: dict, device: str, way) -> list[np.ndarray]:
    def f(x, seeds):
        y, pull, at = wf.vjp(
            lambda x: getattr(F, name)(x, **options, return_indices=True), x, has_aux=True
        )
        return y, at, pull(seeds)[0]

    size = getattr(TORCH, name)(torch.tensor(x), **options).shape
    seeds = np.arange(1.0, np.prod(size) + 1).reshape(size)
    found = way(f)(wf.tensor(x, device=device), wf.tensor(seeds, device=device))
    return [t.detach().to("cpu").numpy() for t in found]


def _demand_equal(found, expected, what) -> None:
    for name, a, b in zip(("values", "indices", "gradient"), found, expected, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=f"{name} of {what}")


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("seed", range(60 if SOAK else 6))
def test_eager(seed, device):
    rng = np.random.default_rng(seed)
    for _ in range(60):
        call = _pool(rng)
        _demand_equal(_of_weft(*call, device, lambda f: f), _of_torch(*call), call)


@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize("seed", range(30 if SOAK else 3))
def test_compiled(seed, device):
    rng = np.random.default_rng(100 + seed)
    for _ in range(6):
        call = _pool(rng)
        _demand_equal(_of_weft(*call, device, wf.compile), _of_torch(*call), call)


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_a_corner_of_nothing(device):
    inf = np.inf
    x = wf.tensor([[[-inf, -inf, 1.0], [-inf, -inf, 2.0]]], device=device, requires_grad=True)
    g = F.max_pool2d(x, 2, 2, 1).sum().backward()[x]
    assert g.tolist() == [[[1.0, 0.0, 1.0], [1.0, 0.0, 1.0]]]
