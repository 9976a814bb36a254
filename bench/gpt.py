"""A training step of a small character GPT, and its parts, beside PyTorch eager.

Run: python bench/gpt.py [step | functions | torch | parts]
One program for both libraries, the same weights, numbers and AdamW, float32, all threads of both,
timed in turns in one process after losses and all gradients were found alike; medians and best
rounds. Ratios are Weft / PyTorch. `functions`: Weft's side without modules; `torch`: Weft on
PyTorch's kernels.
"""

import statistics
import sys
import time
from dataclasses import dataclass

import numpy as np
import torch
from scoreboard.networks import attended
from scoreboard.networks import gpt as network
from scoreboard.problems import BATCH, HEADS, LAYERS, LENGTH, VOCABULARY, WIDTH

import weft as wf

ROUNDS, TURN, PAUSE = 8, 5, 0.25
F, T = wf.nn.functional, torch.nn.functional


def by_functions(p, ids):
    """Logits without modules, by parameters under the modules' names."""

    def linear(name: str, x):
        return F.linear(x, p[f"{name}.weight"], p.get(f"{name}.bias"))

    def norm(name: str, x):
        return F.layer_norm(x, WIDTH, p[f"{name}.weight"], p[f"{name}.bias"])

    x = F.embedding(ids, p["tokens.weight"]) + p["positions.weight"]
    for at in [f"blocks.{i}" for i in range(LAYERS)]:
        x = x + linear(f"{at}.proj", attended(F, linear(f"{at}.qkv", norm(f"{at}.ln1", x))))
        x = x + linear(f"{at}.down", F.gelu(linear(f"{at}.up", norm(f"{at}.ln2", x))))
    return linear("head", norm("ln", x))


@dataclass(frozen=True)
class Side:
    """One library's loss, its parameters by name, and its step."""

    loss: object
    params: dict
    step: object


def theirs(weights, ids, targets, **options) -> Side:
    model = network(torch)
    model.load_state_dict(weights)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, **options)
    ids, targets = torch.tensor(ids), torch.tensor(targets).reshape(-1)

    def loss():
        return T.cross_entropy(model(ids).reshape(-1, VOCABULARY), targets)

    return Side(loss, dict(model.named_parameters()), _step(loss, optimizer))


def ours(weights, ids, targets, device: str = "cpu", functions: bool = False) -> Side:
    model = network(wf)
    model.load_state_dict(weights)
    model.to(device)
    params = dict(model.named_parameters())
    optimizer = wf.optim.AdamW(params, lr=1e-3)
    ids = wf.tensor(ids, device=device)
    targets = wf.tensor(targets, device=device).reshape(-1)

    def loss():
        logits = by_functions(params, ids) if functions else model(ids)
        return F.cross_entropy(logits.reshape(-1, VOCABULARY), targets)

    return Side(loss, params, _step(loss, optimizer))


def _step(loss, optimizer):
    def step():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        return value.item()

    return step


def check(one: Side, other: Side) -> None:
    """The same loss and the same gradients, but for rounding in float32."""
    mine, yours = one.loss(), other.loss()
    mine.backward()
    yours.backward()
    assert abs(mine.item() - yours.item()) < 1e-5 * abs(yours.item()), (mine, yours)
    for name, p in other.params.items():
        a, b = one.params[name].grad.to("cpu").numpy(), p.grad.numpy()
        assert np.abs(a - b).max() <= 2e-5 * np.abs(b).max(), (name, np.abs(a - b).max())


def timed(*steps) -> list[tuple[float, float]]:
    """(median, best) milliseconds of each, measured in turns.

    A library's threads look out for work for a while after it is done, at the other one's cost:
    each turn starts with a pause and a step that does not count.
    """
    taken = [[] for _ in steps]
    for _ in range(ROUNDS):
        for times, step in zip(taken, steps, strict=True):
            time.sleep(PAUSE)
            step()
            for _ in range(TURN):
                start = time.perf_counter()
                step()
                times.append(1e3 * (time.perf_counter() - start))
    return [(statistics.median(t[TURN:]), min(t[TURN:])) for t in taken]


def report(title: str, mine, yours) -> None:
    print(
        f"{title:34} {mine[0]:8.2f} ms (best {mine[1]:7.2f})   torch {yours[0]:8.2f} "
        f"({yours[1]:7.2f})   ratio {mine[0] / yours[0]:5.2f} ({mine[1] / yours[1]:.2f})",
        flush=True,
    )


