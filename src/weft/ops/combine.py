"""Rows: sums with given weights."""

from ..core import dtypes
from ..core.aval import Aval
from ..core.op import Caller
from ..errors import ShapeError
from .batching import Along
from .rows import linear
from .samples import combine as samples


def _compute(xp, xs, weights):
    dtype = xp.dtype_of(xs[0])
    wide = dtypes.accumulator(dtype)
    if wide != dtype:
        xs = [xp.cast(x, wide) for x in xs]
    total = xs[0] * weights[0]
    for x, w in zip(xs[1:], weights[1:], strict=True):
        total = total + x * w
    return total if wide == dtype else xp.cast(total, dtype)


def _shape(avals: list[Aval], weights) -> Aval:
    for a in avals:
        if a.shape != avals[0].shape:
            raise ShapeError(
                f"weighted_sum: {avals[0].shape} and {a.shape} differ; all must be alike"
            )
    dtype = dtypes.promote_all(a.dtype for a in avals)
    return avals[0].like(dtype=dtype if dtypes.is_inexact(dtype) else dtypes.default_float())


# Σ wᵢ xᵢ in one step: a Runge–Kutta stage would be a dozen, each recorded.
weighted_sum: Caller = linear(
    "weighted_sum",
    compute=_compute,
    shape=_shape,
    transpose=lambda g, i, args, weights: g * weights[i],
    reads="",
    joint=True,
    floating=True,
    batch=Along(()),
    sample=samples("weighted_sums"),
)
