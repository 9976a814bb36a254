"""Random networks: the estimate beside what a counter measures, and nothing is changed."""

import gc
import os
from functools import partial

import numpy as np
import pytest

import weft as wf
from weft.backend.numpy import activate, elementwise
from weft.backend.shared import threads

F, nn = wf.nn.functional, wf.nn
SEEDS = 60 if os.environ.get("WEFT_SOAK") == "1" else 6
TOLERANCE = 0.03


class Along(nn.Module):
    """A layer that is a function of (batch, length, width), with a weight."""

    def __init__(self, function, width):
        super().__init__()
        self.function = function
        self.weight = wf.Parameter(wf.randn((width, width)) * width**-0.5)

    def forward(self, x):
        return self.function(x, self.weight)


def attend(x, w):
    q, k = x @ w, x @ w.mT
    return F.softmax(q @ k.mT * 0.1, -1) @ x


def by_halves(x, w):
    a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return wf.concat([b.sigmoid() * a, a], axis=-1) @ w


def by_loop(x, w):
    h, found = x[:, 0], []
    for k in range(x.shape[1]):
        h = wf.tanh(h @ w + x[:, k])
        found.append(h)
    return wf.stack(found, axis=1)


def by_scan(x, w):
    h, ys = wf.scan(lambda h, x: (wf.tanh(h @ w + x),) * 2, x[:, 0] * 1.0, x.swapaxes(0, 1))
    return ys.swapaxes(0, 1) + h[:, None]


def mixed(x, w):
    y = wf.exp(-x.square()) * 0.5 + wf.log1p(x.abs()) / (1 + x * x)
    return wf.where(y > 0.2, y @ w, x)


def standardised(x, w):
    return ((x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 0.1)) @ w


def moved(x, w):
    return wf.flip(x.transpose(0, 2, 1).reshape(x.shape), axis=1).clip(-2.0, 2.0) @ w


def powers(x, w):
    return (x**3 * 0.01 + wf.sqrt(x.abs() + 1) + wf.maximum(x, w[0])) @ w


LAYERS = (attend, by_halves, by_loop, by_scan, mixed, standardised, moved, powers)


def images(rng, width):
    """A part of a network over images."""
    size = int(rng.integers(2, 4))
    return nn.Sequential(
        nn.Conv2d(3, width, size, padding=size // 2),
        nn.BatchNorm2d(width),
        nn.ReLU() if rng.integers(2) else nn.GELU(),
        nn.MaxPool2d(2) if rng.integers(2) else nn.AvgPool2d(2),
        nn.Conv2d(width, width, 3, stride=int(rng.integers(1, 3))),
    )


class Network(nn.Module):
    """Random layers, with dropout and skip connections in between."""

    def __init__(self, rng, width):
        super().__init__()
        self.front = images(rng, width) if rng.integers(3) == 0 else None
        parts = []
        for _ in range(int(rng.integers(2, 6))):
            kind = int(rng.integers(len(LAYERS) + 4))
            if kind < len(LAYERS):
                parts.append(Along(LAYERS[kind], width))
            else:
                last = (nn.GELU(), nn.ReLU(), nn.SiLU(), nn.Dropout(0.2))[kind - len(LAYERS)]
                parts.append(nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), last))
        self.parts = nn.ModuleList(parts)
        self.skips = [bool(rng.integers(2)) for _ in parts]
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        if self.front is not None:
            x = self.front(x)
            x = x.reshape(*x.shape[:2], -1).swapaxes(1, 2)
        for part, skip in zip(self.parts, self.skips, strict=True):
            x = x + part(x) if skip else part(x)
        return self.head(x).mean(1)


def make(seed):
    """A training step, its arguments, and its network and optimizer."""
    rng = np.random.default_rng(seed)
    wf.random.seed(seed)
    width, batch = 8 * int(rng.integers(4, 13)), int(rng.integers(64, 192))
    net = Network(rng, width)
    shape = (batch, 3, 16, 16) if net.front is not None else (batch, 24, width)
    x = wf.tensor(rng.standard_normal(shape).astype(np.float32))
    y = wf.tensor(rng.integers(0, 10, batch))
    kind = (wf.optim.AdamW, wf.optim.SGD, partial(wf.optim.SGD, momentum=0.9))[rng.integers(3)]
    optimizer = kind(net.parameters(), lr=1e-3)
    early, half, clip = rng.integers(2), rng.integers(4) == 0, rng.integers(3) == 0

    def step(x, y):
        if early:
            optimizer.zero_grad()
        with wf.amp.autocast("bfloat16", enabled=bool(half)):
            loss = F.cross_entropy(net(x), y)
        if not early:
            optimizer.zero_grad()
        loss.backward()
        if clip:
            wf.optim.clip_grad_norm(net.parameters(), 1.0)
        optimizer.step()
        return loss

    return step, (x, y), net, optimizer


def snapshot(net, optimizer):
    """All that a step changes, as bytes and numbers."""
    tensors = [t.detach().numpy().tobytes() for t in (*net.parameters(), *net.buffers())]
    gradients = [None if p.grad is None else p.grad.numpy().tobytes() for p in net.parameters()]
    state = [
        [v.tobytes() if isinstance(v, np.ndarray) else v for v in own.values()]
        for own in optimizer.state.values()
    ]
    return tensors, gradients, state, wf.random.get_state()


@pytest.fixture(autouse=True)
def alike(monkeypatch):
    """One thread, which is never late to its work, and no zeros of earlier tests."""
    monkeypatch.setattr(threads, "LIMIT", 1)
    elementwise._zeros.cache_clear()
    activate._zeros.cache_clear()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_peak_is_as_measured(seed, compiled):
    with wf.profile.Counter() as counter:
        step, args, net, optimizer = make(seed)
        before = snapshot(net, optimizer)
        with wf.profile.Counter() as own:
            estimate = wf.profile.estimate(step, *args, compiled=compiled)
        assert snapshot(net, optimizer) == before
        assert own.peak < 0.01 * estimate.peak + 250_000
        step(*args)  # a first step may be another program, with an arena of its own
        run = wf.compile(step) if compiled else step
        run(*args)
        gc.collect()
        again = wf.profile.estimate(step, *args, compiled=compiled)
        gc.collect()
        counter.reset_peak()
        run(*args)
    assert abs(again.peak - estimate.peak) <= 0.01 * estimate.peak
    assert abs(estimate.peak - counter.peak) <= TOLERANCE * counter.peak, (
        f"{estimate.peak / counter.peak:.3f}\n{estimate}"
    )
