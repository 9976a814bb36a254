"""Training in half precision: what is cast, what an overflow leaves alone, what is reached."""

from itertools import pairwise

import numpy as np
import pytest
from tests.io.alike import same

import weft as wf
from weft import errors

from .runs import loader, same_checkpoints, squares, trainer


class Noting(wf.train.Callback):
    """All states after each step that was applied or left out."""

    def __init__(self):
        self.seen = []

    def on_step_end(self, trainer, row):
        states = {"optimizer": trainer.optimizer.state_dict(), "ema": trainer.ema.state_dict()}
        self.seen.append((row["step"], {**trainer.weights(), **states, "step": trainer.step}))

    def on_skip(self, trainer, row):
        self.on_step_end(trainer, {"step": "left out"})


def dtypes_of(precision) -> list[str]:
    """The dtypes of a product and of the loss in a run."""
    found = []

    def loss(model, batch):
        product = batch[0] @ model.first
        value, _ = squares(model, batch)
        found.extend([product.dtype.name, value.dtype.name])
        return value

    trainer(loss=loss, precision=precision).fit(loader(), steps=1)
    return found[:2]


def test_operations_are_cast_as_the_precision_says():
    assert dtypes_of(None) == dtypes_of("float32") == ["float32", "float32"]
    assert dtypes_of("bfloat16") == ["bfloat16", "float32"]
    assert dtypes_of("float16") == ["float16", "float32"]
    config = wf.amp.AmpConfig(precision_mode="bfloat16")
    assert dtypes_of(config) == ["bfloat16", "float32"]
    assert dtypes_of(wf.amp.AmpConfig(enabled=False)) == ["float32", "float32"]
    assert dtypes_of(wf.amp.AmpConfig(keep_fp32_ops=["matmul"])) == ["float32", "float32"]


def test_which_scaler_a_run_has():
    assert trainer().scaler is trainer(precision="bfloat16").scaler is None
    assert trainer(precision="float16").scaler.get_scale() == 65536.0
    config = wf.amp.AmpConfig(loss_scaler=wf.amp.Static(8.0))
    assert trainer(precision=config).scaler.get_scale() == 8.0
    assert trainer(precision=wf.amp.AmpConfig(loss_scaler=None)).scaler is None
    own = wf.amp.GradScaler(init_scale=2.0)
    assert trainer(precision="float16", scaler=own).scaler is own
    assert trainer(precision="float16", scaler=wf.amp.GradScaler(enabled=False)).scaler is None


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_a_step_that_overflows_leaves_everything_as_it_was(precision):
    noting = Noting()
    scaler = wf.amp.GradScaler(init_scale=2.0**127, growth_interval=4, backoff_factor=0.25)
    run = trainer(
        precision=precision, scaler=scaler, ema=0.9, callbacks=[noting], clip_norm=1.0, max_skips=90
    )
    before = run.weights()
    history = run.fit(loader(), steps=20)
    skips = len(history.skipped)
    assert skips > 1 and set(history.skipped["overflow"]) == {1}
    assert history["step"] == list(range(1, 21)) and run.samples > 20 * 3
    assert noting.seen[0][0] == "left out" and same(before["model"], noting.seen[0][1]["model"])
    for (_, earlier), (what, state) in pairwise(noting.seen):
        assert same(state, earlier) == (what == "left out")


def test_float16_reaches_the_loss_of_float32():
    def reached(**options):
        wf.random.seed(0)
        model = wf.nn.Sequential(wf.nn.Linear(3, 16), wf.nn.Tanh(), wf.nn.Linear(16, 1))
        x = wf.randn((256, 3))
        data = wf.train.TensorDataset(x, wf.sin(x.sum(-1, True)) + 0.3 * wf.randn((256, 1)))
        batches = wf.train.DataLoader(data, batch_size=32, shuffle=True)
        run = wf.train.Trainer(
            model,
            wf.optim.Adam(model, lr=0.01),
            wf.nn.functional.mse_loss,
            schedule=wf.optim.CosineScheduler(0.01, total_steps=320),
            progress=False,
            **options,
        )
        run.fit(batches, epochs=40)
        run._precision = type(run._precision)()  # evaluated alike
        return run.evaluate(batches)["loss"]

    expected = reached()
    assert expected < 0.2  # of which 0.09 are noise
    for precision in ("float16", "bfloat16"):
        assert abs(reached(precision=precision) - expected) <= 0.02 * expected
    # A power of two changes no digit, as long as nothing is too small or too large for float32.
    assert reached(scaler=wf.amp.GradScaler(init_scale=1024.0)) == expected


def test_a_gradient_that_no_scale_helps_is_an_error_in_the_end():
    def hopeless(model, batch):
        value, _ = squares(model, batch)
        return value + wf.sqrt(model.first - model.first.detach()).sum()

    run = trainer(loss=hopeless, precision="float16", max_skips=5)
    with pytest.raises(errors.AnomalyError, match="first; 5 steps in a row"):
        run.fit(loader(), epochs=9)
    assert run.scaler.get_scale() == 65536.0 / 2**5 and run.step == 0


def test_a_loss_that_is_not_finite_is_no_overflow():
    run = trainer(loss=lambda m, b: squares(m, b)[0] * float("nan"), precision="float16")
    with pytest.raises(errors.AnomalyError, match="the loss is nan"):
        run.fit(loader(), steps=1)
    assert run.scaler.get_scale() == 65536.0


def test_accumulation_in_half_precision_is_one_large_batch():
    def weights(batch_size, accumulate):
        run = trainer(
            loss=lambda m, b: ((b[0] @ m.first @ m.second - b[1]) ** 2).mean(),
            precision="float16",
            accumulate=accumulate,
            optimizer=lambda m: wf.optim.SGD(m, lr=0.01),
        )
        run.fit(loader(batch_size=batch_size), steps=4)
        return run.model.first.detach().numpy()

    eps = float(np.finfo(np.float16).eps)
    assert np.allclose(weights(26, 1), weights(4, 7), atol=4 * eps)


def test_the_scale_is_saved(tmp_path):
    def begun(directory, steps, resume=None):
        scaler = wf.amp.GradScaler(init_scale=2.0**20, growth_interval=3)
        run = trainer(directory, precision="float16", scaler=scaler, ema=0.9)
        run.fit(loader(), steps=steps, resume=resume)
        return run.scaler.get_scale()

    expected = begun(tmp_path / "whole", 12)
    begun(tmp_path / "run", 5)
    assert begun(tmp_path / "run", 12, "auto") == expected
    states = [wf.load_checkpoint(tmp_path / name) for name in ("whole", "run")]
    assert same_checkpoints(*states) == []
    with pytest.raises(errors.StateMismatch, match="scaler: in the checkpoint, but not here"):
        trainer(tmp_path / "run", precision="bfloat16", ema=0.9).fit(
            loader(), steps=13, resume="auto"
        )


def test_another_precision_is_a_warning(tmp_path):
    trainer(tmp_path).fit(loader(), steps=2)
    with pytest.warns(errors.ResumeWarning, match="precision: 'None', then 'bfloat16'"):
        trainer(tmp_path, precision="bfloat16").fit(loader(), steps=3, resume="auto")


def test_a_precision_that_does_not_exist():
    with pytest.raises(errors.ArgumentError, match="precision: 'float8'"):
        trainer(precision="float8")
