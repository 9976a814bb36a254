"""The parts of batches that ranks take: together they are the batches, whatever the loader."""

import random

import numpy as np
import pytest

import weft as wf
from weft.diffusion.data import BucketLoader
from weft.diffusion.data.demo import shape_dataset
from weft.train.parts import Part

KINDS = ("tensors", "samples", "transform", "collate")


def make_loader(kind, pick):
    n = pick.randint(1, 23)
    data = wf.train.TensorDataset(wf.arange(n), wf.arange(n) * 10)
    options = {}
    if kind != "tensors":
        data = [(i, 10 * i) for i in range(n)]
    if kind == "transform":  # draws are those of the sample, on whatever rank it is
        options["transform"] = lambda x, generator: (x[0], wf.rand((), generator=generator).item())
    if kind == "collate":
        options["collate"] = lambda samples: tuple(
            np.array(column) for column in zip(*samples, strict=True)
        )
    size = pick.randint(1, n)
    drop, shuffle, workers = (pick.choice([False, True]) for _ in range(3))
    return wf.train.DataLoader(
        data, size, shuffle, pick.randint(0, 9), drop, 2 * workers, **options
    )


def columns(batch) -> list:
    return [np.asarray(x.numpy() if hasattr(x, "numpy") else x) for x in batch]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(12))
def test_parts_together_are_the_batches(kind, seed):
    pick = random.Random(seed)
    loader, ranks = make_loader(kind, pick), pick.randint(1, 6)
    for epoch in range(2):
        at = pick.randint(0, len(loader) - 1)
        start = {**loader.state_dict(), "epoch": epoch, "position": at}
        loader.load_state_dict(start)
        whole, places = [], []
        for batch in loader:
            whole.append(columns(batch))
            places.append(loader.state_dict())
        parts = []
        for rank in range(ranks):
            loader.load_state_dict(start)
            shares = loader.parts(Part(rank, ranks))
            parts.append([(columns(x.batch), x.counts, loader.state_dict()) for x in shares])
        for k, batch in enumerate(whole):
            found = [part[k] for part in parts]
            assert all(place == places[k] for _, _, place in found)
            real = [x for x, counts, _ in found if counts]
            for j, column in enumerate(batch):
                np.testing.assert_array_equal(np.concatenate([x[j] for x in real]), column)
            sizes = [len(x[0]) for x, counts, _ in found if counts]
            assert max(sizes) - min(sizes) <= 1 and sizes == sorted(sizes, reverse=True)
            assert all(len(x[0]) == 1 for x, counts, _ in found if not counts)


def test_only_a_ranks_own_samples_are_loaded():
    loaded = []

    class Noting:
        def __len__(self):
            return 10

        def __getitem__(self, i):
            loaded.append(i)
            return i

    loader = wf.train.DataLoader(Noting(), batch_size=4)
    assert [x.batch.tolist() for x in loader.parts(Part(1, 2))] == [[2, 3], [6, 7], [9]]
    assert loaded == [2, 3, 6, 7, 9]


@pytest.mark.parametrize("fill", [False, True])
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_parts_of_buckets_together_are_the_batches(fill, ranks, tmp_path):
    loader = BucketLoader(shape_dataset(tmp_path, images=7), 3, seed=1, fill=fill)
    whole = list(loader.all_batches())
    parts = [list(loader.all_parts(Part(rank, ranks))) for rank in range(ranks)]
    for k, batch in enumerate(whole):
        real = [part[k].batch for part in parts if part[k].counts]
        for name in ("latents", "weights", "indexes", "prompt_embeds", "pooled"):
            together = np.concatenate([getattr(x, name) for x in real])
            np.testing.assert_array_equal(together, getattr(batch, name))
