"""The fast path of calls: what it recognises, and that it never serves a call of another kind.

Arguments are drawn, then changed a little from call to call; eager mode says what is seen of them.
"""

import os
import random

import numpy as np
import pytest

import weft as wf
from weft.compiler import compiled as module
from weft.compiler.frontend import quick

ROUNDS = 600 if os.environ.get("WEFT_SOAK") else 60


class Thing:
    """An object that is compared by identity."""


THINGS = [Thing(), Thing()]


def tensor(n: int = 2, dtype: str = "float64"):
    return wf.asarray(np.arange(1.0, n + 1).astype(dtype))


def leaf(rng: random.Random):
    kinds = [tensor, tensor, lambda: tensor(3), lambda: rng.random(), lambda: None]
    return rng.choice([*kinds, lambda: rng.choice([1, True, "s", *THINGS])])()


def drawn(rng: random.Random, depth: int = 2):
    if depth == 0 or rng.random() < 0.4:
        return leaf(rng)
    parts = [drawn(rng, depth - 1) for _ in range(rng.randint(0, 3))]
    kind = rng.choice([list, tuple, dict])
    return (
        dict(zip(rng.sample("abcd", len(parts)), parts, strict=True))
        if kind is dict
        else kind(parts)
    )


def changed(rng: random.Random, x, pool: list):
    """x again, or with a change somewhere that a function can observe; sometimes an equal copy."""
    if isinstance(x, dict) and rng.random() < 0.8:
        items = [(k, changed(rng, v, pool)) for k, v in x.items()]
        if rng.random() < 0.2:
            rng.shuffle(items)
        return dict([(f"{k}"[:1], v) for k, v in items])
    if isinstance(x, list | tuple) and rng.random() < 0.8:
        kind = type(x) if rng.random() < 0.9 else {list: tuple, tuple: list}[type(x)]
        return kind([changed(rng, v, pool) for v in x])
    pool.append(x)
    if rng.random() < 0.15:
        return rng.choice([leaf(rng), rng.choice(pool), drawn(rng, 1)])
    return x


def seen(x, known: dict) -> str:
    """All that a function can observe of an argument without reading a tensor."""
    if isinstance(x, Thing):
        return f"thing {THINGS.index(x)}"
    if not isinstance(x, dict | list | tuple | wf.Tensor):
        return "number" if isinstance(x, float) else f"{type(x).__name__} {x!r}"
    mark = "" if isinstance(x, tuple) else known.setdefault(id(x), len(known))
    if isinstance(x, wf.Tensor):
        return f"{x.dtype}{x.shape}{mark}"
    items = x.items() if isinstance(x, dict) else enumerate(x)
    inside = ", ".join([f"{k}: {seen(v, known)}" for k, v in items])
    return f"{type(x).__name__}{mark}({inside})"


def total(x):
    """The sum of all numbers and tensors."""
    if isinstance(x, dict | list | tuple):
        return sum([total(v) for v in (x.values() if isinstance(x, dict) else x)])
    return x.sum() if isinstance(x, wf.Tensor) else x if isinstance(x, float) else 0.0


def observe(x, *args, **kwargs):
    known: dict = {}
    return x * total([*args, *kwargs.values()]), seen(args, known) + seen(kwargs, known)


def differing(seed: int, rounds: int = 12) -> list:
    """Calls of one compiled function whose results are not those of the function."""
    rng = random.Random(seed)
    args, names = [drawn(rng) for _ in range(2)], rng.sample("pq", rng.randint(0, 2))
    kwargs = {name: drawn(rng, 1) for name in names}
    x, compiled, wrong = tensor(), wf.compile(observe, max_variants=1000), []
    for _ in range(rounds):
        pool: list = []
        args = [changed(rng, a, pool) for a in args]
        kwargs = {k: changed(rng, v, pool) for k, v in kwargs.items()}
        if rng.random() < 0.2:
            kwargs = dict(reversed(kwargs.items()))
        for _ in range(2):  # the second one is like the first
            want, found = observe(x, *args, **kwargs), compiled(x, *args, **kwargs)
            if not np.allclose(want[0].numpy(), found[0].numpy()) or want[1] != found[1]:
                wrong.append((args, kwargs, want, found))
    return wrong


@pytest.mark.parametrize("batch", range(6))
def test_calls_that_change_a_little(batch):
    assert not [w for seed in range(batch, ROUNDS, 6) for w in differing(seed)]


def test_a_planted_confusion_of_keys_is_found(monkeypatch):
    """A fast path that does not compare the order of keys."""
    true = quick._open_dict
    monkeypatch.setattr(quick, "_open_dict", lambda keys, parts: _unordered(true, keys, parts))
    assert any(differing(seed) for seed in range(ROUNDS))


def _unordered(true, keys, parts):
    opens = true(keys, parts)

    def wrong(x, leaves, held):
        ordered = {k: x[k] for k in keys} if x.__class__ is dict and {*x} == {*keys} else x
        return opens(ordered, leaves, held)

    return wrong


class Model(wf.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = wf.Parameter(tensor())


BATCHES = {
    "by position": lambda: ((tensor(), tensor()), {}),
    "a dict": lambda: (({"x": tensor(), "y": tensor()},), {}),
    "nested": lambda: (([tensor(), ({"y": tensor()}, None)], 0.5), {}),
    "by name": lambda: ((tensor(),), {"scale": 2.0, "y": tensor()}),
    "beside constants": lambda: ((tensor(), True, "mean"), {}),
    "a module": lambda: ((Model_, tensor()), {}),
}
Model_ = Model()


@pytest.mark.parametrize("batch", BATCHES)
def test_the_fast_path_serves(batch, monkeypatch):
    """New tensors in the same containers are not flattened again."""
    w = wf.Parameter(tensor())

    def step(*args, **kwargs):
        w.grad = None
        (w * total([*args, *kwargs.values()])).sum().backward()
        return w.grad.sum()

    compiled = wf.compile(step)
    for _ in range(2):
        args, kwargs = BATCHES[batch]()
        compiled(*args, **kwargs)
    monkeypatch.setattr(module, "flatten_arguments", None)
    args, kwargs = BATCHES[batch]()
    found = compiled(*args, **kwargs)
    np.testing.assert_allclose(found.item(), step(*args, **kwargs).item())
