"""Optimizers, learning-rate schedules, gradient clipping and averages of parameters.

>>> import weft as wf
>>> w = wf.Parameter([3.0, -2.0])
>>> optimizer = wf.optim.AdamW([("w", w)], lr=0.1)
>>> schedule = wf.optim.CosineScheduler(0.1, 0.001, warmup_steps=10, total_steps=200)
>>> for step in range(200):
...     grads = (w * w).sum().backward()
...     optimizer.set_lr(schedule.get_lr(step))
...     optimizer.step(grads)
>>> (w * w).sum().item() < 1e-3
True
"""

import typing as _typing

from ..arrays.spellings import module_attribute as _module_attribute
from . import gradient_clipping, schedulers
from .clip import (
    GradientClipper,
    clip_grad_adaptive,
    clip_grad_norm,
    clip_grad_value,
    clip_grads_with_norm,
)
from .configs import (
    AdafactorConfig,
    AdagradConfig,
    Adam8bitConfig,
    AdamConfig,
    AdamW8bitConfig,
    AdamWConfig,
    LAMBConfig,
    LBFGSConfig,
    LionConfig,
    MuonConfig,
    NAdamConfig,
    RAdamConfig,
    RMSpropConfig,
    SGDConfig,
)
from .ema import EMA, EMAOptimizer
from .free_configs import ProdigyConfig, ScheduleFreeAdamWConfig
from .groups import MultiGroupOptimizer, by_pattern
from .lbfgs import LBFGS
from .norms import global_norm
from .optimizer import Optimizer
from .optimizers import (
    LAMB,
    SGD,
    Adafactor,
    Adagrad,
    Adam,
    Adam8bit,
    AdamW,
    AdamW8bit,
    Lion,
    Muon,
    NAdam,
    RAdam,
    RMSprop,
)
from .parameters import ParameterGroup
from .prodigy import Prodigy
from .schedule_free import ScheduleFreeAdamW
from .schedulers import (
    CosineScheduler,
    ExponentialScheduler,
    LinearScheduler,
    OneCycleScheduler,
    PlateauScheduler,
    PolynomialScheduler,
    StepScheduler,
    WSDScheduler,
    cosine_lr,
)

AdamWScheduleFree = ScheduleFreeAdamW  # the name in the authors' package

__all__ = [
    "EMA",
    "LAMB",
    "LBFGS",
    "SGD",
    "Adafactor",
    "AdafactorConfig",
    "Adagrad",
    "AdagradConfig",
    "Adam",
    "Adam8bit",
    "Adam8bitConfig",
    "AdamConfig",
    "AdamW",
    "AdamW8bit",
    "AdamW8bitConfig",
    "AdamWConfig",
    "AdamWScheduleFree",
    "CosineScheduler",
    "EMAOptimizer",
    "ExponentialScheduler",
    "GradientClipper",
    "LAMBConfig",
    "LBFGSConfig",
    "LinearScheduler",
    "Lion",
    "LionConfig",
    "MultiGroupOptimizer",
    "Muon",
    "MuonConfig",
    "NAdam",
    "NAdamConfig",
    "OneCycleScheduler",
    "Optimizer",
    "ParameterGroup",
    "PlateauScheduler",
    "PolynomialScheduler",
    "Prodigy",
    "ProdigyConfig",
    "RAdam",
    "RAdamConfig",
    "RMSprop",
    "RMSpropConfig",
    "SGDConfig",
    "ScheduleFreeAdamW",
    "ScheduleFreeAdamWConfig",
    "StepScheduler",
    "WSDScheduler",
    "by_pattern",
    "clip_grad_adaptive",
    "clip_grad_norm",
    "clip_grad_value",
    "clip_grads_with_norm",
    "cosine_lr",
    "global_norm",
    "gradient_clipping",
    "schedulers",
]


def __dir__() -> list[str]:
    return list(__all__)


if not _typing.TYPE_CHECKING:  # checkers know the names
    __getattr__ = _module_attribute("weft.optim", __all__)
