"""Flow matching: levels of noise, noisy latents, and the loss of a predicted velocity."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, pi
from typing import TYPE_CHECKING, Literal

import weft as wf

if TYPE_CHECKING:
    from weft.arrays.tensor import Tensor

Sampling = Literal["logit_normal", "sigmoid", "uniform", "mode"]
Weighting = Literal["none", "sigma_sqrt", "cosmap"]

# The shift's exponent is linear in the number of tokens of an image, through these two points.
_FEW, _FEW_SHIFT = 256, 0.5
_MANY, _MANY_SHIFT = 4096, 1.15
_LARGEST = 80.0
# The least σ: that of the numbers in (0, 1] that are drawn. 1/σ² is finite.
LEAST = 2.0**-24
# Where u → 1 − u − s·(cos²(πu/2) − 1 + u) falls from 1 to 0: −1 ≤ s ≤ 2/(π − 2).
_MODES = (-1.0, 2 / (pi - 2))
# The least and the largest of settings; with others almost all levels are 0, or almost all are 1.
_RANGES = {
    "mean": (-10.0, 10.0),
    "std": (1e-3, 10.0),
    "mode_scale": _MODES,
    "shift": (1e-3, 1e3),
    "huber_delta": (1e-6, 1e6),
}
_WHY = {"mode_scale": ": with others σ leaves [0, 1]"}


@dataclass(frozen=True)
class NoiseConfig:
    """How much noise training steps see, and how errors at each level count.

    sampling    how σ is drawn: "logit_normal" (the logistic function of a normal number),
                "sigmoid" (the same with mean 0), "uniform", or "mode" (Esser et al. 2024)
    mean, std   of the normal number
    mode_scale  the strength of "mode", from −1 to 2/(π − 2) ≈ 1.75
    shift       a factor s that moves σ to s·σ/(1 + (s − 1)·σ); "resolution": the factor that the
                sampler takes for so many tokens
    weighting   what errors are multiplied by: "none", "sigma_sqrt" (σ⁻²), "cosmap"
    loss        "mse", or "huber"
    huber_delta  where "huber" changes from squares to absolute values

    >>> import weft as wf
    >>> wf.diffusion.NoiseConfig(shift="resolution").sampling
    'logit_normal'
    """

    sampling: Sampling = "logit_normal"
    mean: float = 0.0
    std: float = 1.0
    mode_scale: float = 1.29
    shift: float | Literal["resolution"] = 1.0
    weighting: Weighting = "none"
    loss: Literal["mse", "huber"] = "mse"
    huber_delta: float = 0.1

    def __post_init__(self) -> None:
        choices = {
            "sampling": ("logit_normal", "sigmoid", "uniform", "mode"),
            "weighting": ("none", "sigma_sqrt", "cosmap"),
            "loss": ("mse", "huber"),
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise wf.errors.ArgumentError(
                    f"NoiseConfig: {name}={getattr(self, name)!r}, expected one of "
                    f"{', '.join(known)}"
                )
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if name == "shift" and value == "resolution":
                continue
            if not isinstance(value, int | float) or not least <= value <= most:
                other = " or 'resolution'" if name == "shift" else ""
                raise wf.errors.ArgumentError(
                    f"NoiseConfig: {name}={value!r}, expected a number from {least:.7g} to "
                    f"{most:.7g}{other}{_WHY.get(name, '')}"
                )


def shift_exponent(tokens: int) -> float:
    """The exponent μ of the shift for an image of so many tokens, as Flux's sampler takes it.

    tokens  packed tokens of the image: a quarter of its latents' pixels

    >>> from weft.diffusion.flow import shift_exponent
    >>> round(shift_exponent(256), 6), round(shift_exponent(4096), 6)
    (0.5, 1.15)
    """
    slope = (_MANY_SHIFT - _FEW_SHIFT) / (_MANY - _FEW)
    return slope * tokens + _FEW_SHIFT - slope * _FEW


def shift_factor(config: NoiseConfig, tokens: int) -> float:
    """The factor that σ is shifted by, for an image of so many tokens."""
    if config.shift != "resolution":
        return float(config.shift)
    return exp(min(shift_exponent(tokens), _LARGEST))  # from there on all σ are 1 in float32


def shifted(sigma: Tensor, factor: float) -> Tensor:
    """s·σ/(1 + (s − 1)·σ): more noise for s > 1; 0 and 1 stay.

    sigma   levels of noise
    factor  s

    >>> import weft as wf
    >>> from weft.diffusion.flow import shifted
    >>> shifted(wf.tensor([0.0, 0.5, 1.0]), 3.0).tolist()
    [0.0, 0.75, 1.0]
    """
    return sigma if factor == 1 else factor * sigma / (1 + (factor - 1) * sigma)


def draw_sigma(config: NoiseConfig, count: int, tokens: int, device: str | None = None) -> Tensor:
    """Levels of noise for so many samples, float32, from 2⁻²⁴ to 1.

    config  how they are drawn
    count   how many
    tokens  packed tokens of each image
    device  where they are

    >>> import weft as wf
    >>> from weft.diffusion.flow import draw_sigma
    >>> sigma = draw_sigma(wf.diffusion.NoiseConfig(), 100, 256)
    >>> 0 < min(sigma.tolist()) and max(sigma.tolist()) < 1
    True
    """
    if config.sampling in ("logit_normal", "sigmoid"):
        mean = config.mean if config.sampling == "logit_normal" else 0.0
        drawn = wf.sigmoid(wf.randn(count, mean, config.std, wf.float32, device))
    else:
        # In (0, 1], since errors may be divided by σ².
        drawn = 1 - wf.rand(count, dtype=wf.float32, device=device)
        if config.sampling == "mode":
            drawn = mode_density(drawn, config.mode_scale)
    # What rounds to zero has no weight 1/σ².
    return shifted(drawn, shift_factor(config, tokens)).clip(LEAST, 1.0)


def mode_density(u: Tensor, scale: float) -> Tensor:
    """1 − u − s·(cos²(πu/2) − 1 + u): a uniform u moved to the middle or to the ends."""
    c = wf.cos(u * (pi / 2))
    return 1 - u - scale * (c * c - 1 + u)


def sigma_weights(config: NoiseConfig, sigma: Tensor) -> Tensor | None:
    """What the squared errors at each level are multiplied by; None: nothing."""
    if config.weighting == "sigma_sqrt":
        return 1 / (sigma * sigma)
    if config.weighting == "cosmap":
        return 2 / (pi * (1 - 2 * sigma + 2 * sigma * sigma))
    return None


def mix(latents: Tensor, noise: Tensor, sigma: Tensor) -> Tensor:
    """(1 − σ)·latents + σ·noise, in float32.

    latents, noise  of one shape, samples first
    sigma           a level for each sample

    >>> import weft as wf
    >>> from weft.diffusion.flow import mix
    >>> mix(wf.zeros((1, 2)), wf.ones((1, 2)), wf.tensor([0.25])).tolist()
    [[0.25, 0.25]]
    """
    level = sigma.to(wf.float32).reshape(sigma.shape[0], *[1] * (latents.ndim - 1))
    clean, full = latents.to(wf.float32), noise.to(wf.float32)
    return clean + level * (full - clean)


def velocity_loss(
    config: NoiseConfig,
    predicted: Tensor,
    target: Tensor,
    sigma: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """The mean over the samples of their weighted mean errors, float32.

    config     the error's form and its weight at each level
    predicted  the model's velocity, samples first
    target     noise − latents
    sigma      a level for each sample
    mask       what each element counts, relative to the sample's mean; broadcast
    weights    what each sample counts

    >>> import weft as wf
    >>> from weft.diffusion.flow import velocity_loss
    >>> x, y = wf.zeros((1, 2)), wf.tensor([[1.0, 3.0]])
    >>> velocity_loss(wf.diffusion.NoiseConfig(), x, y, wf.tensor([0.5])).item()
    5.0
    """
    difference = predicted.to(wf.float32) - target.to(wf.float32)
    if config.loss == "huber":
        size, delta = wf.abs(difference), config.huber_delta
        error = wf.where(size <= delta, 0.5 * size * size, delta * (size - 0.5 * delta))
    else:
        error = difference * difference
    axes = tuple(range(1, error.ndim))
    if mask is not None:
        # A sample without anything to look at counts nothing.
        mean = mask.mean(axis=axes, keepdims=True)
        error = error * wf.where(mean > 0, mask / wf.where(mean > 0, mean, 1.0), 0.0)
    each = error.mean(axis=axes)
    for factor in (sigma_weights(config, sigma), weights):
        each = each if factor is None else each * factor
    return each.mean()
