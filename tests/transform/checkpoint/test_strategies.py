"""Checkpoint strategies: the same bits as without, less memory, and budgets that are kept."""

import functools
import gc
import operator
import os
from itertools import product
from threading import Event, Thread
from weakref import ref

import numpy as np
import pytest
from tests.table.rows import cases, load
from tests.transform.jacobian.dags import Dag

import weft as wf
from weft import errors, nn
from weft.core.call import caller
from weft.core.dtypes import is_inexact
from weft.core.settings import current
from weft.nn import functional as F
from weft.optim.optimizer import held_arrays
from weft.profile import Counter
from weft.transform.checkpoint import auto, choose, host, offload, strategies
from weft.transform.modes import limited
from weft.transform.modes.trees import flatten

SOAK = bool(os.environ.get("WEFT_SOAK"))
MIB = 1 << 20
LIMITED = ("auto", "none", "selective", "block", "full")
CONFIGS = {
    "selective": wf.CheckpointConfig(strategy="selective", verify=True),
    "cheap": wf.CheckpointConfig(strategy="selective", min_compute_cost=1e9, verify=True),
    "block": wf.CheckpointConfig(strategy="block", checkpoint_every_n=2, verify=True),
    "full": wf.CheckpointConfig(strategy="full", verify=True),
    "disk": wf.CheckpointConfig(strategy="full", offload="disk"),
}


@pytest.fixture
def everything(monkeypatch):
    """Small values are dropped, too."""
    monkeypatch.setattr(strategies, "LEAST", 0)
    monkeypatch.setattr(auto, "LEAST", 0)
    monkeypatch.setattr(offload, "LEAST", 0)


def bits(tensors) -> list[bytes]:
    return [b"" if t is None else np.asarray(t.detach().numpy()).tobytes() for t in tensors]


def leaves(tree) -> list:
    return flatten(tree)[0]


def weighted_sum(tensors):
    terms = [(t * t.detach().cos()).real.sum() for t in tensors]
    return functools.reduce(operator.add, terms) if terms else wf.tensor(0.0)


def gradients(f, xs, config, order=1):
    """The gradients of a weighted sum of f's results, and of those of their sum, …"""
    with wf.GradientTape(persistent=order > 1, checkpoint=config) as tape:
        for x in xs:
            tape.watch(x)
        found = [y for y in leaves(f(*xs)) if y.requires_grad]
        total = weighted_sum(found)
        for _ in range(order - 1):
            made = [g for g in tape.gradient(total, xs) if g is not None and g.requires_grad]
            if not made:
                return []
            total = weighted_sum(made)
    gc.collect(1)
    return tape.gradient(total, xs)


# -- every row of the table, random programs -----------------------------------------------------

ROWS = sorted(n for n, op in load().items() if op.rule is not None and op.sample is not None)


@pytest.mark.parametrize("name", ROWS if SOAK else ROWS[::2])
def test_rows(everything, name):
    """Each row, with a row before and after it, so that it is computed again."""
    op, compared = load()[name], 0
    run = caller(op, public=True)
    for case in cases(op)[: 4 if SOAK else 2]:
        arrays = [wf.asarray(a.copy()) if isinstance(a, np.ndarray) else a for a in case.args]
        moving = [x for x in arrays if isinstance(x, wf.Tensor) and is_inexact(x.dtype)]
        if not moving:
            continue

        def f(*xs, arrays=arrays, moving=moving, static=case.static):
            chosen = {id(m): x for m, x in zip(moving, xs, strict=True)}
            args = [a if id(a) not in chosen else chosen[id(a)] * 1.0 for a in arrays]
            out = run(args, *static) if op.arity is None else run(*args, *static)
            outs = out if isinstance(out, tuple) else (out,)
            return [y * 1.5 if is_inexact(y.dtype) else y for y in outs]

        try:
            expected = bits(gradients(f, moving, None))
        except errors.WeftError:
            continue  # a case that is refused: with a strategy it is, too
        for config in CONFIGS.values():
            assert bits(gradients(f, moving, config)) == expected, (name, case.label, config)
            compared += 1
    if not compared:
        pytest.skip("no case with a gradient")


