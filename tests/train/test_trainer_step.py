"""One step of a trainer: as in PyTorch's loop, in parts as at once, and never half applied."""

from math import isnan, nan

import numpy as np
import pytest
import torch
from tests.io.alike import same

import weft as wf
from weft import errors

from .runs import Net, loader, pairs, same_state, squares, trainer

DOUBLE = np.finfo(np.float64).eps


class Line(wf.nn.Module):
    """One linear map in double precision."""

    def __init__(self):
        super().__init__()
        self.weight = wf.Parameter(wf.tensor([[0.5], [-0.25], [1.5]], dtype="float64"))

    def forward(self, x):
        return x @ self.weight


def doubles(n: int = 26):
    rng = np.random.default_rng(3)
    return rng.standard_normal((n, 3)), rng.standard_normal((n, 1))


def mean_square(prediction, target):
    return ((prediction - target) ** 2).mean()


def fitted(steps: int, batch_size: int = 26, optimizer=None, **options):
    """The weights after so many steps from the same beginning, and the history."""
    model = Line()
    make = optimizer or (lambda m: wf.optim.SGD(m, lr=0.1, momentum=0.9))
    options = {"loss": wf.train.supervised(mean_square), "progress": False, **options}
    run = wf.train.Trainer(model, make(model), options.pop("loss"), **options)
    data = wf.train.TensorDataset(*doubles())
    history = run.fit(wf.train.DataLoader(data, batch_size=batch_size), steps=steps)
    return model.weight.detach().numpy(), history


def torch_weights(steps: int, clip=None, rates=None, momentum=0.9):
    x, y = map(torch.tensor, doubles())
    weight = torch.tensor([[0.5], [-0.25], [1.5]], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=momentum)
    norms = []
    for step in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(x @ weight, y).backward()
        norms.append(float(weight.grad.norm()))
        if clip is not None:
            clip([weight])
        if rates is not None:
            optimizer.param_groups[0]["lr"] = rates(step)
        optimizer.step()
    return weight.detach().numpy(), norms


