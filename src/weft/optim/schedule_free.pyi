"""Schedule-free AdamW: an average of the steps in the place of a decaying learning rate."""

# Written by tools/stubs.py; do not edit.

from ..optim.averaged import SelfAveragingOptimizer
from ..optim.free_configs import ScheduleFreeAdamWConfig
from ..optim.parameters import Params

class ScheduleFreeAdamW(SelfAveragingOptimizer):
    """Schedule-free AdamW (Defazio et al., 2024): the average of steps that do not shrink."""
    @property
    def config(self) -> ScheduleFreeAdamWConfig: ...
    def __init__(
        self,
        params: Params | ScheduleFreeAdamWConfig | None = None,
        config: ScheduleFreeAdamWConfig | float | None = None,
        *,
        lr: float = 0.0025,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-08,
        weight_decay: float = 0.0,
        warmup_steps: int = 0,
        r: float = 0.0,
        weight_lr_power: float = 2.0,
        betas: tuple[float, float] = ...,
    ) -> None: ...
