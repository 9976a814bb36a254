"""Schedule-free AdamW: an average of the steps in the place of a decaying learning rate."""

from typing import Any

from ..ops.elementwise import sqrt
from .averaged import SelfAveragingOptimizer
from .free_configs import ScheduleFreeAdamWConfig
from .rules import Array, Arrays, Number, largest, least
from .state import Slot, like

_LEAST = 1e-300  # a sum of weights that are all 0 counts as this


def schedule_free_adamw(
    y: Array, g: Array, z: Array, v: Array, *, lr: Number, beta1: float, beta2: float, eps: float,
    weight_decay: float, share: Number, t: Number
) -> Arrays:  # fmt: skip
    """Step z against the gradient at y; the average takes the share of the new z."""
    v = v * beta2 + g * g * (1.0 - beta2)
    step = g / (sqrt(v) * (1.0 / (1.0 - beta2**t)) ** 0.5 + eps)
    step = step + y * weight_decay if weight_decay else step
    y = y + (z - y) * share + step * (lr * (beta1 * (1.0 - share) - 1.0))
    return y, z - step * lr, v


class ScheduleFreeAdamW(SelfAveragingOptimizer):
    """Schedule-free AdamW (Defazio et al., 2024): the average of steps that do not shrink.

    params           tensors, (name, tensor) pairs, a dict, a module, or a list of groups
    config           a `ScheduleFreeAdamWConfig` in place of the keywords, or a learning rate
    lr               the learning rate
    beta1            how near y, where gradients are taken, is to the average x
    beta2            how much of the mean v of squared gradients is kept
    eps              what is added to the root, so that nothing is divided by 0
    weight_decay     how much of y is added to the direction
    warmup_steps     steps over which the learning rate comes up to lr
    r                steps count by t^r in the average
    weight_lr_power  and by the largest learning rate so far to this power

    v ← β₂·v + (1 − β₂)·g², z ← z − γ·(g/(√v̂ + eps) + weight_decay·y), x ← (1 − c)·x + c·z, where
    g is the gradient at y = (1 − β₁)·z + β₁·x, v̂ = v/(1 − β₂ᵗ), γ = lr·min(1, t/warmup_steps),
    and c is the share of w = t^r·max(γ)^weight_lr_power in the sum of all w so far.

    The parameters are y. `eval()` makes them x, which is the result; `train()` makes them y again,
    and `swapped()` is a block between both. Each parameter counts its own steps.

    >>> import weft as wf
    >>> p = wf.Parameter([1.0])
    >>> optimizer = wf.optim.ScheduleFreeAdamW([p], lr=0.25)
    >>> for _ in range(100):
    ...     optimizer.step((p * p).sum().backward())
    >>> optimizer.eval()
    >>> abs(p.item()) < 0.05
    True
    """

    Config = ScheduleFreeAdamWConfig
    rule = staticmethod(schedule_free_adamw)
    started = {"step": 0, "weight_sum": 0.0, "lr_max": 0.0}  # noqa: RUF012

    def slots(self, group: dict[str, Any], p: Any) -> dict[str, Slot]:
        return {"z": like(p, start=_itself), "exp_avg_sq": like(p)}

    def numbers(self, group: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
        t, rate = own["step"], group["lr"] * group["lr_scale"]
        if group["warmup_steps"]:
            rate = rate * least(1.0, t / group["warmup_steps"])
        own["lr_max"] = largest(rate, own["lr_max"])
        weight = t ** group["r"] * own["lr_max"] ** group["weight_lr_power"]
        own["weight_sum"] = own["weight_sum"] + weight
        return {"lr": rate, "t": t, "share": weight / largest(_LEAST, own["weight_sum"])}


def _itself(p: Any) -> Any:
    return p
