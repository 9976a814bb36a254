"""What happens beside training: hooks, early stopping, progress, curves, event files."""

import io
import re
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from tensorboardX.proto.event_pb2 import Event
from tests.io.alike import same

import weft as wf
from weft import errors
from weft.train.progress import Bar

from .runs import full_trainer, loader, squares, trainer


class Noting(wf.train.Callback):
    """The moments, in their order."""

    def __init__(self):
        self.moments = []

    def __getattribute__(self, name):
        if name.startswith("on_"):
            note = object.__getattribute__(self, "moments").append
            return lambda trainer, *args: note((name, trainer.step))
        return object.__getattribute__(self, name)


def test_the_moments_in_their_order(tmp_path):
    noting = Noting()
    run = trainer(tmp_path, accumulate=4, save_every=2, callbacks=[noting])
    run.fit(loader(), epochs=2, validation=loader())  # 7 batches: 2 steps in an epoch
    save = ["save_start", "save"]
    epoch = ["step_end", "step_end", *save, "validation_end", "epoch_end"]
    names = ["fit_start", *epoch, *epoch, *save, "fit_end"]
    steps = [0, 1, 2, 2, 2, 2, 2, 3, 4, 4, 4, 4, 4, 4, 4, 4]
    assert noting.moments == [(f"on_{n}", s) for n, s in zip(names, steps, strict=True)]


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("save_every", [1, 2, 7])
@pytest.mark.parametrize("ends", [{"epochs": 1}, {"epochs": 2}, {"steps": 7}, {"steps": 4}])
def test_each_checkpoint_is_written_once(tmp_path, ends, save_every, accumulate):
    """Also where the last step is one to save at, and the end of an epoch."""
    noting = Noting()
    options = dict(save_every=save_every, accumulate=accumulate, keep=None, callbacks=[noting])
    run = trainer(tmp_path, **options)
    run.fit(loader(), **ends, validation=loader(), validate_every=2)
    saves = [s for n, s in noting.moments if n == "on_save"]
    last = run.step
    assert saves == sorted({*range(save_every, last + 1, save_every), last})
    assert wf.load_checkpoint(tmp_path).epoch == run.epoch


def test_the_moments_of_a_run_that_fails_or_leaves_steps_out():
    noting = Noting()
    run = trainer(
        loss=lambda m, b: squares(m, b)[0] * float("nan"),
        nonfinite="skip",
        max_skips=2,
        callbacks=[noting],
    )
    with pytest.raises(errors.AnomalyError):
        run.fit(loader(), steps=4)
    assert [n for n, _ in noting.moments] == ["on_fit_start", "on_skip", "on_skip", "on_error"]


def test_validation_every_few_steps():
    run = trainer()
    history = run.fit(loader(), steps=7, validation=loader(), validate_every=3)
    assert history.validation["step"] == [3, 6]
    assert history.validation.names == ["step", "epoch", "loss", "absolute"]


def test_validation_is_the_mean_over_all_samples_and_changes_nothing():
    run, data = trainer(), loader(batch_size=4)
    run.fit(loader(), steps=2)
    before, position = run.weights(), wf.random.get_state()
    found = run.evaluate(data)
    assert same(before, run.weights()) and wf.random.get_state() == position
    assert (data.epoch, data.position) == (0, 0) and run.model.training
    whole = run.evaluate(loader(batch_size=26))
    assert np.isclose(found["loss"], whole["loss"], rtol=1e-5)
    assert np.isclose(found["absolute"], whole["absolute"], rtol=1e-5)
    assert run.evaluate(list(data)) == found  # any batches will do


def test_parts_in_evaluation_mode_stay_so():
    run, frozen = trainer(), wf.nn.Dropout(0.5)
    run.model.frozen = frozen.eval()
    run.fit(loader(), steps=2, validation=loader(), validate_every=1)
    assert run.model.training and not frozen.training
    run.model.eval()
    run.fit(loader(), steps=3)
    assert run.model.training and frozen.training


def test_validating_does_not_change_the_run():
    def noisy(model, batch):
        return squares(model, batch)[0] * (1 + wf.rand(()))  # draws in validations too

    one = trainer(loss=noisy)
    one.fit(loader(), epochs=2)
    other = trainer(loss=noisy)
    other.fit(loader(), epochs=2, validation=loader())
    assert same(one.weights(), other.weights())


