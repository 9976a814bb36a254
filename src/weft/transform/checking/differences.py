"""Comparing a function's derivatives with finite differences: both Jacobians, and their errors."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from ... import errors
from ...arrays.make import asarray
from ...arrays.tensor import Tensor
from ...core import dtypes
from ...core.record import record
from ...core.value import TENSORS
from ..modes import trees
from ..modes.functional import jvp, vjp
from .coordinates import Coordinates
from .ridders import EPS, UNITS, Estimate, noise_around, ridders, size_of

# Differences must resolve a quarter of a per mille to count as a confirmation.
RESOLUTION = 2.5e-4
# Below this float64 has fewer digits: nothing is relative any more.
UNDERFLOW = 2.0**-1000
WIDE: set[np.dtype] = {dtypes.float64, dtypes.complex128}


@record
class Comparison:
    """Two Jacobians in coordinates (results by arguments), and the allowed error.

    resolved  whether the differences are accurate enough to decide
    """

    analytical: np.ndarray
    numerical: np.ndarray
    allowed: np.ndarray
    resolved: bool

    @cached_property
    def error(self) -> np.ndarray[Any, Any]:
        return np.abs(self.analytical - self.numerical)

    @cached_property
    def wrong(self) -> np.ndarray[Any, Any]:
        """Which elements are too far apart."""
        return ~(self.error <= self.allowed)

    @property
    def holds(self) -> bool:
        return self.resolved and not self.wrong.any()

    @property
    def worst(self) -> tuple[int, ...]:
        """The index of the element whose error is largest relative to the allowed one."""
        excess = np.nan_to_num(self.error / self.allowed, nan=np.inf)
        return tuple(map(int, np.unravel_index(excess.argmax(), excess.shape)))


@record(frozen=False, eq=False)
class CheckProblem:
    """A function of tensors in float64, as a function of one real vector, at a point."""

    what: str
    f: Callable[..., list[Tensor]]
    xs: list[Tensor]
    names: list[str]
    one_sided: bool = False

    def __post_init__(self) -> None:
        self.domain = Coordinates.of(self.xs)
        self.x = self.domain.pack(self.xs)
        self.range = Coordinates.of(self.f(*self.domain.unpack(self.x)))
        self.rng = np.random.default_rng(7)

    @cached_property
    def scale(self) -> np.ndarray[Any, Any]:
        """The first step along each coordinate: an eighth of the number there."""
        return np.clip(np.nan_to_num(np.abs(self.x), nan=1.0), 0.1, 1e100) / 8

    @cached_property
    def v(self) -> np.ndarray[Any, Any]:
        """A direction in which no coordinate is zero."""
        return _nonzero_direction(self.x.size, 13) * self.scale

    @cached_property
    def u(self) -> np.ndarray[Any, Any]:
        """A direction among the results."""
        return _nonzero_direction(self.range.size, 11)

    def value(self, x: np.ndarray) -> np.ndarray[Any, Any]:
        """f in coordinates."""
        return _coordinates_or_nan(self.range, lambda: self.f(*self.domain.unpack(x)))

    def push(self, x: np.ndarray, v: np.ndarray) -> np.ndarray[Any, Any]:
        """J·v by forward mode."""
        xs, vs = tuple(self.domain.unpack(x)), tuple(self.domain.unpack(v))
        return _coordinates_or_nan(self.range, lambda: jvp(self.f, xs, vs)[1])

    def _pull(self, x: np.ndarray, us) -> list:
        """Jᵀ·u by reverse mode, for each u."""
        _, pull = vjp(self.f, *self.domain.unpack(x))
        return [pull(self.range.unpack(u)) for u in us]

    @cached_property
    def size(self) -> float:
        """The magnitude of f over the steps that differences take."""
        ahead = self.x + np.abs(self.v)
        return max(size_of(self.value(self.x)), size_of(self.value(ahead)))

    def estimate(self) -> Estimate:
        """The Jacobian by differences, in units of the steps."""
        steps = np.diag(self.scale)
        return ridders(self.value, self.x, steps, self._noise(self.value), self.one_sided)

    def _noise(self, f: Callable[..., Any]) -> np.ndarray:
        """The rounding errors of a function of the coordinates, where differences evaluate it."""
        return noise_around(f, self.x, self.v, EPS, self.rng, self.one_sided)

    def jacobian(self, mode: str) -> tuple[np.ndarray, float]:
        """The Jacobian by a mode in the same units, and the size of its rounding errors."""
        if mode == "fwd":
            columns = [self.push(self.x, d) for d in np.diag(self.scale)]
            found = np.array(columns).reshape(self.x.size, self.range.size).T
            noise = self._noise(lambda x: self.push(x, self.v))
        else:
            rows = [self.domain.pack(c) for c in self._pull(self.x, np.eye(self.range.size))]
            found = np.array(rows).reshape(self.range.size, self.x.size) * self.scale

            def gradient(x):
                return (
                    _coordinates_or_nan(self.domain, lambda: self._pull(x, [self.u])[0])
                    * self.scale
                )

            noise = self._noise(gradient)
        return found, float(noise.max(initial=0.0)) + UNITS * EPS * size_of(found)

    def compare(self, mode: str, estimate: Estimate) -> Comparison:
        """A mode's Jacobian compared with the estimate."""
        found, noise = self.jacobian(mode)
        allowed = np.nan_to_num(estimate.bound, nan=np.inf) + noise + UNDERFLOW
        # In units of the steps the columns have one scale, in which the resolution can be judged.
        size = max(self.size, size_of(found), size_of(estimate.value))
        resolved = bool((allowed <= RESOLUTION * size + UNDERFLOW).all())
        h = self.scale
        return Comparison(found / h, estimate.value / h, allowed / h, resolved)

    def derivative_problem(self, mode: str) -> "CheckProblem":
        """The function's own derivative as a problem; its (co)tangent depends on the point too."""
        f, tangents, seeds = self.f, self.domain.unpack(self.v), self.range.unpack(self.u)
        bend_x, bend_y = 1 / (1 + size_of(self.x)), 1 / (1 + self.size)

        def forward(*xs):
            moved = [t + bend_x * x for t, x in zip(tangents, xs, strict=True)]
            return jvp(f, xs, tuple(moved))[1]

        def reverse(*xs):
            ys, pull = vjp(f, *xs)
            return list(pull([u + bend_y * y for u, y in zip(seeds, ys, strict=True)]))

        chosen = forward if mode == "fwd" else reverse
        return CheckProblem(self.what, chosen, self.domain.unpack(self.x), self.names)


