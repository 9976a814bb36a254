"""The judgement whether two outcomes agree: one bound for all ops."""

import numpy as np

from .trial import Outcome, Trial

# The rule, one for all ops and results. An element of the array r agrees with torch's if
#     |Δ| ≤ ROUNDINGS · (eps·max|r| + eps·κ + min(ν, √eps·max|r|)).
# κ, the element's condition: the change of torch's own result when all inputs and cotangents
# change relatively by ±STEP, divided by STEP. Both results may be the exact ones of numbers a few
# roundings away. A jump J, as of a tie broken in another way, enters only as eps·J/STEP.
# ν, torch's own noise: the largest second difference in the array over ±STEP, where the
# curvature's share is of the order STEP², far below eps. Where torch loses digits on the way, we
# may too; the limit keeps jumps from passing as noise.
# κ and ν are the largest of DIRECTIONS random changes.
ROUNDINGS = 64.0
STEP = 2.0**-30
DIRECTIONS = 3


def disagreements(trial: Trial, got: Outcome) -> list[str]:
    """Where Weft's outcome is not torch's, in words."""
    pairs = list(zip(trial.expected.named(), got.named(), strict=True))
    strange = [_mismatch(name, a, b) for (name, a), (_, b) in pairs]
    if any(strange):
        return [s for s in strange if s]
    if all(_agree(a, b, _eps(a) * _largest(a)).all() for (_, a), (_, b) in pairs):
        return []
    roundings = sensitivity(trial)
    return [
        problem
        for ((name, a), (_, b)), rounding in zip(pairs, roundings, strict=True)
        if (problem := _difference(name, a, b, rounding))
    ]


def _mismatch(name: str, a: np.ndarray, b: np.ndarray) -> str | None:
    if a.shape != b.shape:
        return f"{name}: shape {b.shape}, torch has {a.shape}"
    if (a.dtype.kind in "fc" or b.dtype.kind in "fc") and a.dtype != b.dtype:
        return f"{name}: dtype {b.dtype}, torch has {a.dtype}"
    return None


def _eps(a: np.ndarray) -> float:
    return float(np.finfo(a.dtype).eps) if a.dtype.kind in "fc" else 0.0


def _agree(a: np.ndarray, b: np.ndarray, rounding) -> np.ndarray:
    """Elementwise: equal, or both not a number, or within the bound."""
    if not _eps(a):
        return a == b
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.abs(a - b) <= ROUNDINGS * rounding
    return (a == b) | (close & np.isfinite(a)) | _both_strange(a, b)


def _both_strange(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "c":
        # Which part of a complex overflow is infinite and which NaN is no one's contract.
        return ~np.isfinite(a) & ~np.isfinite(b)
    return np.isnan(a) & np.isnan(b)


def _difference(name: str, a: np.ndarray, b: np.ndarray, rounding: np.ndarray) -> str | None:
    wrong = ~_agree(a, b, rounding)
    if not wrong.any():
        return None
    with np.errstate(all="ignore"):
        error = np.where(wrong, np.abs(a - b), -1.0)
        i = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error)), a.shape)
        roundings = error[i] / rounding[i]
    place = tuple(map(int, i))
    return (
        f"{name}: {int(wrong.sum())} of {a.size} differ, at {place} {b[i]!r}, torch has {a[i]!r} "
        f"({roundings:.1e} roundings)"
    )


def sensitivity(trial: Trial) -> list[np.ndarray]:
    """What each element of each result may be off by in a rounding, as the rule says."""
    rng = np.random.default_rng(7)
    here = _results(trial.expected)
    slope, noise = [np.zeros(r.shape) for r in here], [0.0 for _ in here]
    for _ in range(DIRECTIONS):
        u = [_direction(rng, a) for a in trial.numbers]
        up, down = (_results(trial.torch_near(u, step)) for step in (STEP, -STEP))
        for i, (a, r, b) in enumerate(zip(up, here, down, strict=True)):
            first, second = _differences(a, r, b)
            slope[i] = np.maximum(slope[i], first / (2 * STEP))
            noise[i] = max(noise[i], second.max(initial=0.0))
    return [_rounding(r, k, n) for r, k, n in zip(here, slope, noise, strict=True)]


def _results(outcome: Outcome) -> list[np.ndarray]:
    return [r for _, r in outcome.named()]


def _direction(rng, a: np.ndarray) -> np.ndarray:
    """Random signs, of both parts of complex numbers."""
    u = rng.choice((-1.0, 1.0), a.shape)
    if a.dtype.kind == "c":
        u = (u + 1j * rng.choice((-1.0, 1.0), a.shape)) / np.sqrt(2.0)
    return u


def _differences(a: np.ndarray, r: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """|a − b| and |a − 2r + b| where these are finite, 0 elsewhere."""
    if not _eps(r) or a.shape != r.shape or b.shape != r.shape:
        return np.zeros(r.shape), np.zeros(r.shape)
    finite = np.isfinite(a) & np.isfinite(r) & np.isfinite(b)
    a, r, b = (np.where(finite, x, 0.0) for x in (a, r, b))
    return np.abs(a - b), np.abs(a - 2 * r + b)


def _largest(r: np.ndarray) -> float:
    return float(np.max(np.abs(r), initial=0.0, where=np.isfinite(r)))


def _rounding(r: np.ndarray, slope: np.ndarray, noise: float) -> np.ndarray:
    eps, largest = _eps(r), _largest(r)
    return eps * largest + eps * slope + min(noise, eps**0.5 * largest)
