"""Models and steps for tests of sharded optimizers, and comparison to the bit."""

import numpy as np

import weft as wf
from tests.optim.every import OPTIMIZERS, shapes_of

JOINT = ("prodigy",)
NAMES = [name for name in OPTIMIZERS if name not in JOINT]
SIZES = (1, 2, 3, 4)
STEPS = 20


def values(name, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    shapes = [*shapes_of(name), *(() if name == "muon" else [(0, 3), (301,)])]
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def parameters(arrays, device="cpu"):
    return {f"p{k}": wf.Parameter(wf.tensor(x, device=device)) for k, x in enumerate(arrays)}


def gradients(params, step, device="cpu", without=()):
    """The gradients of a step by name; some parameters have none in some steps."""
    rng = np.random.default_rng(1000 + step)
    found = {}
    for key, p in params.items():
        g = rng.standard_normal(p.shape)
        if (key, step) not in without:
            found[key] = wf.tensor(g, device=device, dtype=p.dtype)
    return found


def groups_of(params):
    """Two groups with learning rates of their own."""
    pairs = list(params.items())
    return [{"params": pairs[:3]}, {"params": pairs[3:], "lr_scale": 0.5}]


def plain(state):
    """A state dict with NumPy arrays in the place of tensors."""
    if isinstance(state, dict):
        return {key: plain(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return [plain(value) for value in state]
    return state.numpy() if isinstance(state, wf.Tensor) else state


def assert_same(a, b, where=""):
    """Equal to the bit, dtypes and order included."""
    assert type(a) is type(b), where
    if isinstance(a, dict):
        assert list(a) == list(b), where
        for key in a:
            assert_same(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), where
        for k, (x, y) in enumerate(zip(a, b, strict=True)):
            assert_same(x, y, f"{where}[{k}]")
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape, where
        assert a.tobytes() == b.tobytes(), where
    else:
        assert a == b, where


def train(optimizer, params, steps, device="cpu", without=()):
    for step in steps:
        if step == 7:
            optimizer.set_lr(optimizer.lr * 0.5 if optimizer.lr else 0.01)
        if step == 9:
            optimizer.param_groups[0]["lr_scale"] = 2.0
        optimizer.step(gradients(params, step, device, without))
    return {key: p.detach().numpy().copy() for key, p in params.items()}
