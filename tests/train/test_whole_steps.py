"""Whole compiled steps: the run is that of steps in parts, read at once or one step late."""

import signal

import numpy as np
import pytest
import torch

import weft as wf
from weft.train import whole
from weft.train.compiled import CompiledStepper
from weft.train.trainer import Trainer
from weft.train.whole import WholeStepper

from .runs import same_checkpoints
from .whole_steps import Way, emulated, late, numbers

SEEDS = range(12)
cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def compare(found, expected) -> None:
    a, b = (x if isinstance(x, dict) else numbers(x) for x in (found, expected))
    assert set(a) == set(b)
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=2e-3, atol=2e-5, err_msg=name)
    for name in (n for n in a if n.endswith((": step", "updates", " step", " lr", " epoch"))):
        assert np.array_equal(a[name], b[name], equal_nan=True), name


@pytest.mark.parametrize("seed", SEEDS)
def test_a_whole_step_is_an_eager_one(seed):
    way = Way(seed)
    device = ["cpu", "cpu", "torch"][seed % 3]
    compare(way.fit(way.trainer(True, device)), way.fit(way.trainer(False, device)))


@pytest.mark.parametrize("seed", SEEDS[::4])
def test_a_whole_step_is_one_in_parts(seed, monkeypatch):
    way = Way(seed, rebinds=False)
    found = way.fit(way.trainer(True))
    monkeypatch.setattr(Trainer, "_kind_of_step", lambda self: CompiledStepper)
    compare(found, way.fit(way.trainer(True)))


@pytest.mark.parametrize("seed", SEEDS[1::8])
def test_a_whole_step_on_an_emulated_gpu(seed):
    way = Way(seed)
    with emulated(), late():
        found = numbers(way.fit(way.trainer(True, "torch")))
    compare(found, numbers(way.fit(way.trainer(False))))


@cuda
@pytest.mark.parametrize("seed", SEEDS)
def test_a_whole_step_on_cuda(seed):
    way = Way(seed)
    compare(way.fit(way.trainer(True, "cuda")), way.fit(way.trainer(False, "cuda")))


@pytest.mark.parametrize("device", ["cpu", "torch", pytest.param("cuda", marks=cuda)])
def test_what_is_read_is_what_was_there_when_the_read_began(device):
    x = wf.arange(5, dtype="float64", device=device)
    for _ in range(3):
        reads = []
        for k in range(4):
            x.copy_(wf.arange(5, dtype="float64", device=device) + k)
            reads.append(whole.begin_read(x))
        for k, read in enumerate(reads):
            assert read().tolist() == [k, k + 1, k + 2, k + 3, k + 4]


@cuda
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_launch_on_cuda_waits_for_nothing(monkeypatch):
    way, launch, count = Way(3), WholeStepper.launch, 0
    way.accumulate, way.samples, way.ema = 2, 24, 0.9

    def launched(self, batches, lr, counts):
        nonlocal count
        count += 1
        torch.cuda.set_sync_debug_mode("error" if count > 3 else "default")  # compiled, captured
        try:
            return launch(self, batches, lr, counts)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(WholeStepper, "launch", launched)
    way.fit(way.trainer(True, "cuda"), epochs=3)
    assert count == 9


WAITS = ("item", "__bool__", "__float__", "__int__", "__index__", "tolist", "numpy", "cpu")


def test_a_launch_on_an_emulated_gpu_waits_for_nothing(monkeypatch):
    way, launch, count = Way(3), WholeStepper.launch, 0
    way.scheduled, way.normalised, way.ema, way.clip = True, True, 0.9, {"clip_norm": 0.1}
    way.accumulate, way.samples = 2, 24
    monkeypatch.setattr(whole, "begin_read", lambda x: lambda: x._data.numpy())

    def refuse(*args, **kwargs):
        raise AssertionError("a value is read on the host")

    def launched(self, batches, lr, counts):
        nonlocal count
        count += 1
        with pytest.MonkeyPatch.context() as patch:
            for name in WAITS if count > 2 else ():  # compiled, captured
                patch.setattr(torch.Tensor, name, refuse)
            return launch(self, batches, lr, counts)

    monkeypatch.setattr(WholeStepper, "launch", launched)
    monkeypatch.setattr(WholeStepper, "runs_ahead", True)
    with emulated():
        way.fit(way.trainer(True, "torch"))
    assert count == 6


