"""Runs that diverge go back to a checkpoint that is sound, which nothing has removed."""

import random
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
from tests.io.alike import same

import weft as wf
from weft import errors
from weft.train.history import History
from weft.train.rewind import ASIDE, check_step, go_back, sound_step

from .runs import same_checkpoints

pytestmark = pytest.mark.filterwarnings("ignore::weft.errors.ResumeWarning")
STEPS = 16


@dataclass(frozen=True)
class Rates:
    """A small rate; from a step on another one."""

    jump: int
    high: float

    def get_lr(self, step: int) -> float:
        return self.high if step >= self.jump else 0.05


def make(directory, save_every, keep, rates, compiled=False, **more):
    wf.random.seed(0)
    x = wf.rand((8, 3)) + 0.5
    data = wf.train.TensorDataset(x, x @ wf.tensor([[1.0], [2.0], [3.0]]))
    loader = wf.train.DataLoader(data, batch_size=4, shuffle=True, seed=1)
    model = wf.nn.Linear(3, 1)
    optimizer = wf.optim.SGD(model, lr=0.05, momentum=0.5)
    options = {"nonfinite": "rewind", "compile": compiled, "progress": False} | more
    trainer = wf.train.Trainer(
        *(model, optimizer, wf.nn.functional.mse_loss),
        schedule=rates,
        directory=directory,
        save_every=save_every,
        keep=keep,
        **options,
    )
    return trainer, loader


def finish(directory, save_every, keep, rates, compiled=False):
    trainer, loader = make(directory, save_every, keep, rates, compiled)
    with np.errstate(all="ignore"):
        trainer.fit(loader, steps=STEPS, resume="auto")
    return trainer


@pytest.mark.parametrize("seed", range(7))
def test_a_run_that_diverged_goes_on_with_a_lower_rate(tmp_path, seed):
    """At once or in many steps, whatever is saved and kept: to the bit as if it had not."""
    draw = random.Random(seed)
    every, keep, compiled = draw.choice([1, 1, 2, 5]), draw.choice([1, 1, 2, 3]), seed % 5 == 0
    jump, high = draw.randint(0, 10), draw.choice([1e30, 1e18, 1e5])
    good, bad = Rates(STEPS, 0.0), Rates(jump, high)
    healthy = finish(tmp_path / "healthy", every, None, good, compiled)
    run = tmp_path / "run"
    for _ in range(2):  # the same command again changes nothing
        with pytest.raises(errors.AnomalyError) as raised:
            finish(run, every, keep, bad, compiled)
        there, said = wf.io.steps(run), str(raised.value)
        assert "nonfinite" not in said and "Lower the learning rate" in said
        if there:
            assert f"will go on from step {there[-1]}, " in said
            assert there[-1] > jump - every and not set(there) & set(wf.io.steps(run / ASIDE))
        else:
            assert "will begin anew" in said and jump <= every
    for step in (s for s in there if s <= jump):
        expected = wf.load_checkpoint(tmp_path / "healthy", step)
        assert same(wf.load_checkpoint(run, step).model_state, expected.model_state)
    if there and there[-1] > jump:  # of a rate that was too high, but the loss was not yet
        go_back(run, max(s for s in (0, *there) if s <= jump))
    assert same(finish(run, every, keep, good, compiled).weights(), healthy.weights())
    left = wf.io.steps(run)
    assert left[-1] == STEPS and keep <= len(left) <= keep + 1


def test_the_state_before_the_step_is_aside(tmp_path):
    with pytest.raises(errors.AnomalyError) as raised:
        finish(tmp_path, 3, 1, Rates(7, 1e30))
    (step,) = wf.io.steps(tmp_path / ASIDE)
    assert f"the state after step {step}, to be looked at, in {tmp_path / ASIDE}" in str(
        raised.value
    )
    weights = wf.load_checkpoint(tmp_path / ASIDE).model_state
    assert max(abs(x.numpy()).max() for x in weights.values()) > 1e20
    assert wf.io.latest(tmp_path) == 6 and "losses before it were" in str(raised.value)


def test_an_emergency_evicts_nothing(tmp_path):
    """Nor does that of "raise", whose state is saved among the others."""
    trainer, loader = make(tmp_path, 3, 1, Rates(7, 1e30), nonfinite="raise")
    with np.errstate(all="ignore"), pytest.raises(errors.AnomalyError, match="is saved in"):
        trainer.fit(loader, steps=STEPS)
    assert wf.io.steps(tmp_path) == [6, trainer.step] and trainer.step > 6


@pytest.mark.parametrize("bad", ["constant", "data"])
def test_what_no_rate_mends_is_named_and_nothing_goes_back(tmp_path, bad):
    trainer, loader = make(tmp_path, 2, 1, Rates(STEPS, 0.0))
    trainer.fit(loader, steps=4)
    trainer, loader = make(tmp_path, 2, 1, Rates(STEPS, 0.0))
    if bad == "data":
        loader.dataset.tensors[0][:] = float("nan")
    else:
        trainer.model.bias.requires_grad_(False)
        model = trainer.model
        wf.random.seed(0)
        optimizer = wf.optim.SGD([("weight", model.weight)], lr=0.05)
        model.bias = wf.Parameter(wf.full((1,), float("nan")), requires_grad=False)
        trainer = wf.train.Trainer(
            *(model, optimizer, wf.nn.functional.mse_loss),
            directory=tmp_path / "other",
            save_every=1,
            nonfinite="rewind",
            progress=False,
        )
    with pytest.raises(errors.AnomalyError) as raised:
        trainer.fit(loader, steps=8, resume="auto")
    said = str(raised.value)
    if bad == "constant":
        assert "not trained is not finite itself" in said and ": bias; load intact" in said
        assert "Lower" not in said
    else:
        assert "the data itself is not finite" in said and wf.io.latest(tmp_path) == 4
    assert not list(tmp_path.rglob(ASIDE))


def test_going_back_to_a_step(tmp_path):
    whole = finish(tmp_path / "whole", 3, None, Rates(STEPS, 0.0))
    finish(tmp_path / "run", 3, None, Rates(STEPS, 0.0))
    run, aside = tmp_path / "run", tmp_path / "run" / ASIDE
    with pytest.raises(errors.CheckpointNotFound, match=r"of step 7; there are \[3, 6"):
        check_step(run, 7)
    for step in (9, 3, 12, 0):
        go_back(run, step)
        assert max(wf.io.steps(run), default=0) == step
        assert sorted(wf.io.steps(run) + wf.io.steps(aside)) == [*range(3, STEPS, 3), STEPS]
    assert same(finish(run, 3, None, Rates(STEPS, 0.0)).weights(), whole.weights())
    go_back(run, 12)
    for folder in (run, aside):
        for step in wf.io.steps(folder):
            saved = wf.load_checkpoint(folder, step)
            assert same_checkpoints(saved, wf.load_checkpoint(tmp_path / "whole", step)) == []
    go_back(tmp_path / "none", 0)


@pytest.mark.parametrize(
    ("losses", "found"),
    [
        ([1, 1, 1, 1], 3),
        ([1, 1, 1, 11], 2),
        ([1, 2, 8, 60, 500, 1e5], 2),
        ([1, 1, float("nan")], 1),
        ([float("inf")], None),
        ([0, 0, 0], 2),
        ([], None),
    ],
)
def test_the_newest_sound_step(losses, found):
    history = History()
    for n, loss in enumerate(losses):
        history.train.append({"step": n + 1, "epoch": 0, "loss": loss})
    with warnings.catch_warnings():
        assert sound_step(history, range(len(losses) + 1)) == found
