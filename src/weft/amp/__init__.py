"""Mixed precision: autocast, loss scaling, and the config that puts both on a tape.

>>> import weft as wf
>>> w = wf.Parameter([[1.0, 2.0], [3.0, 4.0]])
>>> optimizer, scaler = wf.optim.SGD([w], lr=0.1), wf.amp.GradScaler(init_scale=1024.0)
>>> with wf.amp.autocast("float16"):
...     loss = wf.nn.functional.mse_loss(wf.ones((3, 2)) @ w, wf.zeros((3, 2)))
>>> grads = scaler.scale(loss).backward()
>>> norm = scaler.unscale(grads)
>>> scaler.step(optimizer, grads)
>>> scaler.update()
>>> loss.dtype.name, grads[w].dtype.name, round(norm, 4)
('float32', 'float32', 10.198)
"""

from .autocast import autocast, is_autocast_enabled
from .config import AmpConfig, PrecisionMode
from .loss_scale import Dynamic, LossScale, LossScaler, Static
from .scaler import GradScaler

__all__ = [
    "AmpConfig",
    "Dynamic",
    "GradScaler",
    "LossScale",
    "LossScaler",
    "PrecisionMode",
    "Static",
    "autocast",
    "is_autocast_enabled",
]


def __dir__() -> list[str]:
    return list(__all__)
