"""A loss or gradient that is not finite: the run stops where it was, saves, and names the op."""

import re
import shutil
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from tests.io.alike import same

import weft as wf
from weft import errors
from weft.train import anomaly, whole
from weft.train.running import StepStart
from weft.train.whole import WholeStepper

from .runs import same_checkpoints
from .whole_steps import Way, emulated, gradient_poison, late, loss

MODES = ("eager", "compiled", "late", "emulated", "cuda")
DEVICES = {"emulated": "torch", "cuda": "cuda"}
NAMED = {
    "log": r"log made the first NaN or infinity of the forward pass \(at whole_steps\.py:\d+\)",
    "sqrt": r"backward pass came out of sqrt \(at whole_steps\.py:\d+\)",
    "data": r"made the first NaN .* of the forward pass.*; the data itself is not finite: array 0",
}


def poisoned_batch(way, poison, sample, epoch=0) -> int:
    """The number of the batch with the poisoned sample in an epoch."""
    loader = way.loader(poison, sample)
    for _ in range(epoch + 1):
        batches = list(loader)
    bad = [not np.isfinite(x.numpy()).all() or (good.numpy() <= 0).any() for x, _, good in batches]
    assert sum(bad) == 1
    return bad.index(True)


def fail(way, mode, poison, sample, directory, **plan):
    """A run with poisoned data; returns it and its error."""
    made = way.trainer(
        *(mode != "eager", DEVICES.get(mode, "cpu"), directory),
        loss=gradient_poison if poison == "sqrt" else loss,
    )
    with emulated() if mode == "emulated" else nullcontext():
        with late() if mode in ("late", "emulated") else nullcontext():
            with pytest.raises(errors.AnomalyError) as raised:
                way.fit(made, way.loader(poison, sample), **plan)
    return made, str(raised.value)


def check(way, mode, poison, sample, root, epoch=0) -> None:
    """Check that a run with a sample that is poisoned from an epoch on stops as it should."""
    group = poisoned_batch(way, poison, sample, epoch) // way.accumulate
    first, step = group * way.accumulate, epoch * way.steps + group + 1
    if epoch:
        train(way, mode, poison, root / "run", epochs=epoch)
        shutil.copytree(root / "run", root / "expected")
    made, message = fail(way, mode, poison, sample, root / "run", resume="auto", epochs=epoch + 1)
    assert f"Trainer: step {step}, epoch {epoch}, batch {first}" in message
    what = "gradient's norm is" if poison == "sqrt" else "the loss is nan"
    assert what in message and "nothing was changed" in message
    assert re.search(NAMED[poison], message), message
    assert made.step == step - 1 == len(made.history) == wf.io.latest(root / "run")
    expected = train(way, mode, poison, root / "expected", steps=step - 1, resume="auto")
    compare(made, expected, root)
    if mode == "emulated":
        return  # which takes long, and is no other loop
    again, repeated = fail(way, mode, poison, sample, root / "run", resume="auto", epochs=epoch + 1)
    assert again.step == step - 1
    place = re.compile(r" \(at test_anomalies\.py:\d+\)$")
    assert place.sub("", repeated) == place.sub("", message)


def train(way, mode, poison, directory, **plan):
    """A run without poisoned data."""
    function = gradient_poison if poison == "sqrt" else loss
    made = way.trainer(mode != "eager", DEVICES.get(mode, "cpu"), directory, loss=function)
    with emulated() if mode == "emulated" else nullcontext():
        way.fit(made, **plan)
        if not made.step:
            made.save()
    return made


def compare(made, expected, root) -> None:
    """Compare a run that has stopped with one that was told to stop before the bad step."""
    saved, wanted = (wf.load_checkpoint(root / name) for name in ("run", "expected"))
    assert same_checkpoints(saved, wanted) == []
    assert same(made.weights(), expected.weights())
    assert same(made.optimizer.state_dict(), expected.optimizer.state_dict())
    assert made.cursor.position == expected.cursor.position


