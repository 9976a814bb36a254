"""All optimizers whose steps are rules, with settings that need all arrays of their states."""

from collections.abc import Callable
from functools import partial
from typing import Any

import weft as wf

# By name: (the optimizer of parameters, how close two runs of it stay)
OPTIMIZERS: dict[str, tuple[Callable[..., Any], float]] = {
    "sgd": (partial(wf.optim.SGD, lr=0.05, weight_decay=0.1), 1e-9),
    "momentum": (partial(wf.optim.SGD, lr=0.03, momentum=0.9, dampening=0.25), 1e-9),
    "nesterov": (partial(wf.optim.SGD, lr=0.03, momentum=0.9, nesterov=True, maximize=True), 1e-9),
    "adam": (partial(wf.optim.Adam, lr=0.1, weight_decay=0.1), 1e-9),
    "amsgrad": (partial(wf.optim.Adam, lr=0.1, amsgrad=True), 1e-9),
    "adamw": (partial(wf.optim.AdamW, lr=0.1, weight_decay=0.1), 1e-9),
    "uncorrected": (partial(wf.optim.AdamW, lr=0.1, correct_bias=False, amsgrad=True), 1e-9),
    "adam 8-bit": (partial(wf.optim.Adam8bit, lr=0.1), 5e-2),  # a rounded code may be the next one
    "adamw 8-bit": (partial(wf.optim.AdamW8bit, lr=0.1), 5e-2),
    "nadam": (partial(wf.optim.NAdam, lr=0.1), 1e-9),
    "radam": (partial(wf.optim.RAdam, lr=0.1), 1e-9),
    "rmsprop": (partial(wf.optim.RMSprop, lr=0.01, centered=True, momentum=0.9), 1e-8),
    "adagrad": (partial(wf.optim.Adagrad, lr=0.1), 1e-9),
    "lion": (partial(wf.optim.Lion, lr=0.01), 1e-9),
    "lamb": (partial(wf.optim.LAMB, lr=0.01), 1e-9),
    "adafactor": (partial(wf.optim.Adafactor, beta1=0.9), 1e-6),
    "muon": (partial(wf.optim.Muon, lr=0.01), 1e-3),  # its products are of float32
    "prodigy": (partial(wf.optim.Prodigy, lr=1.0, d0=1e-2), 1e-8),
    "schedule-free": (partial(wf.optim.ScheduleFreeAdamW, lr=0.1), 1e-9),
}
SHAPES = [(7, 5), (3,), (3,), (), (1, 6), (2, 3, 4), (70, 60)]


def shapes_of(name: str) -> list[tuple[int, ...]]:
    """The shapes of an optimizer's parameters; large ones are kept in 8 bits."""
    return [s for s in SHAPES if len(s) == 2] if name == "muon" else SHAPES
