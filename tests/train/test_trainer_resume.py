"""Going on with a run: from which checkpoint, what must be the same, and how runs are ended."""

import os
import signal
import threading
from dataclasses import replace

import pytest
from tests.io.alike import same

import weft as wf
from weft import errors
from weft.train import state

from .runs import (
    Net,
    finish,
    full_trainer,
    loader,
    pairs,
    same_checkpoints,
    same_state,
    squares,
    trainer,
)


def newest(directory) -> wf.Checkpoint:
    return wf.load_checkpoint(directory)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The last checkpoint of a run that nothing interrupted."""
    root = tmp_path_factory.mktemp("whole")
    finish(root)
    return newest(root)


class At(wf.train.Callback):
    """Does something once, at the end of a step."""

    def __init__(self, step: int, what):
        self.step, self.what = step, what

    def on_step_end(self, trainer, row):
        if row["step"] == self.step:
            self.what()


def begin(directory, what, step=7, **options):
    """The run with everything, in which something happens at the end of a step."""
    run = full_trainer(directory, **options)
    run.callbacks.named["At"] = At(step, what)
    return run.fit(loader(), epochs=4, validation=loader(shuffle=False, batch_size=9))


def test_two_runs_are_the_same_to_the_bit(tmp_path, whole):
    finish(tmp_path)
    assert same_checkpoints(whole, newest(tmp_path)) == []


def test_every_field_of_the_checkpoint_is_used(whole):
    names = [name for name, value in vars(whole).items() if value in (None, {}, 0)]
    assert names == ["scaler", "schedule"]  # neither has a state in this run
    assert whole.extra["callbacks"]["EarlyStopping"]["kept"]["ema"]["updates"] > 0


@pytest.mark.parametrize("step", range(1, 16))
def test_an_exception_after_any_step(tmp_path, whole, step):
    def fail():
        raise RuntimeError("here")

    with pytest.raises(RuntimeError, match="here"):
        begin(tmp_path, fail, step)
    assert wf.io.latest(tmp_path) == ((step - 1) // 2 * 2 or None)
    finish(tmp_path)
    assert same_checkpoints(whole, newest(tmp_path)) == []


def test_a_finished_run_goes_on_without_a_step(tmp_path, whole):
    finish(tmp_path)
    manifest = tmp_path / "step-00000016" / "manifest.json"
    before = manifest.stat().st_mtime_ns
    run = full_trainer(tmp_path)
    options = {"epochs": 4, "validation": loader(shuffle=False, batch_size=9), "resume": "auto"}
    history = run.fit(loader(), **options)
    assert "nothing to do: the run is at step 16, epoch 4" in run.idle
    assert history["loss"] == whole.extra["history"]["train"]["loss"].tolist()
    assert manifest.stat().st_mtime_ns == before and run.step == 16


def test_it_may_go_on_for_longer(tmp_path):
    run = trainer(tmp_path, ema=0.5)
    run.fit(loader(), epochs=2)
    again = trainer(tmp_path, ema=0.5)
    again.fit(loader(), epochs=3, resume="auto")
    straight = trainer(ema=0.5)
    straight.fit(loader(), epochs=3)
    assert same_state(again, straight)
    run.fit(loader(), steps=0)
    assert run.step == 14


def test_fit_goes_on_in_the_same_process(tmp_path):
    run, data = trainer(tmp_path, ema=0.5), loader()
    for steps in (3, 7, 12):
        run.fit(data, steps=steps)
    straight = trainer(ema=0.5)
    straight.fit(loader(), steps=12)
    assert same_state(run, straight) and wf.io.steps(tmp_path) == [3, 7, 12]


def layers() -> wf.nn.Module:
    nn = wf.nn
    return nn.Sequential(
        nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1)
    )


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_layers_with_buffers_and_random_numbers(tmp_path, device):
    data = wf.train.TensorDataset(*[x.to(device) for x in pairs().tensors])

    def fitted(directory, steps, resume=None):
        wf.random.seed(3)
        model, batches = layers().to(device), wf.train.DataLoader(data, 4, shuffle=True)
        loss, optimizer = wf.nn.functional.mse_loss, wf.optim.Adam(model, lr=0.01)
        run = wf.train.Trainer(model, optimizer, loss, directory=directory, progress=False)
        run.fit(batches, steps=steps, resume=resume)
        return run

    whole = fitted(None, 12)
    fitted(tmp_path, 5)
    assert same_state(whole, fitted(tmp_path, 12, "auto"))
    assert whole.model[1].num_batches_tracked.item() == 12


def test_statistics_of_a_batch_that_is_not_finite_are_not_kept():
    wf.random.seed(3)
    model, spoilt = layers(), iter([False, True, False])

    def loss(model, batch):
        x, y = batch
        x = x * float("nan") if next(spoilt) else x
        return ((model(x) - y) ** 2).mean()

    run = wf.train.Trainer(
        model, wf.optim.SGD(model, lr=0.01), loss, nonfinite="skip", progress=False
    )
    run.fit(loader(), steps=2)
    assert model[1].num_batches_tracked.item() == 2
    assert wf.isfinite(model[1].running_mean).all() and wf.isfinite(model[1].running_var).all()


# Which checkpoint


def damage(directory, step: int) -> None:
    path = directory / f"step-{step:08d}" / "model_state.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def test_a_damaged_checkpoint_is_passed_over(tmp_path, whole):
    with pytest.raises(RuntimeError):
        begin(tmp_path, lambda: exec("raise RuntimeError"), step=9)
    assert wf.io.steps(tmp_path) == [6, 8]
    damage(tmp_path, 8)
    expected = "step-00000008 is damaged; going on from .*step-00000006"
    with (
        pytest.warns(errors.CheckpointWarning, match="passed over.*step-00000008"),
        pytest.warns(errors.CheckpointWarning, match=expected),
    ):
        finish(tmp_path)
    assert same_checkpoints(whole, newest(tmp_path)) == []


def test_if_all_are_damaged_nothing_begins_anew(tmp_path):
    trainer(tmp_path, save_every=2).fit(loader(), steps=4)
    damage(tmp_path, 2)
    damage(tmp_path, 4)
    with pytest.raises(errors.CheckpointNotFound, match=r"no valid.*step-0+4.*step-0+2"):
        trainer(tmp_path).fit(loader(), steps=9, resume="auto")


def test_a_path_to_resume_from(tmp_path):
    first = trainer(tmp_path / "a", save_every=2, keep=None)
    first.fit(loader(), steps=6)
    branch = trainer(tmp_path / "b")
    branch.fit(loader(), steps=6, resume=tmp_path / "a" / "step-00000002")
    assert same_state(first, branch) and wf.io.steps(tmp_path / "b") == [6]
    without_directory = trainer()
    without_directory.fit(loader(), steps=6, resume=tmp_path / "a")
    assert same_state(first, without_directory)
    with pytest.raises(errors.CheckpointNotFound):
        trainer(tmp_path / "b").fit(loader(), steps=6, resume=tmp_path / "c")


def test_runs_do_not_mix_in_a_directory(tmp_path):
    trainer(tmp_path, save_every=2).fit(loader(), steps=6)
    with pytest.raises(errors.ArgumentError, match=r"steps \[2, 4, 6\].*resume='auto'"):
        trainer(tmp_path).fit(loader(), steps=6)
    with pytest.raises(
        errors.ArgumentError, match=r"steps \[4, 6\], and this run begins at step 2"
    ):
        trainer(tmp_path).fit(loader(), steps=6, resume=tmp_path / "step-00000002")
    with pytest.raises(errors.ArgumentError, match="needs a directory"):
        trainer().fit(loader(), steps=6, resume="auto")
    with pytest.raises(
        errors.ArgumentError, match="resume=True, expected None, 'auto' or the path"
    ):
        trainer(tmp_path).fit(loader(), steps=6, resume=True)


def test_one_run_at_a_time_in_a_directory(tmp_path):
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:

        def wait():
            os.write(writing, b"x")
            signal.pause()

        try:
            begin(tmp_path, wait, step=1)
        finally:
            os._exit(0)
    os.read(reading, 1)
    try:
        with pytest.raises(errors.CheckpointLocked, match=str(pid)):
            finish(tmp_path)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)
        os.close(writing)


# What must be the same


def saved(directory, **options):
    trainer(directory, **options).fit(loader(), steps=3)


def refused(directory, data=None, **options) -> str:
    """What the error says; nothing may have changed."""
    run = trainer(directory, **options)
    before, cursor = run.weights(), (data or loader()).state_dict()
    data = data or loader()
    with pytest.raises(errors.StateMismatch, match="nothing was loaded") as caught:
        run.fit(data, steps=5, resume="auto")
    assert same(before, run.weights()) and data.state_dict() == cursor and run.step == 0
    assert run.optimizer.state_dict()["state"] == {} and len(run.history) == 0
    return str(caught.value)


def test_another_model_and_all_else_that_differs(tmp_path):
    full_trainer(tmp_path).fit(loader(), steps=3, validation=loader())
    wf.random.seed(0)
    model = Net(width=7)
    model.third = wf.Parameter([1.0])
    run = wf.train.Trainer(model, wf.optim.SGD(model), squares, directory=tmp_path, progress=False)
    with pytest.raises(errors.StateMismatch) as caught:
        run.fit(loader(batch_size=5, seed=9), steps=5, resume="auto")
    said = str(caught.value)
    assert "missing: third" in said and "first: shape (3, 6), the module has (3, 7)" in said
    assert "'AdamW', expected 'SGD'" in said
    assert "seed (9 here, 5 in the state)" in said and "batch_size (5 here, 4" in said
    assert "ema: in the checkpoint, but not here" in said
    assert "saved with EarlyStopping, now there are none" in said


def test_another_optimizer(tmp_path):
    saved(tmp_path)
    assert "'AdamW', expected 'Adam'" in refused(tmp_path, optimizer=wf.optim.Adam)
    some = refused(tmp_path, optimizer=lambda m: wf.optim.AdamW([("first", m.first)]))
    assert "unexpected: second" in some


def test_another_dtype_is_another_model(tmp_path):
    saved(tmp_path)
    run = trainer(tmp_path)
    run.model.double()
    with pytest.raises(errors.StateMismatch, match=r"model: first is float64, in .* float32"):
        run.fit(loader(), steps=5, resume="auto")


def test_parts_that_only_one_side_has(tmp_path):
    saved(tmp_path, ema=0.9, schedule=wf.optim.CosineScheduler(0.1, total_steps=9))
    assert "ema: in the checkpoint" in refused(tmp_path, save_every=2)
    plateau = trainer(tmp_path, ema=0.9, schedule=wf.optim.PlateauScheduler(0.1))
    with pytest.raises(errors.StateMismatch, match="schedule: not in the checkpoint"):
        plateau.fit(loader(), steps=5, resume="auto", validation=loader())


def test_a_checkpoint_that_no_trainer_saved(tmp_path):
    saved(tmp_path)
    found = newest(tmp_path)
    for extra in (None, {"history": {}}, found.extra | {"surprise": 1}):
        wf.save_checkpoint(tmp_path, replace(found, extra=extra))
        with pytest.raises(errors.StateMismatch, match="not saved by a Trainer"):
            trainer(tmp_path).fit(loader(), steps=5, resume="auto")


@pytest.mark.parametrize("part", ["model_state", "optimizer_state", "data", "history", "callbacks"])
def test_unknown_keys_are_named(tmp_path, part):
    full_trainer(tmp_path).fit(loader(), steps=3, validation=loader())
    found = newest(tmp_path)
    holder = found.extra if part in found.extra else vars(found)
    changed = {**holder[part], "surprise": wf.ones(2)}
    if part == "optimizer_state":
        changed = {**holder[part], "state": {**holder[part]["state"], "surprise": {}}}
    extra = {**found.extra, part: changed} if part in found.extra else found.extra
    changes = {"extra": extra} if part in found.extra else {part: changed}
    wf.save_checkpoint(tmp_path, replace(found, **changes))
    with pytest.raises(errors.StateMismatch, match="surprise"):
        full_trainer(tmp_path).fit(loader(), steps=5, validation=loader(), resume="auto")


def test_other_settings_are_a_warning(tmp_path):
    saved(tmp_path, accumulate=2, clip_norm=1.0)
    run = trainer(tmp_path, accumulate=3, clip_value=0.5)
    with pytest.warns(errors.ResumeWarning) as caught:
        run.fit(loader(), steps=5, resume="auto")
    said = str(caught[0].message)
    assert "accumulate: 2, then 3" in said and "clip_norm: 1.0, then None" in said
    assert "clip_value: None, then 0.5" in said and run.step == 5


def test_another_machine_is_a_warning(tmp_path, monkeypatch):
    saved(tmp_path)
    known = state.fingerprint()
    monkeypatch.setattr(state, "fingerprint", lambda: known | {"numpy": "0.0.1"})
    with pytest.warns(errors.ResumeWarning, match=r"hardware.*numpy: '.*', then '0\.0\.1'"):
        trainer(tmp_path).fit(loader(), steps=5, resume="auto")


def test_whether_another_library_was_loaded_says_nothing(tmp_path, monkeypatch):
    saved(tmp_path)
    known = state.fingerprint()
    monkeypatch.setattr(state, "fingerprint", lambda: known | {"torch": None})
    trainer(tmp_path).fit(loader(), steps=5, resume="auto")  # warnings are errors here


def test_streams_of_single_operations_are_a_part_of_the_run(tmp_path):
    def fitted(directory, steps, resume=None):
        with wf.deterministic(seed=7):
            run = trainer(directory)
            run.fit(loader(), steps=steps, resume=resume)
        return run

    whole = fitted(None, 6)
    fitted(tmp_path, 3)
    assert "rng: set_state: the state has streams" in refused(tmp_path)
    assert same_state(whole, fitted(tmp_path, 6, "auto"))


# Signals


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("step", [1, 4, 7])  # step 4 is the last of an epoch
def test_an_interrupt_waits_for_the_step_and_its_checkpoint(tmp_path, whole, step):
    with pytest.raises(KeyboardInterrupt):
        begin(tmp_path, interrupt, step)
    assert wf.io.latest(tmp_path) == step
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finish(tmp_path)
    assert same_checkpoints(whole, newest(tmp_path)) == []


def test_a_second_interrupt_does_not_wait(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        begin(tmp_path, lambda: (interrupt(), interrupt()))
    assert wf.io.latest(tmp_path) == 6


def test_an_interrupt_without_signals(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        begin(tmp_path, interrupt, signals=False)
    assert wf.io.latest(tmp_path) == 6


def test_a_termination_takes_effect_after_the_checkpoint(tmp_path, whole):
    seen = []

    def ended(number, frame):
        seen.append(wf.io.latest(tmp_path))
        raise SystemExit(143)

    before = signal.signal(signal.SIGTERM, ended)
    try:
        with pytest.raises(SystemExit):
            begin(tmp_path, lambda: signal.raise_signal(signal.SIGTERM))
        assert seen == [7] and signal.getsignal(signal.SIGTERM) is ended
    finally:
        signal.signal(signal.SIGTERM, before)
    finish(tmp_path)
    assert same_checkpoints(whole, newest(tmp_path)) == []


def test_an_interrupt_while_a_run_ends(tmp_path):
    class Late(wf.train.Callback):
        def on_fit_end(self, trainer):
            interrupt()

    run = trainer(tmp_path, callbacks=[Late()])
    with pytest.raises(KeyboardInterrupt):
        run.fit(loader(), steps=3)
    assert wf.io.latest(tmp_path) == 3


def test_a_handler_that_returns_lets_the_run_go_on(tmp_path, whole):
    seen = []
    before = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        begin(tmp_path, interrupt)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT] and same_checkpoints(whole, newest(tmp_path)) == []


def test_runs_in_other_threads(tmp_path, whole):
    thread = threading.Thread(target=finish, args=(tmp_path,))
    thread.start()
    thread.join()
    assert same_checkpoints(whole, newest(tmp_path)) == []