def test_a_plateau_follows_the_validation(tmp_path):
    schedule = wf.optim.PlateauScheduler(0.5, factor=0.5, patience=0)
    run = trainer(tmp_path, loss=lambda m, b: squares(m, b)[0] * 0 + 1, schedule=schedule)
    history = run.fit(loader(), steps=6, validation=loader(), validate_every=2)
    assert history["lr"] == [0.5, 0.5, 0.5, 0.5, 0.25, 0.25]
    again = wf.optim.PlateauScheduler(0.5, factor=0.5, patience=0)
    run = trainer(tmp_path, loss=lambda m, b: squares(m, b)[0] * 0 + 1, schedule=again)
    run.fit(loader(), steps=8, validation=loader(), validate_every=2, resume="auto")
    assert run.history["lr"][-2:] == [0.125, 0.125]


# Stopping


class Losses(wf.nn.Module):
    """A model whose validation losses are given."""

    def __init__(self, losses):
        super().__init__()
        self.at = wf.Parameter([0.0])
        self.losses = losses

    def loss(self, batch):
        step = round(self.at.item() * 10)
        if self.training:
            return -self.at.sum()  # each step of SGD with lr 0.1 adds 0.1
        return wf.tensor(self.losses[step - 1]) + 0 * self.at.sum()


def stopped(losses, directory=None, steps=9, resume=None, **options):
    model = Losses(losses)
    run = wf.train.Trainer(
        model,
        wf.optim.SGD(model, lr=0.1),
        lambda m, b: m.loss(b),
        callbacks=[wf.train.EarlyStopping(**options)],
        progress=False,
        directory=directory,
        save_every=1 if directory else None,
    )
    options = {"validation": loader(), "validate_every": 1, "resume": resume}
    run.fit(loader(), steps=steps, **options)
    return run


@pytest.mark.parametrize(
    ("losses", "options", "step"),
    [
        ([5, 4, 3, 2, 1, 1, 1, 1, 1], {"patience": 2}, 7),
        ([5, 4, 3, 2, 1, 1, 1, 1, 1], {"patience": 3}, 8),
        ([5, 4, 6, 3, 6, 6, 1, 1, 1], {"patience": 2}, 6),
        ([5, 4.5, 4.4, 3, 2.9, 2.8, 1, 1, 1], {"patience": 2, "min_delta": 0.5}, 6),
        ([1, 2, 3, 4, 3, 3, 9, 9, 9], {"patience": 2, "mode": "max"}, 6),
        ([5, float("nan"), float("nan"), 1, 1, 1, 1, 1, 1], {"patience": 2}, 3),
        ([9, 8, 7, 6, 5, 4, 3, 2, 1], {"patience": 1}, 9),
    ],
)
def test_early_stopping(losses, options, step):
    run = stopped(losses, **options)
    assert run.step == step and (run.stopped is None) == (step == 9)


def test_stopping_early_can_bring_the_best_weights_back(tmp_path):
    losses = [5.0, 3.0, 4.0, 4.0, 4.0]
    assert stopped(losses, patience=2).model.at.item() == pytest.approx(0.4)
    run = stopped(losses, tmp_path, patience=2, restore_best=True)
    assert run.model.at.item() == pytest.approx(0.2) and "best with 3" in run.stopped
    assert wf.load_checkpoint(tmp_path).model_state["at"].item() == pytest.approx(0.4)
    again = stopped(losses, tmp_path, resume="auto", patience=2, restore_best=True)
    assert again.step == 4 and again.model.at.item() == pytest.approx(0.2)


def test_a_stopped_run_goes_on_with_more_patience(tmp_path):
    losses = [5.0, 3.0, 4.0, 4.0, 4.0, 4.0]
    assert stopped(losses, tmp_path, patience=2).step == 4
    assert stopped(losses, tmp_path, resume="auto", patience=2).step == 4
    assert stopped(losses, tmp_path, resume="auto", patience=4).step == 6