@pytest.mark.parametrize("seed", range(400 if SOAK else 40))
def test_random_programs(everything, seed):
    dag = Dag(seed)
    f = dag.function()
    for order in (1, 2):
        expected = bits(gradients(f, dag.points[0], None, order))
        for config in CONFIGS.values():
            assert bits(gradients(f, dag.points[0], config, order)) == expected, config


# -- networks ------------------------------------------------------------------------------------


class Block(nn.Module):
    """A transformer's block; `shared` weights come from outside."""

    def __init__(self, width: int, dropout: float = 0.0):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        heads = [t.reshape(*t.shape[:2], 2, -1) for t in self.mix(self.first(x)).split(3, -1)]
        q, k, v = [t.permute((0, 2, 1, 3)) for t in heads]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.dropout(self.out(mixed.permute((0, 2, 1, 3)).reshape(x.shape)))
        return x + self.dropout(self.down(F.gelu(self.up(self.second(x)))))


class Shared(nn.Module):
    """One layer used many times, with skips over two."""

    def __init__(self, width: int):
        super().__init__()
        self.layer, self.norm = nn.Linear(width, width), nn.LayerNorm(width)

    def forward(self, x):
        before = x
        for _ in range(6):
            x, before = F.silu(self.layer(self.norm(x))) + before, x
        return x


def networks(batch: int = 2) -> dict:
    wf.random.seed(7)
    image = wf.randn((2 * batch, 3, 12, 12))
    text = wf.randn((batch, 16, 32))
    conv = [nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)]
    conv += [nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU(), nn.Flatten()]
    return {
        "gpt": (nn.Sequential(*[Block(32) for _ in range(3)]), text),
        "dropout": (nn.Sequential(*[Block(32, 0.3) for _ in range(2)]), text),
        "cnn": (nn.Sequential(*conv, nn.Linear(288, 10)), image),
        "shared": (Shared(32), text),
    }


NETWORKS = networks()
ALL = [
    *CONFIGS.items(),
    *(
        (f"{kind} in 1.5, {to}", wf.CheckpointConfig(kind, memory_budget_mb=1.5, offload=to))
        for kind, to in [*product(LIMITED, (None,)), ("auto", "disk"), ("block", "disk")]
    ),
]


def step(model, x, config, how: str, cast: bool):
    """Loss, gradients and buffers of a step, with the strategy on the tape or on the module."""
    wf.random.seed(3)
    model.train()
    before = [b.clone() for b in model.buffers()]
    parameters = list(model.parameters())
    autocast = wf.amp.autocast("bfloat16", enabled=cast)
    if how == "module":
        model.checkpoint(config)
        with autocast:
            loss = (model(x).to("float32") ** 2).mean()
        made = loss.backward()
        found = [made[p] for p in parameters]
        model.checkpoint(None)
        for p in parameters:
            p.grad = None
    else:
        with wf.GradientTape(checkpoint=config) as tape, autocast:
            loss = (model(x).to("float32") ** 2).mean()
        found = tape.gradient(loss, parameters)
    state = [b.clone() for b in model.buffers()]
    for b, kept in zip(model.buffers(), before, strict=True):
        b.copy_(kept)
    return bits([loss, *found, *state]), wf.rand(2).tolist()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("how", ["tape", "module"])
@pytest.mark.parametrize("cast", [False, True])
def test_networks(name, how, cast):
    model, x = NETWORKS[name]
    expected = step(model, x, None, how, cast)
    for label, config in ALL:
        assert step(model, x, config, how, cast) == expected, label


def test_no_strategy_is_none():
    model, x = NETWORKS["shared"]
    config = wf.CheckpointConfig(strategy=wf.CheckpointStrategy.None_)
    assert step(model, x, config, "tape", False) == step(model, x, None, "tape", False)


# -- inside other transformations ----------------------------------------------------------------


def f(x):
    return (wf.exp(wf.sin(x) * 1.5) * wf.tanh(x @ x.mT)).sum()


