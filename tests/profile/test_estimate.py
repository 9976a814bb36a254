"""Estimates of six networks beside what a counter measures, and what is refused."""

import gc
from dataclasses import FrozenInstanceError
from threading import Thread

import numpy as np
import pytest

import weft as wf
from weft.backend.numpy import elementwise
from weft.backend.numpy import namespace as numpy_
from weft.backend.shared import threads
from weft.core import backends
from weft.profile.phantom import Phantom

F, nn = wf.nn.functional, wf.nn
TOLERANCE = 0.03


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self, width, p, causal):
        super().__init__()
        self.p, self.causal = p, causal
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, width = x.shape
        qkv = self.qkv(self.ln1(x)).reshape(n, t, 3, 4, width // 4)
        q, k, v = (qkv[:, :, i].swapaxes(1, 2) for i in range(3))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + F.dropout(self.proj(y.swapaxes(1, 2).reshape(n, t, width)), self.p)
        return x + F.dropout(self.down(F.gelu(self.up(self.ln2(x)))), self.p)


def gpt(rng):
    parts = [Block(64, 0.0, True) for _ in range(24)]
    model = nn.Sequential(nn.Embedding(65, 64), *parts, nn.LayerNorm(64), nn.Linear(64, 65))
    ids, targets = (rng.integers(0, 65, (4, 64)) for _ in range(2))
    return model, lambda y, t: F.cross_entropy(y.reshape(-1, 65), t.reshape(-1)), ids, targets


def mlp(rng):
    layers = [part for _ in range(50) for part in (nn.Linear(64, 64), nn.ReLU())]
    x = rng.standard_normal((512, 64)).astype(np.float32)
    return nn.Sequential(*layers), F.cross_entropy, x, rng.integers(0, 10, 512)


def cnn(rng):
    parts = []
    for a, b in ((3, 16), (16, 16), (16, 32)):
        parts += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()]
    model = nn.Sequential(*parts, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 64, 10))
    x = rng.standard_normal((32, 3, 16, 16)).astype(np.float32)
    return model, F.cross_entropy, x, rng.integers(0, 10, 32)


class Skips(nn.Module):
    """Skip connections over layers whose weights all blocks share."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(128, 64), nn.Linear(64, 64)

    def forward(self, x):
        skips = [x]
        for _ in range(16):
            y = wf.tanh(self.first(wf.concat([skips[-1], skips[len(skips) // 2]], axis=-1)))
            skips.append(skips[-1] + wf.tanh(self.second(y)))
        return skips[-1]


def shared(rng):
    x = rng.standard_normal((512, 64)).astype(np.float32)
    return Skips(), F.cross_entropy, x, rng.integers(0, 10, 512)


class Recurrent(nn.Module):
    """A recurrent network by `scan`."""

    def __init__(self):
        super().__init__()
        self.given, self.own = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        def body(h, x):
            h = wf.tanh(self.given(x) + self.own(h)).to("float32")
            return h, h

        _, hs = wf.scan(body, wf.zeros(x.shape[::2]), x.swapaxes(0, 1))
        return hs.mean(0)


def recurrent(rng):
    x = rng.standard_normal((128, 60, 64)).astype(np.float32)
    return Recurrent(), F.cross_entropy, x, rng.integers(0, 10, 128)


class Vision(nn.Module):
    """A vision transformer with dropout."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 64, 4, stride=4)
        self.blocks = nn.ModuleList([Block(64, 0.1, False) for _ in range(4)])

    def forward(self, x):
        x = self.patches(x)
        x = x.reshape(*x.shape[:2], -1).swapaxes(1, 2)
        for block in self.blocks:
            x = block(x)
        return x.mean(1)


def vision(rng):
    x = rng.standard_normal((16, 3, 32, 32)).astype(np.float32)
    return Vision(), F.cross_entropy, x, rng.integers(0, 10, 16)


NETWORKS = (gpt, mlp, cnn, shared, recurrent, vision)


def training_step(make, half=False):
    wf.random.seed(0)
    model, loss, x, y = make(np.random.default_rng(0))
    optimizer = wf.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x, y):
        optimizer.zero_grad()
        with wf.amp.autocast("bfloat16", enabled=half):
            value = loss(model(x), y)
        value.backward()
        optimizer.step()
        return value

    return step, (wf.tensor(x), wf.tensor(y)), model, optimizer