def test_a_metric_that_is_monitored():
    run = trainer(callbacks=[wf.train.EarlyStopping("absolute", patience=1, min_delta=100.0)])
    run.fit(loader(), epochs=5, validation=loader())
    assert run.history.validation["step"] == [7, 14]  # the first is better than nothing
    with pytest.raises(errors.ArgumentError, match=r"monitor='accuracy'.*loss, absolute"):
        trainer(callbacks=[wf.train.EarlyStopping("accuracy")]).fit(
            loader(), epochs=1, validation=loader()
        )
    with pytest.raises(errors.ArgumentError, match="no validation="):
        trainer(callbacks=[wf.train.EarlyStopping()]).fit(loader(), epochs=1)


@pytest.mark.parametrize("wrong", [{"patience": 0}, {"mode": "least"}, {"min_delta": -1.0}])
def test_early_stopping_refuses(wrong):
    with pytest.raises(errors.ArgumentError, match=next(iter(wrong))):
        wf.train.EarlyStopping(**wrong)


def test_a_callback_may_stop_a_run_and_has_its_state_saved(tmp_path):
    class Count(wf.train.Callback):
        def __init__(self):
            self.count = 0

        def on_step_end(self, trainer, row):
            self.count += 1
            if self.count == 5:
                trainer.stop("that is enough")

        def state_dict(self):
            return {"count": self.count}

        def load_state_dict(self, saved):
            self.count = saved["count"]

    trainer(tmp_path, callbacks=[Count(), Count()]).fit(loader(), steps=3)
    run = trainer(tmp_path, callbacks=[Count(), Count()])
    run.fit(loader(), steps=9, resume="auto")
    assert run.step == 5 and run.stopped == "that is enough"
    assert list(run.callbacks.state_dict()) == ["Count", "Count-2"]
    with pytest.raises(
        errors.StateMismatch, match="saved with Count, Count-2, now there are Count"
    ):
        trainer(tmp_path, callbacks=[Count()]).fit(loader(), steps=9, resume="auto")


def test_a_state_without_a_way_to_load_it(tmp_path):
    class Half(wf.train.Callback):
        def state_dict(self):
            return {"x": 1}

    trainer(tmp_path, callbacks=[Half()]).fit(loader(), steps=1)
    with pytest.raises(errors.StateMismatch, match="define load_state_dict beside state_dict"):
        trainer(tmp_path, callbacks=[Half()]).fit(loader(), steps=2, resume="auto")


# Progress


def test_lines(capsys):
    run = trainer(progress="lines", log_every=3, accumulate=2)
    run.fit(loader(), epochs=2, validation=loader())
    lines = capsys.readouterr().err.splitlines()
    places = [line.split("  ")[0] for line in lines]
    assert places == ["step 3/8", "step 4", "step 6/8", "step 8/8", "step 8"]
    number = r"-?[\d.]+(e[+-]\d+)?"
    pattern = rf"step 3/8  epoch 1  loss {number}  grad norm {number}  lr 0.01  absolute {number}"
    assert re.fullmatch(rf"{pattern}  [\d,.]+ samples/s  ETA \d:\d\d:\d\d", lines[0])
    assert re.fullmatch(rf"step 4  validation  loss {number}  absolute {number}", lines[1])
    loss = run.history["loss"][2]
    assert f"loss {loss:.4g}" in lines[0]


def test_lines_say_what_was_left_out_and_why_it_stopped(capsys):
    calls = iter(range(99))
    run = trainer(
        progress="lines",
        loss=lambda m, b: squares(m, b)[0] * (float("inf") if next(calls) == 1 else 1.0),
        nonfinite="skip",
        callbacks=[wf.train.EarlyStopping(patience=1, min_delta=1e9)],
    )
    run.fit(loader(), steps=20, validation=loader(), validate_every=2)
    said = capsys.readouterr().err
    assert "step 2/20  epoch 1  skipped: not finite (loss inf, grad norm nan)" in said
    assert "stopped: loss was best with" in said


def test_no_progress_and_progress_without_a_terminal(capsys):
    trainer(progress=False).fit(loader(), steps=20)
    assert capsys.readouterr() == ("", "")
    trainer(progress=True).fit(loader(), steps=20)
    assert "step 20/20" in capsys.readouterr().err  # lines, since this is no terminal