NESTED = {
    "checkpoint": lambda x: wf.checkpoint(f, x),
    "vmap": lambda x: wf.vmap(f)(wf.stack([x, x * 2])).sum(),
    "jvp": lambda x: wf.jvp(f, (x,), (wf.ones_like(x),))[1],
    "grad": lambda x: (wf.grad(f)(x) ** 2).sum(),
    "scan": lambda x: wf.scan(lambda c, _: (wf.sin(c) * 1.1, c.sum()), x, None, length=5)[1].sum(),
    "hooks": lambda x: _hooked(x),
    "compiled": lambda x: _compiled(x) * 2,
    "tape": lambda x: _taped(x),
}
_compiled = wf.compile(f)


def _hooked(x):
    with wf.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        return f(x)


def _taped(x):
    with wf.GradientTape(checkpoint=CONFIGS["full"]) as tape:
        tape.watch(x)
        y = f(x)
    return (tape.gradient(y, x) ** 2).sum()


@pytest.mark.parametrize(("name", "kind"), list(product(NESTED, CONFIGS)))
def test_nested(everything, name, kind):
    x = wf.tensor(np.random.default_rng(1).normal(size=(6, 6)))
    g = lambda x: NESTED[name](x * 1.5 + wf.cos(x))  # noqa: E731
    assert bits(gradients(g, [x], CONFIGS[kind])) == bits(gradients(g, [x], None))


