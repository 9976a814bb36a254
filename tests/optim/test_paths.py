"""Steps by every path in any order, with what may happen between them: on PyTorch's arrays, some of
them compiled, beside NumPy's, none of them compiled."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import weft as wf

from .every import OPTIMIZERS, shapes_of
from .states import averages

SEEDS = 40 if os.environ.get("WEFT_SOAK") else 2
LENGTH = 20
# What takes a step, and what happens to the optimizer or its arrays; some of it more often.
STEPS = "eager eager eager compiled compiled other scaled overflow list".split()
EVENTS = """loaded fresh set_lr group_lr decay betas reset frozen swapped scaled_moment
replaced_moment count turned written moved_param order computed""".split()
CHANGED = {"decay": ("weight_decay", (0.0, 0.05)), "betas": ("beta1", (0.8, 0.9))}


def plan_of(name: str, seed: int) -> list[tuple[str, Any]]:
    """Steps and events, with their numbers."""
    rng = np.random.default_rng([seed, *name.encode()])
    found: list[tuple[str, Any]] = []
    for _ in range(LENGTH):
        if rng.random() < 0.35:
            found.append((str(rng.choice(EVENTS)), float(rng.random())))
        found.append((str(rng.choice(STEPS)), float(rng.uniform(0.5, 1.5))))
    return found


class World:
    """Parameters of a device, their optimizer, scaler and averages, and the ways to take a step."""

    def __init__(self, name: str, device: str, wrapped: bool):
        rng = np.random.default_rng(2)
        self.name, self.device, self.wrapped = name, device, wrapped
        values = [rng.standard_normal(s) for s in shapes_of(name)]
        self.params = [wf.Parameter(wf.tensor(v, device=device)) for v in values]
        self.targets = [wf.tensor(rng.standard_normal(v.shape), device=device) for v in values]
        self.begin(self.params)
        self.scaler = wf.amp.GradScaler(init_scale=8.0, growth_interval=4)
        self.ema = wf.optim.EMA(self.params, 0.8)

    def begin(self, params: list) -> None:
        """A new optimizer; wrapped, in two groups."""
        self.optimizer: Any = OPTIMIZERS[self.name][0](params)
        if self.wrapped:
            groups = [{"params": params[:3]}, {"params": params[3:], "lr_scale": 0.5}]
            groups = [wf.optim.ParameterGroup(**g) for g in groups]
            empty = type(self.optimizer)(self.optimizer.config)
            self.optimizer = wf.optim.MultiGroupOptimizer(empty, groups)
        compile = wf.compile if self.device == "torch" else lambda f, **_: f
        self.compiled: Callable = compile(self.step, max_variants=64)
        self.other: Callable = compile(self.step_some, max_variants=64)
        self.compiled_scaled: Callable = compile(self.step_scaled, max_variants=64)

    @property
    def base(self) -> Any:
        return getattr(self.optimizer, "base_optimizer", self.optimizer)

    def loss(self, a, chosen=slice(None)):
        self.optimizer.zero_grad()
        pairs = list(zip(self.params, self.targets, strict=True))[chosen]
        terms = [((p - a * t) ** 2).sum() for p, t in pairs if p.requires_grad]
        return sum(terms[1:], terms[0])

    def step(self, a) -> None:
        self.loss(a).backward()
        self.optimizer.step()

    def step_some(self, a) -> None:
        self.loss(a, slice(0, None, 2)).backward()
        self.optimizer.step()

    def step_scaled(self, a, factor) -> None:
        self.scaler.scale(self.loss(a) * factor).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def do(self, what: str, number: float) -> None:
        a = wf.tensor(number, dtype="float64", device=self.device)
        if what == "eager":
            self.step(a)
        elif what in ("compiled", "other"):
            getattr(self, what)(a)
        elif what in ("scaled", "overflow"):
            factor = wf.tensor(1.0 if what == "scaled" else np.inf, device=self.device)
            (self.step_scaled if number < 1 else self.compiled_scaled)(a, factor.to("float64"))
        elif what == "list":
            found = self.loss(a).backward()
            self.optimizer.step([found.get(e.param) for e in self.base.entries()])
        else:
            getattr(self, what)(number)
        if what in STEPS:
            self.ema.update()

    # What happens in between; the number is between 0 and 1.

    def loaded(self, number: float) -> None:
        self.optimizer.load_state_dict(self.optimizer.state_dict())

    def fresh(self, number: float) -> None:
        saved = self.optimizer.state_dict()
        self.begin([e.param for e in self.base.entries()])
        self.optimizer.load_state_dict(saved)

    def set_lr(self, number: float) -> None:
        if self.base.lr is not None:
            self.optimizer.set_lr(self.base.lr * (0.5 + number))

    def group_lr(self, number: float) -> None:
        if self.name != "prodigy":  # its groups have one rate
            self.optimizer.param_groups[-1]["lr_scale"] = 0.5 + number

    def decay(self, number: float) -> None:
        self.change("decay", number)

    def betas(self, number: float) -> None:
        self.change("betas", number)

    def change(self, what: str, number: float) -> None:
        key, (low, high) = CHANGED[what]
        for group in self.optimizer.param_groups:
            if group.get(key) is not None and not (key == "beta1" and "schedule" in self.name):
                group[key] = low + (high - low) * number

    def reset(self, number: float) -> None:
        self.optimizer.reset()

    def frozen(self, number: float) -> None:
        p = self.params[int(number * (len(self.params) - 1)) + 1 if len(self.params) > 1 else 0]
        p.requires_grad = not p.requires_grad

    def swapped(self, number: float) -> None:
        self.ema.swap()
        if number < 0.5 and self.name != "schedule-free":
            self.step(wf.tensor(number, dtype="float64", device=self.device))
        self.ema.swap()

    def key(self, number: float) -> str:
        return str(int(number * len(self.params)))

    def moments(self, number: float) -> dict[str, Any]:
        """Arrays of a state that are proportional to what they average, whatever form they have."""
        own = self.base.state.get(self.key(number), {})
        return {n: x for n, x in own.items() if self.is_moment(n, x)}

    def is_moment(self, name: str, x: Any) -> bool:
        return getattr(x, "ndim", 0) > 0 and "8bit" not in type(self.base).__name__

    def scaled_moment(self, number: float) -> None:
        for x in self.moments(number).values():
            x *= 0.9

    def replaced_moment(self, number: float) -> None:
        own = self.base.state.get(self.key(number), {})
        own |= {n: x * 0.9 for n, x in self.moments(number).items()}

    def count(self, number: float) -> None:
        own = self.base.state.get(self.key(number))
        if own is not None:
            own["step"] += 3

    def turned(self, number: float) -> None:
        """The parameter's array, and those of its state, column by column."""
        entry = self.base.entries()[int(number * len(self.params))]
        p, own = entry.param, self.base.state.get(entry.key, {})
        p._data = self.by_columns(p._data)
        own |= {n: self.by_columns(x) for n, x in self.moments(number).items()}

    def by_columns(self, raw: Any) -> Any:
        if isinstance(raw, torch.Tensor) and raw.ndim > 1:
            return raw.transpose(0, 1).contiguous().transpose(0, 1)
        return raw

    def written(self, number: float) -> None:
        with wf.no_grad():
            p = self.params[int(number * len(self.params))]
            p.copy_(p.detach() * 0.5)

    def moved_param(self, number: float) -> None:
        p = self.params[int(number * len(self.params))]
        p._data = p._data * 0.5

    def order(self, number: float) -> None:
        """Another order of two alike within their group: states are called by positions."""
        group = self.optimizer.param_groups[0]["params"]
        group[1:3] = group[2:0:-1]

    def computed(self, number: float) -> None:
        if "prodigy" in self.name:
            return  # its estimate follows from all parameters
        p = self.params[0]
        self.base.compute_update(wf.ones(p.shape, dtype="float64", device=self.device), p)

    def values(self) -> dict[str, np.ndarray]:
        found = {f"parameter {k}": p.detach() for k, p in enumerate(self.params)}
        found |= {f"average {k}": self.ema.average_of(p) for k, p in enumerate(self.params)}
        if "8-bit" not in self.name:
            saved = self.optimizer.state_dict()["state"]
            for key, own in saved.items():
                found |= {f"{n} of {key}": x for n, x in averages(own).items()}
        return {k: np.asarray(wf.asarray(x).to("cpu").numpy()) for k, x in found.items()}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_paths_may_be_mixed(name):
    for seed in range(SEEDS):
        wrapped = seed % 2 == 1 and name not in ("muon", "prodigy")
        ours, theirs = World(name, "torch", wrapped), World(name, "cpu", wrapped)
        done = []
        for what, number in plan_of(name, seed):
            done.append(what)
            for world in (ours, theirs):
                world.do(what, number)
            got, want = ours.values(), theirs.values()
            assert got.keys() == want.keys(), (seed, done)
            for key, y in want.items():
                scale = max(1.0, np.abs(y).max(initial=0.0))
                off = np.abs(got[key] - y).max(initial=0.0)
                assert off <= OPTIMIZERS[name][1] * scale, (seed, done, key, off)
