"""Chains of equal blocks with random bodies: budgets are kept, and a block is solved once."""

import os

import numpy as np
import pytest

import weft as wf
from weft.compiler.fusion import kept
from weft.compiler.fusion.budget import Ladder
from weft.compiler.memory import plan
from weft.compiler.pipeline import current_target

from ..passes.graphs import traced
from ..schedules import compiled
from .test_budget import check_ladder
from .test_random_graphs import descent

CHAINS = 1000 if os.environ.get("WEFT_SOAK") else 8
SHARES = (0.95, 0.85, 0.7, 0.6, 0.55, 0.45, 0.4, 0.3, 0.2, 0.15, 0.05)
F = wf.nn.functional
OPS = [
    lambda x, w: wf.tanh(x @ w),
    lambda x, w: x * wf.sigmoid(x @ w),
    lambda x, w: F.layer_norm(x, x.shape[-1:]) @ w,
    lambda x, w: wf.softmax(x @ w, -1),
    lambda x, w: wf.concat([x, wf.sin(x)], axis=-1) @ wf.concat([w, w]),
    lambda x, w: wf.relu(x) - x.mean(0),
    lambda x, w: (x @ w) * wf.exp(-x * x),
    lambda x, w: (x.reshape(2, -1, x.shape[-1]) @ w).reshape(x.shape),
]


def chain_of(rng, depth: int, rows: int, width: int, body=None, residual: bool = True):
    """The schedule of a step down the gradient of a chain of blocks, and its arrays."""
    body = [OPS[k] for k in rng.integers(0, len(OPS), rng.integers(1, 5))] if body is None else body

    def f(x, *weights):
        for w in weights:
            y = x
            for op in body:
                y = op(y, w)
            x = x + y if residual else y
        return (x,)

    shapes = [(rows, width), *[(width, width)] * depth]
    arrays = [(0.5 * rng.standard_normal(s)).astype(np.float32) for s in shapes]
    return current_target().tune(compiled(traced(descent(f), *arrays)), True), arrays


@pytest.mark.parametrize("batch", range(4))
def test_chains_of_random_blocks(batch):
    for seed in range(batch, CHAINS, 4):
        rng = np.random.default_rng(seed)
        sizes = (int(rng.integers(2, 9)), int(rng.choice([8, 32, 64])), int(rng.choice([4, 16])))
        check_ladder(*chain_of(rng, *sizes, residual=bool(rng.random() < 0.7)), SHARES)


def solved(depth: int) -> tuple[int, int]:
    """The components that are solved for some rungs of a chain, and all that come up."""
    schedule, _ = chain_of(np.random.default_rng(0), depth, 64, 16, [OPS[2], OPS[6], OPS[0]])
    target = current_target()
    ladder = Ladder(schedule, plan(schedule, target.alignment), target)
    for k in (8, 16, 24, 32):
        ladder._rung(k)
    every = [c.cut.components for table in ladder.cut._tables for c in table._choices]
    return ladder.cut.network.solved, sum(map(len, every))


def test_equal_blocks_are_solved_once():
    (few, all_few), (many, all_many) = solved(8), solved(32)
    assert all_many > 2.5 * all_few
    assert many < 1.5 * few


def test_prices_reach_from_all_to_nothing():
    """What is kept at the lowest price, and at the highest without separators."""
    schedule, _ = chain_of(np.random.default_rng(0), 8, 64, 16, [OPS[2], OPS[6], OPS[0]])
    target = current_target()
    cut = Ladder(schedule, plan(schedule, target.alignment), target).cut
    table = cut._tables[0]
    choices = [cut.keep(table.prices(n)) for n in range(len(kept._PRICES))]
    assert choices[0].cost == 0
    assert len(choices[-1].kept) < len(choices[0].kept) / 4