def case(seed):
    rng, way = np.random.default_rng(seed), Way(seed)
    return way, ("log", "sqrt", "data")[seed // 3 % 3], int(rng.integers(way.samples))


@pytest.mark.parametrize(
    ("mode", "seed"),
    [(m, k + i) for i, m in enumerate(MODES) for k in range(0, 3 if m == "emulated" else 12, 3)],
)
def test_the_run_stops_saves_and_names_the_operation(mode, seed, tmp_path):
    if mode == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    way, poison, sample = case(seed)
    check(way, mode, poison, sample, tmp_path, epoch=0 if mode == "emulated" else seed % 2)


def late_case(accumulate=1):
    """A case whose bad step, by its last batch, is followed by another one before it is read."""
    way = Way(0)
    way.accumulate, way.save_every, way.validate_every = accumulate, None, None
    last = range(2 * accumulate - 1, (way.steps - 1) * accumulate, accumulate)
    sample = next(s for s in range(way.samples) if poisoned_batch(way, "log", s) in last)
    return way, "late", "log", sample


def test_steps_launched_after_a_bad_one_change_nothing(tmp_path):
    way, mode, poison, sample = late_case()
    made = way.trainer(True)
    with late() as happened, pytest.raises(errors.AnomalyError):
        way.fit(made, way.loader(poison, sample))
    step = poisoned_batch(way, poison, sample) + 1
    assert happened[-2:] == [("launch", step), ("read", step - 1)]  # counted from 0
    check(way, mode, poison, sample, tmp_path)


def forget_flag(monkeypatch):
    launch = WholeStepper.launch

    def not_sticky(self, batches, lr, counts):
        self._flag.reset()
        return launch(self, batches, lr, counts)

    monkeypatch.setattr(WholeStepper, "launch", not_sticky)


def keep_cursor(monkeypatch):
    restore = StepStart.restore

    def without_cursor(self, trainer):
        at = trainer.cursor
        kept = at.state, at.position
        restore(self, trainer)
        at.state, at.position = kept

    monkeypatch.setattr(StepStart, "restore", without_cursor)


def keep_random_state(monkeypatch):
    monkeypatch.setattr(anomaly.random, "set_state", lambda state: None)


def keep_rate(monkeypatch):
    restore = StepStart.restore

    def without_rate(self, trainer):
        groups = trainer.optimizer.param_groups
        kept = [g["lr"] for g in groups]
        restore(self, trainer)
        for group, rate in zip(groups, kept, strict=True):
            group["lr"] = rate

    monkeypatch.setattr(StepStart, "restore", without_rate)


def keep_buffers(monkeypatch):
    monkeypatch.setattr(whole.BufferChanges, "keep_if", lambda self, fits, kept: self.find())


def keep_buffers_of_earlier_batches(monkeypatch):
    keep = whole.BufferChanges.keep_if
    monkeypatch.setattr(whole.BufferChanges, "keep_if", lambda self, fits, _: keep(self, fits, {}))


def plant_nothing(monkeypatch):
    pass


FAULTS = (
    *(forget_flag, keep_cursor, keep_random_state, keep_rate, keep_buffers),
    keep_buffers_of_earlier_batches,
)


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("plant", [plant_nothing, *FAULTS])
def test_the_check_finds_planted_faults(plant, accumulate, tmp_path, monkeypatch):
    way, mode, poison, sample = late_case(accumulate)
    way.scheduled = way.normalised = True
    plant(monkeypatch)
    harmless = plant not in FAULTS or (plant is FAULTS[-1] and accumulate == 1)
    with nullcontext() if harmless else pytest.raises(AssertionError):
        check(way, mode, poison, sample, tmp_path)


@pytest.mark.parametrize("compiled", [False, True])
def test_skipped_steps_are_those_of_an_eager_run(compiled):
    """Also the random numbers: batches after a bad one of the same step are not computed."""
    way = Way(1)
    way.accumulate = 3
    made = way.trainer(compiled, nonfinite="skip")
    way.fit(made, way.loader("log", 3), epochs=3)
    expected = way.trainer(False, nonfinite="skip")
    way.fit(expected, way.loader("log", 3), epochs=3)
    assert len(made.history.skipped) == 3
    for name in made.history.skipped.names:
        a, b = made.history.skipped[name], expected.history.skipped[name]
        np.testing.assert_allclose(a, b, rtol=1e-5, err_msg=name)
    np.testing.assert_allclose(made.history["loss"], expected.history["loss"], rtol=2e-3)


def test_a_full_disk_does_not_hide_the_error(tmp_path, monkeypatch):
    way, _, poison, sample = late_case()
    made = way.trainer(False, directory=tmp_path)

    def full(*args, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("weft.train.trainer.save_checkpoint", full)
    with pytest.raises(errors.AnomalyError, match=r"could not be saved \(OSError: .*No space"):
        way.fit(made, way.loader(poison, sample))


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "The memory did not suffice to look"),
        (torch.OutOfMemoryError(), "The memory did not suffice to look"),
        (KeyError("x"), "Looking for the operation failed: KeyError: 'x'"),
    ],
)
def test_an_operation_that_cannot_be_looked_for(error, said, monkeypatch):
    way, _, poison, sample = late_case()

    def fails(*args):
        raise error

    monkeypatch.setattr(anomaly, "_compute_gradients", fails)
    with pytest.raises(errors.AnomalyError, match=said):
        way.fit(way.trainer(True), way.loader(poison, sample))