@pytest.mark.parametrize("batch_size", [26, 13, 4, 5, 1])
def test_accumulated_batches_are_one_large_batch_as_in_torch(batch_size):
    accumulate = -(-26 // batch_size)  # 26 = 6·4 + 2 = 5·5 + 1: the last one is smaller
    found, history = fitted(20, batch_size, accumulate=accumulate)
    expected, norms = torch_weights(20)
    assert np.allclose(found, expected, rtol=1e3 * DOUBLE, atol=0)
    assert np.allclose(history["grad_norm"], norms, rtol=1e3 * DOUBLE)


def test_a_last_step_of_an_epoch_with_fewer_batches():
    run = trainer(accumulate=3)
    history = run.fit(loader(shuffle=False), epochs=2)  # 7 batches: steps of 3, 3 and 1
    assert history["step"] == [1, 2, 3, 4, 5, 6] and history["epoch"] == [0, 0, 0, 1, 1, 1]
    assert run.samples == 52


def test_what_a_loss_is_the_mean_of():
    """Of elements that a mask leaves: their number, not that of the samples, is a batch's share."""
    weights = np.array([1, 1, 0, 1, 0, 0] * 5)[:26]

    def masked(model, batch):
        x, y, w = batch
        return (w[:, None] * (model(x) - y) ** 2).sum() / w.sum()

    def weights_after(batch_size, accumulate, count):
        model = Line()
        run = wf.train.Trainer(
            model,
            wf.optim.SGD(model, lr=0.1),
            masked,
            accumulate=accumulate,
            count=count,
            progress=False,
        )
        data = wf.train.TensorDataset(*doubles(), weights.astype(float))
        run.fit(wf.train.DataLoader(data, batch_size=batch_size), steps=5)
        return model.weight.detach().numpy()

    whole = weights_after(26, 1, None)
    parts = weights_after(5, 6, lambda batch: batch[2].sum())
    assert np.allclose(parts, whole, rtol=1e3 * DOUBLE)
    assert not np.allclose(weights_after(5, 6, None), whole, rtol=1e-3)


def test_clipping_as_in_torch():
    norm = torch_weights(20, lambda p: torch.nn.utils.clip_grad_norm_(p, 0.5))
    found, history = fitted(20, clip_norm=0.5)
    assert np.allclose(found, norm[0], rtol=1e-5)  # torch adds 1e-6 to the norm
    assert np.allclose(history["grad_norm"], norm[1], rtol=1e-5)  # that before clipping
    value = torch_weights(20, lambda p: torch.nn.utils.clip_grad_value_(p, 0.1))
    found, history = fitted(20, clip_value=0.1)
    assert np.allclose(found, value[0], rtol=1e3 * DOUBLE)
    assert np.allclose(history["grad_norm"], value[1], rtol=1e3 * DOUBLE)


def test_a_schedule_is_read_at_every_step():
    schedule = wf.optim.CosineScheduler(0.2, 0.01, warmup_steps=3, total_steps=15)
    found, history = fitted(20, schedule=schedule)
    expected, _ = torch_weights(20, rates=schedule.get_lr)
    assert np.allclose(found, expected, rtol=1e3 * DOUBLE)
    assert history["lr"] == [schedule.get_lr(step) for step in range(20)]


def test_averages_follow_each_applied_step():
    run = trainer(ema=0.5)
    average = run.model.first.detach().numpy().copy()

    class Check(wf.train.Callback):
        def on_step_end(self, trainer, row):
            nonlocal average
            average = 0.5 * average + 0.5 * trainer.model.first.detach().numpy()

    run.callbacks.named["Check"] = Check()
    run.fit(loader(), steps=5)
    assert np.allclose(run.ema.average_of(run.model.first).numpy(), average, rtol=1e-6)
    plain, averaged = run.evaluate(loader(), averaged=False), run.evaluate(loader())
    assert plain != averaged
    with run.ema.swapped():
        assert run.evaluate(loader(), averaged=False) == averaged


# What is not finite


def poisoned(at: int, what: float = nan, where: str = "loss"):
    """A loss that is not finite at its call number `at`, or whose gradient is not."""
    calls = iter(range(10**6))

    def loss(model, batch):
        value, _ = squares(model, batch)
        if next(calls) != at:
            return value
        if where == "loss":
            return value * what
        return value + (wf.sqrt(model.first - model.first.detach())).sum()

    return loss


@pytest.mark.parametrize("where", ["loss", "gradient"])
@pytest.mark.parametrize("what", [nan, float("inf")])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_nothing_changes_in_a_step_that_is_not_finite(where, what, accumulate):
    at = 3 if accumulate == 1 else 8  # in the fourth step: of 7 batches, 3 + 3 + 1 were taken
    run = trainer(loss=poisoned(at, what, where), accumulate=accumulate, ema=0.9)
    kept: dict = {}

    class Keep(wf.train.Callback):
        def on_step_end(self, trainer, row):
            kept.update(parts(trainer))

    def parts(run):
        states = {"optimizer": run.optimizer.state_dict(), "ema": run.ema.state_dict()}
        return {**run.weights(), **states, "step": run.step}

    run.callbacks.named["Keep"] = Keep()
    place = "step 4, epoch 0, batch 3" if accumulate == 1 else "step 4, epoch 1, batch 0 to 2"
    reason = f"the loss is {what}" if where == "loss" else "gradient's norm is .*: first"
    with pytest.raises(errors.AnomalyError, match=rf"{place}.*{reason}.*detect_anomaly"):
        run.fit(loader(shuffle=False), steps=9)
    assert run.step == 3 == len(run.history)
    assert same(kept, parts(run))
    assert all(p.grad is None for p in run.model.parameters())


def test_steps_that_are_not_finite_can_be_left_out():
    run = trainer(loss=poisoned(2), nonfinite="skip")
    history = run.fit(loader(), steps=6)
    assert history["step"] == [1, 2, 3, 4, 5, 6]
    skipped = history.skipped.row(0)
    assert len(history.skipped) == 1 and isnan(skipped["loss"])
    assert (skipped["step"], skipped["epoch"], skipped["batch"], skipped["overflow"]) == (
        3,
        0,
        2,
        0,
    )
    # As if the loader had not had that batch: the same as a run whose third batch has no effect.
    batches = list(loader())
    other = trainer()
    for i in (0, 1, 3, 4, 5, 6):
        other.model.train()
        if i == 3:
            wf.rand((4, 6))  # the random numbers of the batch that was left out
        other.optimizer.zero_grad()
        squares(other.model, batches[i])[0].backward()
        other.optimizer.step()
    assert same_state(run, other)


def test_too_many_left_out_in_a_row_are_an_error():
    run = trainer(loss=lambda m, b: squares(m, b)[0] * nan, nonfinite="skip", max_skips=4)
    before = run.weights()
    with pytest.raises(errors.AnomalyError, match=r"4 steps in a row.*max_skips=4"):
        run.fit(loader(), epochs=10)
    assert same(before, run.weights()) and len(run.history.skipped) == 4 and run.step == 0


def test_a_finite_step_between_begins_the_count_anew():
    calls = iter(range(100))

    def every_third_is_fine(model, batch):
        return squares(model, batch)[0] * (1.0 if next(calls) % 3 == 2 else nan)

    run = trainer(loss=every_third_is_fine, nonfinite="skip", max_skips=3)
    run.fit(loader(), steps=5)
    assert len(run.history.skipped) == 10


def test_a_loss_that_does_not_depend_on_the_parameters():
    run = trainer(loss=lambda model, batch: (wf.Parameter([1.0]) * 2).sum())
    with pytest.raises(errors.ArgumentError, match=r"no parameter of the optimizer has a gradient"):
        run.fit(loader(), steps=1)


# Optimizers of all kinds


@pytest.mark.parametrize(
    "make",
    [
        lambda m: wf.optim.EMAOptimizer(wf.optim.AdamW(m, lr=0.01), decay=0.9),
        lambda m: wf.optim.MultiGroupOptimizer(
            wf.optim.Adam(wf.optim.AdamConfig()),
            [
                wf.optim.ParameterGroup([("first", m.first)], lr_scale=0.5),
                wf.optim.ParameterGroup([("second", m.second)]),
            ],
        ),
        lambda m: wf.optim.Adam(wf.optim.AdamConfig(lr=0.02)),
        lambda m: wf.optim.SGD([m.first], lr=0.1),
        lambda m: wf.optim.Adafactor(m),
        lambda m: wf.optim.Lion(m, lr=0.001),
    ],
    ids=["ema", "groups", "unbound", "some", "adafactor", "lion"],
)
def test_optimizers_train_and_resume(tmp_path, make):
    whole = trainer(optimizer=make)
    whole.fit(loader(), steps=9)
    first = trainer(tmp_path, optimizer=make)
    first.fit(loader(), steps=4)
    second = trainer(tmp_path, optimizer=make)
    second.fit(loader(), steps=9, resume="auto")
    assert same_state(whole, second) and same(whole.history["loss"], second.history["loss"])
    assert not same_state(first, second)


def test_an_optimizer_without_parameters_gets_those_of_the_model():
    model = Net()
    model.second.requires_grad_(False)
    optimizer = wf.optim.Adam(wf.optim.AdamConfig())
    wf.train.Trainer(model, optimizer, squares, progress=False).fit(loader(), steps=1)
    assert list(optimizer.state_dict()["state"]) == ["first"]


def test_an_epoch_goes_through_all_samples_once():
    seen = []

    def noting(model, batch):
        seen.extend(batch[0][:, 0].tolist())
        return squares(model, batch)

    trainer(loss=noting).fit(loader(), epochs=1)
    assert sorted(seen) == sorted(pairs().tensors[0][:, 0].tolist())
