"""The settings of the optimizers that find their own rates: Prodigy and schedule-free AdamW."""

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from .. import errors
from .configs import BETAS, Config, Spelling


@dataclass(frozen=True)
class ProdigyConfig(Config):
    """The settings of `Prodigy`.

    lr                   what the estimated rate d is multiplied by; schedules change it
    beta1                how much of the mean m of gradients is kept
    beta2                how much of the mean v of squared gradients is kept
    beta3                how much of the sums in the estimate is kept; None: √beta2
    eps                  what is added to the root, so that nothing is divided by 0
    weight_decay         decoupled, or an L2 penalty
    decouple             whether the decay acts on the parameter, not through the gradient
    use_bias_correction  whether the step is corrected for moments that begin with 0
    safeguard_warmup     whether lr is left out of the estimate's denominator, for long warm-ups
    d0                   what the estimate d begins with
    d_coef               what estimates are multiplied by: the way to tune the method
    growth_rate          the largest factor by which d grows in a step
    slice_p              the estimate looks at each slice_p-th element only, which saves memory

    >>> import weft as wf
    >>> wf.optim.ProdigyConfig().d0
    1e-06
    """

    SPELLED: ClassVar[Spelling] = BETAS
    OPTIONAL: ClassVar[tuple[str, ...]] = ("beta3",)
    lr: float = 1.0
    beta1: float = 0.9
    beta2: float = 0.999
    beta3: float | None = None
    eps: float = 1e-8
    weight_decay: float = 0.0
    decouple: bool = True
    use_bias_correction: bool = False
    safeguard_warmup: bool = False
    d0: float = 1e-6
    d_coef: float = 1.0
    growth_rate: float = inf
    slice_p: int = 1

    def check(self, what: str) -> None:
        if self.eps == 0:
            raise errors.ArgumentError(f"{what}: eps=0, expected a finite number > 0")
        rate = self.growth_rate
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not rate >= 1:
            raise errors.ArgumentError(f"{what}: growth_rate={rate!r:.40}, expected a number ≥ 1")


@dataclass(frozen=True)
class ScheduleFreeAdamWConfig(Config):
    """The settings of `ScheduleFreeAdamW`.

    lr               the learning rate
    beta1            how near y, where gradients are taken, is to the average x
    beta2            how much of the mean v of squared gradients is kept
    eps              what is added to the root, so that nothing is divided by 0
    weight_decay     how much of y is added to the direction
    warmup_steps     steps over which the learning rate comes up to lr
    r                steps count by t^r in the average
    weight_lr_power  and by the largest learning rate so far to this power

    >>> import weft as wf
    >>> wf.optim.ScheduleFreeAdamWConfig().lr
    0.0025
    """

    SPELLED: ClassVar[Spelling] = BETAS
    lr: float = 2.5e-3
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.0
    warmup_steps: int = 0
    r: float = 0.0
    weight_lr_power: float = 2.0

    def check(self, what: str) -> None:
        if self.beta1 == 0:
            raise errors.ArgumentError(
                f"{what}: beta1=0, expected a number in (0, 1): with 0 the average x does not "
                "enter the parameters, and could not be computed from them"
            )
