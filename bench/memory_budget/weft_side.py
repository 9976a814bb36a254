"""Training steps of six networks in Weft, under budgets and strategies.

Slowdowns are beside the same step without a budget. The last rows are strategies without a budget.
Compiled, `peak` is what a call takes by its memory plan; `counted` is the most that NumPy's
allocator had given at once in a third step, with model, moments and the program's own tables;
slowdowns are also estimated by the compiler. Eager, `peak` is what the allocator counts, also of
temporaries; `tracemalloc` is the peak of the same step by Python's own count of NumPy's memory, in
a run that is not timed.
"""

import gc
import statistics
import time
import tracemalloc
from itertools import pairwise

import numpy as np

import weft as wf
from weft.core.checkpointing import MIB, CheckpointConfig
from weft.errors import BudgetExceeded

nn, F = wf.nn, wf.nn.functional
SHARES, ROUNDS = (1.0, 0.75, 0.5, 0.35, 0.25, 0.02), 5
STRATEGIES = ("selective", "block", "full")


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self, width: int, heads: int, p: float, causal: bool):
        super().__init__()
        self.heads, self.p, self.causal = heads, p, causal
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, width = x.shape
        qkv = self.qkv(self.ln1(x)).reshape(n, t, 3, self.heads, width // self.heads)
        q, k, v = (qkv[:, :, i].swapaxes(1, 2) for i in range(3))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + F.dropout(self.proj(y.swapaxes(1, 2).reshape(n, t, width)), self.p)
        return x + F.dropout(self.down(F.gelu(self.up(self.ln2(x)))), self.p)


def gpt(rng):
    """A GPT of 24 blocks."""
    width, length, words, batch = 128, 128, 65, 4
    model = nn.Sequential(
        nn.Embedding(words, width),
        *[Block(width, 4, 0.0, True) for _ in range(24)],
        nn.LayerNorm(width),
        nn.Linear(width, words),
    )
    ids, targets = (rng.integers(0, words, (batch, length)) for _ in range(2))
    return model, lambda y, t: F.cross_entropy(y.reshape(-1, words), t.reshape(-1)), ids, targets


def mlp(rng):
    """A perceptron of 50 layers."""
    layers = [part for _ in range(50) for part in (nn.Linear(128, 128), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(128, 10))
    x = rng.standard_normal((512, 128)).astype(np.float32)
    return model, F.cross_entropy, x, rng.integers(0, 10, 512)


def cnn(rng):
    """Convolutions with batch norm."""
    sizes = (3, *[16] * 14, *[32] * 4)
    parts = []
    for k, (a, b) in enumerate(pairwise(sizes)):
        parts += [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()]
        parts += [nn.MaxPool2d(2)] if k == 13 else []
    model = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    x = rng.standard_normal((16, 3, 32, 32)).astype(np.float32)
    return model, F.cross_entropy, x, rng.integers(0, 10, 16)


class Skips(nn.Module):
    """Skip connections over two layers, whose weights all blocks share."""

    def __init__(self, width: int, depth: int):
        super().__init__()
        self.depth = depth
        self.first, self.second = nn.Linear(2 * width, width), nn.Linear(width, width)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        skips = [x]
        for _ in range(self.depth):
            y = wf.tanh(self.first(wf.concat([skips[-1], skips[len(skips) // 2]], axis=-1)))
            skips.append(skips[-1] + wf.tanh(self.second(y)))
        return self.head(skips[-1])


def shared(rng):
    """Skip connections and shared weights."""
    x = rng.standard_normal((256, 128)).astype(np.float32)
    return Skips(128, 32), F.cross_entropy, x, rng.integers(0, 10, 256)


class Recurrent(nn.Module):
    """A recurrent network, step by step."""

    def __init__(self, width: int):
        super().__init__()
        self.cell, self.head = nn.LSTMCell(width, width), nn.Linear(width, 10)

    def forward(self, x):
        state = self.cell(x[:, 0])
        for k in range(1, x.shape[1]):
            state = self.cell(x[:, k], state)
        return self.head(state[0])


def lstm(rng):
    """An LSTM over 32 steps."""
    x = rng.standard_normal((64, 32, 64)).astype(np.float32)
    return Recurrent(64), F.cross_entropy, x, rng.integers(0, 10, 64)


class Vision(nn.Module):
    """A vision transformer with dropout."""

    def __init__(self, width: int, depth: int, patch: int):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.blocks = nn.ModuleList([Block(width, 4, 0.1, False) for _ in range(depth)])
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x):
        x = self.patches(x)
        x = x.reshape(*x.shape[:2], -1).swapaxes(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x).mean(1))


def vit(rng):
    """A vision transformer with dropout."""
    x = rng.standard_normal((8, 3, 32, 32)).astype(np.float32)
    return Vision(96, 8, 4), F.cross_entropy, x, rng.integers(0, 10, 8)


NETWORKS = {f.__name__: f for f in (gpt, mlp, cnn, shared, lstm, vit)}


def step_of(name: str, config: CheckpointConfig | None):
    """The compiled training step of a network, and its arguments."""
    wf.random.seed(0)
    model, loss, x, y = NETWORKS[name](np.random.default_rng(0))
    optimizer = wf.optim.AdamW(model.parameters(), lr=1e-3)

    def step(x, y):
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        return value

    return wf.compile(step, checkpoint=config), (wf.tensor(x), wf.tensor(y))


def slowdown(plain, other, arguments) -> float:
    """The time of a step beside another one, in turns."""
    ratios = []
    for _ in range(ROUNDS):
        times = []
        for f in (plain, other):
            start = time.perf_counter()
            f(*arguments)
            times.append(time.perf_counter() - start)
        ratios.append(times[1] / times[0])
    return statistics.median(ratios)


def row(name: str, title: str, config: CheckpointConfig, plain, arguments) -> None:
    step, _ = step_of(name, config)
    budget = "" if config.budget is None else f"{config.budget / MIB:9.2f}"
    try:
        step(*arguments)
    except BudgetExceeded as e:
        print(f"  {title:>9} {budget:>9}  refused: {(e.smallest or 0) / MIB:.3f} MiB at least")
        return
    taken, again = step.memory, step._last().executable.plan.again
    share = taken.arena / taken.unconstrained
    estimated = 1 + (again.share if again else 0)
    measured = slowdown(plain, step, arguments)
    print(
        f"  {title:>9} {budget:>9} {taken.peak / MIB:9.2f} {counted(name, config) / MIB:9.2f} "
        f"{100 * share:7.1f} % "
        f"{estimated:9.3f} {measured:9.3f}"
    )


def counted(name: str, config: CheckpointConfig | None) -> int:
    """The most bytes of NumPy's arrays in a third step, all that it has made included."""
    with wf.profile.Counter() as counter:
        step, arguments = step_of(name, config)
        step(*arguments)
        step(*arguments)
        gc.collect()
        counter.reset_peak()
        step(*arguments)
    return counter.peak


def compiled_report(name: str) -> None:
    plain, arguments = step_of(name, None)
    plain(*arguments)
    taken = plain.memory
    print(f"{name}: {NETWORKS[name].__doc__}")
    print(
        f"  {taken.fixed / MIB:.2f} MiB of inputs and results, {taken.arena / MIB:.2f} in between, "
        f"{taken.tables / MIB:.2f} of tables at most"
    )
    print(
        f"  {'share':>9} {'budget':>9} {'peak':>9} {'counted':>9} {'of arena':>9} "
        f"{'estimated':>9} {'measured':>9}",
        flush=True,
    )
    for share in SHARES:
        budget = (taken.fixed + taken.tables + share * taken.arena) / MIB
        config = CheckpointConfig("auto", memory_budget_mb=budget)
        row(name, f"{100 * share:.0f} %", config, plain, arguments)
    for strategy in STRATEGIES:
        row(name, strategy, CheckpointConfig(strategy), plain, arguments)


# -- eager -------------------------------------------------------------------------------------


class EagerStep:
    """An eager training step of a network; `base` is what is there before it."""

    def __init__(self, name: str):
        wf.random.seed(0)
        self.model, self.loss, x, y = NETWORKS[name](np.random.default_rng(0))
        self.batch = wf.tensor(x), wf.tensor(y)
        self.parameters = list(self.model.parameters())
        self.optimizer = wf.optim.AdamW(self.parameters, lr=1e-3)
        self(None)
        gc.collect()
        self.base = sum(array.nbytes for array in wf.profile.census().arrays)
        self.gradients = sum(p.nbytes for p in self.parameters)

    def __call__(self, config: CheckpointConfig | None) -> None:
        x, y = self.batch
        with wf.GradientTape(checkpoint=config) as tape:
            value = self.loss(self.model(x), y)
        self.optimizer.step(tape.gradient(value, self.parameters))

    def peak(self, config: CheckpointConfig | None) -> int:
        """The most bytes at once, by the allocator."""
        with wf.profile.Counter() as counter:
            self(config)
        return self.base + counter.peak

    def traced_peak(self, config: CheckpointConfig | None) -> int:
        """The same by tracemalloc, all of whose domains count."""
        tracemalloc.start()
        start = tracemalloc.get_traced_memory()[0]
        self(config)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return self.base + most - start

    def row(self, title: str, config: CheckpointConfig) -> None:
        budget = "" if config.budget is None else f"{config.budget / MIB:9.2f}"
        try:
            peak = self.peak(config)
        except BudgetExceeded as e:
            print(f"  {title:>9} {budget:>9}  refused: {(e.smallest or 0) / MIB:.3f} MiB at least")
            return
        traced = self.traced_peak(config)
        measured = slowdown(lambda: self(None), lambda: self(config), ())
        print(
            f"  {title:>9} {budget:>9} {peak / MIB:9.2f} {traced / MIB:11.2f} {measured:9.3f}",
            flush=True,
        )


def eager_report(name: str) -> None:
    step = EagerStep(name)
    whole, fixed = step.peak(None), step.base + step.gradients
    print(f"{name}, eager: {NETWORKS[name].__doc__}")
    print(
        f"  {step.base / MIB:.2f} MiB before, {step.gradients / MIB:.2f} of gradients, "
        f"{(whole - fixed) / MIB:.2f} beyond"
    )
    print(f"  {'share':>9} {'budget':>9} {'peak':>9} {'tracemalloc':>11} {'measured':>9}")
    for share in SHARES:
        budget = (fixed + share * (whole - fixed)) / MIB
        step.row(f"{100 * share:.0f} %", CheckpointConfig("auto", memory_budget_mb=budget))
    for strategy in STRATEGIES:
        step.row(strategy, CheckpointConfig(strategy))
