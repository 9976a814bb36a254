"""Runs of several ranks: validation, one decision of all, failures, files, and going on."""

from dataclasses import replace

import numpy as np
import pytest
from tests.dist.threads import run
from tests.io.alike import same

import weft as wf
from weft import errors
from weft.arrays.random import folded
from weft.train import trainer as trainers

from .dist_ways import Way, arrays, squares
from .runs import same_checkpoints

WAY = Way(3, 12, samples=26, batch=7, dtype="float64", ema=0.9, clip=0.5)
MODES = [{}, {"compile": True}, {"accumulate": 2}, {"compile": True, "accumulate": 2}]


def outcomes(way, program):
    """What a program returns on each rank, or the error that it raises."""

    def attempt(rank):
        try:
            return program(rank)
        except Exception as e:
            return e

    return run(way.ranks, attempt)


# Validation


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("size", range(1, 12))
def test_each_sample_is_validated_once(ranks, size):
    values = np.random.default_rng(size).standard_normal((size, 1))
    data = wf.train.TensorDataset(wf.tensor(values), wf.tensor(values * 0))
    for batch in (1, 2, 3, 5, 11):
        for whole in (False, True):
            found = run(ranks, lambda rank, b=batch, w=whole: visited(rank, data, b, w))
            together = sorted(np.concatenate([seen for seen, _, _ in found]).ravel().tolist())
            assert together == sorted(values.ravel().tolist()), (ranks, size, batch)
            expected = {"loss": (values**2).mean(), "absolute": abs(values).mean()}
            assert len({repr(metrics) for _, metrics, _ in found}) == 1
            for name, value in found[0][1].items():
                np.testing.assert_allclose(value, expected[name], rtol=1e-12)
            assert all(unchanged for _, _, unchanged in found)


def visited(rank, data, batch, whole):
    """The samples that a rank evaluates, the metrics, and whether the loader is as it was."""
    seen = [np.zeros((0, 1))]

    def loss(model, pair):
        seen.append(np.asarray(pair[0].numpy()))
        return squares(model, pair)

    model = wf.nn.Identity()
    model.none = wf.Parameter(wf.zeros(1))
    made = wf.train.Trainer(model, wf.optim.SGD(model), loss, dist=True, progress=False)
    loader = wf.train.DataLoader(data, batch_size=batch, shuffle=True)
    before = loader.state_dict()
    metrics = made.evaluate(list(loader.all_batches()) if whole else loader)
    return np.concatenate(seen), metrics, loader.state_dict() == before


# One decision


class Poisoned(Way):
    """A way with one sample whose loss, or only the gradient of it, is not finite."""

    kind = "loss"

    def data(self, samples=None, seed=1):
        x, y = super().data(samples, seed).tensors
        mark = np.ones((len(x), 1))
        mark[20] = np.nan if self.kind == "loss" else 0
        return wf.train.TensorDataset(wf.concat([x, wf.tensor(mark)], axis=1), y)

    def trainer(self, rank, dist, **options):
        def loss(model, pair):
            x, y = pair
            value, metrics = squares(model, (x[:, :3], y))
            return value + wf.sqrt(x[:, 3] * model.bias**2).mean(), metrics

        return super().trainer(rank, dist, **{"loss": loss} | options)


class PoisonedGradient(Poisoned):
    kind = "gradient"


def make(kind, **changes):
    return kind(**{**WAY.__dict__, **changes})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [Poisoned, PoisonedGradient])