def _coordinates_or_nan(space: Coordinates, f: Callable[..., Any]) -> np.ndarray:
    """The coordinates of f(); NaN if a factorisation does not exist."""
    try:
        return space.pack(f())
    except np.linalg.LinAlgError:
        return np.full(space.size, np.nan)


def _nonzero_direction(size: int, seed: int) -> np.ndarray:
    """Numbers of both signs away from zero."""
    magnitude = np.random.default_rng(seed).uniform(0.5, 1.5, size)
    return magnitude * np.where(np.arange(size) % 3 == 1, -1.0, 1.0)


def problem_of(
    what: str, f: Callable[..., Any], args: Any, one_sided: bool = False
) -> CheckProblem:
    """f at these arguments, as a function of the leaves in floating point."""
    import optree  # imported at first use: `import weft` stays quick

    paths, leaves, structure = optree.tree_flatten_with_path(args)
    moving = [i for i, leaf in enumerate(leaves) if is_inexact(leaf)]
    if not moving:
        raise errors.ArgumentError(f"{what}: no argument in floating point")
    xs = [to_double(leaves[i]) for i in moving]

    def flat(*xs):
        full = list(leaves)
        for i, x in zip(moving, xs, strict=True):
            full[i] = x
        return _results(what, f(*optree.tree_unflatten(structure, full)))

    names = [f"argument {p[0]}" + "".join(f"[{k!r}]" for k in p[1:]) for p in paths]
    return CheckProblem(what, flat, xs, [names[i] for i in moving], one_sided)


def is_inexact(leaf: Any) -> bool:
    """Whether this is a number or an array that can be differentiated by."""
    if type(leaf) in TENSORS:
        return dtypes.is_inexact(leaf.dtype)
    if isinstance(leaf, np.ndarray | np.generic):
        return leaf.dtype in dtypes.KIND and dtypes.is_inexact(leaf.dtype)
    return isinstance(leaf, float | complex)


def to_double(x: Any) -> Tensor:
    """x in double precision: differences in single precision resolve three digits only."""
    x = x.detach() if type(x) in TENSORS else asarray(np.asarray(x))
    return x.to(dtypes.complex128 if dtypes.is_complex(x.dtype) else dtypes.float64)


def _results(what: str, out) -> list[Tensor]:
    """The results that carry a derivative, which must have kept the arguments' precision."""
    leaves, _ = trees.flatten(out)
    for y in leaves:
        if type(y) not in TENSORS:
            raise errors.DTypeError(
                f"{what}: the function returned {type(y).__name__}, expected tensors"
            )
    found = [y for y in leaves if dtypes.is_inexact(y.dtype)]
    for y in found:
        if y.dtype not in WIDE:
            raise errors.DTypeError(
                f"{what}: the arguments are taken in float64, and the function returned {y.dtype}: "
                "a cast inside it leaves too few digits for differences; take it out for the check"
            )
    if not found:
        raise errors.DTypeError(f"{what}: the function returned nothing in floating point")
    return found
