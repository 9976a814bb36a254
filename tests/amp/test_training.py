"""Training in float16 with a dynamic scale reaches the loss of float32; so does a tape's."""

import numpy as np
import pytest

import weft as wf
from weft.amp import AmpConfig, Dynamic, GradScaler

from .devices import DEVICES

F = wf.nn.functional
STEPS = 60


def parameters(shapes: dict, device: str) -> dict:
    rng = np.random.default_rng(11)

    def start(shape):
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 0
        return rng.standard_normal(shape) * np.sqrt(2 / fan) if fan else np.zeros(shape)

    return {
        name: wf.Parameter(wf.tensor(start(shape), dtype="float32", device=device))
        for name, shape in shapes.items()
    }


# Each network: the shapes of its parameters, that of an input, and the logits.

MLP = {"w1": (32, 16), "b1": (32,), "w2": (32, 32), "b2": (32,), "w3": (4, 32), "b3": (4,)}


def mlp(p, x):
    x = F.relu(F.linear(x, p["w1"], p["b1"]))
    x = F.gelu(F.linear(x, p["w2"], p["b2"]))
    return F.linear(x, p["w3"], p["b3"])


CNN = {"c1": (8, 1, 3, 3), "d1": (8,), "c2": (8, 8, 3, 3), "d2": (8,), "w": (4, 8), "b": (4,)}


def cnn(p, x):
    x = x.reshape((-1, 1, 4, 4))
    x = F.relu(F.conv2d(x, p["c1"], p["d1"], padding=1))
    x = F.relu(F.conv2d(x, p["c2"], p["d2"], padding=1))
    return F.linear(x.mean((2, 3)), p["w"], p["b"])


ATTENTION = {"e": (16, 4), "qkv": (48, 16), "o": (16, 16), "b": (16,), "w": (4, 16), "c": (4,)}


def attention(p, x):
    """Four tokens of four numbers each."""
    x = F.linear(x.reshape((-1, 4, 4)), p["e"])
    h = F.layer_norm(x, (16,))
    q, k, v = (
        t.reshape((-1, 4, 2, 8)).permute((0, 2, 1, 3))
        for t in wf.split(F.linear(h, p["qkv"]), 3, 2)
    )
    y = F.scaled_dot_product_attention(q, k, v).permute((0, 2, 1, 3)).reshape((-1, 4, 16))
    x = x + F.linear(y, p["o"], p["b"])
    return F.linear(F.layer_norm(x.mean(1), (16,)), p["w"], p["c"])


NETWORKS = {"mlp": (mlp, MLP), "cnn": (cnn, CNN), "attention": (attention, ATTENTION)}


def data(device: str):
    """Four classes of which a third is wrong: no network makes the loss vanish."""
    rng = np.random.default_rng(12)
    classes = rng.integers(0, 4, 512)
    x = rng.standard_normal((4, 16))[classes] + rng.standard_normal((512, 16))
    classes = np.where(rng.random(512) < 0.33, rng.integers(0, 4, 512), classes)
    return wf.tensor(x, dtype="float32", device=device), wf.tensor(classes, device=device)


def trained(name: str, device: str, mode=None, planted: int | None = None):
    """The loss after STEPS that were taken; `planted` is one whose loss is blown up."""
    net, shapes = NETWORKS[name]
    p, (x, t) = parameters(shapes, device), data(device)
    optimizer = wf.optim.AdamW(list(p.items()), lr=1e-2)
    scaler = GradScaler(growth_interval=20, enabled=mode == "float16")
    skipped, taken = [], 0
    for step in range(2 * STEPS):
        with wf.amp.autocast(mode or "float16", enabled=mode is not None):
            loss = F.cross_entropy(net(p, x), t)
        factor = np.float32(1e36) if step == planted else 1.0
        grads = scaler.scale(loss * factor).backward()
        norm = scaler.unscale(grads)
        wf.optim.clip_grads_with_norm(grads, 1.0, norm)
        scaler.step(optimizer, grads)
        scaler.update()
        if scaler.skipped:
            skipped.append(step)
        elif (taken := taken + 1) == STEPS:
            break
    return F.cross_entropy(net(p, x), t).item(), skipped, scaler


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_float16_reaches_the_loss_of_float32(name, device):
    full, _, _ = trained(name, device)
    half, skipped, scaler = trained(name, device, "float16")
    start = F.cross_entropy(wf.zeros((1, 4)), wf.tensor([0])).item()
    assert full < 0.75 * start
    assert abs(half - full) <= 0.02 * full, (half, full)
    assert len(skipped) < STEPS // 4 and scaler.get_scale() > 1024.0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_bfloat16_needs_no_scale(name, device):
    full, _, _ = trained(name, device)
    half, skipped, _ = trained(name, device, "bfloat16")
    assert abs(half - full) <= 0.05 * full and not skipped


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("device", DEVICES)
def test_a_planted_overflow_costs_one_step(device):
    full, _, _ = trained("mlp", device)
    half, skipped, _ = trained("mlp", device, "float16", planted=30)
    assert 30 in skipped
    assert abs(half - full) <= 0.02 * full


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("device", DEVICES)
def test_by_tapes_with_a_config(device):
    def run(config):
        p, (x, t) = parameters(MLP, device), data(device)
        optimizer = wf.optim.AdamW(list(p.items()), lr=1e-2)
        taken = 0
        while taken < STEPS:
            with wf.GradientTape(amp=config) as tape:
                loss = F.cross_entropy(mlp(p, x), t)
            grads = tape.gradient(loss, list(p.values()))
            if not tape.overflowed:
                optimizer.step(grads)
                taken += 1
        return F.cross_entropy(mlp(p, x), t).item()

    full = run(None)
    config = AmpConfig(loss_scaler=Dynamic(2.0**24, growth_interval=20))
    half = run(config)
    assert abs(half - full) <= 0.02 * full
    assert config.scale.value < 2.0**24  # the first steps overflowed
