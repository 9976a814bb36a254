"""DataLoader: order, cursor, workers, and what it refuses."""

import gc
import json
import os
import random
import signal
import threading
import time
import traceback
from collections import namedtuple

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors
from weft.train import DataLoader, Subset, TensorDataset, random_split

WORKERS = (0, 1, 3)


def loader(n=11, **options):
    settings = {"batch_size": 3, "shuffle": True, "seed": 5, **options}
    return DataLoader(list(range(n)), **settings)


def data_threads() -> list:
    return [t for t in threading.enumerate() if t.name.startswith("weft-data")]


def listed(batches) -> list:
    return [b.tolist() for b in batches]


def flat(batches) -> list:
    return [i for b in batches for i in b.tolist()]


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("drop_last", [False, True])
def test_every_sample_comes_once_an_epoch(workers, drop_last):
    made = loader(workers=workers, drop_last=drop_last)
    orders = []
    for epoch in range(4):
        batches = listed(made)
        assert len(batches) == len(made) == (3 if drop_last else 4)
        assert [len(b) for b in batches] == [3, 3, 3, 2][: len(made)]
        seen = [i for b in batches for i in b]
        orders.append(seen)
        assert len(set(seen)) == len(seen) and set(seen) <= set(range(11))
        assert drop_last or len(seen) == 11
        assert (made.epoch, made.position) == (epoch + 1, 0)
    assert len(set(map(tuple, orders))) == 4


def test_the_order_is_a_function_of_seed_and_epoch():
    one, two = loader(), loader(workers=2)
    assert [listed(one) for _ in range(3)] == [listed(two) for _ in range(3)]
    assert listed(loader(seed=6)) != listed(loader())
    # Written down, so that a later version that orders otherwise is noticed.
    assert flat(loader()) == ORDER_OF_SEED_5


ORDER_OF_SEED_5 = [3, 6, 2, 4, 0, 9, 10, 1, 7, 8, 5]


def test_without_shuffle_the_order_is_the_datasets():
    assert listed(loader(shuffle=False)) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10]]


def test_orders_ignore_the_default_generator_and_do_not_move_it():
    wf.random.seed(1)
    state = wf.random.get_state()
    first = listed(loader())
    assert wf.random.get_state() == state
    wf.rand(100)
    assert listed(loader()) == first


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("position", range(9))
def test_the_cursor_is_exact_at_every_position(workers, position):
    whole = loader(workers=workers)
    expected = [b for _ in range(3) for b in listed(whole)]
    first, second = loader(workers=workers), loader(workers=(workers + 1) % 4)
    seen = []
    while len(seen) < position:
        for batch in first:
            seen.append(batch.tolist())
            if len(seen) == position:
                break
    state = json.loads(json.dumps(first.state_dict()))
    second.load_state_dict(state)
    rest = []
    while len(seen) + len(rest) < len(expected):
        rest += listed(second)
    assert seen + rest == expected
    assert (second.epoch, second.position) == (3, 0)


def test_the_cursor_counts_what_was_handed_out_not_what_was_prepared():
    made = loader(workers=3, prefetch=4)
    batches = iter(made)
    next(batches)
    time.sleep(0.05)  # the workers go ahead
    assert (made.epoch, made.position) == (0, 1)
    for _ in range(3):
        next(batches)
    assert (made.epoch, made.position) == (0, 4)
    restored = loader()
    restored.load_state_dict(made.state_dict())
    assert listed(restored) == [] and restored.epoch == 1
    assert list(batches) == [] and (made.epoch, made.position) == (1, 0)


ROUNDS = 400 if os.environ.get("WEFT_SOAK") else 40


class Pass:
    """What a pass over PyTorch's loader is, with our order: all batches of an epoch of its own."""

    def __init__(self, orders: list):
        self.orders, self.left = orders, None

    def __next__(self):
        if self.left is None:
            epoch = len(self.orders)
            self.left = iter(listed(started(epoch)))
            self.orders.append(epoch)
        return next(self.left)


