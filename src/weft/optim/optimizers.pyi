"""The optimizers: for each, its rule, its config and the arrays of its state."""

# Written by tools/stubs.py; do not edit.

from typing import Literal, Optional

from ..optim.configs import (
    AdafactorConfig,
    AdagradConfig,
    Adam8bitConfig,
    AdamConfig,
    AdamW8bitConfig,
    AdamWConfig,
    LAMBConfig,
    LionConfig,
    MuonConfig,
    NAdamConfig,
    RAdamConfig,
    RMSpropConfig,
    SGDConfig,
)
from ..optim.optimizer import Optimizer
from ..optim.parameters import Params

UNQUANTISED: int

class SGD(Optimizer):
    """Gradient descent with momentum: b ← momentum·b + (1 − dampening)·g; p ← p − lr·b."""
    @property
    def config(self) -> SGDConfig: ...
    def __init__(
        self,
        params: Params | SGDConfig | None = None,
        config: SGDConfig | float | None = None,
        *,
        lr: float = 0.001,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        dampening: float = 0.0,
        maximize: bool = False,
    ) -> None: ...

class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015)."""
    @property
    def config(self) -> AdamConfig: ...
    def __init__(
        self,
        params: Params | AdamConfig | None = None,
        config: AdamConfig | float | None = None,
        *,
        lr: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-08,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        maximize: bool = False,
        betas: tuple[float, float] = ...,
    ) -> None: ...

class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019)."""
    @property
    def config(self) -> AdamWConfig: ...
    def __init__(
        self,
        params: Params | AdamWConfig | None = None,
        config: AdamWConfig | float | None = None,
        *,
        lr: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-08,
        weight_decay: float = 0.01,
        correct_bias: bool = True,
        amsgrad: bool = False,
        maximize: bool = False,
        betas: tuple[float, float] = ...,
    ) -> None: ...

class NAdam(Optimizer):
    """Adam with Nesterov momentum (Dozat, 2016)."""
    @property
    def config(self) -> NAdamConfig: ...
    def __init__(
        self,
        params: Params | NAdamConfig | None = None,
        config: NAdamConfig | float | None = None,
        *,
        lr: float = 0.002,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-08,
        weight_decay: float = 0.0,
        momentum_decay: float = 0.004,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
        betas: tuple[float, float] = ...,
    ) -> None: ...

class RAdam(Optimizer):
    """Adam with a rectified variance (Liu et al., 2020)."""
    @property
    def config(self) -> RAdamConfig: ...
    def __init__(
        self,
        params: Params | RAdamConfig | None = None,
        config: RAdamConfig | float | None = None,
        *,
        lr: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-08,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        maximize: bool = False,
        betas: tuple[float, float] = ...,
    ) -> None: ...

class RMSprop(Optimizer):
    """RMSprop (Hinton, 2012): v ← α·v + (1 − α)·g²; p ← p − lr·g/(√v + eps)."""
    @property
    def config(self) -> RMSpropConfig: ...
    def __init__(
        self,
        params: Params | RMSpropConfig | None = None,
        config: RMSpropConfig | float | None = None,
        *,
        lr: float = 0.01,
        alpha: float = 0.99,
        eps: float = 1e-08,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        maximize: bool = False,
    ) -> None: ...

class Adagrad(Optimizer):
    """Adagrad (Duchi, Hazan and Singer, 2011): s ← s + g²; p ← p − lr·g/(√s + eps)."""
    @property
    def config(self) -> AdagradConfig: ...
    def __init__(
        self,
        params: Params | AdagradConfig | None = None,
        config: AdagradConfig | float | None = None,
        *,
        lr: float = 0.01,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        maximize: bool = False,
    ) -> None: ...

class Lion(Optimizer):
    """Lion (Chen et al., 2023): p ← p − lr·sign(β₁·m + (1 − β₁)·g)."""
    @property
    def config(self) -> LionConfig: ...
    def __init__(
        self,
        params: Params | LionConfig | None = None,
        config: LionConfig | float | None = None,
        *,
        lr: float = 0.0001,
        beta1: float = 0.9,
        beta2: float = 0.99,
        weight_decay: float = 0.0,
        maximize: bool = False,
        betas: tuple[float, float] = ...,
    ) -> None: ...

class LAMB(Optimizer):
    ...
    @property
    def config(self) -> LAMBConfig: ...
    def __init__(
        self,
        params: Params | LAMBConfig | None = None,
        config: LAMBConfig | float | None = None,
        *,
        lr: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-06,
        weight_decay: float = 0.01,
        correct_bias: bool = True,
        maximize: bool = False,
        betas: tuple[float, float] = ...,
    ) -> None: ...

class Adafactor(Optimizer):
    ...
    @property
    def config(self) -> AdafactorConfig: ...
    def __init__(
        self,
        params: Params | AdafactorConfig | None = None,
        config: AdafactorConfig | float | None = None,
        *,
        lr: float | None = None,
        eps: tuple[float | None, float] | float | None = 1e-30,
        clip_threshold: float = 1.0,
        decay_rate: float = -0.8,
        weight_decay: float = 0.0,
        scale_parameter: bool = True,
        relative_step: bool = True,
        eps2: float = 0.001,
        beta1: float | None = None,
        warmup_init: bool = False,
        maximize: bool = False,
        d: float = ...,
        beta2_decay: float = ...,
    ) -> None: ...

class Muon(Optimizer):
    """Muon (Jordan et al., 2024): momentum made nearly orthogonal, for matrices."""
    @property
    def config(self) -> MuonConfig: ...
    def __init__(
        self,
        params: Params | MuonConfig | None = None,
        config: MuonConfig | float | None = None,
        *,
        lr: float = 0.001,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-07,
        ns_steps: int = 5,
        adjust_lr_fn: Optional[Literal["original", "match_rms_adamw"]] = None,
    ) -> None: ...

class Adam8bit(Optimizer):
    ...
    @property
    def config(self) -> Adam8bitConfig: ...
    def __init__(
        self,
        params: Params | Adam8bitConfig | None = None,
        config: Adam8bitConfig | float | None = None,
        *,
        lr: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-08,
        weight_decay: float = 0.0,
        block_size: int = 256,
        maximize: bool = False,
        betas: tuple[float, float] = ...,
    ) -> None: ...

class AdamW8bit(Optimizer):
    """AdamW with its moments in 8 bits: 2 bytes of state a parameter."""
    @property
    def config(self) -> AdamW8bitConfig: ...
    def __init__(
        self,
        params: Params | AdamW8bitConfig | None = None,
        config: AdamW8bitConfig | float | None = None,
        *,
        lr: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-08,
        weight_decay: float = 0.01,
        block_size: int = 256,
        maximize: bool = False,
        betas: tuple[float, float] = ...,
    ) -> None: ...
