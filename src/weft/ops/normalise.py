"""Rows: arrays brought to mean zero and variance one, or to mean square one, over axes.

The derivative is a projection that needs the result and the variance only: x is not saved. The
statistics have a dtype of their own, the last parameter: squares leave the range of float16.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from ..core import dtypes
from ..core.aval import Aval, axes_in, reduced_shape
from ..core.op import Caller
from ..core.types import Array
from ..errors import ShapeError
from .axes import count, floating, real_only
from .batching import Along
from .elementwise import rsqrt, sqrt
from .reduce import mean
from .rows import general
from .samples import neural as samples
from .structural import broadcast_to, cast

# Tangents of arguments, or cotangents of results; None for what has none.
Tangents: TypeAlias = Sequence[Array | None]


def _shape(name: str, statistics: int):
    def shape(x: Aval, axes, eps, dtype):
        axes_in(name, axes, x.ndim)
        real_only(name, x)
        if not count(x.shape, axes):
            raise ShapeError(
                f"{name}: shape {x.shape} has no element along axes {axes}; give it at least one"
            )
        x = x.like(dtype=floating(x.dtype))
        statistic = x.like(reduced_shape(x.shape, axes, True), dtypes.canonical(dtype))
        return (x, *(statistic,) * statistics)

    return shape


def as_(x: Array, like: Array) -> Array:
    """x in the dtype of another array."""
    return x if x.dtype == like.dtype else cast(x, dtypes.canonical(like.dtype))


def projection_push(
    tangents: Tangents, z: Array, g: Array, y: Array, axes: tuple[int, ...], centred: bool
) -> Array:
    dg, dy = tangents
    z = None if dg is None else projection(dg, y, axes, centred)
    if dy is not None:
        dz = dy * mean(g * y, axes, True) + y * mean(g * dy, axes, True)
        z = -dz if z is None else z - dz
    return z


def _projection_pull(u, z, g, y, axes, centred):
    dy = u * mean(g * y, axes, True) + g * mean(u * y, axes, True)
    return projection(u, y, axes, centred), -dy


# g - mean(g) - y·mean(gy): g less its projections onto the constants (if centred) and onto y.
projection: Caller = general(
    "projection",
    reads="g y",
    shape=lambda g, y, axes, centred: y,
    push=projection_push,
    pull=_projection_pull,
    arity=2,
    promote=(0, 1),
    static=True,
    precision="single",
    batch=Along(),
    sample=samples("projections"),
)


def standardise_push(
    tangents: Tangents,
    results: Sequence[Array],
    x: Array,
    axes: tuple[int, ...],
    eps: float,
    dtype: Any,
) -> tuple[Array, Array, Array]:
    (t,) = tangents
    y, _, variance = results
    moved = projection(t, y, axes, True) * rsqrt(variance + eps)
    wide = as_(t, variance)
    spread = mean(wide * y, axes, True) * sqrt(variance + eps) * 2.0
    return as_(moved, y), mean(wide, axes, True), spread


def standardise_pull(
    gs: Tangents,
    results: Sequence[Array],
    x: Array,
    axes: tuple[int, ...],
    eps: float,
    dtype: Any,
) -> tuple[Array]:
    g, along_mean, along_variance = gs
    y, _, variance = results
    share = 1 / count(y.shape, axes)
    parts = [] if g is None else [projection(g, y, axes, True) * rsqrt(variance + eps)]
    if along_mean is not None:
        parts.append(broadcast_to(along_mean * share, y.shape))
    if along_variance is not None:
        parts.append(along_variance * sqrt(variance + eps) * y * (2 * share))
    return (as_(_total(parts), y),)


def _total(parts):
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


# (x - mean)/√(variance + eps) over axes, with the mean and the variance, which keep the axes.
standardise: Caller = general(
    "standardise",
    reads="results",
    shape=_shape("standardise", 2),
    push=standardise_push,
    pull=standardise_pull,
    arity=1,
    outputs=3,
    tracked=(0, 1, 2),
    promote=(0,),
    floating=True,
    static=True,
    precision="single",
    batch=Along(),
    sample=samples("normalisations"),
)


def _to_unit_push(tangents, results, x, axes, eps, dtype):
    (t,) = tangents
    y, square = results
    spread = mean(as_(t, square) * y, axes, True) * sqrt(square + eps) * 2.0
    return as_(projection(t, y, axes, False) * rsqrt(square + eps), y), spread


def _to_unit_pull(gs, results, x, axes, eps, dtype):
    g, along_square = gs
    y, square = results
    parts = [] if g is None else [projection(g, y, axes, False) * rsqrt(square + eps)]
    if along_square is not None:
        parts.append(along_square * sqrt(square + eps) * y * (2 / count(y.shape, axes)))
    return (as_(_total(parts), y),)


# x/√(mean(x²) + eps) over axes, with the mean of the squares.
root_mean_square: Caller = general(
    "root_mean_square",
    reads="results",
    shape=_shape("root_mean_square", 1),
    push=_to_unit_push,
    pull=_to_unit_pull,
    arity=1,
    outputs=2,
    tracked=(0, 1),
    promote=(0,),
    floating=True,
    static=True,
    precision="single",
    batch=Along(),
    sample=samples("to_unit"),
)
