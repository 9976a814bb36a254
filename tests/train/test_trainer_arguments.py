"""Every argument of a trainer changes what it does, and what makes no sense is refused by name."""

import numpy as np
import pytest

import weft as wf
from weft import errors

from .runs import Net, loader, same_state, squares, trainer


def after(steps: int = 5, data=None, **options):
    run = trainer(**options)
    run.fit(data or loader(), steps=steps)
    return run


@pytest.mark.parametrize(
    "options",
    [
        {"accumulate": 2},
        {"precision": "bfloat16"},
        {"clip_norm": 0.1},
        {"clip_value": 0.01},
        {"schedule": wf.optim.LinearScheduler(0.01, 0.1, 4)},
        {"loss": lambda m, b: squares(m, b)[0] + (m.first**2).sum()},
        {"optimizer": lambda m: wf.optim.SGD(m, lr=0.01)},
        {"optimizer": lambda m: wf.optim.AdamW(m, lr=0.02)},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_changes_the_numbers(options):
    plain = after()
    assert same_state(plain, after())
    changed = after(**options).model.first.tolist()
    assert changed != plain.model.first.tolist()


@pytest.mark.parametrize(
    "options",
    [
        {"ema": 0.5},
        {"log_every": 2},
        {"nonfinite": "skip"},
        {"max_skips": 2},
        {"signals": False},
        {"progress": "lines"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_does_not_change_the_numbers(options):
    assert same_state(after(), after(**options))


def test_an_average_may_be_given_ready_made():
    model = Net()
    ema = wf.optim.EMA([("first", model.first)], 0.25)
    run = wf.train.Trainer(model, wf.optim.SGD(model), squares, ema=ema, progress=False)
    run.fit(loader(), steps=3)
    assert run.ema is ema and ema.updates == 3 and model.second not in ema


def test_how_often_it_is_saved_and_how_many_stay(tmp_path):
    trainer(tmp_path / "a", save_every=2, keep=2).fit(loader(), steps=7)
    assert wf.io.steps(tmp_path / "a") == [6, 7]
    trainer(tmp_path / "b", save_every=3, keep=None).fit(loader(), steps=7)
    assert wf.io.steps(tmp_path / "b") == [3, 6, 7]
    trainer(tmp_path / "c").fit(loader(), steps=7)
    assert wf.io.steps(tmp_path / "c") == [7]
    run = trainer(tmp_path / "d")
    run.fit(loader(), steps=1)
    assert run.save() == tmp_path / "d" / "step-00000001"


def test_what_ends_a_run():
    assert after(4).step == 4
    run = trainer()
    run.fit(loader(), epochs=2, steps=100)
    assert (run.step, run.epoch) == (14, 2)
    run = trainer()
    run.fit(loader(), epochs=2, steps=10)
    assert (run.step, run.epoch) == (10, 1)
    run = trainer()
    run.fit(loader(), steps=7, validation=loader())
    assert run.epoch == 1 and len(run.history.validation) == 1  # a whole epoch is dealt with


def test_which_losses_take_predictions_and_targets():
    def final(loss):
        return after(loss=loss).weights()["model"]["first"].tolist()

    expected = final(lambda m, b: squares(m, b)[0])
    assert final(wf.nn.functional.mse_loss) == expected
    assert final(wf.nn.MSELoss()) == expected
    assert final(wf.train.supervised(lambda p, y: ((p - y) ** 2).mean())) == expected

    class Own(wf.nn.Module):
        def forward(self, prediction, target):
            return ((prediction - target) ** 2).mean()

    assert final(Own()) == expected


def test_metrics_of_predictions_and_targets():
    loss = wf.train.supervised(
        wf.nn.functional.mse_loss, worst=lambda p, y: abs(p - y).max(), one=lambda p, y: 1.0
    )
    run = after(3, loss=loss)
    plain = after(3, loss=wf.nn.functional.mse_loss)
    assert run.history["loss"] == plain.history["loss"] and run.history["one"] == [1.0] * 3
    square, worst = np.array(run.history["loss"]), np.array(run.history["worst"])
    assert (worst**2 >= square).all() and (worst**2 <= 4 * square * (1 + 1e-6)).all()


def test_batches_that_are_dicts():
    data = [{"x": np.full(3, float(i)), "y": np.ones(1)} for i in range(6)]
    batches = wf.train.DataLoader(data, batch_size=4)

    def loss(model, batch):
        return ((model(batch["x"].to("float32")) - batch["y"]) ** 2).mean()

    run = trainer(loss=loss)
    run.fit(batches, epochs=1)
    assert run.step == 2 and run.samples == 6


# What makes no sense

WRONG = [
    ({"accumulate": 0}, "accumulate=0, expected an integer ≥ 1"),
    ({"accumulate": 1.5}, "accumulate=1.5"),
    ({"clip_norm": -1.0}, "clip_norm=-1.0, expected a number ≥ 0"),
    ({"clip_norm": 1.0, "clip_value": 1.0}, "give one of them"),
    ({"ema": 1.5}, "decay=1.5"),
    ({"save_every": 2}, "save_every=2 needs a directory"),
    ({"keep": 0}, "keep=0"),
    ({"log_every": 0}, "log_every=0"),
    ({"progress": "fancy"}, "progress='fancy', expected one of True, False, 'bar', 'lines'"),
    ({"nonfinite": "ignore"}, "nonfinite='ignore', expected one of 'raise', 'skip'"),
    ({"max_skips": 0}, "max_skips=0"),
    ({"schedule": 0.1}, "schedule is a float without get_lr"),
    ({"loss": 3}, "loss is a int, expected a function"),
    ({"callbacks": [print]}, "callbacks has a builtin_function_or_method"),
    ({"optimizer": lambda m: 3}, "the optimizer is a int"),
    ({"optimizer": lambda m: wf.optim.LBFGS(m)}, "LBFGS computes the loss many times"),
    ({"optimizer": lambda m: wf.optim.SGD([wf.Parameter([1.0])])}, "changes 0, which the model"),
    ({"optimizer": lambda m: wf.optim.SGD(m, lr=-1.0)}, "lr"),
    (
        {"optimizer": lambda m: wf.optim.EMAOptimizer(wf.optim.SGD(m)), "ema": 0.9},
        "beside an EMAOptimizer",
    ),
]


@pytest.mark.parametrize(("options", "said"), WRONG, ids=lambda x: x if isinstance(x, str) else "")
def test_a_trainer_refuses(options, said):
    with pytest.raises(errors.WeftError) as caught:
        trainer(**options)
    assert said in str(caught.value)


def test_a_trainer_refuses_what_it_does_not_know():
    with pytest.raises(TypeError, match="batch_size"):
        trainer(batch_size=3)
    with pytest.raises(errors.DTypeError, match="a function without named_parameters"):
        wf.train.Trainer(lambda x: x, wf.optim.SGD(wf.optim.SGDConfig()), squares)


FIT = [
    ({}, "give epochs=, steps=, or both"),
    ({"epochs": -1}, "epochs=-1"),
    ({"steps": 1.5}, "steps=1.5"),
    ({"steps": True}, "steps=True"),
    ({"steps": 1, "validate_every": 2}, "validate_every needs validation="),
    ({"steps": 1, "validate_every": 0, "validation": []}, "validate_every=0"),
    ({"steps": 1, "validation": iter([])}, "is an iterator"),
    ({"steps": 1, "validation": [], "validate_every": 1}, "evaluate: the loader has no batches"),
]


@pytest.mark.parametrize(("options", "said"), FIT, ids=lambda x: x if isinstance(x, str) else "")
def test_fit_refuses(options, said):
    with pytest.raises(errors.WeftError) as caught:
        trainer().fit(loader(), **options)
    assert said in str(caught.value)


def test_fit_refuses_data():
    class Empty:
        epoch = position = 0
        state_dict = load_state_dict = __iter__ = None

        def __len__(self):
            return 0

    with pytest.raises(errors.ArgumentError, match="the loader has no batches"):
        trainer().fit(Empty(), steps=1)
    with pytest.raises(
        errors.DTypeError, match=r"a list, which has no epoch.*wf\.train\.DataLoader"
    ):
        trainer().fit([1, 2], steps=1)
    data = loader()
    with pytest.raises(errors.ArgumentError, match="the loader that is trained on"):
        trainer().fit(data, steps=1, validation=data)
    plateau = trainer(schedule=wf.optim.PlateauScheduler(0.1))
    with pytest.raises(errors.ArgumentError, match="PlateauScheduler needs validation="):
        plateau.fit(loader(), steps=1)


class Negative:
    """A schedule that goes wrong."""

    def get_lr(self, step):
        return 0.1 if step < 2 else -0.1


def test_a_learning_rate_below_zero():
    run = trainer(schedule=Negative())
    with pytest.raises(errors.ArgumentError, match=r"lr=-0\.1"):
        run.fit(loader(), steps=5)
    assert run.step == 2


LOSSES = [
    (lambda m, b: None, "the loss is <class 'NoneType'>, expected a scalar"),
    (lambda m, b: m(b[0]), "of shape (4, 1), expected a scalar"),
    (lambda m, b: (m(b[0]).sum(), 3), "returned int, expected a dict"),
    (lambda m, b: (m(b[0]).sum(), {"lr": 3}), "a metric is called 'lr'"),
    (lambda m, b: (m(b[0]).sum(), {"all": m(b[0])}), "the metric 'all' is a Tensor(4, 1)"),
    (lambda m, b: wf.argmax(m(b[0])), "the loss is int64 of shape ()"),
    (lambda m, b: wf.tensor(1.0), "nothing was recorded"),
]


@pytest.mark.parametrize(("loss", "said"), LOSSES, ids=[said for _, said in LOSSES])
def test_losses_that_are_refused(loss, said):
    with pytest.raises(errors.WeftError) as caught:
        trainer(loss=loss).fit(loader(), steps=1)
    assert said in str(caught.value)


def test_batches_that_are_refused():
    data = wf.train.TensorDataset(np.ones((4, 3)), np.ones(4), np.ones(4))
    batches = wf.train.DataLoader(data, batch_size=2)
    with pytest.raises(errors.ArgumentError, match=r"a tuple of 3, expected a pair \(x, y\)"):
        trainer(loss=wf.nn.functional.mse_loss).fit(batches, steps=1)
    with pytest.raises(errors.ArgumentError, match=r"count\(batch\) is 0, expected a number > 0"):
        trainer(count=lambda batch: 0).fit(loader(), steps=1)
    texts = wf.train.DataLoader(["a", "b"], batch_size=2)
    with pytest.raises(errors.ArgumentError, match="samples cannot be counted; give count="):
        trainer().fit(texts, steps=1)


def test_saving_and_averages_that_are_not_there(tmp_path):
    with pytest.raises(errors.ArgumentError, match="needs Trainer"):
        trainer().save()
    with pytest.raises(errors.ArgumentError, match="a run that fit"):
        trainer(tmp_path).save()
    with pytest.raises(errors.ArgumentError, match="there is no EMA"):
        trainer().evaluate(loader(), averaged=True)


def test_a_model_whose_parameters_were_replaced_since():
    model = wf.nn.Linear(2, 1)
    run = wf.train.Trainer(
        model, wf.optim.SGD(model, lr=0.1), wf.nn.functional.mse_loss, progress=False
    )
    model.weight = wf.Parameter(wf.zeros((1, 2)))
    data = wf.train.TensorDataset(wf.ones((4, 2)), wf.ones((4, 1)))
    with pytest.raises(errors.ArgumentError, match="changes weight, which the model does not hold"):
        run.fit(wf.train.DataLoader(data, 2), epochs=1)