def test_a_bar_at_a_terminal(monkeypatch):
    from rich.console import Console

    written = io.StringIO()
    run = trainer(accumulate=2)
    console = Console(file=written, force_terminal=True, width=160, color_system=None)
    run.callbacks.named["Bar"] = Bar(console)
    run.fit(loader(), epochs=3, validation=loader())
    said = written.getvalue()
    last = [line for line in said.splitlines() if "epoch" in line][-1]
    for part in ("epoch 3", "12/12", f"loss {run.history['loss'][-1]:.4g}", "grad norm", "lr 0.01"):
        assert part in last
    assert "samples/s" in last and "ETA 0:00:00" in last and "validation  loss" in said
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert "Bar" in trainer(progress=True).callbacks.named
    assert "Lines" in trainer(progress="lines").callbacks.named


def test_a_bar_ends_with_an_error():
    from rich.console import Console

    run = trainer(loss=lambda m, b: squares(m, b)[0] * float("nan"))
    bar = Bar(Console(file=io.StringIO(), force_terminal=True))
    run.callbacks.named["Bar"] = bar
    with pytest.raises(errors.AnomalyError):
        run.fit(loader(), steps=3)
    assert bar._bar.live.is_started is False


def test_without_rich(monkeypatch):
    monkeypatch.setattr("weft.train.progress.find_spec", lambda name: None)
    with pytest.raises(errors.ArgumentError, match=r"pip install 'weft\[train\]'"):
        trainer(progress="bar")


# Curves


def test_curves(tmp_path):
    path = tmp_path / "pictures" / "curves.png"
    run = trainer(callbacks=[wf.train.Curves(path)], ema=0.9)
    run.fit(loader(), epochs=6, validation=loader())
    picture = imread(path)
    assert picture.shape[:2] == (880, 800)  # four panels: loss, gradient norm, rate, a metric
    blue, orange = (31, 119, 180), (255, 127, 14)  # the first two colours: training, validation
    rgb = np.round(picture[..., :3] * 255).astype(int)

    def coloured(panel: int, colour) -> int:
        part = rgb[220 * panel : 220 * (panel + 1)]
        return int((abs(part - colour).sum(-1) < 60).sum())

    assert all(coloured(panel, blue) > 100 for panel in range(4))
    assert coloured(0, orange) > 50 and coloured(3, orange) > 50
    assert coloured(1, orange) == coloured(2, orange) == 0


def test_curves_are_drawn_at_saves_that_are_not_too_close(tmp_path, monkeypatch):
    path, seen, now, drawn = tmp_path / "curves.png", [], [0.0], []
    monkeypatch.setattr("weft.train.curves.perf_counter", lambda: now[0])

    def draw(history, path):
        drawn.append(len(history))
        now[0] += 1.0  # a picture takes a second, and a step nine

    class Tick(wf.train.Callback):
        def on_step_end(self, trainer, row):
            now[0] += 9.0

    monkeypatch.setattr("weft.train.curves.draw_curves", draw)
    run = trainer(tmp_path / "a", save_every=1, callbacks=[Tick(), wf.train.Curves(path)])
    run.fit(loader(), steps=8)
    assert drawn == [1, 4, 7, 8]
    monkeypatch.undo()

    class Look(wf.train.Callback):
        def on_step_end(self, trainer, row):
            seen.append(path.exists())

    run = trainer(tmp_path / "run", save_every=2, callbacks=[wf.train.Curves(path), Look()])
    run.fit(loader(), steps=4)
    assert seen == [False, False, True, True]


def test_curves_of_nothing(tmp_path):
    with pytest.raises(errors.ArgumentError, match="no steps yet"):
        wf.train.draw_curves(wf.train.History(), tmp_path / "a.png")
    run = trainer(callbacks=[wf.train.Curves(tmp_path / "a.png")])
    run.fit(loader(), steps=0)
    assert not (tmp_path / "a.png").exists()


def test_curves_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.train.curves.find_spec", lambda name: None)
    with pytest.raises(errors.ArgumentError, match=r"pip install 'weft\[plot\]'"):
        wf.train.draw_curves(wf.train.History(), tmp_path / "a.png")


# Event files