def training_step(title: str, **how) -> None:
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    weights = {k: v.clone() for k, v in network(torch).state_dict().items()}
    ids = rng.integers(0, VOCABULARY, (BATCH, LENGTH))
    data = weights, ids, np.roll(ids, -1, 1)
    one, other, fused = ours(*data, **how), theirs(*data), theirs(*data, fused=True)
    check(one, other)
    losses = [(one.step(), other.step(), fused.step()) for _ in range(5)]
    assert all(abs(a - b) < 1e-3 * abs(b) for a, b, _ in losses), losses
    mine, default, quick = timed(one.step, other.step, fused.step)
    report(title, mine, default)
    report(f"{title}, torch's fused", mine, quick)


# -- parts -------------------------------------------------------------------------------------


def _both_ways(function, *arrays):
    """Forward and backward pass of a function of one library's tensors."""
    seed = function(*arrays).detach()

    def run():
        for x in arrays:
            x.grad = None
        function(*arrays).backward(seed)

    return run


def _pair(rng, mine, yours, *shapes):
    """Both libraries' forward and backward passes at the same random arrays."""
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    left = _both_ways(mine, *[wf.tensor(a, requires_grad=True) for a in arrays])
    return left, _both_ways(yours, *[torch.tensor(a, requires_grad=True) for a in arrays])


def _optimizers():
    values = [v.detach().numpy() for v in network(torch).parameters()]
    mine = [wf.Parameter(v.copy()) for v in values]
    yours = [torch.nn.Parameter(torch.tensor(v)) for v in values]
    for p, q in zip(mine, yours, strict=True):
        p.grad, q.grad = wf.tensor(q.detach().numpy() * 0.1), q.detach() * 0.1
    return wf.optim.AdamW(mine).step, torch.optim.AdamW(yours, fused=True).step


def parts() -> None:
    """Each part as often as a step has it, forward and backward pass."""
    rng = np.random.default_rng(1)
    x, hidden = (BATCH, LENGTH, WIDTH), (BATCH, LENGTH, 4 * WIDTH)
    heads = (BATCH, HEADS, LENGTH, WIDTH // HEADS)
    ids = rng.integers(0, VOCABULARY, (BATCH, LENGTH))
    lines = (BATCH * LENGTH, VOCABULARY)
    wide = (4 * WIDTH, WIDTH)
    mine, yours = wf.tensor(ids), torch.tensor(ids)

    def attention(f):
        return lambda q, k, v: f.scaled_dot_product_attention(q, k, v, is_causal=True)

    rows = {
        f"attention, {LAYERS}": _pair(rng, attention(F), attention(T), heads, heads, heads),
        f"layer norm, {2 * LAYERS + 1}": _pair(
            rng,
            lambda x, w, b: F.layer_norm(x, WIDTH, w, b),
            lambda x, w, b: T.layer_norm(x, (WIDTH,), w, b),
            *(x, WIDTH, WIDTH),
        ),
        f"linear {WIDTH} to {3 * WIDTH}, {LAYERS}": _pair(
            rng, F.linear, T.linear, x, (3 * WIDTH, WIDTH), 3 * WIDTH
        ),
        f"linear {WIDTH} to {WIDTH}, {LAYERS}": _pair(
            rng, F.linear, T.linear, x, (WIDTH, WIDTH), WIDTH
        ),
        f"linear {WIDTH} to {4 * WIDTH}, {LAYERS}": _pair(
            rng, F.linear, T.linear, x, wide, 4 * WIDTH
        ),
        f"linear {4 * WIDTH} to {WIDTH}, {LAYERS}": _pair(
            rng, F.linear, T.linear, hidden, wide[::-1], WIDTH
        ),
        f"linear {WIDTH} to {VOCABULARY}, 1": _pair(
            rng, F.linear, T.linear, x, (VOCABULARY, WIDTH)
        ),
        f"gelu, {LAYERS}": _pair(rng, F.gelu, T.gelu, hidden),
        "cross-entropy, 1": _pair(
            rng,
            lambda x: F.cross_entropy(x, mine.reshape(-1)),
            lambda x: T.cross_entropy(x, yours.reshape(-1)),
            lines,
        ),
        "embedding, 1": _pair(
            rng,
            lambda w: F.embedding(mine, w),
            lambda w: T.embedding(yours, w),
            (VOCABULARY, WIDTH),
        ),
        "AdamW (torch's fused), 1": _optimizers(),
    }
    for title, steps in rows.items():
        count = int(title.rsplit(", ")[-1])
        report(title, *timed(*[_often(step, count) for step in steps]))


def _often(step, count: int):
    def run():
        for _ in range(count):
            step()

    return run


def main(names: list[str]) -> None:
    print(f"{torch.get_num_threads()} threads of torch")
    steps = {"step": {}, "functions": {"functions": True}, "torch": {"device": "torch"}}
    for name, how in steps.items():
        if not names or name in names:
            training_step(name, **how)
    if not names or "parts" in names:
        parts()


if __name__ == "__main__":
    main(sys.argv[1:])
