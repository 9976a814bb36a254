"""Derivatives by extrapolated central differences, each with an estimate of its own error.

C. Ridders, "Accurate computation of F'(x) and F'(x)F''(x)", Adv. Eng. Software 4 (1982) 75-76.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

# Central differences at steps 1, 1/2, ..., 1/32: six evaluations on either side reach order
# twelve, where the truncation error of functions of scale one is below rounding.
LEVELS = 6
# Where that is too coarse (a pole, a kink, a thin domain), the same again this much finer.
FINER = 1 / 64
# A bound on what the extrapolation does to errors of the samples: the product of
# (4^j + 1)/(4^j - 1) over j.
AMPLIFICATION = 2.0
# The estimate is a difference of two approximations, one of them the better: a margin.
MARGIN = 8.0
EPS = np.finfo(np.float64).eps


class Estimate(NamedTuple):
    """Directional derivatives, one column for each direction, and bounds on their errors."""

    value: np.ndarray
    bound: np.ndarray


def ridders(f: Callable, x: np.ndarray, directions: np.ndarray, noise: np.ndarray) -> Estimate:
    """d/dt f(x + t·v) for each row v of `directions`.

    `noise` is the size of the rounding errors in each element of f, which a difference over
    a step h shows divided by h.
    """
    coarse = _at_scale(f, x, directions, noise, 1.0)
    scale = np.maximum(np.abs(coarse.value).max(initial=0.0), noise)[:, None]
    with np.errstate(invalid="ignore"):
        good = (coarse.bound <= 1e-9 * scale).all(axis=0)
    if good.all():
        return coarse
    poor = ~good
    fine = _at_scale(f, x, directions[poor], noise, FINER)
    value, bound = coarse.value.copy(), coarse.bound.copy()
    better = ~(bound[:, poor] <= fine.bound)
    value[:, poor] = np.where(better, fine.value, value[:, poor])
    bound[:, poor] = np.where(better, fine.bound, bound[:, poor])
    return Estimate(value, bound)


def _at_scale(f, x, directions, noise, first: float) -> Estimate:
    steps = first * 0.5 ** np.arange(LEVELS)
    rows = [[(f(x + h * v) - f(x - h * v)) / (2 * h) for v in directions] for h in steps]
    samples = np.array(rows).reshape(LEVELS, len(directions), len(noise))
    rounding = AMPLIFICATION * noise / steps[:, None]
    value, bound = _extrapolate(samples, rounding[:, None, :])
    # Two wrong approximations can agree by accident in one element, not in half of them.
    typical = np.median(bound, axis=1, keepdims=True) if bound.size else 0.0
    return Estimate(value.T, np.maximum(bound, typical).T)


def _extrapolate(samples: np.ndarray, rounding: np.ndarray):
    """The entry of Richardson's tableau with the smallest bound, element by element."""
    value = np.full(samples.shape[1:], np.nan)
    bound = np.full(samples.shape[1:], np.inf)
    above = [samples[0]]
    for k in range(1, len(samples)):
        row = [samples[k]]
        for j in range(1, k + 1):
            power = 4.0**j
            entry = (power * row[-1] - above[j - 1]) / (power - 1)
            error = np.maximum(np.abs(entry - row[-1]), np.abs(entry - above[j - 1]))
            total = MARGIN * (error + EPS * np.abs(entry)) + rounding[k]
            better = total < bound
            value = np.where(better, entry, value)
            bound = np.where(better, total, bound)
            row.append(entry)
        above = row
    return value, bound
