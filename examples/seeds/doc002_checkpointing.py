"""002 TenfloweRS Autograd: Comprehensive Guide, checkpoint strategies.

Sections: 1. Gradient Checkpointing; Issue 2: Out of Memory ("Enable checkpointing"); the API
Reference's `GradientTape` (`with_checkpoint_config`) and `CheckpointConfig`.

"Only every 3rd layer's activations are stored" is Block's, not Selective's. A budget counts
everything, parameters included, and is kept with any strategy, or refused with one that works.
"""

import numpy as np
from expect import refusal

import weft as wf
from weft import CheckpointConfig, CheckpointStrategy, GradientTape, errors, nn
from weft.profile import Counter


def deep_network(layers: int) -> tuple[nn.Sequential, wf.Tensor]:
    wf.random.seed(0)
    parts = [part for _ in range(layers) for part in (nn.Linear(32, 32), nn.GELU())]
    return nn.Sequential(*parts), wf.randn([2048, 32])


def step(model: nn.Sequential, x: wf.Tensor, config: CheckpointConfig | None):
    """The gradients of a step, and the most bytes that it had at once."""
    with Counter() as counter:
        tape = GradientTape() if config is None else GradientTape.with_checkpoint_config(config)
        with tape:
            hidden = x
            for layer in model:
                hidden = layer(hidden)
            loss = hidden.square().mean()
        grads = tape.gradient([loss], list(model.parameters()))
    return [g.numpy() for g in grads], counter.peak


def gradient_checkpointing():
    selective = CheckpointConfig(
        strategy=CheckpointStrategy.Selective,
        checkpoint_every_n=3,
        min_compute_cost=100,
        memory_budget_mb=1024,
    )
    model, x = deep_network(50)
    expected, whole = step(model, x, None)
    peaks = {}
    for strategy in (CheckpointStrategy.None_, CheckpointStrategy.Block, CheckpointStrategy.Full):
        config = CheckpointConfig(strategy=strategy, checkpoint_every_n=3)
        grads, peaks[strategy] = step(model, x, config)
        assert all(np.array_equal(a, b) for a, b in zip(grads, expected, strict=True)), strategy
    grads, peaks[selective.strategy] = step(model, x, selective)
    assert all(np.array_equal(a, b) for a, b in zip(grads, expected, strict=True))

    # "Memory Savings: 40-60% typical, up to 90% for very deep networks"
    assert abs(1 - peaks[CheckpointStrategy.None_] / whole) < 0.01
    assert peaks[CheckpointStrategy.Selective] < whole
    assert 1 - peaks[CheckpointStrategy.Block] / whole > 0.4
    assert 1 - peaks[CheckpointStrategy.Full] / whole > 0.85
    very_deep, x = deep_network(200)
    _, whole = step(very_deep, x, None)
    _, full = step(very_deep, x, CheckpointConfig(strategy=CheckpointStrategy.Full))
    assert 1 - full / whole > 0.9


def out_of_memory():
    """Enable checkpointing."""
    config = CheckpointConfig(strategy=CheckpointStrategy.Auto, memory_budget_mb=4096)
    assert (config.checkpoint_every_n, config.min_compute_cost) == (3, 100)

    model, x = deep_network(50)
    expected, whole = step(model, x, None)
    fixed = x.nbytes + sum(p.nbytes for p in model.parameters())
    budget = (fixed + whole / 2) / 2**20
    half = CheckpointConfig(strategy=CheckpointStrategy.Auto, memory_budget_mb=budget)
    grads, peak = step(model, x, half)
    assert all(np.array_equal(a, b) for a, b in zip(grads, expected, strict=True))
    seed = 4  # bytes of the number that a sweep starts with, which the tape makes before
    assert fixed + peak <= budget * 2**20 + seed

    tiny = CheckpointConfig(strategy=CheckpointStrategy.Auto, memory_budget_mb=0.5)
    with refusal(errors.BudgetExceeded, "too small"):
        step(model, x, tiny)


def with_checkpoint_config():
    config = CheckpointConfig(strategy=CheckpointStrategy.Full)
    tape = GradientTape.with_checkpoint_config(config)
    with tape:
        x = tape.watch(wf.linspace(0.0, 1.0, 1000))
        y = x.sin().exp().sin().exp().sum()
    (g,) = tape.gradient([y], [x])
    plain = GradientTape()
    z = plain.watch(wf.linspace(0.0, 1.0, 1000))
    (h,) = plain.gradient([z.sin().exp().sin().exp().sum()], [z])
    assert np.array_equal(g.numpy(), h.numpy())


def checkpoint_config():
    config = CheckpointConfig(
        strategy=CheckpointStrategy.Auto,
        checkpoint_every_n=3,
        min_compute_cost=100,
        memory_budget_mb=64,
    )
    assert config.strategy is CheckpointStrategy.Auto and config.memory_budget_mb == 64
    assert CheckpointConfig(strategy="auto", memory_budget_mb=64) == config
    assert CheckpointConfig().memory_budget_mb is None


def main():
    gradient_checkpointing()
    out_of_memory()
    with_checkpoint_config()
    checkpoint_config()


if __name__ == "__main__":
    main()