def crc32c(data: bytes) -> int:
    """The checksum of RFC 3720, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def events(directory: Path) -> list[Event]:
    """The events of all files, whose TFRecord frames must be whole."""
    assert crc32c(b"123456789") == 0xE3069283  # the check value of the standard
    found = []
    for path in sorted(directory.iterdir()):
        content, at = path.read_bytes(), 0
        while at < len(content):
            length, check = struct.unpack_from("<QI", content, at)
            data = content[at + 12 : at + 12 + length]
            assert check == masked(content[at : at + 8])
            assert struct.unpack_from("<I", content, at + 12 + length)[0] == masked(data)
            found.append(Event.FromString(data))
            at += 16 + length
        assert at == len(content)
    return found


def scalars(found: list[Event], tag: str) -> list[tuple[int, float]]:
    return [(e.step, v.simple_value) for e in found for v in e.summary.value if v.tag == tag]


def as_float32(steps, values) -> list[tuple[int, float]]:
    return list(zip(steps, np.array(values, np.float32).tolist(), strict=True))


def test_event_files(tmp_path):
    run = trainer(callbacks=[wf.train.TensorBoard(tmp_path)])
    history = run.fit(loader(), epochs=2, validation=loader())
    found = events(tmp_path)
    for name in ("loss", "grad_norm", "lr", "absolute", "epoch"):
        assert scalars(found, f"train/{name}") == as_float32(history["step"], history[name])
    for name in ("loss", "absolute"):
        column = history.validation[name]
        assert scalars(found, f"validation/{name}") == as_float32([7, 14], column)


def test_event_files_every_few_steps_and_after_a_resume(tmp_path):
    board = wf.train.TensorBoard(tmp_path / "events", every=3)
    trainer(tmp_path / "run", callbacks=[board]).fit(loader(), steps=4)
    first = scalars(events(tmp_path / "events"), "train/loss")
    assert [step for step, _ in first] == [3]
    board = wf.train.TensorBoard(tmp_path / "events", every=3)
    trainer(tmp_path / "run", callbacks=[board]).fit(loader(), steps=7, resume="auto")
    found = events(tmp_path / "events")
    assert [step for step, _ in scalars(found, "train/loss")] == [3, 6]
    started = [e.step for e in found if e.HasField("session_log") and e.session_log.status == 1]
    assert started == [0, 4]  # what an earlier file has from here on is void


def test_event_files_of_a_run_that_fails(tmp_path):
    board = wf.train.TensorBoard(tmp_path)
    run = trainer(
        loss=lambda m, b: squares(m, b)[0] * (float("nan") if len(run.history) == 3 else 1.0),
        callbacks=[board],
    )
    with pytest.raises(errors.AnomalyError):
        run.fit(loader(), steps=9)
    assert [step for step, _ in scalars(events(tmp_path), "train/loss")] == [1, 2, 3]


def test_event_files_refuse(tmp_path, monkeypatch):
    with pytest.raises(errors.ArgumentError, match="every=0"):
        wf.train.TensorBoard(tmp_path, every=0)
    monkeypatch.setattr("weft.train.events.find_spec", lambda name: None)
    with pytest.raises(errors.ArgumentError, match=r"pip install 'weft\[train\]'"):
        wf.train.TensorBoard(tmp_path)


# The history


def test_metrics_come_and_go():
    calls = iter(range(99))

    def loss(model, batch):
        value, _ = squares(model, batch)
        return (value, {"third": 3.0}) if next(calls) % 3 == 2 else value

    history = trainer(loss=loss).fit(loader(), steps=6)
    assert [x == 3.0 for x in history["third"]] == [False, False, True] * 2
    assert np.isnan(history["third"][0]) and len(history) == 6
    with pytest.raises(KeyError, match="no column 'fourth', only step, epoch, loss"):
        history["fourth"]
    assert repr(history) == "History(6 train, 0 validation, 0 skipped)"


def test_the_history_survives_a_save_to_the_bit(tmp_path):
    full_trainer(tmp_path).fit(loader(), epochs=2, validation=loader())
    run = full_trainer(tmp_path)
    again = run.fit(loader(), epochs=2, validation=loader(), resume="auto")
    saved = wf.load_checkpoint(tmp_path).extra["history"]
    assert same(again.state_dict(), saved)
    assert all(type(x) is int for x in again["step"]) and type(again["loss"][0]) is float