def started(epoch):
    made = loader()
    made.load_state_dict(made.state_dict() | {"epoch": epoch})
    return made


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_loops_of_every_pattern(seed, workers):
    """Loops that are begun, left, side by side and inside of each other, drawn from at random: each
    gives all batches once, in an order of its own, and a state taken anywhere gives the rest."""
    draw = random.Random(seed)
    made, orders = loader(workers=workers), []
    ours, theirs = [iter(made)], [Pass(orders)]
    for _ in range(30):
        if draw.random() < 0.2 or not ours:
            ours.append(iter(made))
            theirs.append(Pass(orders))
        i = draw.randrange(len(ours))
        expected = next(theirs[i], None)
        found = next(ours[i], None)
        assert (None if found is None else found.tolist()) == expected
        if expected is not None and draw.random() < 0.3:
            other = loader()
            other.load_state_dict(made.state_dict())
            rest = list(theirs[i].left)
            assert listed(other) == rest and listed(ours[i]) == rest
        if expected is None or draw.random() < 0.2:
            del ours[i], theirs[i]


@pytest.mark.parametrize("workers", [0, 2])
def test_loops_as_with_torch(workers):
    """The batches that each program sees, whatever it does with the loader meanwhile."""
    from torch.utils.data import DataLoader as TorchLoader

    def peek(made):
        return [next(iter(made)).tolist(), *[b.tolist() for b in made]]

    def left(made):
        seen = []
        for _ in range(2):
            for k, batch in enumerate(made):
                seen.append(batch.tolist())
                if k == 1:
                    break
        return seen

    def nested(made):
        return [(a.tolist(), b.tolist()) for a in made for b in made]

    def zipped(made):
        return [(a.tolist(), b.tolist()) for a, b in zip(made, made, strict=True)]

    def staggered(made):
        first, second = iter(made), iter(made)
        return [next(first).tolist(), *[b.tolist() for b in second], *[b.tolist() for b in first]]

    for program in (peek, left, nested, zipped, staggered):
        made = DataLoader(list(range(11)), 3, workers=workers)
        assert program(made) == program(TorchLoader(list(range(11)), 3)), program.__name__


def test_a_loop_is_over_when_a_state_is_loaded():
    made = loader(workers=1)
    outer = iter(made)
    next(outer)
    made.load_state_dict(loader().state_dict())
    with pytest.raises(errors.ArgumentError, match="was called during this loop"):
        next(outer)


def test_all_batches_leave_the_cursor():
    made = loader()
    batches = iter(made)
    first, state = next(batches).tolist(), made.state_dict()
    assert [b.tolist() for b in made.all_batches()] == listed(loader())
    assert made.state_dict() == state
    assert [first, *[b.tolist() for b in batches]] == listed(loader())


def test_shuffles_are_uniform():
    """χ² of the 120 orders of 5 samples, and of where each of 20 samples ends up."""
    from scipy.stats import chisquare

    made = DataLoader(list(range(5)), batch_size=5, shuffle=True, seed=3)
    counts: dict = {}
    for _ in range(6000):
        (batch,) = listed(made)
        counts[tuple(batch)] = counts.get(tuple(batch), 0) + 1
    assert len(counts) == 120 and chisquare(list(counts.values())).pvalue > 1e-4
    places = np.zeros((20, 20))
    for seed in range(2000):
        order = next(iter(DataLoader(list(range(20)), 20, shuffle=True, seed=seed))).tolist()
        places[order, range(20)] += 1
    for row in places:
        assert chisquare(row).pvalue > 1e-5


@pytest.mark.parametrize("workers", WORKERS)
def test_transforms_draw_from_streams_of_their_own(workers):
    def noisy(x, generator):
        return float(x) + wf.rand((), generator=generator).item()

    made = loader(workers=workers, transform=noisy, shuffle=False)
    one = flat(made)
    two = flat(made)
    streams = [wf.random.Generator(5).fork("transform").fork(e) for e in (0, 1)]
    for found, stream in zip((one, two), streams, strict=True):
        expected = [i + wf.rand((), generator=stream.fork(i)).item() for i in range(11)]
        assert found == [np.float32(x).item() for x in expected]
    # The same sample gets the same numbers wherever the order puts it.
    shuffled = loader(workers=workers, transform=noisy)
    assert sorted(flat(shuffled)) == sorted(one)


class Slow:
    """Samples that take longer the earlier they are, so that workers overtake each other."""

    def __init__(self, n, failing=None):
        self.n, self.failing, self.asked = n, failing, []

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        self.asked.append(i)
        time.sleep(0.02 if i % 4 == 0 else 0.001)
        if i == self.failing:
            return self.broken(i)
        return i

    def broken(self, i):
        raise OSError(f"sample {i} is not readable")


