"""Epochs lose and double nothing, are the same everywhere, and go on exactly at any position."""

import os
from collections import Counter

import numpy as np
import pytest

import weft as wf
from weft.diffusion.data import (
    Augmentation,
    BucketLoader,
    DataSettings,
    TokenShuffle,
    captions_of,
    choose,
    plan_epoch,
)
from weft.diffusion.data.augment import crop_places
from weft.diffusion.data.demo import shape_dataset
from weft.diffusion.data.plan import count_batches, item_samples
from weft.errors import ArgumentError, DatasetError, StateMismatch
from weft.train.cursor import Cursor

SOAK = bool(os.environ.get("WEFT_SOAK"))


class Items:
    """A dataset whose batches are the items and choices themselves."""

    def __init__(self, buckets, augmentation=None, digest="a"):
        self.buckets, self.digest = np.asarray(buckets), digest
        self.settings = DataSettings(augmentation=augmentation or Augmentation(flip=0.5))

    def item_buckets(self):
        return self.buckets

    def batch(self, items, choices, real):
        return tuple(items.tolist()), tuple(choices), real


def random_items(rng) -> Items:
    samples = int(rng.integers(1, 30))
    buckets = rng.integers(0, 4, samples)
    return Items(buckets[item_samples(rng.integers(1, 4, samples).tolist())])


def loader(data, rng_or_options, **more):
    return BucketLoader(data, **(rng_or_options | more))


def random_options(rng) -> dict:
    return {
        "batch_size": int(rng.integers(1, 7)),
        "seed": int(rng.integers(100)),
        "fill": bool(rng.integers(2)),
        "shuffle": bool(rng.integers(4)),
    }


@pytest.mark.parametrize("seed", range(200 if SOAK else 25))
def test_epochs(seed):
    rng = np.random.default_rng(seed)
    data, options = random_items(rng), random_options(rng)
    mine = loader(data, options)
    epochs = [list(mine) for _ in range(3)]
    n, size = len(data.buckets), options["batch_size"]
    for epoch in epochs:
        assert len(epoch) == len(mine)
        counted = Counter(i for items, _, real in epoch for i in items[:real])
        assert counted == Counter(range(n))
        for items, _, real in epoch:
            assert len({data.buckets[i] for i in items}) == 1
            assert len(items) == size if options["fill"] else len(items) == real <= size
        short = Counter(data.buckets[items[0]] for items, _, real in epoch if real < size)
        assert set(short.values()) <= {1}  # one in a bucket
    assert epochs == [list(e) for e in _epochs(loader(data, options, workers=3), 3)]
    if options["shuffle"] and n > 12:
        assert epochs[0] != epochs[1]
        other = loader(data, options | {"seed": options["seed"] + 1})
        assert epochs[0] != list(other)


def _epochs(it, n):
    for _ in range(n):
        yield list(it)


@pytest.mark.parametrize("seed", range(60 if SOAK else 8))
def test_resume_at_every_position(seed):
    rng = np.random.default_rng(seed)
    data, options = random_items(rng), random_options(rng)
    whole, states, mine = [], [], loader(data, options)
    for _ in range(2):
        for batch in mine:
            whole.append(batch)
            states.append(mine.state_dict())
    for position, state in enumerate(states, 1):
        resumed = loader(data, options, workers=int(rng.integers(2)))
        resumed.load_state_dict(dict(state))
        rest = list(resumed)
        if position <= len(mine):
            rest += list(resumed)
        assert rest[: len(whole) - position] == whole[position:]


def test_states_of_other_data_are_refused():
    first = BucketLoader(Items([0, 0, 1]), batch_size=2)
    state = first.state_dict()
    for other in (
        BucketLoader(Items([0, 0, 1], digest="b"), batch_size=2),
        BucketLoader(Items([0, 0, 1, 1]), batch_size=2),
        BucketLoader(Items([0, 0, 1]), batch_size=1),
        BucketLoader(Items([0, 0, 1]), batch_size=2, seed=1),
        BucketLoader(Items([0, 0, 1]), batch_size=2, fill=True),
        BucketLoader(Items([0, 0, 1]), batch_size=2, augment=False),
    ):
        with pytest.raises(StateMismatch, match="BucketLoader"):
            other.load_state_dict(state)
    for wrong in ({"batch_size": 0}, {"workers": -1}, {"batch_size": 1.5}, {"seed": -1}):
        with pytest.raises(ArgumentError):
            BucketLoader(Items([0]), **wrong)


