"""Ways to train on several ranks, and a run of each: ranks are threads."""

import random
import warnings
from dataclasses import dataclass, replace

import numpy as np
from tests.dist.threads import run

import weft as wf


class Net(wf.nn.Module):
    """Two layers, one parameter that only some samples use, and a running mean, if asked for."""

    def __init__(self, seed: int, dtype: str, means: bool = False, drop: float = 0.0):
        super().__init__()
        rng = np.random.default_rng(seed)
        draw = lambda *shape: wf.tensor(rng.standard_normal(shape) / 2, dtype=dtype)  # noqa: E731
        self.first = wf.Parameter(draw(3, 5))
        self.second = wf.Parameter(draw(5, 1))
        self.bias = wf.Parameter(draw(1))
        self.means, self.drop = means, drop
        if means:
            self.register_buffer("mean", wf.zeros(3, dtype=dtype))

    def forward(self, x):
        if self.means and self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        hidden = wf.tanh(x @ self.first)
        if self.drop:
            hidden = wf.nn.functional.dropout(hidden, self.drop, training=self.training)
        return hidden @ self.second + self.bias


def squares(model, batch):
    x, y = batch
    error = model(x) - y
    return (error * error).mean(), {"absolute": abs(error).mean()}


@dataclass(frozen=True)
class Way:
    """How a run trains.

    scale  of the loss at first, with float16; one of 2¹²⁷ overflows
    """

    ranks: int = 2
    steps: int = 50
    samples: int = 26
    batch: int = 7
    dtype: str = "float32"
    device: str = "cpu"
    optimizer: str = "SGD"
    lr: float = 0.05
    compile: bool = False
    accumulate: int = 1
    precision: str | None = None
    scale: float | None = None
    clip: float | None = None
    ema: float | None = None
    validate: int | None = None
    workers: int = 0
    drop: float = 0.0
    means: bool = False
    nonfinite: str = "raise"

    def data(self, samples: int | None = None, seed: int = 1) -> wf.train.TensorDataset:
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((samples or self.samples, 3))
        y = x @ [[1.0], [-2.0], [3.0]] + np.sin(x[:, :1])
        kind = {"dtype": self.dtype, "device": self.device}
        return wf.train.TensorDataset(wf.tensor(x, **kind), wf.tensor(y, **kind))

    def loader(self, **options) -> wf.train.DataLoader:
        kind = {"batch_size": self.batch, "shuffle": True, "seed": 3, "workers": self.workers}
        return wf.train.DataLoader(self.data(), **kind | options)

    def model(self, rank: int) -> Net:
        return Net(rank, self.dtype, self.means, self.drop).to(self.device)

    def trainer(self, rank: int, dist: bool, **options) -> wf.train.Trainer:
        model = self.model(rank)
        optimizer = getattr(wf.optim, self.optimizer)(model, lr=self.lr)
        if self.scale is not None:
            options["scaler"] = wf.amp.GradScaler(init_scale=self.scale, growth_interval=7)
        given = {"ema": self.ema, "clip_norm": self.clip, "precision": self.precision}
        given |= {"compile": self.compile, "accumulate": self.accumulate, "max_skips": 200}
        given |= {"nonfinite": self.nonfinite, "progress": False, "dist": dist, "loss": squares}
        return wf.train.Trainer(model, optimizer, **given | options)

    def fit(self, trainer: wf.train.Trainer, **options) -> wf.train.Trainer:
        if self.validate is not None:
            sizes = {"shuffle": False, "batch_size": self.validate}
            options |= {"validation": self.loader(**sizes), "validate_every": 5}
        trainer.fit(self.loader(), **{"steps": self.steps} | options)
        return trainer

    def alone(self, **options) -> wf.train.Trainer:
        return self.fit(self.trainer(0, False), **options)

    def together(self, **options) -> list[wf.train.Trainer]:
        """The trainers of all ranks; each begins with another model."""
        return run(self.ranks, lambda rank: self.fit(self.trainer(rank, True), **options))