@pytest.mark.parametrize("workers", WORKERS)
def test_slow_samples_do_not_change_the_order(workers):
    assert listed(DataLoader(Slow(12), workers=workers)) == [[i] for i in range(12)]


def test_workers_work_at_the_same_time():
    both = threading.Barrier(3)

    class Together:
        def __len__(self):
            return 3

        def __getitem__(self, i):
            both.wait(timeout=20)
            return i

    assert listed(DataLoader(Together(), workers=3)) == [[0], [1], [2]]


@pytest.mark.parametrize(("workers", "prefetch"), [(1, 1), (1, 3), (3, 1), (3, 2)])
def test_workers_are_at_most_so_many_batches_ahead(workers, prefetch):
    data = Slow(40)
    batches = iter(DataLoader(data, workers=workers, prefetch=prefetch))
    next(batches)
    time.sleep(0.02 * (workers * prefetch + 2))
    assert len(data.asked) == 1 + workers * prefetch
    batches.close()


@pytest.mark.parametrize("workers", WORKERS)
def test_a_failing_sample_is_raised_where_its_batch_would_come(workers):
    made = DataLoader(Slow(12, failing=5), batch_size=2, workers=workers)
    seen = []
    with pytest.raises(OSError, match="sample 5 is not readable") as caught:
        for batch in made:
            seen.append(batch.tolist())
    assert seen == [[0, 1], [2, 3]] and (made.epoch, made.position) == (0, 2)
    assert "broken" in [f.name for f in traceback.extract_tb(caught.tb)]
    assert caught.value.__notes__ == ["DataLoader: at sample 5 of the dataset, in epoch 0"]
    assert not data_threads()
    made.dataset.failing = None
    made.load_state_dict(made.state_dict())
    assert listed(made) == [[4, 5], [6, 7], [8, 9], [10, 11]]


def test_leaving_the_loop_stops_the_threads():
    before = threading.active_count()
    made = DataLoader(Slow(40), workers=3)
    for _ in made:
        assert data_threads()
        break
    assert not data_threads()
    with pytest.raises(ZeroDivisionError):
        for _ in made:
            1 / 0  # noqa: B018
    gc.collect()
    assert not data_threads()
    for _ in made:
        pass
    assert not data_threads() and threading.active_count() == before


@pytest.mark.parametrize("workers", WORKERS)
def test_an_interrupt_while_waiting_stops_the_threads_and_keeps_the_cursor(workers):
    class Interrupting(Slow):
        def __getitem__(self, i):
            if i == 4 and i not in self.asked:
                while made.position < 4:
                    time.sleep(0.01)
                time.sleep(0.1)  # by now the loop waits for this sample
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            return super().__getitem__(i)

    made, seen = DataLoader(Interrupting(12), workers=workers), []
    with pytest.raises(KeyboardInterrupt):
        for batch in made:
            seen += batch.tolist()
    made.dataset.asked.append(4)
    assert seen == [0, 1, 2, 3] and made.position == 4 and not data_threads()
    made.load_state_dict(made.state_dict())
    assert seen + flat(made) == list(range(12))


def test_workers_have_the_settings_of_the_loop():
    class Recording:
        def __len__(self):
            return 2

        def __getitem__(self, i):
            return float(wf.is_grad_enabled())

    for workers in WORKERS:
        with wf.no_grad():
            assert listed(DataLoader(Recording(), workers=workers)) == [[0.0], [0.0]]
        assert listed(DataLoader(Recording(), workers=workers)) == [[1.0], [1.0]]


def test_collate_of_ones_own():
    assert list(loader(shuffle=False, collate=sum)) == [3, 12, 21, 19]


Pair = namedtuple("Pair", "x y")