def test_a_rank_whose_step_is_not_finite_withholds_it_on_all(kind, mode, tmp_path):
    way = make(kind, nonfinite="skip", **mode)
    one, several = way.alone(), way.together()
    rows = [same_rows(t.history.skipped) for t in (one, *several)]
    assert rows[0] == rows[1] == rows[2] == rows[3] and len(one.history.skipped) > 0
    for name, x in arrays(one).items():
        np.testing.assert_allclose(arrays(several[0])[name], x, rtol=1e-12, atol=1e-12)
        assert all(np.array_equal(arrays(several[0])[name], arrays(t)[name]) for t in several)

    way = make(kind, **mode)

    def fail(rank):
        made = way.trainer(rank, True, directory=tmp_path / "run")
        with pytest.raises(errors.AnomalyError) as caught:
            way.fit(made)
        assert wf.dist.all_reduce(wf.ones(1)).item() == 3  # the group goes on
        return caught.value.message, made.step, arrays(made)

    alone = way.trainer(0, False)
    with pytest.raises(errors.AnomalyError) as single:
        way.fit(alone)
    found = run(3, fail)
    assert len({message for message, _, _ in found}) == 1
    message, step, state = found[0]
    assert step == alone.step and single.value.message.split(";")[0].split(": ")[1] in message
    assert "On rank" in message and "(at test_dist_runs.py" in message
    assert (kind is PoisonedGradient) or "on rank" in message.split(";")[0]
    assert wf.io.steps(tmp_path / "run") == [step]
    for name, x in arrays(alone).items():
        np.testing.assert_allclose(state[name], x, rtol=1e-12, atol=1e-12)
        assert all(np.array_equal(state[name], other[name]) for _, _, other in found)


def same_rows(series) -> list[str]:
    return [f"{name} {[f'{v:.9g}' for v in series[name]]}" for name in series.names]


def test_an_overflow_on_one_rank_lowers_the_scale_of_all():
    for compile in (False, True):
        way = make(
            PoisonedGradient, dtype="float32", precision="float16", scale=2.0**20, compile=compile
        )
        one, several = way.alone(), way.together()
        states = [t.scaler.state_dict() for t in (one, *several)]
        skipped = [t.history.skipped["overflow"] for t in (one, *several)]
        assert states[0] == states[1] == states[2] == states[3] and skipped[0]
        assert skipped[0] == skipped[1] == skipped[2] == skipped[3]


@pytest.mark.parametrize("behind", [0, 2])
def test_a_rank_that_stops_stops_all_after_the_same_step(behind, tmp_path):
    class At(wf.train.Callback):
        def on_step_end(self, trainer, row):
            if row["step"] == 5:
                trainer.stop("five are enough")

    one = WAY.trainer(0, False, callbacks=[At()])
    WAY.fit(one)

    def stop(rank):
        given = [At()] if rank == behind else [wf.train.Callback()]
        made = WAY.trainer(rank, True, callbacks=given, directory=tmp_path / "run", save_every=5)
        return WAY.fit(made)

    several = run(3, stop)
    assert [t.step for t in several] == [one.step] * 3 == [5] * 3
    assert [t.stopped for t in several] == ["five are enough"] * 3
    assert wf.io.steps(tmp_path / "run") == [5]
    assert several[0].cursor.state == one.cursor.state

    def go_on(rank):
        made = WAY.trainer(rank, True, directory=tmp_path / "run")
        return WAY.fit(made, resume="auto")

    several = run(3, go_on)
    np.testing.assert_allclose(arrays(WAY.alone())["first"], arrays(several[1])["first"], 1e-12)


# Failures


def callback_that_fails(moment, error, every_rank=True):
    def fail(self, trainer, *rest):
        if trainer.step >= 3 or moment == "on_fit_start":
            raise error

    kind = type("Failing", (wf.train.Callback,), {moment: fail, "every_rank": every_rank})
    return kind()


class Falls:
    """A dataset that fails at one of its samples."""

    def __init__(self, inner, error):
        self.inner, self.error = inner, error

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, i):
        if i == 11:
            raise self.error
        return self.inner[i]


def failing_parts(place, error, made):
    """A loader and options of a trainer, which fail at a place."""
    loader, options = WAY.loader(), {}
    if place == "data":
        falls = Falls(loader.dataset, error)
        loader = wf.train.DataLoader(falls, batch_size=7, shuffle=True, seed=3)
    elif place == "loss":

        def loss(model, pair):
            if made[0].step == 3:
                raise error
            return squares(model, pair)

        options["loss"] = loss
    else:
        options["callbacks"] = [callback_that_fails(place, error)]
    return loader, options


