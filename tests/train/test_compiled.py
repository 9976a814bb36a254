"""Trainer(compile=True): the same run as without, to rounding."""

import numpy as np
import pytest

import weft as wf

F = wf.nn.functional


def accuracy(prediction, y):
    return (prediction.argmax(-1) == y).to(wf.float32).mean()


def data(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((70, 5)).astype(np.float32)
    return wf.train.TensorDataset(wf.tensor(x), wf.tensor((x.sum(-1) > 0).astype(np.int64)))


def network():
    wf.random.seed(0)
    return wf.nn.Sequential(
        wf.nn.Linear(5, 8, bias=False),  # with one, its gradient is nothing but rounding
        wf.nn.BatchNorm1d(8),
        wf.nn.ReLU(),
        wf.nn.Dropout(0.1),
        wf.nn.Linear(8, 2),
    )


def trainer(compile, optimizer="AdamW", loss=None, **options):
    model = network()
    loss = loss or wf.train.supervised(F.cross_entropy, accuracy=accuracy)
    optimizer = getattr(wf.optim, optimizer)(model, lr=0.01)
    return wf.train.Trainer(
        model, optimizer, loss, compile=compile, progress=False, signals=False, **options
    )


def run(compile, epochs=3, **options):
    made = trainer(compile, **options)
    loader = wf.train.DataLoader(data(), batch_size=16, shuffle=True, seed=3)
    made.fit(loader, epochs=epochs, validation=wf.train.DataLoader(data(1), batch_size=32))
    return made


OPTIONS = {
    "plain": {},
    "clipped by norm": {"clip_norm": 0.5},
    "clipped by value, accumulated": {"clip_value": 0.01, "accumulate": 2},
    "averaged": {"ema": 0.9},
    "bfloat16": {"precision": "bfloat16"},
    "float16": {"precision": "float16"},
    "float16, clipped and averaged": {"precision": "float16", "clip_norm": 0.5, "ema": 0.9},
    "SGD with a schedule": {
        "optimizer": "SGD",
        "schedule": wf.optim.CosineScheduler(0.1, total_steps=20),
    },
}


@pytest.mark.parametrize("which", OPTIONS)
def test_a_compiled_run_is_the_same_run(which):
    eager, compiled = (run(c, **OPTIONS[which]) for c in (False, True))
    for name in ("loss", "grad_norm", "accuracy"):
        want, found = (np.array(t.history[name]) for t in (eager, compiled))
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=1e-6, err_msg=name)
    losses = [t.history.validation["loss"] for t in (eager, compiled)]
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-5)
    for name, x in eager.model.state_dict().items():
        other = compiled.model.state_dict()[name].numpy()
        np.testing.assert_allclose(other, x.numpy(), rtol=1e-3, atol=2e-5, err_msg=name)


def test_a_step_that_is_not_finite_changes_nothing():
    made = trainer(True, nonfinite="skip")
    x, y = (t.clone() for t in data().tensors)
    x[20:24] = wf.tensor(float("nan"))
    loader = wf.train.DataLoader(wf.train.TensorDataset(x, y), batch_size=16)
    made.fit(loader, steps=1)
    before = {k: v.clone().numpy() for k, v in made.model.state_dict().items()}
    moments = {k: {n: np.copy(a) for n, a in s.items()} for k, s in made.optimizer.state.items()}
    stepper = made._kind_of_step()(
        made.model,
        made.optimizer,
        lambda: list(made.model.named_parameters()),
        *(made._objective, made._precision, made._clip, None),
    )
    outcome = stepper.take([(x[16:32], y[16:32])], None)
    assert "nan" in outcome.problem
    for k, v in made.model.state_dict().items():
        assert np.array_equal(v.numpy(), before[k]), k
    for k, s in made.optimizer.state.items():
        assert all(np.array_equal(a, moments[k][n]) for n, a in s.items())


def test_a_loss_scale_shrinks_and_grows_as_without_compiling():
    def scaled(compile):
        scaler = wf.amp.GradScaler(init_scale=2.0**22, growth_interval=4)
        made = run(compile, epochs=4, precision="float16", scaler=scaler)
        return made, [made.step, len(made.history.skipped), scaler.state_dict()]

    (_, eager), (made, compiled) = scaled(False), scaled(True)
    assert eager == compiled and eager[1] > 1
    assert {own["step"] for own in made.optimizer.state.values()} == {made.step}


def test_a_run_goes_on_to_the_bit(tmp_path):
    whole = run(True, epochs=4)
    first = trainer(True, directory=tmp_path)
    loader = wf.train.DataLoader(data(), batch_size=16, shuffle=True, seed=3)
    first.fit(loader, epochs=2, validation=wf.train.DataLoader(data(1), batch_size=32))
    second = trainer(True, directory=tmp_path)
    loader = wf.train.DataLoader(data(), batch_size=16, shuffle=True, seed=3)
    second.fit(
        loader, epochs=4, validation=wf.train.DataLoader(data(1), batch_size=32), resume="auto"
    )
    for name, x in whole.model.state_dict().items():
        assert np.array_equal(x.numpy(), second.model.state_dict()[name].numpy()), name


def test_a_loss_that_looks_at_values_is_named():
    def loss(model, batch):
        value = F.cross_entropy(model(batch[0]), batch[1])
        return value * 2 if value > 1 else value

    with pytest.raises(wf.errors.StagingError, match=r"test_compiled\.py:\d+.*wf\.cond"):
        loader = wf.train.DataLoader(data(), batch_size=16)
        trainer(True, loss=loss).fit(loader, steps=1)