def test_threads(everything):
    """Tapes of several threads do not see each other."""

    xs = [wf.tensor(np.random.default_rng(k).normal(size=(6, 6))) for k in range(6)]
    expected = [bits(gradients(f, [x], None)) for x in xs]
    found = {}

    def run(k):
        for _ in range(5):
            found[k] = bits(gradients(f, [xs[k]], list(CONFIGS.values())[k % len(CONFIGS)]))

    threads = [Thread(target=run, args=(k,)) for k in range(6)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert [found[k] for k in range(6)] == expected


# -- what is computed again must be the same -----------------------------------------------------


def chain(x):
    return wf.exp(wf.sin(wf.exp(wf.sin(x)))).sum()


def test_overwritten():
    """What computing again needs was overwritten through Weft."""
    w = wf.ones((1000,))
    x = wf.rand((1000,))
    with wf.GradientTape(checkpoint=wf.CheckpointConfig(strategy="full")) as tape:
        tape.watch(x)
        y = wf.exp(wf.sin(x * w) * 2).sum()
    w.copy_(wf.zeros((1000,)))
    with pytest.raises(errors.SavedValueOverwritten, match=r"computed again.*clone"):
        tape.gradient(y, x)


def test_augmented_assignment(everything):
    """`z += x` makes another value of the same name."""
    x = wf.tensor(np.random.default_rng(0).normal(size=(40, 40)))

    def f(x):
        y = wf.sin(x)
        z = y * 2.0
        z += x
        return (z * z.cos()).sum()

    for config in CONFIGS.values():
        assert bits(gradients(f, [x], config)) == bits(gradients(f, [x], None))


def test_overwritten_behind_our_back():
    """What it needs was overwritten through NumPy: verifying finds it and names the operation."""
    memory = np.random.default_rng(0).normal(size=1000)
    x = wf.asarray(memory)
    with wf.GradientTape(checkpoint=CONFIGS["full"]) as tape:
        tape.watch(x)
        y = wf.exp(wf.sin(x * 2.0) * 2.0).sum()
    x._data.setflags(write=True)
    x._data[3] += 1.0
    with pytest.raises(errors.ReplayDiffers, match=r"multiply \(at .*test_strategies.py:\d+\)"):
        tape.gradient(y, x)


@pytest.mark.parametrize(
    "bad",
    [
        {"strategy": "most"},
        {"checkpoint_every_n": 0},
        {"checkpoint_every_n": 1.5},
        {"min_compute_cost": -1},
        {"memory_budget_mb": -1},
        {"strategy": "auto"},
        {"strategy": "auto", "memory_budget_mb": 0},
        {"memory_budget_mb": "3"},
        {"min_compute_cost": "much"},
        {"verify": "yes"},
        {"offload": "tape"},
        {"strategy": "none", "offload": "disk"},
    ],
)
def test_bad_configs(bad):
    with pytest.raises(
        errors.ArgumentError, match=r"CheckpointConfig: .*(expected|Auto|None_|budget)"
    ):
        wf.CheckpointConfig(**bad)


def test_functions_that_do_not_repeat():
    """A checkpointed function of a counter, of NumPy's random numbers: noticed, and named."""
    calls = []

    def counting(x):
        calls.append(1)
        return wf.exp(x * float(len(calls))).sum()

    def noisy(x):
        return wf.exp(x * wf.asarray(np.random.normal(size=x.shape))).sum()

    x = wf.tensor(np.linspace(0, 1, 500))
    for f in (counting, noisy):
        with wf.GradientTape(checkpoint=CONFIGS["full"]) as tape:
            tape.watch(x)
            y = wf.checkpoint(f, x)
        with pytest.raises(errors.ReplayDiffers, match=r"other numbers in \w+ \(at .*\.py:\d+"):
            tape.gradient(y, x)


@pytest.mark.parametrize("kind", ["selective", "block", "full", "auto"])
def test_nothing_outlives_a_sweep(kind):
    """A loss that is kept holds no more than without a strategy: no batch, no activations."""
    model, _ = deep(6)
    config = wf.CheckpointConfig(kind, memory_budget_mb=100 if kind == "auto" else None)
    losses = []
    gc.collect()
    gc.disable()
    try:
        with Counter() as counter:
            for _ in range(4):
                x = wf.randn((2048, 32))
                model.checkpoint(config)
                losses.append((model(x) ** 2).mean())
                losses[-1].backward()
                for p in model.parameters():
                    p.grad = None
                del x
        assert counter.live < 100_000  # one batch has 262 144
    finally:
        gc.enable()
        model.checkpoint(None)


def test_several_sweeps():
    """A graph that is kept is swept again, and Full does not fill up."""
    model, x = deep(30)
    parameters = list(model.parameters())
    model.checkpoint(wf.CheckpointConfig("full"))
    with Counter() as counter:
        loss = (model(x) ** 2).mean()
        first = loss.backward(retain_graph=True)
        after = counter.live
        second = loss.backward(retain_graph=True)
    assert bits(first[p] for p in parameters) == bits(second[p] for p in parameters)
    assert after < 2_000_000 < 30 * x.nbytes


# -- savings -------------------------------------------------------------------------------------


def deep(layers: int = 20, width: int = 32):
    wf.random.seed(0)
    parts = [p for _ in range(layers) for p in (nn.Linear(width, width), nn.GELU())]
    return nn.Sequential(*parts), wf.randn((2048, width))


def peak(model, x, config) -> tuple[int, list]:
    """The most bytes alive in a step, beside what was there before."""
    parameters = list(model.parameters())
    gc.collect()
    with Counter() as counter:
        with wf.GradientTape(checkpoint=config) as tape:
            loss = (model(x) ** 2).mean()
        found = tape.gradient(loss, parameters)
    return counter.peak, bits(found)


def test_savings_of_deep_networks():
    """At least the documents' figures: 40 % by blocks of three, 85 and 90 % by Full."""
    model, x = deep(50)
    whole, expected = peak(model, x, None)
    block, found = peak(model, x, wf.CheckpointConfig(strategy="block", checkpoint_every_n=3))
    assert found == expected and 1 - block / whole > 0.4
    full, found = peak(model, x, wf.CheckpointConfig(strategy="full"))
    assert found == expected and 1 - full / whole > 0.85
    model, x = deep(200)
    whole, _ = peak(model, x, None)
    full, _ = peak(model, x, wf.CheckpointConfig(strategy="full"))
    assert 1 - full / whole > 0.9


# -- budgets -------------------------------------------------------------------------------------


def fixed_bytes() -> int:
    """The bytes of all live tensors: what a budget counts besides the step's own arrays."""
    gc.collect()
    owners = {}
    for t in gc.get_objects():
        if isinstance(t, wf.Tensor) and isinstance(getattr(t, "_data", None), np.ndarray):
            root = t._data if t._data.base is None else t._data.base
            owners[id(root)] = root.nbytes
    for key, (
        _,
        nbytes,
        _,
    ) in host._LOCAL.known._owners.items():  # of garbage that is set aside, too
        owners[key] = nbytes
    return sum(owners.values())


def residual_blocks():
    wf.random.seed(0)
    return nn.Sequential(*[Block(32) for _ in range(8)]), wf.randn((16, 32, 32))


def convolutions(size=16, depth=16):
    wf.random.seed(0)
    parts = [nn.Conv2d(3, 8, 3, padding=1)]
    for _ in range(depth):
        parts += [nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)]
    return nn.Sequential(*parts), wf.randn((16, 3, size, size))


