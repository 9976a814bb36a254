"""A trainer's budget is for all of a step: moments, averages, accumulated gradients."""

import gc
from itertools import product

import pytest

import weft as wf
from weft import errors, nn
from weft.profile import Counter

MIB = 1 << 20


def train(budget, compiled, kind, accumulate, ema, counter=None):
    wf.random.seed(0)
    parts = [part for _ in range(5) for part in (nn.Linear(128, 128), nn.GELU())]
    model = nn.Sequential(*parts, nn.BatchNorm1d(128))
    data = wf.train.TensorDataset(wf.ones((64, 128)), wf.zeros((64, 128)))
    config = wf.CheckpointConfig("auto", memory_budget_mb=budget)
    trainer = wf.train.Trainer(
        *(model, kind(model.parameters(), lr=1e-3), nn.MSELoss()),
        **{"checkpoint": config, "compile": compiled, "progress": False},
        **{"accumulate": accumulate, "ema": 0.9 if ema else None},
    )
    loader = wf.train.DataLoader(data, batch_size=16)
    trainer.fit(loader, epochs=1)
    gc.collect()
    if counter is not None:
        counter.reset_peak()
    trainer.fit(loader, epochs=2)


@pytest.mark.parametrize(
    ("compiled", "kind", "accumulate", "ema"),
    [*product((False, True), (wf.optim.AdamW, wf.optim.SGD), (1, 2), (False, True))],
)
def test_the_named_budget_is_enough_and_kept(compiled, kind, accumulate, ema):
    budget, refusals = 0.3, 0
    while True:
        gc.collect()
        start = sum(a.nbytes for a in wf.profile.census().arrays)
        try:
            with Counter() as counter:
                train(budget, compiled, kind, accumulate, ema, counter)
            break
        except errors.BudgetExceeded as e:
            budget, refusals = e.smallest / MIB, refusals + 1
            assert "works" in str(e) or "Give memory_budget_mb" in str(e)
    # Compiled, the second batch is another program: it is refused by itself, and has its arena.
    two = compiled and accumulate == 2
    assert refusals == 1 + two
    # A norm has its pieces beside the plan, and a second program its tables.
    assert start + counter.peak <= budget * MIB + (400_000 if two else 200_000)
