"""Datasets of every kind of item, on every device: batches on one device, and training on them."""

import dataclasses
from collections import namedtuple
from itertools import product

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import TensorDataset as TorchDataset

import weft as wf
from weft import errors
from weft.train.collation import place_batch

DEVICES = [None, "cpu", "torch"]
Pair = namedtuple("Pair", "x y")

# kind of x: sample number -> three features
FEATURES = {
    "torch": lambda i: torch.tensor([i, 1.0, 2.0]),
    "torch double": lambda i: torch.tensor([i, 1.0, 2.0], dtype=torch.float64),
    "numpy": lambda i: np.array([i, 1.0, 2.0], np.float32),
    "weft": lambda i: wf.tensor([i, 1.0, 2.0]),
    "weft on torch": lambda i: wf.tensor([i, 1.0, 2.0], device="torch"),
}
LABELS = {
    "int": lambda i: i % 2,
    "float": lambda i: float(i % 2),
    "bool": lambda i: bool(i % 2),
    "numpy scalar": lambda i: np.int64(i % 2),
    "numpy 0-d": lambda i: np.array(i % 2),
    "torch 0-d": lambda i: torch.tensor(i % 2),
    "weft 0-d": lambda i: wf.tensor(i % 2),
}
# How a sample holds them.
FORMS = {
    "tuple": lambda x, y: (x, y),
    "list": lambda x, y: [x, y],
    "dict": lambda x, y: {"x": x, "y": y, "name": "n"},
    "named tuple": Pair,
    "nested": lambda x, y: {"x": x, "deep": {"y": y, "more": (y, [y])}},
}


def leaves(batch) -> list:
    if isinstance(batch, dict):
        return [leaf for value in batch.values() for leaf in leaves(value)]
    if isinstance(batch, list | tuple):
        return [leaf for value in batch for leaf in leaves(value)]
    return [batch] if isinstance(batch, wf.Tensor) else []


def as_torch(batch):
    """PyTorch's batch in the same form, as lists of numbers."""
    if isinstance(batch, dict):
        return {k: as_torch(v) for k, v in batch.items()}
    if isinstance(batch, list | tuple):
        return [as_torch(v) for v in batch]
    return batch.tolist() if hasattr(batch, "tolist") else batch


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("workers", [0, 2])
def test_a_batch_is_on_one_device(form, device, workers):
    for feature, label in product(FEATURES, LABELS):
        samples = [FORMS[form](FEATURES[feature](i), LABELS[label](i)) for i in range(5)]
        loader = wf.train.DataLoader(samples, 2, device=device, workers=workers)
        found = list(loader)
        for batch in found:
            places = {leaf.device for leaf in leaves(batch)}
            mixed = device is None and "torch" in feature and label == "weft 0-d"
            mixed |= device is None and "torch" not in feature and label == "torch 0-d"
            assert len(places) == 1 or mixed, (feature, label)
            assert device is None or places == {device}
        if "weft" not in feature + label:
            assert as_torch(found) == [as_torch(b) for b in TorchLoader(samples, 2)]


@pytest.mark.parametrize("device", [None, "cpu", "torch"])
@pytest.mark.parametrize("trained_on", [None, "cpu", "torch"])
def test_every_pair_can_be_trained_on(device, trained_on):
    for feature, label in product(["torch", "numpy", "weft", "weft on torch"], LABELS):
        samples = [(FEATURES[feature](i), LABELS[label](i)) for i in range(6)]
        model = wf.nn.Linear(3, 2)

        def loss(m, batch):
            x, y = batch
            return wf.nn.functional.cross_entropy(m(x), y.to("int64"))

        optimizer = wf.optim.SGD(model, lr=0.1, momentum=0.9)
        trainer = wf.train.Trainer(model, optimizer, loss, device=trained_on, progress=False)
        loader = wf.train.DataLoader(samples, 3, device=device)
        history = trainer.fit(loader, epochs=2, validation=wf.train.DataLoader(samples, 2))
        assert np.isfinite(history["loss"]).all() and len(history) == 4
        assert model.weight.device == (trained_on or "cpu")
        trainer.evaluate([(torch.ones(4, 3), torch.zeros(4, dtype=torch.int64))])
        trainer.evaluate([(np.ones((4, 3), np.float32), np.zeros(4, int))])


def test_a_dataset_of_torch_trains_as_it_is():
    x = torch.randn(16, 3, generator=torch.Generator().manual_seed(0))
    data = TorchDataset(x, (x.sum(1) > 0).long())
    labelled = [(row, int(label)) for row, label in data]
    for samples in (data, labelled):
        model = wf.nn.Linear(3, 2)
        trainer = wf.train.Trainer(
            model, wf.optim.Adam(model, lr=0.1), wf.nn.functional.cross_entropy, progress=False
        )
        history = trainer.fit(wf.train.DataLoader(samples, 4, shuffle=True), epochs=20)
        assert history["loss"][-1] < history["loss"][0]


@dataclasses.dataclass(frozen=True)
class Batch:
    x: object
    names: list


def test_batches_of_ones_own_are_placed():
    x = wf.ones(2)
    made = place_batch(Batch(x, ["a", np.array(["text"]), np.ones(2), None]), "torch")
    assert made.x.device == "torch" and made.names[0] == "a" and made.names[3] is None
    assert made.names[1].tolist() == ["text"] and made.names[2].device == "torch"
    assert x.device == "cpu"
    loader = wf.train.DataLoader(
        [1.0, 2.0], 2, collate=lambda s: Batch(wf.tensor(s), []), device="torch"
    )
    assert next(iter(loader)).x.device == "torch"


@pytest.mark.parametrize("item", [None, object(), Batch(1.0, []), {1}, range(2)])
def test_other_items_are_refused_with_a_remedy(item):
    with pytest.raises(errors.DTypeError, match="collate= of your own"):
        list(wf.train.DataLoader([(item, 1.0)] * 2, 2))


def test_devices_that_are_none():
    with pytest.raises(errors.WeftError, match="tpu"):
        wf.train.DataLoader([1.0], device="tpu")
    model = wf.nn.Linear(1, 1)
    with pytest.raises(errors.WeftError, match="tpu"):
        wf.train.Trainer(model, wf.optim.SGD(model, lr=1.0), lambda m, b: b, device="tpu")