def test_the_cursor_of_a_run():
    mine = BucketLoader(Items([0, 0, 1, 1, 1]), batch_size=2)
    cursor = Cursor(mine)
    batches = cursor.rest()
    first = [next(batches) for _ in range(len(mine))]
    cursor.note()
    cursor.end_epoch()
    assert cursor.epoch == 1 and cursor.position == 0
    second = list(cursor.rest())
    again = BucketLoader(Items([0, 0, 1, 1, 1]), batch_size=2)
    assert [list(again), list(again)] == [first, second]
    assert list(again.all_batches()) == list(again.all_batches())


def test_choices_depend_on_seed_epoch_and_item_alone():
    settings = Augmentation(0.3, "random", 5, 0.2, TokenShuffle(variants=3))
    n = 1500
    drawn = [choose(settings, 7, 2, i) for i in range(n)]
    assert drawn == [choose(settings, 7, 2, i) for i in range(n)]
    assert drawn != [choose(settings, 8, 2, i) for i in range(n)]
    assert drawn != [choose(settings, 7, 3, i) for i in range(n)]
    # Four standard deviations of a binomial.
    for found, p in (
        (sum(c.flip for c in drawn), 0.3),
        (sum(c.drop for c in drawn), 0.2),
        *((sum(c.crop == k for c in drawn), 0.2) for k in range(5)),
        *((sum(c.order == k for c in drawn), 1 / 3) for k in range(3)),
        (sum(c.flip and c.drop for c in drawn), 0.06),
    ):
        assert abs(found - n * p) < 4 * np.sqrt(n * p * (1 - p))
    none = Augmentation()
    assert {choose(none, 0, e, i) for e in range(5) for i in range(20)} == {(False, 0, False, 0)}


def test_plans_hold_for_their_arguments():
    buckets = np.array([2, 2, 0, 2, 0, 1])
    plain = plan_epoch(buckets, 2, 0, 0, shuffled=False)
    assert [b.items.tolist() for b in plain] == [[2, 4], [5], [0, 1], [3]]
    filled = plan_epoch(buckets, 2, 0, 0, shuffled=False, fill=True)
    assert [(b.items.tolist(), b.real) for b in filled][1] == ([5, 5], 1)
    assert count_batches(buckets, 2) == 4


def test_forms_of_captions():
    settings = Augmentation(shuffle=TokenShuffle(keep=1, variants=20))
    forms = captions_of(settings, "trigger, a,b ,, c,d")
    assert all(f.split(", ")[0] == "trigger" for f in forms)
    assert all(sorted(f.split(", ")) == ["a", "b", "c", "d", "trigger"] for f in forms)
    assert len(set(forms)) > 10
    assert captions_of(settings, "one, two") == ["one, two"] * 20
    assert captions_of(Augmentation(), "a, b") == ["a, b"]


def test_random_crops_need_a_number():
    with pytest.raises(ArgumentError, match="crops=4"):
        Augmentation(crop="random")
    with pytest.raises(ArgumentError, match="crop='random'"):
        Augmentation(crops=3)
    settings = Augmentation(crop="random", crops=200)
    places = np.array(crop_places(settings, "ab"))
    assert (places >= 0).all() and (places <= 1).all() and len(np.unique(places, axis=0)) == 200
    assert crop_places(settings, "ab") != crop_places(settings, "cd")
    assert np.abs(places.mean(0) - 0.5).max() < 4 * np.sqrt(1 / 12 / 200)


def test_a_trainer_takes_it_and_resumes_to_the_bit(tmp_path):
    dataset = shape_dataset(tmp_path / "data", images=7)

    def run(steps, resume):
        wf.random.seed(0)
        model = wf.nn.Linear(12, 1)
        step = wf.optim.SGD(model.parameters(), lr=0.01)
        trainer = wf.train.Trainer(
            model,
            step,
            lambda model, batch: (model(batch.latents.mean(axis=(2, 3))) ** 2).mean(),
            directory=tmp_path / resume,
            save_every=1,
            progress=False,
        )
        trainer.fit(BucketLoader(dataset, 2, seed=3), steps=steps, resume="auto")
        return model.weight.tolist(), trainer.history["loss"]

    whole = run(9, "whole")
    for steps in (2, 4, 5, 9):
        parts = run(steps, "parts")
    assert parts[0] == whole[0] and parts[1] == whole[1]


@pytest.mark.parametrize("repeats", [[10**9], [1, 10**19], [6_000_000, 6_000_000]])
def test_epochs_that_no_memory_holds_are_refused(repeats):
    with pytest.raises(DatasetError, match=r"expected at most 10000000: lower repeats"):
        item_samples(repeats)
