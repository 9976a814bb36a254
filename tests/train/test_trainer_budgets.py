"""A trainer's budget is for all of a step: moments, averages, accumulated gradients."""

import gc
from itertools import product

import pytest

import weft as wf
from weft import errors, nn
from weft.profile import Counter
from weft.train import compiled as compiled_steps

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


def test_programs_of_other_batches_leave_each_other_their_memory(monkeypatch):
    """Batches of two sizes have an arena each, of which one is there at a time."""
    kept = compiled_steps.KEPT
    wf.random.seed(0)
    data = wf.train.TensorDataset(wf.ones((1024 + 900, 64)), wf.zeros((1024 + 900, 64)))
    peaks = {}
    for budget in ("both kept", None, 3.0):
        monkeypatch.setattr(compiled_steps, "KEPT", 1 << 40 if budget == "both kept" else kept)
        given = None if budget == "both kept" else budget
        gc.collect()
        with Counter() as counter:
            model = nn.Sequential(*[p for _ in range(8) for p in (nn.Linear(64, 64), nn.Tanh())])
            trainer = wf.train.Trainer(
                *(model, wf.optim.SGD(model.parameters(), lr=1e-3), nn.MSELoss()),
                checkpoint=given and wf.CheckpointConfig("auto", memory_budget_mb=given),
                **{"compile": True, "progress": False},
            )
            trainer.fit(wf.train.DataLoader(data, batch_size=1024), epochs=2)
        peaks[budget] = counter.peak
    assert peaks["both kept"] > 4 * MIB > peaks[None] + MIB // 2
    assert peaks[3.0] <= 3 * MIB + 200_000


def test_constant_buffers_are_not_copied():
    """Weights in 8 bits stay as they are, so that a step holds no copy of them to go back to."""
    layers = [nn.Linear8bit.from_linear(nn.Linear(1024, 1024)) for _ in range(4)]
    model = nn.Sequential(*layers)
    nn.add_lora(model, rank=1)
    trainer = wf.train.Trainer(model, wf.optim.SGD(model, lr=0.1), nn.MSELoss(), progress=False)
    data = wf.train.TensorDataset(wf.ones((2, 1024)), wf.zeros((2, 1024)))
    with Counter() as counter:
        trainer.fit(wf.train.DataLoader(data, batch_size=2), epochs=1)
    one = 4 * 1024 * 1024  # a weight in float32, for the moment
    assert counter.peak < 2.5 * one
    before = layers[0].codes.numpy().copy()
    bad = wf.train.TensorDataset(wf.full((2, 1024), float("nan")), wf.zeros((2, 1024)))
    with pytest.raises(errors.AnomalyError, match=r"matmul|the data"):
        trainer.fit(wf.train.DataLoader(bad, batch_size=2), epochs=2)
    assert (layers[0].codes.numpy() == before).all()
