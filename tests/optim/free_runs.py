"""Random runs of optimizers beside their authors' implementations: groups, gradients, rates."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import weft as wf

STEPS = 100
SHAPES = [(6, 4), (4,), (2, 3, 5), (), (1, 7)]


@dataclass
class Plan:
    """What a run does, by its seed.

    groups   the options of each group, and the indices of its parameters
    missing  (step, parameter) without a gradient
    rates    by step, what all learning rates are multiplied by
    """

    seed: int
    dtype: str
    options: dict[str, Any]
    groups: list[tuple[dict[str, Any], list[int]]]
    size: float = 1.0
    missing: set[tuple[int, int]] = field(default_factory=set)
    rates: dict[int, float] = field(default_factory=dict)
    quiet: int = 0  # steps at the beginning whose gradients are 0

    def values(self) -> list[np.ndarray]:
        rng = np.random.default_rng((self.seed, 1))
        return [np.asarray(rng.standard_normal(s) * self.size, self.dtype) for s in SHAPES]

    def gradient(self, p: np.ndarray, step: int, i: int) -> np.ndarray:
        """That of a loss with a minimum, and some noise."""
        noise = np.random.default_rng((self.seed, step, i)).standard_normal(p.shape)
        g = (np.tanh(p - 0.5) + 0.3 * noise) * (step >= self.quiet)
        return np.asarray(g, self.dtype)


def parted(rng) -> list[list[int]]:
    """The parameters in one to three groups."""
    count = int(rng.integers(1, 4))
    which = [*range(count), *rng.integers(0, count, len(SHAPES) - count)]
    return [[i for i, k in enumerate(which) if k == group] for group in range(count)]


class Ours:
    """Our optimizer over a plan, on a device, eager or compiled."""

    def __init__(self, plan: Plan, cls: Any, device: str = "cpu", compiled: bool = False):
        self.plan, self.device = plan, device
        self.params = [wf.Parameter(wf.tensor(v, device=device)) for v in plan.values()]
        groups = [{**o, "params": [self.params[i] for i in which]} for o, which in plan.groups]
        self.optimizer = cls(groups, **plan.options)
        self.order = [i for _, which in plan.groups for i in which]
        self.rates = [g["lr"] for g in self.optimizer.param_groups]
        self._step = wf.compile(self._take, max_variants=64) if compiled else self._take

    def _take(self, gradients):
        self.optimizer.step(gradients)

    def step(self, k: int, gradients: list[np.ndarray | None]) -> None:
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * self.plan.rates.get(k, 1.0)
        made = [None if g is None else wf.tensor(g, device=self.device) for g in gradients]
        self._step([made[i] for i in self.order])

    def arrays(self) -> list[np.ndarray]:
        return [np.array(p.detach().to("cpu").numpy()) for p in self.params]


class Theirs:
    """The authors' optimizer over a plan."""

    def __init__(self, plan: Plan, cls: Any, **more: Any):
        self.plan = plan
        self.params = [torch.tensor(v, requires_grad=True) for v in plan.values()]
        groups = [{**o, "params": [self.params[i] for i in which]} for o, which in plan.groups]
        self.optimizer = cls(groups, **plan.options, **more)
        self.rates = [g["lr"] for g in self.optimizer.param_groups]

    def gradients(self, k: int) -> list[np.ndarray | None]:
        """The gradients of step k, where these parameters are."""
        found = enumerate(self.arrays())
        made = [(i, self.plan.gradient(p, k, i)) for i, p in found]
        return [None if (k, i) in self.plan.missing else g for i, g in made]

    def step(self, k: int, gradients: list[np.ndarray | None]) -> None:
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * self.plan.rates.get(k, 1.0)
        for p, g in zip(self.params, gradients, strict=True):
            p.grad = None if g is None else torch.tensor(g)
        self.optimizer.step()

    def arrays(self) -> list[np.ndarray]:
        return [p.detach().numpy().copy() for p in self.params]


def compare(ours: Any, theirs: Any, tolerance: float) -> None:
    for i, (p, q) in enumerate(zip(ours.arrays(), theirs.arrays(), strict=True)):
        error = np.abs(p.astype(np.float64) - q).max(initial=0.0)
        assert error <= tolerance * max(np.abs(q).max(initial=0.0), 1e-30), (i, error)
