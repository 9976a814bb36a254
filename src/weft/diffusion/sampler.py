"""Sampling: the levels of noise of Flux's sampler, and Euler's steps along them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import exp
from typing import TYPE_CHECKING, Any

import numpy as np

import weft as wf

from .flow import shift_exponent

if TYPE_CHECKING:
    from weft.arrays.tensor import Tensor


def sigma_schedule(steps: int, tokens: int, shift: bool = True) -> np.ndarray:
    """The levels of noise that Flux's sampler goes through, from 1 to 0: `steps` + 1 of them.

    steps   how many steps
    tokens  packed tokens of the image: more of them stay longer at much noise
    shift   whether levels are shifted, as for dev models; schnell's are not

    >>> import weft as wf
    >>> wf.diffusion.sigma_schedule(4, 256, shift=False).tolist()
    [1.0, 0.75, 0.5, 0.25, 0.0]
    """
    if steps < 1:
        raise wf.errors.ArgumentError(f"sigma_schedule: steps={steps}, expected an integer ≥ 1")
    levels = np.linspace(1.0, 1.0 / steps, steps)
    if shift:
        power = exp(shift_exponent(tokens))
        levels = power / (power + (1.0 / levels - 1.0))
    return np.append(levels, 0.0)


def euler_sample(
    velocity: Callable[[Tensor, float], Any], noise: Tensor, schedule: np.ndarray
) -> Tensor:
    """Follow x += (σ_next − σ)·v from noise to a sample, in float32.

    velocity  (x, σ) -> the velocity at x
    noise     where to begin
    schedule  the levels, as `sigma_schedule` gives them

    >>> import weft as wf
    >>> levels = wf.diffusion.sigma_schedule(4, 256)
    >>> wf.diffusion.euler_sample(lambda x, sigma: wf.ones(2), wf.ones(2), levels).tolist()
    [0.0, 0.0]
    """
    x = noise.to(wf.float32)
    with wf.no_grad():
        for now, later in pairwise(schedule):
            step = velocity(x, float(now)).to(wf.float32)
            x = x + float(later - now) * step
    return x
