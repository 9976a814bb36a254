"""`GradientHealth`: what it sees in every kind of step, and what it costs on the others."""

import math
import warnings
from itertools import product

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft.train import Callback, DataLoader, GradientHealth, TensorDataset, Trainer, health

X = np.random.default_rng(0).standard_normal((32, 4)).astype(np.float32)


def model_of(depth: int = 1) -> wf.nn.Module:
    wf.random.seed(1)
    parts = [p for _ in range(depth) for p in (wf.nn.Linear(4, 4), wf.nn.Sigmoid())]
    return wf.nn.Sequential(wf.nn.BatchNorm1d(4), *parts, wf.nn.Linear(4, 1))


def trainer_of(model, callbacks, loss=None, **how):
    optimizer = wf.optim.SGD(model, lr=0.01)
    loss = loss or wf.nn.MSELoss()
    return Trainer(model, optimizer, loss, callbacks=callbacks, progress=False, **how)


def loader(batch=8):
    return DataLoader(TensorDataset(wf.asarray(X), wf.ones((32, 1))), batch_size=batch)


class Seen(Callback):
    """The gradients' norm as the hook sees it."""

    def __init__(self):
        self.norms = []

    def on_gradients(self, trainer, gradients):
        squares = [np.sum(np.square(g.numpy(), dtype=np.float64)) for g in gradients.values()]
        self.norms.append(math.sqrt(sum(squares)))


@pytest.mark.parametrize(
    ("compile", "clip", "precision", "accumulate"),
    [
        c
        for c in product((False, True), (None, 1e-3), (None, "float16"), (1, 2))
        if sum(map(bool, c)) != 3
    ],
)
def test_gradients_are_unscaled_and_not_clipped(compile, clip, precision, accumulate):
    seen, watch = Seen(), GradientHealth(every=1, on_problem=None, history=2)
    how = dict(compile=compile, clip_norm=clip, precision=precision, accumulate=accumulate)
    trainer = trainer_of(model_of(), [seen, watch], **how)
    history = trainer.fit(loader(), epochs=2)
    steps = len(history)
    np.testing.assert_allclose(seen.norms[-steps:], history["grad_norm"], rtol=1e-5)
    assert list(watch.reports) == [steps - 1, steps]
    for step, report in watch.reports.items():
        np.testing.assert_allclose(report.total.norm, history["grad_norm"][step - 1], rtol=1e-5)
        assert list(report) == [n for n, _ in trainer.model.named_parameters()]
        sizes = [s.rms for s in report.values()]
        row = history.train.row(step - 1)
        assert (row["grad_rms_min"], row["grad_rms_max"]) == (min(sizes), max(sizes))


def test_runs_are_the_same_with_and_without():
    def run(callbacks):
        model = model_of()
        history = trainer_of(model, callbacks).fit(loader(), epochs=2)
        return history["loss"], [p.tolist() for p in model.parameters()]

    assert run([]) == run([GradientHealth(every=3, on_problem=None)])


def test_other_steps_cost_nothing(monkeypatch):
    looked = []
    monkeypatch.setattr(
        health, "grad_stats", lambda g: looked.append(1) or wf.profile.grad_stats(g)
    )
    history = trainer_of(model_of(), [GradientHealth(every=3)]).fit(loader(), epochs=2)
    assert len(history) == 8 and len(looked) == 2
    assert [math.isnan(v) for v in history["vanishing"]] == [k % 3 != 0 for k in range(1, 9)]


def test_a_problem_warns_once():
    watch = GradientHealth(every=1)
    trainer = trainer_of(model_of(depth=12), [watch])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trainer.fit(loader(), epochs=1)
    texts = [str(w.message) for w in found if w.category is errors.GradientHealthWarning]
    marks = [r.marks() for r in watch.reports.values()]
    changes = sum(m != before for before, m in zip([{}, *marks], marks, strict=False))
    assert len(texts) == changes >= 1 and "1.weight (vanishing, rms" in texts[0]


@pytest.mark.parametrize("compile", [False, True])
def test_a_problem_raises_before_the_step(compile):
    def loss(model, batch):
        x, y = batch
        return (model(x) - y).square().mean() * 1e7

    model = model_of()
    before = {k: v.numpy().copy() for k, v in model.state_dict().items()}
    watch = GradientHealth(every=1, on_problem="raise")
    trainer = trainer_of(model, [watch], loss, compile=compile)
    with pytest.raises(errors.AnomalyError, match=r"step 1: .*exploding.*nothing was changed"):
        trainer.fit(loader(), epochs=1)
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name], err_msg=name)
    assert trainer.step == 0 and watch.reports[1].exploding()


def test_the_history_survives_a_resume(tmp_path):
    how = dict(directory=tmp_path, save_every=1)
    whole = trainer_of(model_of(), [GradientHealth(every=2)]).fit(loader(), epochs=2)
    trainer_of(model_of(), [GradientHealth(every=2)], **how).fit(loader(), steps=3)
    again = trainer_of(model_of(), [GradientHealth(every=2)], **how)
    np.testing.assert_array_equal(
        again.fit(loader(), epochs=2, resume="auto")["grad_rms_max"], whole["grad_rms_max"]
    )


@pytest.mark.parametrize(
    "bad", [{"every": 0}, {"every": True}, {"on_problem": "stop"}, {"history": 0}]
)
def test_bad_arguments(bad):
    with pytest.raises(errors.ArgumentError, match=f"GradientHealth: {next(iter(bad))}="):
        GradientHealth(**bad)