def test_trees_are_stacked_as_torch_does():
    rng = np.random.default_rng(0)
    samples = [
        {
            "image": rng.normal(size=(2, 3)).astype(np.float32),
            "pair": Pair(i, 0.5 * i),
            "flags": (np.bool_(i % 2), [True, np.int16(i)]),
            "text": f"caption {i}",
            "torch": torch.full((2,), i),
        }
        for i in range(4)
    ]
    mine = next(iter(DataLoader(samples, batch_size=4)))
    theirs = torch.utils.data.default_collate(samples)
    assert mine.keys() == theirs.keys() and type(mine["pair"]) is Pair
    assert mine["text"] == theirs["text"]
    np.testing.assert_array_equal(mine["image"].numpy(), theirs["image"].numpy())
    np.testing.assert_array_equal(mine["pair"].x.numpy(), theirs["pair"].x.numpy())
    np.testing.assert_array_equal(mine["pair"].y.numpy(), theirs["pair"].y.numpy())
    assert mine["torch"].device == "torch" and mine["torch"].tolist() == theirs["torch"].tolist()
    assert mine["flags"][0].tolist() == [False, True, False, True]
    assert mine["flags"][1][0].tolist() == [True] * 4
    assert mine["flags"][1][1].dtype == wf.int16
    assert mine["image"].dtype == wf.float32 and mine["pair"].x.dtype == wf.int64


@pytest.mark.parametrize(
    ("samples", "error", "message"),
    [
        ([np.zeros(3), np.zeros(2)], errors.ShapeError, r"sample has shape \(3,\).*\(2,\)"),
        ([{"a": np.zeros(1)}, {"a": 1}], errors.ShapeError, r"sample\['a'\] has shape \(1,\)"),
        ([{"a": 1}, {"b": 1}], errors.ShapeError, r"sample has keys \['a'\].*\['b'\]"),
        ([(1, 2), (1,)], errors.ShapeError, "sample has length 2.*1 in number 1"),
        ([(1, "a"), (1, 2)], errors.ShapeError, r"sample\[1\] has type str.*int"),
        ([1, "a"], errors.ShapeError, "type int .* str"),
        ([{"a": 1}, 1], errors.ShapeError, "type dict .* int"),
        ([object(), object()], errors.DTypeError, "sample is of type object.*collate="),
        ([None, None], errors.DTypeError, "NoneType.*collate="),
    ],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_samples_that_do_not_fit_together(samples, error, message, workers):
    with pytest.raises(error, match=message):
        next(iter(DataLoader(samples, batch_size=2, workers=workers)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DataLoader([]), "0 samples in batches of 1"),
        (lambda: loader(n=2, drop_last=True), "2 samples in batches of 3 with drop_last=True"),
        (lambda: loader(batch_size=0), "batch_size=0, expected an integer ≥ 1"),
        (lambda: loader(batch_size=-4), "batch_size=-4"),
        (lambda: loader(batch_size=2.0), r"batch_size=2\.0"),
        (lambda: loader(batch_size=True), "batch_size=True"),
        (lambda: loader(workers=-1), "workers=-1"),
        (lambda: loader(prefetch=0), "prefetch=0"),
        (lambda: loader(seed=-1), "seed: -1: expected an integer from 0"),
        (lambda: DataLoader(7), "int has no __len__"),
        (lambda: DataLoader({1}), "set has no __getitem__"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(errors.ArgumentError, match=message):
        make()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 6}, r"another seed \(5 here, 6 in the state\)"),
        ({"samples": 12}, r"samples \(11 here, 12 in the state\)"),
        ({"batch_size": 4, "shuffle": False}, "batch_size .*, shuffle "),
        ({"drop_last": True}, "drop_last"),
        ({"position": 5}, "position 5: expected .* from 0 to 4"),
        ({"epoch": -1}, "epoch -1"),
        ({"epoch": 1.0}, "mismatched: epoch"),
        ({"shuffle": 1}, "mismatched: shuffle"),
        ({"extra": 1}, "unexpected: extra"),
    ],
)
def test_a_state_of_another_loader(change, message):
    made = loader()
    next(iter(made))
    with pytest.raises(errors.StateMismatch, match=message):
        made.load_state_dict(made.state_dict() | change)
    assert (made.epoch, made.position) == (0, 1)


def test_a_state_that_is_none():
    state = loader().state_dict()
    del state["position"]
    with pytest.raises(errors.StateMismatch, match="missing: position"):
        loader().load_state_dict(state)
    with pytest.raises(errors.StateMismatch, match="got list"):
        loader().load_state_dict([])


def test_a_dataset_that_changes_its_length():
    data = [1, 2, 3]
    made = DataLoader(data)
    data.append(4)
    with pytest.raises(errors.ArgumentError, match="4 samples now and had 3"):
        iter(made)


# --- datasets


