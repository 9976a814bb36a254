"""A training step of one rank as figures: when it computes what, and when gradients are final."""

from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from statistics import NormalDist

import numpy as np

from ..errors import ArgumentError


@dataclass(frozen=True)
class GradientProfile:
    """The gradient of one parameter, as what it costs to send it.

    shape     of the parameter
    ready     the seconds from the begin of the backward pass until it is final
    itemsize  bytes of an element

    >>> import weft as wf
    >>> wf.dist.GradientProfile((1024, 784), ready=2e-3).nbytes
    3211264
    """

    shape: tuple[int, ...]
    ready: float
    itemsize: int = 4

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        return prod(self.shape) * self.itemsize


@dataclass(frozen=True)
class StepProfile:
    """The measured times of a training step on one rank, with its share of the batch.

    forward    seconds of the forward pass
    backward   of the backward pass, with putting gradients into buckets
    optimizer  of the optimizer's step, with what else is done once a step
    gradients  one for each parameter
    samples    how many samples the step is for
    spread     the standard deviation of the step's time, in seconds
    cores      how many processor cores are busy while it computes; 0: it computes on a GPU
    speed      bytes per second that an elementwise operation reads and writes; None: not known

    `measure_step` finds them; `StepProfile.even` makes one from a few published figures.

    >>> import weft as wf
    >>> gradient = wf.dist.GradientProfile((1000, 1000), ready=0.02)
    >>> profile = wf.dist.StepProfile(0.01, 0.02, 0.002, (gradient,), samples=32)
    >>> f"{profile.step:.3f} s, {profile.nbytes / 1e6:.0f} MB"
    '0.032 s, 4 MB'
    """

    forward: float
    backward: float
    optimizer: float
    gradients: tuple[GradientProfile, ...] = field(repr=False)
    samples: int = 1
    spread: float = 0.0
    cores: float = 0.0
    speed: float | None = None

    def __post_init__(self) -> None:
        for name in ("forward", "backward", "optimizer", "spread", "cores"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise ArgumentError(
                    f"StepProfile: {name}={value!r}; expected a number of at least 0"
                )
        if self.step == 0:
            raise ArgumentError("StepProfile: a step of 0 seconds; expected a measured time")
        late = max((g.ready for g in self.gradients), default=0.0)
        if late > self.backward * (1 + 1e-9):
            raise ArgumentError(
                f"StepProfile: a gradient is ready {late} s after the begin of a backward pass of "
                f"{self.backward} s; expected ready ≤ backward, both in seconds"
            )

    @property
    def step(self) -> float:
        """The seconds of a step."""
        return self.forward + self.backward + self.optimizer

    @property
    def nbytes(self) -> int:
        """The bytes of all gradients."""
        return sum([g.nbytes for g in self.gradients])

    @classmethod
    def even(
        cls,
        step: float,
        nbytes: float,
        *,
        optimizer: float = 0.0,
        pieces: int = 100,
        samples: int = 1,
        spread: float = 0.0,
    ) -> "StepProfile":
        """A profile from a step's time and its bytes alone.

        What the optimizer leaves of the time is one third forward pass and two thirds backward
        pass, throughout which gradients of equal size become final.

        step       seconds
        nbytes     of all gradients in float32, rounded up to whole elements
        optimizer  seconds of the step in the optimizer
        pieces     how many gradients there are
        samples    how many samples the step is for
        spread     the standard deviation of the step's time, in seconds

        >>> import weft as wf
        >>> profile = wf.dist.StepProfile.even(0.3, 100e6)  # ResNet-50: 25 million parameters
        >>> f"{profile.forward:.2f} {profile.backward:.2f} {len(profile.gradients)}"
        '0.10 0.20 100'
        """
        backward = (step - optimizer) * 2 / 3
        shape = (-(-int(nbytes) // (4 * pieces)),)
        gradients = [GradientProfile(shape, backward * (i + 1) / pieces) for i in range(pieces)]
        forward = step - optimizer - backward
        return cls(forward, backward, optimizer, tuple(gradients), samples, spread)


def slowest(profile: StepProfile, size: int) -> float:
    """By what the slowest of so many ranks is expected to be slower than the mean, as a factor.

    Times are taken as independent and normally distributed: the expected maximum of n of them is
    μ + σ·E[max of n standard normal numbers].
    """
    return 1.0 + expected_maximum(size) * profile.spread / profile.step


@lru_cache(maxsize=256)
def expected_maximum(n: int) -> float:
    """Of n independent standard normal numbers: ∫ 1 − Φⁿ over x > 0, less ∫ Φⁿ over x < 0."""
    if n == 1:
        return 0.0
    x = np.linspace(0.0, 12.0, 4001)
    below = np.array([NormalDist().cdf(-v) for v in x])
    right = -np.expm1(n * np.log1p(-below))
    left = below**n
    return float(np.trapezoid(right - left, x))