PLACES = ["data", "loss", "on_gradients", "on_step_end", "on_validation_end"]


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("place", PLACES)
def test_a_rank_that_fails_tells_the_others(place, rank):
    error = ValueError("a tree fell over")

    class Looks(wf.train.Callback):
        def on_gradients(self, trainer, gradients):
            assert gradients

    def program(own):
        made, loader = [], WAY.loader()
        options = {"callbacks": [Looks()]} if place == "on_gradients" else {}
        if own == rank:
            loader, options = failing_parts(place, error, made)
        made.append(WAY.trainer(own, True, **options))
        validation = WAY.loader(shuffle=False)
        made[0].fit(loader, steps=12, validation=validation, validate_every=3)

    found = outcomes(WAY, program)
    for own, e in enumerate(found):
        assert "a tree fell over" in str(e), (place, own)
        if own == rank:
            assert e is error
        else:
            assert isinstance(e, errors.DistributedError) and f"rank {rank}" in str(e)


@pytest.mark.parametrize(
    "moment", ["on_fit_start", "on_step_end", "on_save_start", "on_save", "on_fit_end"]
)
def test_a_failure_of_what_only_rank_0_does_ends_the_run_on_all(moment, tmp_path):
    def program(rank):
        failing = callback_that_fails(moment, OSError(28, "no room"), every_rank=False)
        made = WAY.trainer(
            rank, True, callbacks=[failing], directory=tmp_path / "run", save_every=3
        )
        WAY.fit(made)

    found = outcomes(WAY, program)
    assert isinstance(found[0], OSError) and found[0].errno == 28
    for e in found[1:]:
        assert isinstance(e, errors.DistributedError)
        assert "rank 0" in str(e) and "no room" in str(e)


def test_a_full_disk_ends_the_run_on_all(tmp_path, monkeypatch):
    def full(*args, **options):
        raise errors.DiskFull("the disk is full")

    monkeypatch.setattr(trainers, "save_checkpoint", full)
    way = replace(WAY, ranks=2)

    def program(rank):
        way.fit(way.trainer(rank, True, directory=tmp_path / "run", save_every=3))

    for e in outcomes(way, program):
        assert isinstance(e, errors.DiskFull) and "the disk is full" in str(e)


def change(name, value):
    return lambda rank: replace(WAY, **{name: value}) if rank == 1 else WAY


def with_options(**options):
    def program(rank):
        return WAY.fit(WAY.trainer(rank, True, **options if rank == 1 else {}))

    return program


def fit_with(**options):
    def program(rank):
        return WAY.fit(WAY.trainer(rank, True), **options if rank == 1 else {})

    return program


def fit_way(ways):
    return lambda rank: ways(rank).fit(ways(rank).trainer(rank, True))