def threads():
    """Kernels that allocate in several threads, beside many parameters."""
    model, x = convolutions(48, 4)
    model.extra = wf.Parameter(wf.ones((512, 512)))
    return model, x


# Networks, and the least share of their memory that a budget must do with: convolutions copy their
# windows, which no strategy saves.
LEAST_SHARES = {deep: 0.1, residual_blocks: 0.25, convolutions: 0.5, threads: 0.6}


@pytest.mark.parametrize("make", LEAST_SHARES)
@pytest.mark.parametrize("place", [None, "disk"])
def test_budgets_are_kept(make, place):
    model, x = make()
    whole, expected = peak(model, x, None)
    fixed = fixed_bytes()
    before = None
    for share in (1.0, 0.75, 0.5, 0.35, 0.25, 0.1):
        if share < LEAST_SHARES[make]:
            break
        budget = (fixed + whole * share) / MIB
        config = wf.CheckpointConfig("auto", memory_budget_mb=budget, offload=place)
        most, found = peak(model, x, config)
        assert found == expected
        assert fixed + most <= budget * MIB
        assert before is None or most <= before
        before = most


def test_an_impossible_budget():
    """It is refused with one that works, and nothing has changed."""
    wf.random.seed(5)
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Dropout(0.5), nn.Linear(64, 8))
    model.train()
    x = wf.randn((4096, 64))
    parameters = list(model.parameters())
    buffers, state = bits(model.buffers()), wf.random.get_state()
    fixed = fixed_bytes()

    def run(budget):
        config = wf.CheckpointConfig(strategy="auto", memory_budget_mb=budget)
        with wf.GradientTape(checkpoint=config) as tape:
            loss = (model(x) ** 2).mean()
        return tape.gradient(loss, parameters)

    with pytest.raises(errors.BudgetExceeded, match="works") as refused:
        run((fixed + 1000) / MIB)
    assert bits(model.buffers()) == buffers and wf.random.get_state() == state
    least = float(str(refused.value).split("memory_budget_mb=")[1].split(" ")[0])
    with pytest.raises(errors.BudgetExceeded):
        run(least * 0.97)
    assert bits(model.buffers()) == buffers and wf.random.get_state() == state
    found = bits(run(least))
    wf.random.set_state(state)
    with wf.GradientTape() as tape:
        loss = (model(x) ** 2).mean()
    assert bits(tape.gradient(loss, parameters)) == found


def test_limits_leave_no_trace():
    """Under evictions, too, nothing waits for garbage collection; exceptions pass unchanged."""
    model, x = deep(10)
    budget = (fixed_bytes() + 5 * x.nbytes) / MIB
    config = wf.CheckpointConfig("auto", memory_budget_mb=budget)
    step(model, x, config, "tape", False)
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(KeyError, match="mine"), wf.GradientTape(checkpoint=config):
            model(x)
            raise KeyError("mine")
        step(model, x, config, "tape", False)
        step(model, x, config, "module", False)
        assert not limited.alive
    finally:
        gc.enable()


def test_a_block_that_is_refused_leaves_the_settings(monkeypatch):
    def refuse():
        raise errors.ArgumentError("another allocator")

    monkeypatch.setattr(host.above, "new_counter", refuse)
    before = current.get()
    with pytest.raises(errors.ArgumentError, match="another allocator"):
        wf.GradientTape(checkpoint=wf.CheckpointConfig("auto", memory_budget_mb=1)).__enter__()
    assert current.get() is before


