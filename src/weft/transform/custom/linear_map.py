"""Linear maps given as functions: their transposes, and tests of their linearity."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays.dtype_functions import finfo
from ...arrays.make import asarray, zeros
from ...arrays.tensor import Tensor
from ...backend.device import as_numpy
from ...core import dtypes
from ...core.aval import Aval
from ...core.box import ground, raise_to_level
from ...core.node import Leaf, Node
from ...core.settings import current, override_settings
from ...core.value import aval_of, wrap
from ...ops.complex_ import abs_, conj, real
from ..modes.dual import to_tensor, unwrap_if_plain
from ..modes.paths import nodes_between
from ..modes.reverse import sweep

# A list of tensors to a list of tensors; None stands for a zero.
LinearMap = Callable[[list[Any]], Sequence[Any]]
# Exact in every dtype, so that a linear map shows no other error than its own rounding.
LEFT, RIGHT = 0.75, -1.25


def transpose_map(
    linear: LinearMap, domain: list[Aval], cotangents: list[Any], met: list[Any]
) -> list[Any]:
    """Lᵀ applied to one cotangent (or None) for each result of L, by a reverse sweep through L.

    met  the values that L computes with; L is recorded at the highest level among them

    The transpose of a linear map is the same at every point: it is taken at zero.
    """
    with override_settings(grad=True, anomaly=False, saved_hooks=None, saving=None):
        at = [wrap(raise_to_level(_zeros(a)._data, met)) for a in domain]
        for t in at:
            t._node = Leaf(tuple(t._data.shape), t._data.dtype, None, False)
        results = linear(at)
    goals = [t._node for t in at]
    seeds: dict[Any, Any] = {}
    for y, g in zip(results, cotangents, strict=True):
        if y is not None and g is not None and y._node.__class__ in (Leaf, Node):
            g = to_tensor(g)
            seeds[y._node] = seeds[y._node] + g if y._node in seeds else g
    useful, outside = nodes_between(seeds, set(goals))
    # An enclosing derivative may differentiate the result, also by the cotangents.
    traced = outside or any(g.requires_grad for g in seeds.values())
    record = current.get().grad and traced
    seeds = {n: g if record else unwrap_if_plain(g) for n, g in seeds.items() if n in useful}
    found = sweep(seeds, record=record, retain=record, useful=useful, goals=set(goals))
    return [found.get(n) for n in goals]


def _zeros(a: Aval) -> Tensor:
    return zeros(a.shape, dtype=a.dtype, device=a.device)


def describe_nonlinearity(linear: LinearMap, domain: list[Aval]) -> str | None:
    """How far the map is from being linear, in words; None if rounding explains it.

    Random combinations find maps that are not additive, wide scalings find those that clip.
    """
    rng = np.random.default_rng(5)
    u, v = ([random_like(a, rng) for a in domain] for _ in range(2))
    with override_settings(grad=False, anomaly=False):
        at_u, at_v = linear(u), linear(v)
        mixed = linear([LEFT * a + RIGHT * b for a, b in zip(u, v, strict=True)])
        apart = _gap(
            mixed, [_sum(_times(LEFT, a), _times(RIGHT, b)) for a, b in _pairs(at_u, at_v)]
        )
        if apart:
            return f"L({LEFT}u {RIGHT:+}v) is not {LEFT}L(u) {RIGHT:+}L(v): they differ by {apart}"
        wide = min([_wide(a.dtype) for a in domain], default=1.0)
        for scale in (wide, 1 / wide):
            apart = _gap(linear([scale * a for a in u]), [_times(scale, a) for a in at_u])
            if apart:
                return f"L({scale:g}u) is not {scale:g}L(u): they differ by {apart}"
    return None


def describe_disagreement(
    linear: LinearMap, transpose: LinearMap, domain: list[Aval]
) -> str | None:
    """How far ⟨w, L·u⟩ is from ⟨Lᵀ·w, u⟩, in words; None where rounding explains it."""
    rng = np.random.default_rng(6)
    u = [random_like(a, rng) for a in domain]
    with override_settings(grad=False, anomaly=False):
        at_u = linear(u)
        w = [None if y is None else random_like(aval_of(y), rng) for y in at_u]
        left, right = _products(w, at_u), _products(transpose(w), u)
        apart = _largest(sum([p.sum() for p in left]) - sum([p.sum() for p in right]))
        size = max([_largest(abs_(p).sum()) for p in (*left, *right)], default=0.0)
    if apart > max([_tolerance(p.dtype) for p in (*left, *right)], default=0.0) * size:
        return f"⟨w, L·u⟩ and ⟨Lᵀ·w, u⟩ differ by {apart:.2g} of {size:.2g}"
    return None


def _products(left, right) -> list[Tensor]:
    """The terms of the real inner product of two lists of tensors."""
    return [
        real(conj(to_tensor(x)) * to_tensor(y))
        for x, y in _pairs(left, right)
        if x is not None and y is not None
    ]


def random_like(a: Aval, rng: np.random.Generator) -> Tensor:
    """Normal numbers of a shape and dtype, on a device."""
    values = rng.normal(size=a.shape)
    if dtypes.is_complex(a.dtype):
        values = values + 1j * rng.normal(size=a.shape)
    return asarray(np.asarray(values), dtype=a.dtype, device=a.device)


def _wide(dtype) -> float:
    """A power of two far from one, by which numbers of the dtype can be multiplied."""
    return 2.0**6 if dtype == dtypes.float16 else 2.0**20


def _tolerance(dtype) -> float:
    """Half of the digits: errors of wrong rules are larger, rounding errors are smaller."""
    return float(finfo(dtypes.to_real(dtype)).eps) ** 0.5


def _pairs(left, right):
    return zip(left, right, strict=True)


def _times(factor: float, x):
    return None if x is None else factor * x


def _sum(x, y):
    return y if x is None else x if y is None else x + y


def _gap(left, right) -> str | None:
    """The largest difference of two lists relative to their largest element, if above rounding."""
    for x, y in _pairs(left, right):
        if x is None and y is None:
            continue
        whole = _sum(x, y)
        difference = whole if x is None or y is None else x - y
        size = max([_largest(t) for t in (x, y) if t is not None])
        apart = _largest(difference)
        if apart > _tolerance(aval_of(whole).dtype) * size:
            return f"{apart:.2g} of {size:.2g}"
    return None


def _largest(x) -> float:
    """The largest finite magnitude, whatever level x is on."""
    values = np.asarray(as_numpy(ground(abs_(asarray(x))))).astype(np.float64)
    return float(np.max(values, initial=0.0, where=np.isfinite(values)))