def test_batches_of_tensors_are_gathered_by_one_index(monkeypatch):
    x, y = np.arange(22.0).reshape(11, 2), np.arange(11)
    data, calls = TensorDataset(x, y), []
    gather = data.gather_batch
    monkeypatch.setattr(data, "gather_batch", lambda i: calls.append(len(i)) or gather(i))
    monkeypatch.setattr(TensorDataset, "__getitem__", None)
    for workers in WORKERS:
        made = DataLoader(data, batch_size=4, shuffle=True, seed=2, workers=workers)
        order = np.concatenate([b.numpy() for _, b in made])
        xs = np.concatenate([a.numpy() for a, _ in list(made)])
        assert sorted(order) == list(range(11)) and xs.dtype == np.float64
    assert calls == [4, 4, 3] * 6


@pytest.mark.parametrize("subset", [False, True])
def test_gathered_batches_equal_stacked_ones(subset):
    data = TensorDataset(wf.rand((9, 2, 3)), wf.arange(9), torch.arange(9.0))
    data = Subset(data, [3, 1, -1, 7, 7]) if subset else data
    for one, two in zip(
        DataLoader(data, 2, shuffle=True),
        DataLoader(data, 2, shuffle=True, transform=lambda s, g: s),
        strict=True,
    ):
        for a, b in zip(one, two, strict=True):
            assert a.dtype == b.dtype and a.device == b.device and a.tolist() == b.tolist()


def test_gradients_flow_through_a_batch():
    x = wf.arange(6.0).requires_grad_()
    for (batch,) in DataLoader(TensorDataset(x), 2, shuffle=True, workers=1):
        (batch * batch).sum().backward()
    assert x.grad.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]


def test_tensor_datasets_that_do_not_fit():
    with pytest.raises(errors.ShapeError, match=r"shapes \(3,\), \(2,\): expected first axes"):
        TensorDataset(np.zeros(3), np.zeros(2))
    with pytest.raises(errors.ShapeError, match=r"shapes \(\)"):
        TensorDataset(1.0)
    with pytest.raises(errors.ArgumentError, match="no arrays"):
        TensorDataset()
    with pytest.raises(IndexError):
        TensorDataset([1, 2])[2]


def test_a_tensor_is_a_dataset_too():
    assert listed(DataLoader(wf.arange(5), 2)) == [[0, 1], [2, 3], [4]]


def test_subsets():
    part = Subset("abcde", np.array([4, -5, 1]))
    assert [part[i] for i in range(3)] == ["e", "a", "b"] and part[-1] == "b"
    with pytest.raises(errors.IndexingError, match="index 5 is out of range for a dataset of 5"):
        Subset("abcde", [1, 5])
    with pytest.raises(errors.ArgumentError, match=r"dtype bool.*flatnonzero"):
        Subset("abc", [True, False, True])
    with pytest.raises(errors.ArgumentError, match="dtype float64"):
        Subset("abc", [0.5])
    assert len(Subset("abc", [])) == 0


@pytest.mark.parametrize(
    ("n", "lengths", "expected"),
    [
        (10, [7, 3], [7, 3]),
        (10, [0.7, 0.3], [7, 3]),
        (100, [0.29, 0.57, 0.14], [29, 57, 14]),
        (11, [0.5, 0.25, 0.25], [6, 3, 2]),
        (3, [1.0], [3]),
        (1, [1], [1]),
        (4, [0, 4], [0, 4]),
    ],
)
def test_random_splits(n, lengths, expected):
    parts = random_split(range(n), lengths, seed=4)
    assert [len(p) for p in parts] == expected
    assert sorted(i for p in parts for i in p) == list(range(n))
    again = random_split(range(n), lengths, seed=4)
    assert [list(p) for p in again] == [list(p) for p in parts]


def test_splits_depend_on_the_seed():
    assert list(random_split(range(99), [50, 49], 0)[0]) != list(
        random_split(range(99), [50, 49], 1)[0]
    )


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([5, 4], "add up to 9, the dataset has 10"),
        ([0.5, 0.4], "fractions that add up to 1"),
        ([-1, 11], "expected nonnegative integers"),
        ([1.5, -0.5], "expected nonnegative"),
        ([], "expected nonnegative"),
        (["a"], "expected nonnegative"),
    ],
)
def test_bad_splits(lengths, message):
    with pytest.raises(errors.ArgumentError, match=message):
        random_split(range(10), lengths)
