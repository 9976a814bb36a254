"""Prodigy: Adam whose learning rate is estimated from all parameters together."""

# Written by tools/stubs.py; do not edit.

from ..optim.free_configs import ProdigyConfig
from ..optim.optimizer import Optimizer
from ..optim.parameters import Params

class Prodigy(Optimizer):
    """Prodigy (Mishchenko and Defazio, 2024): Adam that estimates its learning rate."""
    @property
    def config(self) -> ProdigyConfig: ...
    def __init__(
        self,
        params: Params | ProdigyConfig | None = None,
        config: ProdigyConfig | float | None = None,
        *,
        lr: float = 1.0,
        beta1: float = 0.9,
        beta2: float = 0.999,
        beta3: float | None = None,
        eps: float = 1e-08,
        weight_decay: float = 0.0,
        decouple: bool = True,
        use_bias_correction: bool = False,
        safeguard_warmup: bool = False,
        d0: float = 1e-06,
        d_coef: float = 1.0,
        growth_rate: float = ...,
        slice_p: int = 1,
        betas: tuple[float, float] = ...,
    ) -> None: ...
    @property
    def d(self) -> float:
        """The estimated learning rate, which `lr` multiplies."""
