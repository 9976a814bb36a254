"""Random ways to train in compiled steps, poisoned data, and devices whose results are late."""

from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
from tests.compiler.cuda.emulated_gpu import emulated_target

import weft as wf
from weft.compiler.pipeline import using
from weft.compiler.raw.arrays import arrays_on
from weft.optim.optimizers import _SUMS
from weft.train import whole
from weft.train.whole import WholeStepper

OPTIMIZERS = {
    "SGD": {"lr": 0.02},
    "momentum": {"lr": 0.02, "momentum": 0.9, "nesterov": True},
    "Adam": {"lr": 0.01, "amsgrad": True},
    "AdamW": {"lr": 0.01, "weight_decay": 0.1},
    "NAdam": {"lr": 0.01},
    "RAdam": {"lr": 0.01},
    "RMSprop": {"lr": 0.005, "centered": True},
    "Adagrad": {"lr": 0.05},
    "Lion": {"lr": 0.002},
    "LAMB": {"lr": 0.01},
    "Adafactor": {"lr": None, "relative_step": True, "scale_parameter": True},
}
CLASSES = {"momentum": "SGD"}
BATCH = 4


class Net(wf.nn.Module):
    """Layers with noise and, by choice, two kinds of buffers."""

    def __init__(self, normalised: bool, rebinds: bool):
        super().__init__()
        self.first = wf.Parameter.randn((3, 6))
        self.second = wf.Parameter.randn((6, 1))
        self.norm = wf.nn.BatchNorm1d(6) if normalised else None
        self.register_buffer("mean", wf.zeros(3) if normalised and rebinds else None)

    def forward(self, x):
        if self.mean is not None and self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        hidden = x @ self.first
        hidden = wf.tanh(hidden if self.norm is None else self.norm(hidden))
        if self.training:
            hidden = hidden * (wf.rand(hidden.shape, device=x.device) > 0.25)
        return hidden @ self.second


def loss(model, batch):
    """The mean square error; the third column may poison the value, or only the gradient."""
    x, y, good = batch
    error = model(x) - y
    value = (error * error).mean()
    drift = (model.first - model.first.detach()).sum()
    value = value + 0.1 * wf.log(wf.maximum(good, -1.0)).mean()
    value = value + 0.1 * wf.sqrt(wf.minimum(good, 1.0) * (1.0 + drift)).mean()
    return value, {"absolute": abs(error).mean(), "two": 2, "three": wf.tensor(3)}


def gradient_poison(model, batch):
    """The same without a logarithm: a zero makes the gradient of the square root infinite."""
    x, y, good = batch
    error = model(x) - y
    drift = (model.first - model.first.detach()).sum()
    return (error * error).mean() + 0.1 * wf.sqrt(good * (1.0 + drift)).mean()


@dataclass
class Way:
    """One random way to train, by its seed.

    rebinds  whether a buffer is replaced by assignment
    """

    seed: int
    rebinds: bool = True

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        self.samples = [24, 22][int(rng.integers(2))]  # a last batch that is smaller
        self.optimizer = list(OPTIMIZERS)[self.seed % len(OPTIMIZERS)]
        self.accumulate = int(rng.integers(1, 4))
        self.clip = [{}, {"clip_norm": 0.3}, {"clip_value": 0.05}][self.seed % 3]
        self.ema = [None, 0.8][int(rng.integers(2))]
        self.scheduled = bool(rng.integers(2)) and self.optimizer != "Adafactor"
        self.normalised = bool(rng.integers(2))
        self.save_every = [None, 2, 3][int(rng.integers(3))]
        self.validate_every = [None, 2, 5][int(rng.integers(3))]

    @property
    def steps(self) -> int:
        """How many steps an epoch has."""
        return -(-len(self.loader()) // self.accumulate)

    def data(self, poison=None, sample=None) -> wf.train.TensorDataset:
        generator = wf.random.Generator(1)
        x = wf.randn((self.samples, 3), generator=generator).numpy().copy()
        y, good = x @ np.float32([[1.0], [-2.0], [3.0]]), np.ones(self.samples, np.float32)
        if poison == "data":
            x[sample, 1] = np.nan
        elif poison is not None:
            good[sample] = {"log": -1.0, "sqrt": 0.0}[poison]
        return wf.train.TensorDataset(wf.tensor(x), wf.tensor(y), wf.tensor(good))

    def loader(self, *poison) -> wf.train.DataLoader:
        return wf.train.DataLoader(self.data(*poison), batch_size=BATCH, shuffle=True, seed=5)

    def trainer(self, compile, device="cpu", directory=None, loss=loss, **options):
        wf.random.seed(self.seed)
        model = Net(self.normalised, self.rebinds).to(device=device)
        made = getattr(wf.optim, CLASSES.get(self.optimizer, self.optimizer))
        schedule = wf.optim.CosineScheduler(0.02, 0.001, 2, 12) if self.scheduled else None
        every = self.save_every if directory else None
        options = {"save_every": every, "signals": False, **self.clip, **options}
        return wf.train.Trainer(
            *(model, made(model, **OPTIMIZERS[self.optimizer]), loss),
            **{"compile": compile, "accumulate": self.accumulate, "ema": self.ema},
            **{"schedule": schedule, "directory": directory, "progress": False},
            **options,
        )

    def fit(self, trainer, loader=None, **plan):
        plan = {"epochs": 2, **plan}
        validation = wf.train.DataLoader(self.data(), batch_size=9)
        every = self.validate_every
        with np.errstate(all="ignore"):
            loader = self.loader() if loader is None else loader
            trainer.fit(loader, validation=validation, validate_every=every, **plan)
        return trainer


def numbers(trainer) -> dict[str, np.ndarray]:
    """All that a run has changed."""
    found = dict(trainer.model.state_dict())
    for key, own in trainer.optimizer.state_dict()["state"].items():
        # A discounted sum may be kept as an average.
        means = {n: own[n] * (1.0 - own[b]) for b, ns in _SUMS.items() for n in ns if n in own}
        found |= {f"{key}: {n}": v for n, v in (own | means).items() if n not in _SUMS}
    if trainer.ema is not None:
        saved = trainer.ema.state_dict()
        found |= {f"average {n}": v for n, v in saved["averages"].items()}
        found["updates"] = saved["updates"]
    for part in ("train", "validation"):
        series = getattr(trainer.history, part)
        found |= {f"{part} {n}": np.asarray(series[n]) for n in series.names}
    tensors = {n: v.detach().to("cpu").numpy() for n, v in found.items() if hasattr(v, "detach")}
    return {n: np.asarray(v, np.float64) for n, v in (found | tensors).items()}


@contextmanager
def emulated():
    """PyTorch's arrays are those of an emulated GPU."""
    with pytest.MonkeyPatch.context() as patch, using(emulated_target()):
        patch.setattr(arrays_on("torch"), "host_runtime", False)
        yield


@contextmanager
def late():
    """Results of steps can be read only once the next step is launched, or nothing else is left.

    Gives the list of what happened: ("launch", k), ("read", k).
    """
    happened: list[tuple[str, int]] = []

    def begin_read(x, now=whole.begin_read):
        k, read = sum(what == "launch" for what, _ in happened), now(x)
        happened.append(("launch", k))

        def later():
            happened.append(("read", k))
            return read()

        return later

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WholeStepper, "runs_ahead", True)
        patch.setattr(whole, "begin_read", begin_read)
        yield happened