def test_strategies_on_pytorchs_arrays():
    x = wf.tensor(np.random.default_rng(0).normal(size=(40, 40))).to("torch")
    expected = [g.to("cpu") for g in gradients(f, [x], None)]
    for config in CONFIGS.values():
        found = [g.to("cpu") for g in gradients(f, [x], config)]
        assert bits(found) == bits(expected)


def test_optimizers_of_compiled_steps_count():
    """What an optimizer holds counts from the beginning, also after it was traced."""
    model, x = deep(4)
    optimizer = wf.optim.AdamW(model.parameters(), lr=1e-3)

    @wf.compile
    def compiled(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    compiled(x)
    config = wf.CheckpointConfig("auto", memory_budget_mb=100)
    saving = choose.saving_for(config)
    with saving.block():
        held = sum({id(r): r.nbytes for r in held_arrays()}.values())
        assert saving.live >= held >= 4 * sum(p.nbytes for p in model.parameters())


@pytest.mark.parametrize("kind", [wf.optim.AdamW, wf.optim.SGD, wf.optim.Adafactor])
def test_moments_count_before_the_first_step(kind):
    """A budget has room for what the optimizer's first step will make."""
    model, x = deep(4)
    parameters = list(model.parameters())
    optimizer = kind(parameters, lr=1e-3)
    gc.collect()
    saving = choose.saving_for(wf.CheckpointConfig("auto", memory_budget_mb=100))
    with saving.block():
        before = saving.live
    with wf.GradientTape() as tape:
        loss = (model(x) ** 2).mean()
    optimizer.step(tape.gradient(loss, parameters))
    del tape, loss
    gc.collect()
    saving = choose.saving_for(wf.CheckpointConfig("auto", memory_budget_mb=100))
    with saving.block():
        assert saving.live == before


def test_a_refused_backward_sets_no_gradient():
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 8))
    x = wf.randn((4096, 64))
    budget = (fixed_bytes() + 100_000) / MIB
    model.checkpoint(wf.CheckpointConfig(strategy="auto", memory_budget_mb=budget))
    with pytest.raises(errors.BudgetExceeded):
        (model(x) ** 2).mean().backward()
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("kind", ["full", "auto"])
def test_trainer(kind):
    """A trainer under a strategy trains to the same bits."""

    def train(config):
        wf.random.seed(0)
        model, x = deep(6)
        data = wf.train.TensorDataset(x, x[:, :1])
        loader = wf.train.DataLoader(data, batch_size=512)
        optimizer = wf.optim.AdamW(model, lr=1e-3)
        loss = lambda model, batch: (model(batch[0])[:, :1] - batch[1]).square().mean()  # noqa: E731
        trainer = wf.train.Trainer(model, optimizer, loss, checkpoint=config, progress=False)
        trainer.fit(loader, epochs=2)
        return bits(model.parameters())

    config = wf.CheckpointConfig(strategy=kind, memory_budget_mb=8 if kind == "auto" else None)
    assert train(config) == train(None)


@pytest.mark.parametrize(
    "f",
    [
        lambda y: wf.sin(y) + 1.0,
        lambda y: wf.sin(2 - y),
        lambda y: wf.sin(y / 2.0) * 3,
        lambda y: wf.sin(y) ** 2,
        lambda y: wf.where(y > 0, wf.sin(y), 0.5),
    ],
)
def test_programs_with_python_numbers_save_memory(f):
    x = wf.ones((64, 64))

    def run(config):
        with Counter() as counter, wf.GradientTape(checkpoint=config) as tape:
            tape.watch(x)
            y = x
            for _ in range(20):
                y = f(y)
            y = y.sum()
        with counter:
            tape.gradient(y, x)
        return counter.peak

    assert run(wf.CheckpointConfig("full")) < 0.6 * run(None)


def custom(f):
    """An operation whose backward takes much memory."""
    pull = lambda g, inputs: g * wf.cos(inputs[0]) + wf.zeros((64, *g.shape)).sum()  # noqa: E731
    return wf.custom_op(lambda x: wf.sin(x), vjp=pull)


OPAQUE = {
    "checkpoint": lambda f: lambda x: wf.checkpoint(f, x),
    "compiled": wf.compile,
    "custom": custom,
}