@pytest.mark.parametrize("seed", SEEDS[::2])
def test_steps_that_are_read_late_make_the_same_run(seed, tmp_path):
    way, rows = Way(seed), []

    class Rows(wf.train.Callback):
        reads_model = False

        def on_step_end(self, trainer, row):
            rows[-1].append((trainer.step, trainer.epoch, trainer.samples, row))

    def run(name):
        rows.append([])
        directory = tmp_path / name
        made = way.trainer(True, directory=directory, callbacks=[Rows()])
        way.fit(made)
        return [wf.load_checkpoint(directory / f"step-{s:08}") for s in wf.io.steps(directory)]

    at_once = run("at once")
    with late() as happened:
        one_late = run("one late")
    assert [c.step for c in at_once] == [c.step for c in one_late]
    assert not any(same_checkpoints(a, b) for a, b in zip(at_once, one_late, strict=True))
    assert rows[0] == rows[1]
    order = [happened.index(("read", k)) > happened.index(("launch", k + 1))
             for k in range(len(rows[0]) - 1)]  # fmt: skip
    assert any(order) and not all(order)  # an epoch's last step is read before the next


def test_a_callback_that_reads_the_model_has_each_step_at_once():
    way, seen = Way(0), []

    class Look(wf.train.Callback):
        def on_step_end(self, trainer, row):
            seen.append(trainer.model.first.detach().numpy().copy())

    with late() as happened:
        way.fit(way.trainer(True, callbacks=[Look()]))
    assert [what for what, _ in happened] == ["launch", "read"] * len(seen)
    late_seen, seen = seen, []
    way.fit(way.trainer(True, callbacks=[Look()]))
    assert all(map(np.array_equal, late_seen, seen))


@pytest.mark.parametrize("moment", ["loader", "callback", "interrupt"])
def test_an_error_leaves_no_step_uncounted(moment, monkeypatch):
    way = Way(0)
    way.accumulate = 1

    class Fails(wf.train.Callback):
        reads_model = False

        def on_step_end(self, trainer, row):
            if row["step"] == 3 and moment != "loader":
                raise KeyboardInterrupt if moment == "interrupt" else ValueError("callback")

    class Broken(wf.train.TensorDataset):
        def __getitem__(self, i):
            self.asked = getattr(self, "asked", 0) + 1
            if self.asked > 13 and moment == "loader":
                raise ValueError("loader")
            return super().__getitem__(i)

    data = Broken(*way.data().tensors)
    loader = wf.train.DataLoader(data, batch_size=4, transform=lambda x, generator: x)
    made = way.trainer(True, callbacks=[Fails()])
    with late(), pytest.raises((ValueError, KeyboardInterrupt)):
        way.fit(made, loader)
    steps = 3 if moment == "loader" else 4
    assert made.step == steps == len(made.history)
    assert {own["step"] for own in made.optimizer.state_dict()["state"].values()} == {steps}


def test_an_interrupted_run_that_is_read_late_goes_on_to_the_bit(tmp_path):
    way = Way(3)
    way.save_every = way.validate_every = None

    class Interrupts(wf.train.Callback):
        reads_model = False

        def on_step_end(self, trainer, row):
            if row["step"] == 2:
                signal.raise_signal(signal.SIGINT)

    with late():
        made = way.trainer(True, directory=tmp_path / "a", callbacks=[Interrupts()], signals=True)
        with pytest.raises(KeyboardInterrupt):
            way.fit(made)
        assert made.step == 3 == wf.io.latest(tmp_path / "a")
        way.fit(way.trainer(True, directory=tmp_path / "a"), resume="auto")
    way.fit(way.trainer(True, directory=tmp_path / "b"))
    assert not same_checkpoints(*(wf.load_checkpoint(tmp_path / name) for name in "ab"))
