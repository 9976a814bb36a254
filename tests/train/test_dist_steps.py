"""Steps of several ranks beside PyTorch's and one process's on the whole batches."""

import os

import numpy as np
import pytest
import torch
from tests.dist.threads import run

import weft as wf
from weft.train import joint
from weft.train.objective import Counts
from weft.train.parts import Part

from .dist_ways import Way, arrays, check, differences, draw_way, squares

SOAK = bool(os.environ.get("WEFT_SOAK"))
TOLERANCE = {"float32": 1e-6, "float64": 1e-12}


def pytorch_run(way: Way) -> tuple[list[np.ndarray], list[float]]:
    """Parameters and losses after the same steps of PyTorch, on whole batches."""
    kind = getattr(torch, way.dtype)
    start = way.model(0)
    params = [torch.tensor(p.detach().to("cpu").numpy(), dtype=kind) for p in start.parameters()]
    params = [p.requires_grad_() for p in params]
    make = {"SGD": torch.optim.SGD, "AdamW": torch.optim.AdamW}[way.optimizer]
    optimizer, losses = make(params, lr=way.lr), []
    loader = way.loader()
    while len(losses) < way.steps:
        for x, y in loader:
            x, y = (torch.tensor(np.asarray(v.to("cpu").numpy())) for v in (x, y))
            optimizer.zero_grad()
            loss = ((torch.tanh(x @ params[0]) @ params[1] + params[2] - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if len(losses) == way.steps:
                break
    return [p.detach().numpy() for p in params], losses


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("device", ["cpu", "torch"])
@pytest.mark.parametrize(
    ("optimizer", "dtype"), [("SGD", "float32"), ("SGD", "float64"), ("AdamW", "float32")]
)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_fifty_steps_are_those_of_pytorch_on_whole_batches(
    ranks, optimizer, dtype, device, compile
):
    way = Way(ranks, dtype=dtype, device=device, optimizer=optimizer, compile=compile, lr=0.02)
    params, losses = pytorch_run(way)
    several = way.together()
    first = arrays(several[0])
    for trainer in several[1:]:
        assert all(np.array_equal(x, first[n]) for n, x in arrays(trainer).items())
    if optimizer == "SGD":
        for x, expected in zip(first.values(), params, strict=True):
            np.testing.assert_allclose(x, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
    np.testing.assert_allclose(several[0].history["loss"], losses, rtol=1e-5)


@pytest.mark.parametrize("seed", range(400 if SOAK else 24))
def test_any_way_of_training_is_that_of_one_process(seed):
    way = draw_way(seed)
    assert check(way) == [], way


def everyone_counts(monkeypatch):
    """The sample that a rank takes again counts."""
    monkeypatch.setattr(Part, "counts", lambda self, n: True)
    monkeypatch.setattr(Part, "of", lambda self, items: items[slice(*self.own(len(items)))])
    bounds = Part.bounds
    own = lambda self, n: bounds(self, n) if len(range(*bounds(self, n))) else (0, 1)  # noqa: E731
    monkeypatch.setattr(Part, "own", own, raising=False)


def ranks_weigh_the_same(monkeypatch):
    """The mean over ranks of the means of their shares."""

    def shares(self):
        return [count and self.total and 1 / 2 for count in self.own]

    monkeypatch.setattr(Counts, "shares", property(shares))


def gradients_stay_apart(monkeypatch):
    monkeypatch.setattr(wf.train.Trainer, "_reducers", lambda self: [])
    monkeypatch.setattr(joint, "sum_gradients", lambda ranks, pairs: None)


def means_stay_means(monkeypatch):
    monkeypatch.setattr(joint, "multiply_gradients", lambda pairs, factor: None)


def validation_of_one(monkeypatch):
    """Each rank validates on all batches."""
    monkeypatch.setattr(Part, "of", lambda self, items: items)


def buffers_stay_apart(monkeypatch):
    monkeypatch.setattr(joint, "take_first_ranks", lambda ranks, buffers: None)


UNEVEN = Way(2, 12, samples=9, batch=4, dtype="float64", ema=0.9, validate=2, means=True)
FAULTS = [everyone_counts, ranks_weigh_the_same, gradients_stay_apart, means_stay_means]
FAULTS += [validation_of_one]


@pytest.mark.parametrize("fault", [*FAULTS, buffers_stay_apart])
def test_the_comparison_finds_planted_faults(fault, monkeypatch):
    one = UNEVEN.alone()
    only_means = set(differences(UNEVEN, one, UNEVEN.together()))
    assert all("mean" in problem for problem in only_means)  # of rank 0's shares
    fault(monkeypatch)
    found = {p for p in differences(UNEVEN, one, UNEVEN.together()) if "mean:" not in p}
    assert found, fault


@pytest.mark.parametrize("ranks", [2, 3])
def test_parameters_that_some_ranks_or_none_use(ranks):
    """Where only other ranks' samples use a parameter, it gets their gradient; else it stays."""

    def only_some(model, pair):
        value, metrics = squares(model, pair)
        large = pair[0][:, 0] > 1.0
        if large.any().item():
            value = value + (model.seldom * large.to("float64")[:, None]).mean()
        return value, metrics

    class Extra(Way):
        def model(self, rank):
            made = super().model(rank)
            made.seldom = wf.Parameter(wf.ones(1, dtype="float64"))
            made.never = wf.Parameter(wf.ones(1, dtype="float64"))
            return made

    way = Extra(ranks, 20, samples=26, batch=5, dtype="float64", optimizer="AdamW", lr=0.02)
    one = way.fit(way.trainer(0, False, loss=only_some))
    with pytest.warns(UserWarning, match="'never'"):
        several = run(ranks, lambda rank: way.fit(way.trainer(rank, True, loss=only_some)))
    assert differences(way, one, several) == []
    assert one.model.never.item() == several[0].model.never.item() == 1.0
    assert one.model.seldom.item() < 0.99
