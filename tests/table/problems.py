"""What a check found wrong, and the comparisons that find it."""

from dataclasses import dataclass

import numpy as np

# What a check yields: its kind, and the message.
Finding = tuple[str, str]


@dataclass(frozen=True)
class Problem:
    """One finding: which check, at which case, and the numbers."""

    kind: str
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.kind}: {self.message}"


def differs(got: np.ndarray, expected: np.ndarray, bound) -> str | None:
    """A description of the worst element outside its bound; equal NaN and infinity agree."""
    if got.shape != expected.shape:
        return f"shape {got.shape}, expected {expected.shape}"
    with np.errstate(all="ignore"):
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        error = np.abs(got - expected)
        fine = same | (error <= bound) | (np.isinf(bound) & np.isfinite(expected))
    if fine.all():
        return None
    bound = np.broadcast_to(bound, got.shape)
    excess = np.where(fine, -1.0, np.where(np.isnan(error), np.inf, error))
    at = np.unravel_index(int(excess.argmax()), got.shape)
    return (
        f"{got[at]:.12g} at {tuple(map(int, at))}, expected {expected[at]:.12g} "
        f"± {bound[at]:.1e} ({int((~fine).sum())} of {fine.size} elements)"
    )