DIFFERENT = {
    "dtype": (fit_way(change("dtype", "float32")), "float64.*float32"),
    "buffers": (fit_way(change("means", True)), "mean"),
    "optimizer": (fit_way(change("optimizer", "Adam")), "optimizer"),
    "rate": (fit_way(change("lr", 0.25)), "0.05.*0.25"),
    "clip": (fit_way(change("clip", 0.25)), "clip_norm.*0.5.*0.25"),
    "compile": (fit_way(change("compile", True)), "compile"),
    "accumulate": (fit_way(change("accumulate", 2)), "accumulate"),
    "precision": (fit_way(change("precision", "bfloat16")), "precision"),
    "averages": (fit_way(change("ema", None)), "averages"),
    "batch": (fit_way(change("batch", 5)), "batch_size|loader"),
    "data": (fit_way(change("samples", 27)), "samples|loader"),
    "steps": (fit_with(steps=13), "steps.*12.*13"),
    "epochs": (fit_with(epochs=1), "epochs"),
    "validation": (fit_with(validation=[1]), "validation"),
    "resume": (fit_with(resume="auto"), "resume"),
    "callbacks": (with_options(callbacks=[wf.train.EarlyStopping()]), "callbacks"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_ranks_that_train_different_things_are_told_so(name):
    program, words = DIFFERENT[name]
    for e in outcomes(replace(WAY, ranks=2), program):
        assert isinstance(e, errors.RanksDiffer), e
        assert "rank 0" in e.message and "rank 1" in e.message
        with pytest.raises(errors.RanksDiffer, match=words):
            raise e


def test_a_rank_that_is_elsewhere_in_the_data_is_told_so():
    def program(rank):
        made = WAY.trainer(rank, True)
        loader = WAY.loader()
        WAY.fit(made, steps=2)
        if rank == 1:
            made.cursor.state = {**made.cursor.state, "position": 3}
            made.cursor.position = 3
        made.fit(made.cursor.loader, steps=4)
        return loader

    for e in outcomes(WAY, program):
        assert isinstance(e, errors.RanksDiffer) and "position differs" in e.message
        assert "rank 0 has 2, rank 1 has 3" in e.message


def test_dist_needs_a_group():
    with pytest.raises(errors.DistributedError, match=r"wf\.dist\.init\(\)"):
        WAY.trainer(0, True)


def test_a_loader_without_shares_is_refused():
    class Own:
        epoch = position = 0

        def __len__(self):
            return 1

        def __iter__(self):
            return iter([(wf.ones((2, 3)), wf.ones((2, 1)))])

        def state_dict(self):
            return {}

        def load_state_dict(self, saved):
            pass

    for e in outcomes(WAY, lambda rank: WAY.trainer(rank, True).fit(Own(), steps=1)):
        assert isinstance(e, errors.ArgumentError) and "DataLoader" in e.message


# Files, and going on


def test_only_rank_0_writes(tmp_path, monkeypatch, capfd):
    saves, events = [], []
    save = trainers.save_checkpoint
    monkeypatch.setattr(
        trainers, "save_checkpoint", lambda *a, **k: saves.append(1) or save(*a, **k)
    )

    class Files(wf.train.Callback):
        every_rank = False

        def __init__(self, rank):
            self.rank = rank

        def on_step_end(self, trainer, row):
            events.append(self.rank)

    def program(rank):
        options = {"directory": tmp_path / "run", "save_every": 4, "progress": "lines"}
        curves = wf.train.Curves(tmp_path / "curves.png")
        board = wf.train.TensorBoard(tmp_path / "events")
        made = WAY.trainer(rank, True, callbacks=[Files(rank), curves, board], **options)
        return WAY.fit(made)

    run(3, program)
    assert len(saves) == 3 and events == [0] * 12
    assert wf.io.steps(tmp_path / "run") == [4, 8, 12]
    assert len(list((tmp_path / "events").iterdir())) == 1
    assert capfd.readouterr().err.count("step 12") <= 1


RESUMED = [{}, {"compile": True}, {"accumulate": 2, "optimizer": "AdamW"}, {"precision": "float16"}]


@pytest.mark.parametrize("seeds", [True, False])
@pytest.mark.parametrize("mode", RESUMED)
def test_a_run_that_goes_on_is_the_uninterrupted_one_to_the_bit(mode, seeds, tmp_path):
    kind = {"dtype": "float32" if "precision" in mode else "float64"}
    way = replace(WAY, drop=0.3, means=True, validate=5, **kind | mode)

    def train(rank, folder, steps, resume="auto"):
        with wf.deterministic(7, operation_seeds=seeds):
            made = way.trainer(rank, True, directory=tmp_path / folder, save_every=5)
            return way.fit(made, steps=steps, resume=resume)

    run(3, lambda rank: train(rank, "whole", 12))
    run(3, lambda rank: train(rank, "parts", 7))
    several = run(3, lambda rank: train(rank, "parts", 12))
    named = run(3, lambda rank: train(rank, "named", 12, tmp_path / "whole" / "step-00000005"))
    for one, other in zip(named, several, strict=True):
        assert same(one.weights(), other.weights())
    whole, parts = (wf.load_checkpoint(tmp_path / folder) for folder in ("whole", "parts"))
    assert same_checkpoints(whole, parts) == []
    for made in several[1:]:
        assert same(made.weights(), several[0].weights())


@pytest.mark.parametrize(("first", "then"), [(1, 2), (3, 2), (2, 4), (2, 1), (4, 0), (0, 3)])
def test_a_run_goes_on_with_another_number_of_ranks(first, then, tmp_path):
    way = replace(WAY, optimizer="AdamW", lr=0.02, validate=5)
    expected = way.alone()

    def train(ranks, steps):
        if not ranks:  # without a group
            made = way.trainer(0, False, directory=tmp_path)
            return [way.fit(made, steps=steps, resume="auto")]

        def program(rank):
            made = way.trainer(rank, True, directory=tmp_path)
            return way.fit(made, steps=steps, resume="auto")

        return run(ranks, program)

    train(first, 7)
    if max(first, 1) != max(then, 1):
        with pytest.warns(errors.ResumeWarning, match="ranks"):
            several = train(then, 12)
    else:
        several = train(then, 12)
    for name, x in arrays(expected).items():
        np.testing.assert_allclose(arrays(several[-1])[name], x, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(several[-1].history["loss"], expected.history["loss"], rtol=1e-10)
    assert several[-1].cursor.state == expected.cursor.state


def test_ranks_that_see_other_checkpoints_are_told_so(tmp_path):
    def train(rank, folder, steps, **options):
        made = WAY.trainer(rank, True, directory=tmp_path / folder(rank))
        return WAY.fit(made, steps=steps, **options)

    run(3, lambda rank: train(rank, lambda r: "a", 4))
    run(3, lambda rank: train(rank, lambda r: "b", 4))
    for e in outcomes(
        WAY, lambda rank: train(rank, lambda r: "none" if r == 2 else "a", 9, resume="auto")
    ):
        assert isinstance(e, errors.CheckpointNotFound | errors.CheckpointError)
        assert "none" in str(e)
    saved = wf.load_checkpoint(tmp_path / "b")
    saved.model_state["first"] = saved.model_state["first"] + 1
    wf.save_checkpoint(tmp_path / "c", saved)
    for e in outcomes(
        WAY, lambda rank: train(rank, lambda r: "c" if r == 2 else "a", 9, resume="auto")
    ):
        assert isinstance(e, errors.RanksDiffer) and "rank 2 finds another checkpoint" in e.message


# Random numbers


@pytest.mark.parametrize("compile", [False, True])
def test_draws_differ_between_ranks_and_repeat(compile):
    def loss(model, pair):
        noise = wf.rand(pair[0].shape[0], dtype="float64")
        value, _ = squares(model, pair)
        return value, {"noise": noise.mean()}

    def program(rank):
        with wf.deterministic(5):
            made = way.fit(way.trainer(rank, True, loss=loss))
            return made.history["noise"], wf.random.get_state()

    way = Way(3, 6, samples=25, batch=12, dtype="float64", compile=compile)
    first, again = run(3, program), run(3, program)
    assert first == again and first[0] == first[1] == first[2]
    streams = []
    for rank in range(3):
        with wf.deterministic(5), folded(rank):
            streams.append(wf.rand(4, dtype="float64").tolist())
    assert len({x for stream in streams for x in stream}) == 12
    np.testing.assert_allclose(first[0][0][0], np.mean(streams), rtol=1e-12)


# What follows from validation, from gradients, and from a run that diverges


@pytest.mark.parametrize("compile", [False, True])
def test_schedules_stops_and_looks_at_gradients_agree(compile):
    way = replace(WAY, validate=4, steps=60, compile=compile, lr=0.2, clip=None)

    def options():
        stopping = wf.train.EarlyStopping(patience=3, min_delta=0.3, restore_best=True)
        health = wf.train.GradientHealth(every=3, on_problem=None)
        return {"callbacks": [stopping, health]}

    def plateau(made):
        made.schedule = wf.optim.PlateauScheduler(0.2, patience=0, factor=0.5, threshold=0.5)
        return way.fit(made)

    one = plateau(way.trainer(0, False, **options()))
    several = run(3, lambda rank: plateau(way.trainer(rank, True, **options())))
    assert len({t.step for t in (one, *several)}) == 1 and one.stopped is not None
    assert len(set(one.history["lr"])) > 1
    for made in several:
        assert made.history["lr"] == one.history["lr"] and made.stopped == several[0].stopped
        for name in ("loss", "grad_norm", "grad_rms_max"):
            np.testing.assert_allclose(made.history[name], one.history[name], rtol=1e-9)
    for name, x in arrays(one).items():
        np.testing.assert_allclose(arrays(several[2])[name], x, rtol=1e-9, atol=1e-11)


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("compile", [False, True])
def test_a_run_that_diverges_goes_back_on_all_ranks(compile, tmp_path):
    way = make(Way, nonfinite="rewind", compile=compile, clip=None, ema=None)

    class Diverges(wf.train.Callback):
        """The rate is too large from some step on."""

        def on_step_end(self, trainer, row):
            if row["step"] == 7:
                trainer.optimizer.set_lr(1e60)

    def fail(rank, dist, folder):
        options = {"directory": tmp_path / folder, "save_every": 2, "callbacks": [Diverges()]}
        with pytest.raises(errors.AnomalyError) as caught:
            way.fit(way.trainer(rank, dist, **options), steps=30)
        return caught.value.message

    single = fail(0, False, "one")
    several = run(3, lambda rank: fail(rank, True, "several"))
    assert len(set(several)) == 1
    assert "The run will go on from step 6" in single and "go on from step 6" in several[0]
    for folder in (".", "aside"):
        kept = [wf.io.steps(tmp_path / name / folder) for name in ("one", "several")]
        assert kept[0] == kept[1] != []


@pytest.mark.parametrize("call", ["evaluate", "save"])
def test_what_one_rank_does_alone_is_told_to_all(call, tmp_path):
    """As after `if rank == 0:`: no rank waits, and none reads the facts of another call."""

    class Alone(wf.train.Callback):
        def on_step_end(self, trainer, row):
            if wf.dist.rank() == 0 and row["step"] == 2:
                trainer.save() if call == "save" else trainer.evaluate(rows())

    def rows():
        x = wf.ones((12, 3))
        return wf.train.DataLoader(wf.train.TensorDataset(x, x[:, :1]), batch_size=4)

    def program(rank):
        model = wf.nn.Linear(3, 1)
        options = {"dist": True, "progress": False, "callbacks": [Alone()], "directory": tmp_path}
        loss = wf.nn.functional.mse_loss
        trainer = wf.train.Trainer(model, wf.optim.SGD(model, lr=0.1), loss, **options)
        trainer.fit(rows(), steps=6)

    found = outcomes(WAY, program)
    assert all(isinstance(e, errors.RanksDiffer) for e in found), found
    assert any("different places" in str(e) for e in found)


def test_a_wrapped_model_is_trained_by_its_own_reducer(tmp_path):
    """Without a second one, which finds no gradients and would say that none are there."""
    loss = wf.nn.functional.mse_loss

    def program(rank):
        rng = np.random.default_rng(0)
        x = wf.tensor(rng.normal(size=(24, 3)))
        data = wf.train.DataLoader(wf.train.TensorDataset(x, x[:, :1] ** 2), batch_size=6)
        plain = wf.nn.Linear(3, 1).double()
        plain.reducer = "an attribute of the user's own"
        plain.load_state_dict({"weight": np.ones((1, 3)), "bias": np.zeros(1)})
        model = wf.dist.DataParallel(plain, compression=wf.dist.TopK(0.4))
        optimizer = wf.optim.SGD(model, lr=0.05)
        with pytest.raises(errors.ArgumentError, match="TopK"):
            kept = wf.train.Trainer(
                model, optimizer, loss, dist=True, progress=False, directory=tmp_path
            )
            kept.fit(data, steps=8)
        before = wf.dist.world.world().sent["all_gather"]
        wf.train.Trainer(model, optimizer, loss, dist=True, progress=False).fit(data, steps=8)
        assert model.last_sync.step == 7
        return wf.dist.world.world().sent["all_gather"] - before, plain.weight.tolist()

    first, second = run(2, program)
    assert first == second