@pytest.mark.parametrize("kind", OPAQUE)
def test_sweeps_of_other_nodes_are_limited(kind):
    """A graph of nodes that save nothing by the strategy is swept under its budget."""
    w = wf.Parameter(wf.ones((128, 128)) * 0.01)

    def body(x):
        for _ in range(6):
            x = wf.sin(x @ w)
        return x

    run = OPAQUE[kind](body)
    x = wf.ones((128, 128))
    config = wf.CheckpointConfig("auto", memory_budget_mb=(fixed_bytes() + 4 * x.nbytes) / MIB)
    with pytest.raises(errors.BudgetExceeded) as caught:
        with wf.GradientTape(checkpoint=config) as tape:
            tape.watch(x)
            loss = run(run(x)).sum()
        tape.gradient(loss, x)
    budget = caught.value.smallest / MIB
    caught = None
    with wf.GradientTape(checkpoint=wf.CheckpointConfig("auto", memory_budget_mb=budget)) as tape:
        tape.watch(x)
        loss = run(run(x)).sum()
    assert tape.gradient(loss, x) is not None


THROUGH = (
    lambda m, x: wf.vmap(wf.grad(lambda x: m(x).square().sum()))(x),
    lambda m, x: wf.hvp(lambda x: m(x).square().sum(), (x,), (x,)),
    lambda m, x: wf.jvp(wf.grad(lambda x: m(x).square().sum()), (x,), (x,))[1],
    lambda m, x: wf.hessian(lambda v: m(v).square().sum())(x[0]),
)


@pytest.mark.parametrize("strategy", LIMITED)
def test_levels_under_a_budget(strategy):
    """vmap, jvp and their nestings with gradients, through a module with a budget."""
    model, x = deep(3)
    expected = [f(model, x) for f in THROUGH]
    model.checkpoint(wf.CheckpointConfig(strategy, memory_budget_mb=100))
    for f, value in zip(THROUGH, expected, strict=True):
        assert bits([f(model, x)]) == bits([value])


VIEWS = {
    "reshape": lambda h: h.reshape((-1,)).reshape((64, 64)),
    "transpose": lambda h: h.T,
    "slices": lambda h: h[:, ::-1],
    "both": lambda h: h.T.reshape((64, 64)) + h,
}


@pytest.mark.parametrize("kind", VIEWS)
def test_views_are_dropped(kind):
    """A budget above what Full takes by itself works, also where nodes save views."""
    x = wf.ones((64, 64))

    def run(config):
        with Counter() as counter, wf.GradientTape(checkpoint=config) as tape:
            tape.watch(x)
            h = x
            for _ in range(20):
                h = wf.sin(VIEWS[kind](h))
            total = h.sum()
            del h
        with counter:
            return counter, tape.gradient(total, x)

    counter, expected = run(wf.CheckpointConfig("full"))
    needed = (fixed_bytes() + counter.peak) * 1.02 / MIB
    for strategy in ("full", "auto"):
        _, found = run(wf.CheckpointConfig(strategy, memory_budget_mb=needed))
        assert bits([found]) == bits([expected])


def test_other_threads_are_left_alone():
    """Counting all tensors does not disturb what other threads are making."""
    failures, stop = [], Event()

    def innocent():
        while not stop.is_set():
            try:
                assert len(tuple(i for i in range(200))) == 200
            except BaseException as e:
                failures.append(e)

    model, x = deep(2)
    config = wf.CheckpointConfig("auto", memory_budget_mb=500)
    thread = Thread(target=innocent)
    thread.start()
    for _ in range(10):
        step(model, x, config, "tape", False)
        wf.profile.census()
        wf.memory_stats()
    stop.set()
    thread.join()
    assert failures == []


def test_a_refusal_leaves_no_cycle():
    gc.collect()
    gc.disable()
    try:
        found = []
        for _ in range(3):
            x = wf.ones((100, 100))
            config = wf.CheckpointConfig("auto", memory_budget_mb=0.01)
            with pytest.raises(errors.BudgetExceeded) as caught:
                with wf.GradientTape(checkpoint=config) as tape:
                    tape.watch(x)
                    total = wf.sin(wf.exp(x)).sum()
                tape.gradient(total, x)
            found.append(caught.value.smallest)
            weak = ref(x._data)
            del tape, total, x, caught
            assert weak() is None
        assert len(set(found)) == 1
    finally:
        gc.enable()