@pytest.fixture(autouse=True)
def alike(monkeypatch):
    """One thread, which is never late to its work, and no zeros of earlier tests."""
    monkeypatch.setattr(threads, "LIMIT", 1)
    elementwise._zeros.cache_clear()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("half", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("make", NETWORKS, ids=lambda f: f.__name__)
def test_the_peak_is_as_measured(make, half, compiled):
    with wf.profile.Counter() as counter:
        step, args, _, _ = training_step(make, half)
        with wf.profile.Counter() as own:
            estimate = wf.profile.estimate(step, *args, compiled=compiled)
        run = wf.compile(step) if compiled else step
        run(*args)
        run(*args)
        gc.collect()
        counter.reset_peak()
        run(*args)
    assert estimate.compiled is compiled
    assert abs(estimate.peak - counter.peak) <= TOLERANCE * counter.peak, str(estimate)
    # Constants that the step makes are made by the trace, and there is some bookkeeping.
    constants = 4 * 64 * 64 * 10 if make is recurrent else 0
    assert own.peak < 0.01 * estimate.peak + 250_000 + constants


def test_the_parts_are_those_of_the_network():
    step, args, model, _ = training_step(mlp)
    e = wf.profile.estimate(step, *args)
    n = sum(p.detach().numpy().nbytes for p in model.parameters())
    assert (e.parameters, e.gradients, e.optimizer_state) == (n, n, 2 * n)
    assert e.inputs == sum(x.numpy().nbytes for x in args)
    assert 50 * 512 * 64 * 4 < e.activations < 2 * 50 * 512 * 64 * 4
    assert sum(c.nbytes for c in e.contents) <= e.peak
    assert sum(c.nbytes for c in e.contents) > 0.98 * e.peak
    assert any(c.op == "relu" and c.line.startswith("test_estimate.py:") for c in e.contents)


def test_the_table_shows_parts_and_contents():
    step, args, _, _ = training_step(cnn)
    for compiled in (False, True):
        text = str(wf.profile.estimate(step, *args, compiled=compiled))
        for word in ("parameters", "optimizer state", "peak", "test_estimate.py:"):
            assert word in text
        assert all(len(line) <= 100 for line in text.split("\n"))


def test_nothing_changes():
    step, args, model, optimizer = training_step(cnn)
    step(*args)
    optimizer.param_groups[0]["lr"] = 0.5

    def state():
        tensors = [t.detach().numpy().copy() for t in (*model.parameters(), *model.buffers())]
        grads = [p.grad.numpy().copy() for p in model.parameters()]
        moments = [v.copy() for s in optimizer.state.values() for v in s.values() if np.ndim(v)]
        return [*tensors, *grads, *moments], [s["step"] for s in optimizer.state.values()]

    arrays, counts = state()
    held = [(p._data, p.grad) for p in model.parameters()]
    stream = wf.random.get_state()
    for compiled in (False, True):
        wf.profile.estimate(step, *args, compiled=compiled)
    now, again = state()
    assert counts == again and wf.random.get_state() == stream
    assert all(np.array_equal(a, b) for a, b in zip(arrays, now, strict=True))
    for p, (data, grad) in zip(model.parameters(), held, strict=True):
        assert p._data is data and p.grad is grad
    step(*args)  # it still trains


def test_an_error_in_the_step_puts_everything_back():
    step, args, model, _ = training_step(mlp)
    calls = []

    def failing(x, y):
        step(x, y)
        calls.append(0)
        if len(calls) == 2:
            raise KeyError("user")

    before = [p._data for p in model.parameters()]
    with pytest.raises(KeyError, match="user"):
        wf.profile.estimate(failing, *args)
    assert all(p._data is d for p, d in zip(model.parameters(), before, strict=True))
    assert (wf.ones(3) + 1).tolist() == [2.0, 2.0, 2.0]


def test_compiled_functions_are_estimated_compiled():
    x = wf.ones((100, 100))
    f = wf.compile(lambda x: (x * 2).sum())
    assert wf.profile.estimate(f, x).compiled
    assert not wf.profile.estimate(f, x, compiled=False).compiled


def test_operations_and_their_lifetimes():
    x = wf.ones((1000,), dtype="float64")

    def keeps(x):
        y = wf.exp(x)
        return wf.sin(y)

    def drops(x):
        return wf.sin(wf.sin(wf.exp(x)))

    def gathers(x):
        return wf.concat([wf.exp(x) for _ in range(5)])

    assert wf.profile.estimate(keeps, x).peak == 24_000
    assert wf.profile.estimate(drops, x).peak == 24_000
    assert wf.profile.estimate(gathers, x).peak == 8000 + 40_000 + 40_000


@pytest.mark.parametrize("compiled", [False, True])
def test_what_cannot_be_traced_is_refused(compiled):
    x = wf.ones((10,))
    with pytest.raises(wf.errors.StagingError, match=r"estimate: .* cannot be traced: .*item"):
        wf.profile.estimate(lambda x: x.sum().item(), x, compiled=compiled)
    with pytest.raises(wf.errors.ArgumentError, match="inside of a transformation"):
        wf.vmap(lambda x: wf.profile.estimate(wf.sum, x, compiled=compiled))(x)


def test_compiled_functions_inside_of_eager_steps_are_refused():
    inner = wf.compile(lambda x: x * 2)
    x = wf.ones((10,))
    with pytest.raises(wf.errors.StagingError, match="compile the whole step"):
        wf.profile.estimate(lambda x: inner(x).sum(), x)
    assert wf.profile.estimate(lambda x: inner(x).sum(), x, compiled=True).peak > 0


def test_averages_are_refused_in_eager_steps():
    step, args, model, _ = training_step(mlp)
    ema = wf.optim.EMA(model.parameters())

    def both(x, y):
        step(x, y)
        ema.update()

    with pytest.raises(wf.errors.StagingError, match="average"):
        wf.profile.estimate(both, *args)


def test_an_estimate_is_frozen():
    e = wf.profile.estimate(wf.sum, wf.ones(3))
    with pytest.raises(FrozenInstanceError):
        e.peak = 0


def deep_step(config):
    """A step of 30 layers under a strategy, and the bytes that it takes beside its own work."""
    wf.random.seed(0)
    parts = [part for _ in range(30) for part in (wf.nn.Linear(32, 32), wf.nn.GELU())]
    model, x = wf.nn.Sequential(*parts), wf.randn((1024, 32))
    parameters = list(model.parameters())

    def step(x):
        with wf.GradientTape(checkpoint=config) as tape:
            loss = model(x).square().mean()
        return tape.gradient(loss, parameters)

    return step, x, x.nbytes + sum(p.nbytes for p in parameters)


@pytest.mark.parametrize("strategy", ["none", "selective", "block", "full"])
def test_strategies(strategy):
    step, x, fixed = deep_step(wf.CheckpointConfig(strategy))
    step(x)
    with wf.profile.Counter() as counter:
        step(x)
    assert wf.profile.estimate(step, x).peak == pytest.approx(fixed + counter.peak, rel=0.03)


@pytest.mark.parametrize("strategy", ["full", "auto"])
def test_compiled_strategies(strategy):
    config = wf.CheckpointConfig(strategy, memory_budget_mb=2)
    step, x, _ = deep_step(None)
    f = wf.compile(step, checkpoint=config)
    e = wf.profile.estimate(f, x)
    f(x)
    assert e.activations == f.memory.arena < f.memory.unconstrained / 2


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (wf.CheckpointConfig("auto", memory_budget_mb=8), "budget"),
        (wf.CheckpointConfig("full", offload="disk"), "save_on_disk"),
    ],
)
def test_what_depends_on_values_or_budgets_is_refused(config, message):
    step, x, _ = deep_step(config)
    with pytest.raises(wf.errors.StagingError, match=message):
        wf.profile.estimate(step, x)
    assert all(g is not None for g in step(x))


def test_nothing_is_left_behind():
    """Neither phantoms' kernels nor their backend: also after an error, and with threads."""

    def fails(x):
        y = wf.exp(x)
        raise ZeroDivisionError(y.shape)

    def run():
        x = wf.ones((100, 100))  # its own: no other thread may use the step's tensors meanwhile
        wf.profile.estimate(lambda x: (x @ x).sum(), x)
        with pytest.raises(ZeroDivisionError):
            wf.profile.estimate(fails, x)
        done.append(1)

    done = []
    guards = {cls: list(bound) for cls, bound in backends.GUARDS.items() if bound}
    before = guards, numpy_.full, numpy_.empty
    workers = [Thread(target=run) for _ in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert len(done) == 4 and Phantom not in backends.BACKENDS
    guards = {cls: list(bound) for cls, bound in backends.GUARDS.items() if bound}
    assert before == (guards, numpy_.full, numpy_.empty)
