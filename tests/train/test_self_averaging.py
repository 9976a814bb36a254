"""A trainer with an optimizer that averages the parameters itself."""

import numpy as np
import pytest

import weft as wf
from weft import errors

from .runs import loader, pairs, squares

VALIDATION = wf.train.DataLoader(pairs(12, seed=3), batch_size=4)


def trainer(directory=None, *, optimizer, **options) -> wf.train.Trainer:
    """A trainer of a new model, always the same, which can be compiled."""
    wf.random.seed(0)
    model = wf.nn.Sequential(wf.nn.Linear(3, 6), wf.nn.Tanh(), wf.nn.Linear(6, 1))
    options = {"progress": False, "directory": directory, **options}
    return wf.train.Trainer(model, optimizer(model), squares, **options)


def schedule_free(model):
    return wf.optim.ScheduleFreeAdamW(model, lr=0.05)


def grouped(model):
    groups = [wf.optim.ParameterGroup([p]) for p in model.parameters()]
    return wf.optim.MultiGroupOptimizer(wf.optim.ScheduleFreeAdamW(lr=0.05), groups)


def base(run):
    return getattr(run.optimizer, "base_optimizer", run.optimizer)


def arrays(run):
    return [np.array(p.detach().numpy()) for p in run.model.parameters()]


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def loss_of(model) -> float:
    """The loss over the validation data, computed here."""
    found = pairs(12, seed=3)
    x, y = (wf.stack([found[i][k] for i in range(12)]) for k in range(2))
    with wf.no_grad():
        return squares(model, (x, y))[0].item()


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("make", [schedule_free, grouped])
def test_validation_uses_the_average(make, compile):
    run, plain = (trainer(optimizer=make, compile=compile) for _ in range(2))
    run.fit(loader(), steps=20, validation=VALIDATION, validate_every=5)
    plain.fit(loader(), steps=20)
    assert same(arrays(run), arrays(plain))  # validating changes nothing
    at_y = loss_of(run.model)
    assert run.evaluate(VALIDATION, averaged=False)["loss"] == pytest.approx(at_y, rel=1e-5)
    base(run).eval()
    at_x = loss_of(run.model)
    assert abs(at_x - at_y) > 1e-3 * at_y
    assert run.history.validation["loss"][-1] == pytest.approx(at_x, rel=1e-5)
    assert run.evaluate(VALIDATION)["loss"] == pytest.approx(at_x, rel=1e-5)
    with pytest.raises(errors.ArgumentError, match=r"call optimizer.train\(\) first"):
        run.evaluate(VALIDATION, averaged=False)
    run.fit(loader(), steps=22)  # from y again
    assert not base(run).is_averaged


@pytest.mark.parametrize("compile", [False, True])
def test_checkpoints_hold_the_training_state(tmp_path, compile):
    options = {"optimizer": schedule_free, "compile": compile}
    straight = trainer(**options)
    straight.fit(loader(), steps=15)
    first = trainer(tmp_path, **options)
    first.fit(loader(), steps=8, validation=VALIDATION)
    second = trainer(tmp_path, **options)
    second.fit(loader(), steps=15, resume="auto", validation=VALIDATION)
    assert same(arrays(second), arrays(straight))
    for run in (straight, second):
        run.optimizer.eval()
    assert same(arrays(second), arrays(straight))


def test_the_best_weights_come_back_with_their_average():
    stop = wf.train.EarlyStopping(patience=2, restore_best=True)
    run = trainer(optimizer=lambda m: wf.optim.ScheduleFreeAdamW(m, lr=3.0), callbacks=[stop])
    run.fit(loader(), steps=60, validation=VALIDATION, validate_every=2)
    assert run.stopped is not None
    assert run.evaluate(VALIDATION)["loss"] == pytest.approx(stop.best, rel=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": schedule_free, "ema": 0.9},
        {"optimizer": lambda m: wf.optim.EMAOptimizer(schedule_free(m))},
    ],
)
def test_two_averages_are_refused(options):
    with pytest.raises(errors.ArgumentError, match="averages the parameters itself"):
        trainer(**options)


def test_prodigy_trains_and_resumes(tmp_path):
    options = {"optimizer": lambda m: wf.optim.Prodigy(m, d0=1e-2), "ema": 0.9, "clip_norm": 1.0}
    straight = trainer(**options)
    straight.fit(loader(), steps=15)
    trainer(tmp_path, **options).fit(loader(), steps=8)
    second = trainer(tmp_path, **options)
    second.fit(loader(), steps=15, resume="auto")
    assert same(arrays(second), arrays(straight))
    assert second.optimizer.d == straight.optimizer.d > 1e-2