def test_the_named_budget_works():
    """Copies of gradients after the sweep are part of it."""
    x, y, z = (wf.ones((100, 100)) for _ in range(3))

    def run(budget):
        config = wf.CheckpointConfig("auto", memory_budget_mb=budget)
        with wf.GradientTape(checkpoint=config) as tape:
            for t in (x, y, z):
                tape.watch(t)
            total = F.linear(x, y, z[0]).sum()
        return tape.gradient(total, [x, y, z])

    with pytest.raises(errors.BudgetExceeded) as caught:
        run(0.01)
    assert all(g is not None for g in run(caught.value.smallest / MIB))


def test_verify_without_a_strategy():
    calls = []

    def f(x):
        calls.append(1)
        return wf.sin(x * len(calls))

    x = wf.ones(1000)
    config = wf.CheckpointConfig("none", verify=True)
    with wf.GradientTape(checkpoint=config) as tape:
        tape.watch(x)
        total = wf.checkpoint(f, x).sum()
    with pytest.raises(errors.ReplayDiffers):
        tape.gradient(total, x)


def moving(seed):
    """A random program whose values go from one device to another and back."""
    rng = np.random.default_rng(seed)
    body = [
        wf.sin,
        lambda h: h - h.sum(1, keepdims=True) / 64,
        lambda h: wf.sort(h, axis=1),
        lambda h: F.layer_norm(h, (64,)),
        lambda h: h * wf.cos(h),
        lambda h: h.T.reshape(h.shape) + h,
        lambda h: wf.concat([h[:, :32], wf.tanh(h[:, 32:])], axis=1),
    ]
    chosen = [(body[rng.integers(len(body))], rng.random() < 0.4) for _ in range(8)]

    def f(x):
        h = wf.sin(x)
        for g, moves in chosen:
            h = wf.sin(g(h))
            if moves:
                h = h.to("torch" if h.device == "cpu" else "cpu")
        return h

    return f


@pytest.mark.parametrize("seed", range(200 if SOAK else 12))
def test_values_that_change_devices(everything, seed):
    """What is computed again is where it was, by the kernels of that device."""
    x = wf.tensor(np.random.default_rng(0).normal(size=(32, 64)))
    expected = bits(t.to("cpu") for t in gradients(moving(seed), [x], None))
    for config in CONFIGS.values():
        found = gradients(moving(seed), [x], config)
        assert bits(t.to("cpu") for t in found) == expected, config


@pytest.mark.parametrize("inner", [lambda h: wf.grad(lambda q: (wf.sin(q) * q).sum())(h), None])
def test_a_refusal_after_a_sweep_inside_of_the_block(inner):
    """All that the block has changed is put back, not only what came after the sweep."""
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Dropout(0.5))
    x = wf.randn((2048, 64))
    buffers, state = bits(model.buffers()), wf.random.get_state()
    budget = (fixed_bytes() + 3 * x.nbytes) / MIB
    with pytest.raises(errors.BudgetExceeded):
        with wf.GradientTape(checkpoint=wf.CheckpointConfig("auto", memory_budget_mb=budget)) as t:
            h = model(x)
            if inner is not None:
                g = inner(h[:8])
            else:
                with wf.GradientTape() as other:
                    other.watch(small := h[:8].detach())
                    total = wf.sin(small).sum()
                g = other.gradient(total, small)
            loss = ((h * h) ** 2).mean() + g.mean()
        t.gradient(loss, list(model.parameters()))
    assert bits(model.buffers()) == buffers and wf.random.get_state() == state


def test_a_folder_that_is_not_there():
    x = wf.ones(10_000, requires_grad=True)
    with pytest.raises(errors.OffloadError, match="folder="), wf.save_on_disk("/nonexistent/x"):
        wf.exp(wf.sin(x)).sum()