def arrays(trainer: wf.train.Trainer) -> dict[str, np.ndarray]:
    """Parameters, buffers, averages and moments of a trainer, by name."""
    found = dict(trainer.model.state_dict())
    if trainer.own_ema is not None:
        found |= {f"ema {n}": x for n, x in trainer.own_ema.state_dict()["averages"].items()}
    return {name: np.asarray(x.detach().to("cpu").numpy()) for name, x in found.items()}


def draw_way(seed: int) -> Way:
    """A way at random; every fourth one overflows in float16."""
    pick = random.Random(seed)
    half = pick.random() < 0.35
    way = Way(
        ranks=pick.choice([2, 3, 4]),
        steps=pick.choice([12, 20]),
        samples=pick.choice([9, 13, 26]),
        batch=pick.choice([2, 3, 5, 7]),
        device=pick.choice(["cpu", "cpu", "torch"]),
        optimizer=pick.choice(["SGD", "AdamW"]),
        lr=0.02,
        compile=pick.random() < 0.5,
        accumulate=pick.choice([1, 1, 3]),
        clip=pick.choice([None, 0.5]),
        ema=pick.choice([None, 0.9]),
        validate=pick.choice([None, 4]),
        workers=pick.choice([0, 2]),
        dtype="float64",
    )
    if half:
        scale = pick.choice([2.0**10, 2.0**127])
        way = replace(way, precision="float16", scale=scale, dtype="float32")
    return way


def differences(way: Way, one: wf.train.Trainer, several: list[wf.train.Trainer]) -> list[str]:
    """What is not the same on all ranks to the bit, and what one process has otherwise."""
    problems = []
    first, expected = arrays(several[0]), arrays(one)
    for rank, trainer in enumerate(several[1:], 1):
        found = arrays(trainer)
        problems += [f"{n} on rank {rank}" for n in first if not np.array_equal(first[n], found[n])]
        if histories(trainer) != histories(several[0]):
            problems.append(f"history on rank {rank}")
    if way.scale is not None and way.scale > 2.0**100:
        # Half precision overflows at another step where each rank has a share of the loss.
        skipped = [len(t.history.skipped) for t in (one, several[0])]
        far = min(skipped) < 90 or abs(skipped[0] - skipped[1]) > 3
        return problems + ([f"skipped: {skipped}"] if far else [])
    rounding = {"float64": 1e-12, "float32": 1e-6}[way.dtype]
    rounding = 5e-3 if way.precision == "float16" else rounding
    if way.optimizer == "AdamW":
        rounding *= 10
    problems += [
        f"{n}: {abs(first[n] - x).max()}"
        for n, x in expected.items()
        if not np.allclose(first[n], x, rtol=rounding, atol=rounding)
    ]
    for part in ("train", "validation", "skipped"):
        a, b = (getattr(t.history, part) for t in (one, several[0]))
        if a.names != b.names or len(a) != len(b):
            problems.append(f"{part}: {len(a)} {a.names}, {len(b)} {b.names}")
            continue
        problems += [
            f"{part} {name}"
            for name in a.names
            if not np.allclose(a[name], b[name], rtol=20 * rounding, atol=rounding, equal_nan=True)
        ]
    if one.samples != several[0].samples:
        problems.append(f"samples: {one.samples}, {several[0].samples}")
    if one.cursor.state != several[0].cursor.state:
        problems.append("the place in the data")
    if way.scale is not None and one.scaler.state_dict() != several[0].scaler.state_dict():
        problems.append("the scaler")
    return problems


def histories(trainer: wf.train.Trainer) -> str:
    found = trainer.history
    parts = (found.train, found.validation, found.skipped)
    return repr([{name: part[name] for name in part.names} for part in parts])


def check(way: Way) -> list[str]:
    with warnings.catch_warnings():
        return differences(way, way.alone(), way.together())
