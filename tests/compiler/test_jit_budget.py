"""Compiled training steps under checkpoint strategies and budgets, beside those without."""

import gc
import os
import threading

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft.compiler.ir.schedule import GuardStep, LibraryStep, NativeStep
from weft.core.checkpointing import MIB, CheckpointConfig, CheckpointStrategy

nn, F = wf.nn, wf.nn.functional
SOAK = os.environ.get("WEFT_SOAK") == "1"
SHARES = (1.0, 0.75, 0.5, 0.35, 0.25, 0.1) if SOAK else (0.7, 0.4)
RNG = np.random.default_rng(0)


class Skips(nn.Module):
    """Shared weights and skip connections, concatenated."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(32, 16), nn.Linear(16, 16), nn.Linear(16, 5)

    def forward(self, x):
        seen = [x]
        for _ in range(5):
            y = wf.tanh(self.one(wf.concat([seen[-1], seen[len(seen) // 2]], axis=-1)))
            seen.append(seen[-1] + wf.tanh(self.two(y)))
        return self.head(seen[-1])


class Loop(nn.Module):
    """A loop whose steps draw random numbers, or do not."""

    def __init__(self, p: float):
        super().__init__()
        self.p, self.step, self.head = p, nn.Linear(16, 16), nn.Linear(16, 5)

    def forward(self, x):
        def body(h, _):
            h = wf.tanh(self.step(F.dropout(h, self.p) if self.p else h)).to("float32")
            return h, h.sum(-1)

        h, sums = wf.scan(body, wf.tanh(x), None, length=6)
        for _ in range(3):
            h = h + wf.tanh(self.step(h))
        return self.head(h) + sums.sum()


def perceptron(*extra, depth: int = 6):
    parts = [p for _ in range(depth) for p in (nn.Linear(16, 16), *[make() for make in extra])]
    return nn.Sequential(*parts, nn.Linear(16, 5))


def convolutions():
    parts = [
        p
        for a, b in ((1, 4), (4, 4), (4, 4), (4, 4))
        for p in (nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())
    ]
    return nn.Sequential(*parts, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 5))


def transformer():
    layer = nn.TransformerEncoderLayer
    return nn.Sequential(
        *[layer(16, 2, 32, dropout=0.1, batch_first=True) for _ in range(3)],
        nn.Flatten(),
        nn.Linear(64, 5),
    )


NETWORKS = {
    "tanh": (lambda: perceptron(nn.Tanh), (24, 16)),
    "dropout": (lambda: perceptron(nn.GELU, lambda: nn.Dropout(0.3)), (24, 16)),
    "norms": (lambda: perceptron(lambda: nn.LayerNorm(16), nn.ReLU), (24, 16)),
    "batch norm": (convolutions, (6, 1, 4, 4)),
    "skips": (Skips, (24, 16)),
    "transformer": (transformer, (4, 4, 16)),
    "loop": (lambda: Loop(0.0), (24, 16)),
    "loop that draws": (lambda: Loop(0.2), (24, 16)),
}


def trained(name: str, config=None, autocast: bool = False, calls: int = 3, before=lambda k: None):
    """The losses, parameters, buffers and moments after some steps, and the step.

    before  called before each step, and with None after the last
    """
    make, shape = NETWORKS[name]
    wf.random.seed(1)
    model, rng = make(), np.random.default_rng(2)
    optimizer = wf.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = rng.standard_normal(shape).astype(np.float32), rng.integers(0, 5, shape[0])

    def step(x, y):
        optimizer.zero_grad()
        with wf.amp.autocast("bfloat16", enabled=autocast):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    compiled = wf.compile(step, checkpoint=config)
    arguments, losses = (wf.tensor(x), wf.tensor(y)), []
    for k in range(calls):
        before(k)
        losses.append(compiled(*arguments).detach().numpy())
    before(None)
    state = [t.detach().numpy().copy() for t in (*model.parameters(), *model.buffers())]
    grads = [p.grad.detach().numpy().copy() for p in model.parameters()]
    return [*losses, *state, *grads], compiled


def budget(taken, share: float) -> CheckpointConfig:
    nbytes = taken.fixed + taken.tables + int(share * taken.unconstrained)
    return CheckpointConfig("auto", memory_budget_mb=nbytes / MIB)


def same(got, want) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("name", NETWORKS)
def test_results_are_the_same_under_budgets(name, autocast):
    want, plain = trained(name, autocast=autocast)
    peaks = []
    for share in SHARES:
        config = budget(plain.memory, share)
        try:
            got, under = trained(name, config, autocast)
        except errors.BudgetExceeded as e:
            config = CheckpointConfig("auto", memory_budget_mb=e.smallest / MIB)
            got, under = trained(name, config, autocast)
        assert same(got, want)
        assert under.memory.peak + plain.memory.tables <= config.budget
        assert under.memory.unconstrained == plain.memory.arena
        peaks.append(under.memory.peak)
    assert peaks == sorted(peaks, reverse=True)


@pytest.mark.parametrize("strategy", [s for s in CheckpointStrategy if s.value != "auto"])
@pytest.mark.parametrize("name", NETWORKS)
def test_results_are_the_same_under_strategies(name, strategy):
    want, plain = trained(name)
    got, under = trained(name, CheckpointConfig(strategy))
    assert same(got, want)
    assert under.memory.peak <= plain.memory.peak


@pytest.mark.parametrize("name", NETWORKS)
def test_draws_checks_and_calls_happen_once(name):
    def count(compiled):
        steps = compiled._last().executable.schedule.steps
        drawn = [s for s in steps if isinstance(s, NativeStep) and s.routine.draws]
        return len(drawn), *(sum(isinstance(s, k) for s in steps) for k in (GuardStep, LibraryStep))

    _, plain = trained(name, calls=1)
    _, full = trained(name, CheckpointConfig("full"), calls=1)
    assert count(plain) == count(full)


# -- deep networks -----------------------------------------------------------------------------


@pytest.mark.parametrize(("layers", "least"), [(50, 0.85), (200, 0.9)] if SOAK else [(50, 0.85)])
def test_full_saves_most_of_the_activations_of_deep_networks(layers, least):
    model = perceptron(nn.Tanh, depth=layers)
    x = wf.tensor(RNG.standard_normal((256, 16)).astype(np.float32))

    def step(x):
        loss = (model(x) ** 2).mean()
        loss.backward()
        return loss

    saved = {}
    for config in (CheckpointConfig("full"), CheckpointConfig("block")):
        compiled = wf.compile(step, checkpoint=config)
        compiled(x)
        saved[config.strategy.value] = 1 - compiled.memory.arena / compiled.memory.unconstrained
    assert saved["full"] > least
    assert 0.4 < saved["block"] < saved["full"]


# -- the interface -----------------------------------------------------------------------------


def f(x, w):
    y = x
    for _ in range(8):
        y = wf.tanh(y @ w)
    return (y * y).sum()


X, W = (wf.tensor(RNG.standard_normal((16, 16)).astype(np.float32)) for _ in range(2))


def gradient(checkpoint=None):
    return wf.compile(wf.grad(f, argnums=1), checkpoint=checkpoint)


def test_a_refusal_says_what_takes_the_memory_and_what_would_do():
    impossible = gradient(CheckpointConfig("auto", memory_budget_mb=0.004))
    with pytest.raises(errors.BudgetExceeded, match="memory_budget_mb=") as e:
        impossible(X, W)
    text = str(e.value)
    assert "a budget of 0.004 MiB" in text and "test_jit_budget.py:" in text
    assert "inputs (arguments, parameters, moments) 0.002" in text
    named = float(text.split("memory_budget_mb=")[1].split(",")[0])
    enough = gradient(CheckpointConfig("auto", memory_budget_mb=named))
    plain = gradient()
    np.testing.assert_array_equal(enough(X, W).numpy(), plain(X, W).numpy())
    assert enough.memory.peak + plain.memory.tables == e.value.smallest <= named * MIB


def test_a_refusal_leaves_everything_as_it_was():
    model = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.BatchNorm1d(16))
    optimizer = wf.optim.AdamW(model.parameters(), lr=0.1)
    before = [t.detach().numpy().copy() for t in (*model.parameters(), *model.buffers())]
    wf.random.seed(3)
    want = wf.random.normal(4).numpy()
    wf.random.seed(3)

    @wf.compile(checkpoint=CheckpointConfig("auto", memory_budget_mb=0.001))
    def step(x):
        loss = model(x).sum()
        loss.backward()
        optimizer.step()

    with pytest.raises(errors.BudgetExceeded):
        step(X)
    now = [t.detach().numpy() for t in (*model.parameters(), *model.buffers())]
    assert same(now, before)
    np.testing.assert_array_equal(wf.random.normal(4).numpy(), want)


def test_pull_backs_are_under_the_strategy_too():
    w = wf.tensor(W.numpy(), requires_grad=True)
    found = {}
    for config in (None, CheckpointConfig("full")):
        value = wf.compile(f, checkpoint=config)(X, w)
        found[config] = value.backward()[w].numpy()
    first, second = found.values()
    assert first.tobytes() == second.tobytes()


def test_reports_say_what_runs_again():
    plain = gradient()
    plain(X, W)
    half = gradient(budget(plain.memory, 0.6))
    half(X, W)
    text = half.explain()
    assert "strategy" in text and "run again, for" in text and "% more time" in text
    assert "again" not in plain.explain()
    assert str(half.explain(stage="schedule")) == str(half._last().executable.schedule)


def test_a_strategy_with_a_budget_falls_back_on_what_fits():
    plain = gradient()
    plain(X, W)
    for share in (2.0, 0.5):
        nbytes = plain.memory.enough + (share - 1) * plain.memory.arena
        both = gradient(CheckpointConfig("none", memory_budget_mb=nbytes / MIB))
        both(X, W)
        assert both.memory.enough <= nbytes
        assert (both.memory.arena == plain.memory.arena) == (share > 1)


def test_results_of_library_calls_count():
    def calls(x):
        return wf.linalg.svd(x)[1].sum() + wf.sin(x).sum()

    compiled = wf.compile(calls)
    compiled(X)
    steps = compiled._last().executable.schedule.steps
    assert bool(compiled.memory.library) == any(isinstance(s, LibraryStep) for s in steps)


def test_several_threads_share_a_program():
    compiled, made = gradient(CheckpointConfig("full")), []
    threads = [threading.Thread(target=lambda: made.append(compiled(X, W))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({g.numpy().tobytes() for g in made}) == 1


def test_bad_input():
    for wrong, match in (
        ({"strategy": "most"}, "strategy='most', expected one of none, selective"),
        ({"strategy": "auto"}, "Auto needs a budget"),
        ({"memory_budget_mb": 0}, "memory_budget_mb=0, expected MiB, more than 0"),
        ({"memory_budget_mb": float("nan")}, "memory_budget_mb=nan"),
        ({"checkpoint_every_n": 0}, "checkpoint_every_n=0"),
        ({"checkpoint_every_n": True}, "checkpoint_every_n=True"),
        ({"min_compute_cost": -1}, "min_compute_cost=-1"),
    ):
        with pytest.raises(errors.ArgumentError, match=match):
            CheckpointConfig(**wrong)
    with pytest.raises(errors.DTypeError, match="checkpoint is a str"):
        wf.compile(f, checkpoint="full")
    with pytest.raises(errors.ArgumentError, match="a memory budget with dynamic"):
        config = CheckpointConfig("auto", memory_budget_mb=1)
        wf.compile(f, dynamic={"x": 0}, checkpoint=config)


@pytest.mark.parametrize("name", NETWORKS)
def test_budgets_hold_by_the_allocator(name):
    """By all bytes of NumPy's arrays in a step, the program's own tables included."""
    _, plain = trained(name)
    for share in (1.0, 0.6):
        config, peaks = budget(plain.memory, share), {}
        with wf.profile.Counter() as counter:

            def look(k, counter=counter, peaks=peaks):
                peaks[k] = counter.peak
                gc.collect()
                counter.reset_peak()

            try:
                trained(name, config, before=look)
            except errors.BudgetExceeded:
                continue
        assert peaks[None] <= config.budget


def test_copies_inside_of_library_calls_count():
    """An assignment is a library call, which copies its operand."""
    model = nn.Sequential(*[p for _ in range(3) for p in (nn.Linear(64, 64), nn.Tanh())])
    x = wf.ones((2048, 64))

    def loss(x):
        h = model(x)
        k = h * 1.0
        k[:, :32] = wf.sin(h[:, 32:])
        k[0] = 0.5
        return ((k + h) ** 2).mean()

    def step(x):
        value = loss(x)
        value.backward()
        return value

    plain = wf.compile(step)
    plain(x)
    fixed = x.nbytes + sum(p.nbytes for p in model.parameters())
    for share in (1.0, 0.8, 0.6):
        config = budget(plain.memory, share)
        try:
            with wf.profile.Counter() as counter:
                compiled = wf.compile(step, checkpoint=config)
                compiled(x)
                counter.reset_peak()
                compiled(x)
        except errors.BudgetExceeded:
            continue
        assert fixed + counter.peak <= config.budget
