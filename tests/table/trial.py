"""A yardstick beside the backend that is measured by it, and the verdict on a derivative."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .probe import Probe, Run
from .problems import Finding, differs
from .reference import Reference

# A quarter of what the smallest planted error (a factor 1 + 1e-3) would change.
RESOLUTION = 2.5e-4
# Below this float64 has fewer digits: nothing is relative any more.
UNDERFLOW = 2.0**-1000


@dataclass(frozen=True)
class Trial:
    """A reference and a backend's probe of the same case."""

    ref: Reference
    probe: Probe

    @cached_property
    def run(self) -> Run:
        return self.probe.run(self.ref.x)

    @cached_property
    def jacobian(self) -> np.ndarray:
        """U·J by reverse mode, one sweep for each row of U."""
        rows = [self.run.pull(u) for u in self.ref.codirections]
        return np.array(rows).reshape(len(self.ref.codirections), self.ref.x.size)


def compared(kind: str, got, estimate, bound, size: float) -> Iterator[Finding]:
    """A derivative against an estimate that must itself be sharp enough to tell.

    `size` is the magnitude of what was differentiated, over the steps that were taken.
    """
    scale = max(np.abs(got).max(initial=0.0), np.abs(estimate).max(initial=0.0), size)
    if not (bound <= RESOLUTION * scale + UNDERFLOW).all():
        worst = float(np.nan_to_num(bound, nan=np.inf).max())
        message = (
            f"finite differences resolve it only to {worst:.1e} of {scale:.1e}: "
            "move the case away from the singularity, or mark it smooth=False"
        )
        yield f"{kind} vague", message
        return
    found = differs(got, estimate, bound + UNDERFLOW)
    if found:
        yield kind, found
