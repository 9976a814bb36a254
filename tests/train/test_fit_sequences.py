"""Sequences of fits, resumes, peeks and evaluations: one run, whatever is done on the way."""

import os
import random
import warnings

import pytest

import weft as wf
from weft import errors

from .runs import loader, same_state, trainer

ROUNDS = 60 if os.environ.get("WEFT_SOAK") else 10
SIZE = 7  # batches in an epoch


class Peeks(wf.train.Callback):
    """Loops over the loader that is being trained on, now and then."""

    def __init__(self, batches, draw):
        self.batches, self.draw = batches, draw

    def on_step_end(self, trainer, row):
        if self.draw.random() < 0.3:
            next(iter(self.batches))
        if self.draw.random() < 0.2:
            trainer.evaluate(self.batches)


def between(run, batches, draw) -> None:
    """What programs do between two calls of fit."""
    for _ in range(draw.randrange(3)):
        kind = draw.choice(["peek", "break", "pass", "evaluate", "nothing"])
        if kind == "peek":
            next(iter(batches))
        elif kind == "break":
            for k, _ in enumerate(batches):
                if k == 2:
                    break
        elif kind == "pass":
            list(batches)
        elif kind == "evaluate":
            run.evaluate(batches)


@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("accumulate", [1, 2])
def test_fits_in_pieces_are_one_run(tmp_path, seed, accumulate):
    """Beside one call of fit: a new process now and then, and the loader used in between."""
    draw = random.Random(seed)
    whole = trainer(accumulate=accumulate)
    whole.fit(loader(), epochs=4)
    total, each = whole.step, -(-SIZE // accumulate)
    batches, run = None, None
    asked, by_epochs = 0, 0
    while run is None or run.step < total:
        resume = run is None or draw.random() < 0.3
        if resume:
            batches = loader(workers=draw.choice([0, 2]))
            peeks = Peeks(batches, draw)
            run = trainer(tmp_path, accumulate=accumulate, callbacks=[peeks])
        before = run.step
        if draw.random() < 0.5:
            asked = draw.randint(asked, total)
            options = {"steps": asked}
            wanted = asked
        else:
            by_epochs = draw.randint(by_epochs, 4)
            options = {"epochs": by_epochs}
            wanted = by_epochs * each
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            run.fit(batches, **options, resume="auto" if resume else None)
        found = [w for w in told if w.category is errors.NothingToDoWarning]
        at = run.step
        assert at >= wanted and (at == max(before, wanted) or resume)
        idle = before >= wanted and not resume and 0 not in options.values()
        assert bool(found) == idle and (run.idle is not None or not idle)
        assert all(w.filename == __file__ for w in found)
        asked, by_epochs = max(asked, at), max(by_epochs, at // each)
        if run.step < total:
            between(run, batches, draw)
    assert same_state(whole, run)
    assert run.history["loss"] == whole.history["loss"]
    assert run.history["epoch"] == whole.history["epoch"]


def test_a_second_fit_says_that_it_does_nothing(capsys):
    run, batches = trainer(progress="lines"), loader()
    run.fit(batches, epochs=2)
    with pytest.warns(
        errors.NothingToDoWarning, match="epochs=2.*step 14, epoch 2.*larger"
    ) as told:
        run.fit(batches, epochs=2)
    assert told[0].filename == __file__ and "nothing to do" in capsys.readouterr().err
    run.fit(batches, epochs=3)
    assert run.step == 21 and run.idle is None
    with pytest.warns(errors.NothingToDoWarning, match=r"steps=20"):
        run.fit(batches, steps=20)
    run.fit(batches, steps=22)
    assert run.step == 22
    other = loader()
    list(other)  # an epoch of somebody else's does not count
    fresh = trainer()
    fresh.fit(other, epochs=1)
    assert fresh.step == SIZE and fresh.epoch == 1


def test_nothing_was_asked_for():
    run = trainer()
    run.fit(loader(), steps=0)
    run.fit(loader(), epochs=0)
    assert run.step == 0 and run.idle is None


def test_a_state_that_was_loaded_into_the_loader_counts():
    source = loader()
    batches = iter(source)
    for _ in range(3):
        next(batches)
    target = loader()
    target.load_state_dict(source.state_dict())
    run = trainer()
    run.fit(target, epochs=1)
    assert run.step == SIZE - 3


def test_evaluation_sees_all_batches_wherever_the_loader_is():
    run, data = trainer(), loader()
    expected = run.evaluate(loader())
    next(iter(data))
    assert run.evaluate(data) == run.evaluate(list(data.all_batches()))
    assert run.evaluate(data)["loss"] == pytest.approx(expected["loss"], rel=1e-6)


def test_a_run_on_another_device_says_so(tmp_path):
    def made(**options):
        wf.random.seed(0)
        model = wf.nn.Linear(3, 1)
        optimizer = wf.optim.AdamW(model, lr=0.01)
        options = {"directory": tmp_path, "progress": False, **options}
        return wf.train.Trainer(model, optimizer, wf.nn.functional.mse_loss, **options)

    made().fit(loader(), steps=2)
    run = made(device="torch")
    with pytest.warns(errors.ResumeWarning, match="device: 'cpu', then 'torch'") as told:
        run.fit(loader(), steps=4, resume="auto")
    assert run.step == 4 and told[0].filename == __file__
