"""What finite differences say about a case, on the NumPy backend: the tests' yardstick."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from weft.core.op import Op
from weft.transform.checking.ridders import Estimate, noise_around, ridders, size_of

from .probe import Probe
from .rows import cases

# With more coordinates than this, derivatives are checked along some random directions (which
# see every element, though not one by one) instead of along every axis: first and second order.
FULL, SKETCH = 40, 8
FULL_SECOND, SKETCH_SECOND = 6, 3


def sketch(size: int, full: int, count: int) -> np.ndarray:
    """All axes, or a few random directions where there are too many axes."""
    if size <= full:
        return np.eye(size)
    rng = np.random.default_rng(size)
    return rng.choice([-1.0, 1.0], (count, size)) * rng.uniform(0.5, 1.0, (count, size))


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
        return self.probe.value(self.x)

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
        return np.clip(np.nan_to_num(sizes, nan=1.0), 0.1, 1e100) / 8

    @cached_property
    def directions(self) -> np.ndarray:
        return sketch(self.x.size, FULL, SKETCH) * self.scale

    @cached_property
    def second_directions(self) -> np.ndarray:
        return sketch(self.x.size, FULL_SECOND, SKETCH_SECOND) * self.scale

    @cached_property
    def codirections(self) -> np.ndarray:
        return sketch(self.y.size, FULL, SKETCH)

    @cached_property
    def p(self) -> np.ndarray:
        return np.random.default_rng(13).uniform(0.5, 1.0, self.x.shape) * self.scale

    @cached_property
    def q(self) -> np.ndarray:
        return np.random.default_rng(17).uniform(-1.0, 1.0, self.x.shape) * self.scale

    def value(self, x: np.ndarray) -> np.ndarray:
        return _defined(self.probe.value, self.y.size)(x)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        f = _defined(self.probe.gradient, self.x.size)
        return f(x, self.u, self.curvature)

    def product(self, x: np.ndarray) -> np.ndarray:
        """The Hessian times p."""
        f = _defined(self.probe.hessian_product, self.x.size)
        return f(x, self.u, self.curvature, self.p)

    def size(self, f) -> float:
        """The magnitude of f over the steps that finite differences take."""
        return max(size_of(f(self.x)), size_of(f(self.x + self.q)))

    @cached_property
    def value_noise(self) -> np.ndarray:
        return noise_around(self.value, self.x, self.q, self.eps, self.rng)

    @cached_property
    def gradient_noise(self) -> np.ndarray:
        return noise_around(self.gradient, self.x, self.q, self.eps, self.rng)

    @cached_property
    def product_noise(self) -> np.ndarray:
        return noise_around(self.product, self.x, self.q, self.eps, self.rng)

    @cached_property
    def jacobian(self) -> Estimate:
        return ridders(self.value, self.x, self.directions, self.value_noise)

    @cached_property
    def hessian(self) -> Estimate:
        return ridders(self.gradient, self.x, self.second_directions, self.gradient_noise)

    @cached_property
    def third(self) -> Estimate:
        return ridders(self.product, self.x, self.q[None], self.product_noise)


def _defined(f, size: int):
    """f with NaN where a factorisation says that it does not exist."""

    def wrapped(*args):
        try:
            return f(*args)
        except np.linalg.LinAlgError:
            return np.full(size, np.nan)

    return wrapped


@lru_cache(maxsize=4)
def references(op: Op) -> tuple[Reference, ...]:
    """The yardsticks of a row's cases, shared by the tests of both backends."""
    return tuple(Reference(Probe(op, case)) for case in cases(op))
