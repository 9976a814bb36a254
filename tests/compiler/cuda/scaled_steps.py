"""Random training steps with a loss scale: kinds of numbers, optimizers, overflows, clipping."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import weft as wf
from weft.optim.optimizers import _SUMS

STEPS = 6
OPTIMIZERS = {
    "SGD": {"lr": 0.05},
    "momentum": {"lr": 0.05, "momentum": 0.9},
    "nesterov": {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    "Adam": {"lr": 0.02},
    "AMSGrad": {"lr": 0.02, "amsgrad": True},
    "AdamW": {"lr": 0.02, "weight_decay": 0.1},
    "NAdam": {"lr": 0.02},
    "RAdam": {"lr": 0.02},
    "RMSprop": {"lr": 0.01, "momentum": 0.5, "centered": True},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.1},
    "Lion": {"lr": 0.01},
    "Prodigy": {"d0": 1e-2, "weight_decay": 0.1, "use_bias_correction": True, "slice_p": 2},
    "ScheduleFreeAdamW": {"lr": 0.02, "warmup_steps": 3, "r": 1.0, "weight_decay": 0.1},
    "LAMB": {"lr": 0.02},
    "Adafactor": {"lr": None, "relative_step": True, "warmup_init": True, "scale_parameter": True},
}
CLASSES = {"momentum": "SGD", "nesterov": "SGD", "AMSGrad": "Adam"}
KINDS = ("float32", "float16", "bfloat16", "float64")


def averages(own: dict[str, Any]) -> dict[str, Any]:
    """A state whose discounted sums are averages, as eager steps of PyTorch's arrays keep them."""
    found = {name: v for name, v in own.items() if name not in _SUMS}
    for beta, names in _SUMS.items():
        found |= {name: own[name] * (1.0 - own[beta]) for name in names if name in own}
    return found


@dataclass
class Training:
    """One random way to train, by its seed.

    overflows  by optimizer, the steps whose gradients are not finite
    """

    seed: int

    def __post_init__(self):
        rng = self.rng = np.random.default_rng(self.seed)
        self.kind = KINDS[self.seed % len(KINDS)]
        names = list(OPTIMIZERS)
        count = int(rng.integers(1, 3))
        first = names[self.seed % len(names)]
        self.optimizers = [first, *rng.choice(names, count - 1)]
        steps = range(STEPS)
        self.overflows = [{k for k in steps if rng.random() < 0.35} for _ in self.optimizers]
        self.clip = bool(rng.random() < 0.5)
        self.unscales = self.clip or bool(rng.random() < 0.3)
        self.averages = rng.choice(["none", "EMA", "EMAOptimizer"])
        self.growth = int(rng.integers(1, 4))
        self.scale = float(rng.choice([4.0, 1024.0, 65536.0]))
        self.values = [rng.normal(size=(3, 4)) * 0.5 for _ in self.optimizers]
        self.data = [rng.normal(size=(5, 3)) for _ in steps]

    @property
    def dtype(self) -> str:
        """The parameters' dtype."""
        return "float64" if self.kind == "float64" else "float32"


class Run:
    """A training on one device, eager or compiled."""

    def __init__(self, plan: Training, device: str, compiled: bool = False):
        self.plan, self.device = plan, device
        make = self._make
        self.params = [make(v) for v in plan.values]
        self.biases = [make(np.zeros(4)) for _ in plan.values]
        self.scaler = wf.amp.GradScaler(plan.scale, growth_interval=plan.growth)
        self.optimizers: list[Any] = []
        for name, p, b in zip(plan.optimizers, self.params, self.biases, strict=True):
            made = getattr(wf.optim, CLASSES.get(name, name))([p, b], **OPTIMIZERS[name])
            if plan.averages == "EMAOptimizer":
                made = wf.optim.EMAOptimizer(made, decay=0.5)
                first = [wf.ones_like(x.detach()) for x in (p, b)]
                made.step(first)  # averages begin with it
            self.optimizers.append(made)
        self.ema = wf.optim.EMA(self.params, decay=0.5) if plan.averages == "EMA" else None
        self._step = wf.compile(self.step) if compiled else self.step

    def _make(self, values) -> Any:
        return wf.Parameter(wf.tensor(values, dtype=self.plan.dtype, device=self.device))

    def step(self, x, spikes):
        """One step; a spike makes the gradients of one optimizer infinite."""
        plan, scaler = self.plan, self.scaler
        for o in self.optimizers:
            o.zero_grad()
        half = plan.kind in ("float16", "bfloat16")
        with wf.amp.autocast(plan.kind if half else "float32", enabled=half):
            loss = 0.0
            for p, b, spike in zip(self.params, self.biases, spikes, strict=True):
                y = wf.tanh(x @ p + b)
                loss = loss + (y * y).to(plan.dtype).mean() + (p * spike).sum()
        scaler.scale(loss).backward()
        for o in self.optimizers:
            if plan.unscales:
                scaler.unscale_(o)
            if plan.clip:
                params = [p for g in o.param_groups for p in g["params"]]
                wf.optim.clip_grad_norm(params, 0.1)
            scaler.step(o)
        scaler.update()
        if self.ema is not None:
            self.ema.update()
        return loss.detach()

    def data(self, k: int) -> tuple[Any, list[Any]]:
        """The arguments of a step."""
        plan = self.plan
        spikes = [np.inf if k in found else 0.0 for found in plan.overflows]
        make = lambda v: wf.tensor(v, dtype=plan.dtype, device=self.device)  # noqa: E731
        return make(plan.data[k]), [make(s) for s in spikes]

    def schedule(self, k: int) -> None:
        """Set the learning rates of step k."""
        for name, o in zip(self.plan.optimizers, self.optimizers, strict=True):
            rate = OPTIMIZERS[name].get("lr", 1.0)
            if rate is not None:
                o.set_lr(rate * (1.0 - 0.1 * k))

    def advance(self, k: int) -> Any:
        """Take step k."""
        self.schedule(k)
        return self._step(*self.data(k))

    def numbers(self) -> tuple[Any, ...]:
        """The scale, what it has grown, and whether the last step was left out."""
        return (*self.scaler.state_dict().values(), self.scaler.skipped)

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that training changes."""
        found: dict[str, Any] = {f"p{k}": p for k, p in enumerate(self.params)}
        found |= {f"b{k}": b for k, b in enumerate(self.biases)}
        for k, o in enumerate(self.optimizers):
            saved = o.state_dict()
            if "ema" in saved:
                found |= {f"average {k} {key}": v for key, v in saved["ema"]["averages"].items()}
                found[f"updates {k}"] = saved["ema"]["updates"]
                saved = saved["optimizer"]
            found |= {f"{name} {k}": v for name, v in saved.get("estimate", {}).items()}
            for key, own in saved["state"].items():
                found |= {f"{name} {k} {key}": v for name, v in averages(own).items()}
        if self.ema is not None:
            found |= {f"average {key}": v for key, v in self.ema.state_dict()["averages"].items()}
            found["updates"] = self.ema.updates
        return {k: np.asarray(v.detach().to("cpu") if isinstance(v, wf.Tensor) else v, np.float64)
                for k, v in found.items()}  # fmt: skip
