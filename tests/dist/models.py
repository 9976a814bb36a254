"""Models and data for tests of data-parallel training, with values that NumPy drew."""

import numpy as np

import weft as wf

DEVICES = ("cpu", "torch")


def draw(model, seed=3):
    """Give a model parameters from a generator of its own: ranks in threads share Weft's."""
    rng = np.random.default_rng(seed)
    with wf.no_grad():
        for p in model.parameters():
            p.copy_(wf.tensor(rng.normal(size=p.shape) * 0.4))
    return model


def mlp(dtype="float64", device="cpu", seed=3, width=16):
    layers = [wf.nn.Linear(5, width), wf.nn.Tanh(), wf.nn.Linear(width, width)]
    model = wf.nn.Sequential(*layers, wf.nn.Tanh(), wf.nn.Linear(width, 3)).to(dtype)
    return draw(model, seed).to(device)


def data(n, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 5)).astype(dtype), rng.normal(size=(n, 3)).astype(dtype)


def shard(arrays, rank, size, device="cpu"):
    """A rank's rows of arrays, as tensors."""
    n = len(arrays[0]) // size
    kw = {} if device == "cpu" else {"device": device}
    return [wf.tensor(a[rank * n : (rank + 1) * n], **kw) for a in arrays]


def loss_of(model, x, y):
    return ((model(x) - y) ** 2).mean()


def values(model):
    return {name: np.array(p.detach().numpy()) for name, p in model.named_parameters()}


def gradients(model):
    return {
        name: None if p.grad is None else np.array(p.grad.numpy())
        for name, p in model.named_parameters()
    }
