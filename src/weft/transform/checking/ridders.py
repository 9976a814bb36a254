"""Derivatives by extrapolated differences, each with an estimate of its own error.

C. Ridders, "Accurate computation of F'(x) and F'(x)F''(x)", Adv. Eng. Software 4 (1982) 75-76.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

# Differences at steps 1, 1/2, ..., 1/32. Central ones: six evaluations on either side reach order
# twelve, where the truncation error of functions of scale one is below rounding.
LEVELS = 6
# Where that is too coarse (a pole, a kink, a thin domain), the same again this much finer, twice.
FINER = 1 / 64
# Bounds on what the extrapolation does to errors of the samples: the products of
# (4^j + 1)/(4^j - 1), and of (2^j + 1)/(2^j - 1), over j.
CENTRAL_AMPLIFICATION, ONE_SIDED_AMPLIFICATION = 2.0, 9.0
# The estimate is a difference of two approximations, one of them the better: a margin.
MARGIN = 8.0
# How many units of conditioning a stable algorithm may lose. One number for all functions: what
# differs between them is the conditioning, which is measured.
UNITS = 64.0
EPS = float(np.finfo(np.float64).eps)


class Estimate(NamedTuple):
    """Directional derivatives, one column for each direction, and bounds on their errors."""

    value: np.ndarray
    bound: np.ndarray


def ridders(
    f: Callable[..., Any],
    x: np.ndarray,
    directions: np.ndarray,
    noise: np.ndarray,
    one_sided: bool = False,
) -> Estimate:
    """d/dt f(x + t·v) at t = 0 (for t > 0 only, if `one_sided`) for each row v of `directions`.

    `noise` is the size of the rounding errors in each element of f, which a difference over
    a step h shows divided by h.
    """
    value, bound = _at_scale(f, x, directions, noise, 1.0, one_sided)
    for scale in (FINER, FINER**2):
        size = np.maximum(np.abs(value).max(initial=0.0), noise)[:, None]
        with np.errstate(invalid="ignore"):
            poor = ~(bound <= 1e-9 * size).all(axis=0)
        if not poor.any():
            break
        fine = _at_scale(f, x, directions[poor], noise, scale, one_sided)
        better = ~(bound[:, poor] <= fine.bound)
        value[:, poor] = np.where(better, fine.value, value[:, poor])
        bound[:, poor] = np.where(better, fine.bound, bound[:, poor])
    return Estimate(value, bound)


def _at_scale(f, x, directions, noise, first: float, one_sided: bool) -> Estimate:
    steps = first * 0.5 ** np.arange(LEVELS)
    if one_sided:
        at_x, base, amplification = f(x), 2.0, 2 * ONE_SIDED_AMPLIFICATION
        rows = [[(f(x + h * v) - at_x) / h for v in directions] for h in steps]
    else:
        base, amplification = 4.0, CENTRAL_AMPLIFICATION
        rows = [[(f(x + h * v) - f(x - h * v)) / (2 * h) for v in directions] for h in steps]
    samples = np.array(rows).reshape(LEVELS, len(directions), len(noise))
    rounding = amplification * noise / steps[:, None]
    value, bound = _extrapolate(samples, rounding[:, None, :], base)
    # Two wrong approximations can agree by accident in one element, not in half of them.
    typical = np.median(bound, axis=1, keepdims=True) if bound.size else 0.0
    return Estimate(value.T, np.maximum(bound, typical).T)


def _extrapolate(samples: np.ndarray, rounding: np.ndarray, base: float):
    """The entry of Richardson's tableau with the smallest bound, element by element."""
    value = np.full(samples.shape[1:], np.nan)
    bound = np.full(samples.shape[1:], np.inf)
    above = [samples[0]]
    for k in range(1, len(samples)):
        row = [samples[k]]
        for j in range(1, k + 1):
            power = base**j
            entry = (power * row[-1] - above[j - 1]) / (power - 1)
            error = np.maximum(np.abs(entry - row[-1]), np.abs(entry - above[j - 1]))
            total = MARGIN * (error + EPS * np.abs(entry)) + rounding[k]
            better = total < bound
            value = np.where(better, entry, value)
            bound = np.where(better, total, bound)
            row.append(entry)
        above = row
    return value, bound


def spread(
    f: Callable[..., Any], x: np.ndarray, eps: float, rng: Any, sides: Any = (-1.0, 1.0)
) -> np.ndarray[Any, Any]:
    """How far f moves when x moves by one unit of rounding, plus one unit of f itself.

    This is |J|·|x|·eps + |f|·eps without assuming a Jacobian: the conditioning, measured.
    """
    base = f(x)
    worst = np.zeros_like(base)
    for _ in range(2):
        moved = x + eps * np.abs(x) * rng.choice(sides, x.shape)
        worst = np.fmax(worst, np.abs(f(moved) - base))
    return worst + eps * np.abs(base)


def pool_noise(noise: np.ndarray) -> np.ndarray[Any, Any]:
    """The largest entry everywhere: sums and factorisations mix the errors of all elements."""
    finite = noise[np.isfinite(noise)]
    return np.full(noise.shape, finite.max(initial=0.0))


def size_of(x: np.ndarray) -> float:
    """The largest finite magnitude."""
    return float(np.abs(x[np.isfinite(x)]).max(initial=0.0))


def noise_around(
    f: Callable[..., Any],
    x: np.ndarray,
    step: np.ndarray,
    eps: float,
    rng: Any,
    one_sided: bool = False,
) -> np.ndarray[Any, Any]:
    """The rounding errors in f at x and on the way to x + step, on either side of x or beyond it.

    They can grow when x is left: beside a double eigenvalue, eigenvectors are worse
    conditioned than at it.
    """
    step, sides = (np.abs(step), (1.0, 2.0)) if one_sided else (step, (-1.0, 1.0))
    away = (1.0,) if one_sided else (-1.0, 1.0)
    points = [x, *(x + step * t * rng.choice(away, x.shape) for t in (1.0, 0.2, 0.04))]
    return UNITS * pool_noise(np.fmax.reduce([spread(f, p, eps, rng, sides) for p in points]))
