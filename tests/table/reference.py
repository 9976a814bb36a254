"""What finite differences say about a case, on the NumPy backend: the tests' yardstick."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from weft.core.op import Op

from .probe import Probe, quiet
from .ridders import Estimate, ridders
from .rows import cases

# How many units of conditioning a stable algorithm may lose. One number for every row: what
# differs between rows is the conditioning, and that is measured.
UNITS = 16.0
# Jacobians and Hessians with more coordinates than this are checked along this many random
# directions instead of along every axis.
FULL, SKETCH = 40, 8
# A quarter of what the smallest planted error (a factor 1 + 1e-3) would change.
RESOLUTION = 2.5e-4


def spread(f, x: np.ndarray, eps: float, rng) -> np.ndarray:
    """How far f moves when x moves by one unit of rounding, plus one unit of f itself.

    This is |J|·|x|·eps + |f|·eps without assuming a Jacobian: the conditioning, measured.
    """
    base = f(x)
    worst = np.zeros_like(base)
    for _ in range(2):
        signs = rng.choice([-1.0, 1.0], x.shape)
        worst = np.fmax(worst, np.abs(f(x * (1 + eps * signs)) - base))
    return worst + eps * np.abs(base)


def pooled(noise: np.ndarray) -> np.ndarray:
    """The largest entry everywhere: sums and factorisations mix the errors of all elements."""
    finite = noise[np.isfinite(noise)]
    return np.full(noise.shape, finite.max(initial=0.0))


def sketch(size: int, rng) -> np.ndarray:
    """All axes, or a few random directions where there are too many axes."""
    if size <= FULL:
        return np.eye(size)
    return rng.choice([-1.0, 1.0], (SKETCH, size))


@dataclass(frozen=True)
class Reference:
    """A case with random directions fixed, and its derivatives by finite differences."""

    probe: Probe
    eps: float = float(np.finfo(np.float64).eps)

    @cached_property
    def rng(self):
        return np.random.default_rng(7)

    @cached_property
    def x(self) -> np.ndarray:
        return self.probe.x

    @cached_property
    def y(self) -> np.ndarray:
        return quiet(self.probe.value)(self.x)

    @cached_property
    def u(self) -> np.ndarray:
        """A random cotangent."""
        return np.random.default_rng(11).uniform(0.5, 1.5, self.y.shape) * np.where(
            np.arange(self.y.size) % 3 == 1, -1.0, 1.0
        )

    @cached_property
    def curvature(self) -> float:
        """Makes the cotangent depend on x, so that second order covers that path too."""
        finite = self.y[np.isfinite(self.y)]
        return float(1 / (1 + np.abs(finite).max(initial=0.0)))

    @cached_property
    def scale(self) -> np.ndarray:
        """The first step along each coordinate: an eighth of the (complex) number there."""
        sizes = self.probe.layout.pack(
            [
                np.abs(a) * (1 + 1j) if a.dtype.kind == "c" else np.abs(a)
                for a in (self.probe.case.args[i] for i in self.probe.moving)
            ]
        )
        return np.maximum(sizes, 0.1) / 8

    @cached_property
    def directions(self) -> np.ndarray:
        return sketch(self.x.size, np.random.default_rng(3)) * self.scale

    @cached_property
    def codirections(self) -> np.ndarray:
        return sketch(self.y.size, np.random.default_rng(5))

    @cached_property
    def p(self) -> np.ndarray:
        return np.random.default_rng(13).uniform(0.5, 1.0, self.x.shape) * self.scale

    @cached_property
    def q(self) -> np.ndarray:
        return np.random.default_rng(17).uniform(-1.0, 1.0, self.x.shape) * self.scale

    @cached_property
    def value_noise(self) -> np.ndarray:
        return UNITS * spread(quiet(self.probe.value), self.x, self.eps, self.rng)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        return quiet(self.probe.gradient)(x, self.u, self.curvature)

    @cached_property
    def gradient_noise(self) -> np.ndarray:
        return UNITS * pooled(spread(self.gradient, self.x, self.eps, self.rng))

    def product(self, x: np.ndarray) -> np.ndarray:
        return quiet(self.probe.hessian_product)(x, self.u, self.curvature, self.p)

    @cached_property
    def jacobian(self) -> Estimate:
        f = _defined(quiet(self.probe.value), self.y.size)
        return ridders(f, self.x, self.directions, pooled(self.value_noise))

    @cached_property
    def hessian(self) -> Estimate:
        f = _defined(self.gradient, self.x.size)
        return ridders(f, self.x, self.directions, self.gradient_noise)

    @cached_property
    def third(self) -> Estimate:
        f = _defined(self.product, self.x.size)
        noise = UNITS * pooled(spread(self.product, self.x, self.eps, self.rng))
        return ridders(f, self.x, self.q[None], noise)


def _defined(f, size: int):
    """f with NaN where a factorisation says that it does not exist."""

    def wrapped(x):
        try:
            return f(x)
        except np.linalg.LinAlgError:
            return np.full(size, np.nan)

    return wrapped


@lru_cache(maxsize=4)
def references(op: Op) -> tuple[Reference, ...]:
    """The yardsticks of a row's cases, shared by the tests of both backends."""
    return tuple(Reference(Probe(op, case)) for case in cases(op))
