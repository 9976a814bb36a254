"""The problems: their numbers, the same for every library, and what is compared and hoped for."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

Data = dict[str, Any]
LAYERS, WIDTH, HEADS, LENGTH, BATCH, VOCABULARY = 4, 128, 4, 128, 8, 65
CHANNELS, SIZE, CLASSES, IMAGES = (3, 32, 64), 32, 10, 32
JOINTS = 7


@dataclass(frozen=True)
class Problem:
    """One line of the scoreboard.

    data       the arrays, made from a seed
    tolerance  the relative error (in norm) that results may have beside float64
    goal       Weft compiled / best peer
    steps      whether a call is a training step: losses and changes of parameters are compared
    against    the peer that the goal names, where it is not the best one
    """

    title: str
    data: Callable[[np.random.Generator], Data]
    tolerance: float
    goal: float
    steps: bool = False
    against: str | None = None


def _normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def _dispatch(rng):
    return {"x": _normal(rng, 16)}


def _chain(rng):
    return {"x": _normal(rng, 1 << 20)}


def _norm(rng):
    return {
        "x": _normal(rng, 4096, 1024),
        "w": 1 + _normal(rng, 1024, scale=0.1),
        "b": _normal(rng, 1024, scale=0.1),
        "labels": rng.integers(0, 1024, 4096),
    }


def _perceptron(*sizes: int, batch: int):
    def data(rng):
        params = {}
        for k, (a, b) in enumerate(pairwise(sizes)):
            params[f"w{k}"] = _normal(rng, b, a, scale=(2 / a) ** 0.5)
            params[f"b{k}"] = _normal(rng, b, scale=0.01)
        labels = rng.integers(0, sizes[-1], batch)
        return {"params": params, "x": _normal(rng, batch, sizes[0]), "labels": labels}

    return data


def _gpt(rng):
    params = {
        "tokens.weight": _normal(rng, VOCABULARY, WIDTH, scale=0.02),
        "positions.weight": _normal(rng, LENGTH, WIDTH, scale=0.02),
    }

    def linear(name: str, a: int, b: int, bias: bool = True) -> None:
        params[f"{name}.weight"] = _normal(rng, b, a, scale=0.08)
        if bias:
            params[f"{name}.bias"] = _normal(rng, b, scale=0.02)

    def norm(name: str) -> None:
        params[f"{name}.weight"] = 1 + _normal(rng, WIDTH, scale=0.02)
        params[f"{name}.bias"] = _normal(rng, WIDTH, scale=0.02)

    for at in [f"blocks.{i}" for i in range(LAYERS)]:
        norm(f"{at}.ln1")
        linear(f"{at}.qkv", WIDTH, 3 * WIDTH)
        linear(f"{at}.proj", WIDTH, WIDTH)
        norm(f"{at}.ln2")
        linear(f"{at}.up", WIDTH, 4 * WIDTH)
        linear(f"{at}.down", 4 * WIDTH, WIDTH)
    norm("ln")
    linear("head", WIDTH, VOCABULARY, bias=False)
    ids = rng.integers(0, VOCABULARY, (BATCH, LENGTH))
    return {"params": params, "x": ids, "labels": np.roll(ids, -1, 1).reshape(-1)}


def _cnn(rng):
    a, b, c = CHANNELS
    last = c * (SIZE // 4) ** 2
    params = {
        "w1": _normal(rng, b, a, 3, 3, scale=(9 * a) ** -0.5),
        "b1": _normal(rng, b, scale=0.05),
        "w2": _normal(rng, c, b, 3, 3, scale=(9 * b) ** -0.5),
        "b2": _normal(rng, c, scale=0.05),
        "w3": _normal(rng, CLASSES, last, scale=last**-0.5),
        "b3": _normal(rng, CLASSES, scale=0.05),
    }
    x, labels = _normal(rng, IMAGES, a, SIZE, SIZE), rng.integers(0, CLASSES, IMAGES)
    return {"params": params, "x": x, "labels": labels}


def _scan(rng):
    n = 60
    return {
        "start": rng.standard_normal(n),
        "a": 0.5 * rng.standard_normal(n),
        "b": rng.standard_normal(n),
        "xs": rng.standard_normal(614),
    }


def _arm(rng):
    return {
        "q": rng.uniform(-2, 2, JOINTS),
        "lengths": rng.uniform(0.1, 0.5, JOINTS),
        "twists": np.pi / 2 * rng.integers(-1, 2, JOINTS),
    }


def _bottleneck(rng):
    return {
        "x": rng.normal(size=512),
        "inner": rng.normal(size=(4, 512)) / 20,
        "outer": rng.normal(size=(512, 4)),
    }


def _adamw(rng):
    return {"p": _normal(rng, 10_000_000), "g": _normal(rng, 10_000_000)}


def _logistic(rng):
    return {
        "w": rng.normal(size=50) / 7,
        "X": rng.normal(size=(10_000, 50)),
        "y": rng.integers(0, 2, 10_000).astype(float),
    }


PROBLEMS = {
    "dispatch": Problem("gradient of Σ x·tanh x, n = 16, float32", _dispatch, 1e-6, 0.35),
    "chain": Problem(
        "gradient of four tanh z·exp(−z²) + log(1 + z²), 2²⁰ float32", _chain, 1e-5, 0.25
    ),
    "norm": Problem("layer norm + cross-entropy, 4096×1024 float32, gradients", _norm, 1e-5, 0.6),
    "mlp-small": Problem(
        "MLP 64-128-128-10, batch 32, AdamW step",
        _perceptron(64, 128, 128, 10, batch=32),
        *(1e-4, 0.5, True),
    ),
    "mlp-middle": Problem(
        "MLP 784-1024-1024-10, batch 256, AdamW step",
        _perceptron(784, 1024, 1024, 10, batch=256),
        *(1e-4, 0.95, True),
    ),
    "gpt": Problem("GPT 4 layers, d 128, T 128, batch 8, AdamW step", _gpt, 1e-4, 0.85, True),
    "scan": Problem("614 steps of 60 numbers, gradient, float64", _scan, 1e-9, 0.5),
    "arm": Problem("Jacobian of a 7-joint arm's pose, float64", _arm, 1e-9, 0.3, against="CasADi"),
    "bottleneck": Problem("Jacobian 512→4→512, float64", _bottleneck, 1e-9, 0.35),
    "adamw": Problem("AdamW on 10⁷ float32", _adamw, 1e-4, 1.0, True),
    "cnn": Problem("CNN 3-32-64 on 32×32, batch 32, AdamW step", _cnn, 1e-4, 1.0, True),
    "logistic": Problem(
        "Hessian of a logistic loss, n 10 000, d 50, float64", _logistic, 1e-9, 0.7
    ),
}


def data_of(name: str) -> Data:
    """The arrays of a problem."""
    return PROBLEMS[name].data(np.random.default_rng(0))
