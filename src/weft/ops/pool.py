"""Rows: windows that slide over the last axes, each reduced to one number.

Sizes fit exactly (see backend/shared/window_sizes.py): the last window ends where the padding
ends. A tap is the position of an element in its window, in memory order; for windows of up to
256 elements it is saved as a byte.
"""

from ..backend.shared.window_sizes import counts_of, size_of, tap_dtype
from ..core.aval import Aval
from ..core.op import Caller
from ..errors import ShapeError
from .axes import floating, real_only
from .batching import Stated, all_spread
from .positions import integers
from .rows import general, linear
from .samples import convolve as samples


def _split(name: str, x: Aval, axes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes in front, and those that windows slide along."""
    if x.ndim < axes:
        raise ShapeError(f"{name}: {x.shape} has {x.ndim} axes; windows slide along {axes}")
    return x.shape[: x.ndim - axes], x.shape[x.ndim - axes :]


def _pooled_aval(name: str, x: Aval, kernel, *how) -> Aval:
    lead, size = _split(name, x, len(kernel))
    return x.like((*lead, *counts_of(size, kernel, *how)), floating(x.dtype))


def _unpooled_aval(name: str, y: Aval, kernel, *how) -> Aval:
    lead, counts = _split(name, y, len(kernel))
    return y.like((*lead, *size_of(counts, kernel, *how)), floating(y.dtype))


def _fits(name: str, taps: Aval, shape) -> None:
    integers(name, taps)
    if taps.shape != shape:
        raise ShapeError(f"{name}: {taps.shape} taps for results of shape {shape}")


def _max_shape(x: Aval, kernel, *how):
    real_only("max_pool", x)
    values = _pooled_aval("max_pool", x, kernel, *how)
    return values, values.like(dtype=tap_dtype(kernel))


def _pick_shape(x: Aval, taps: Aval, kernel, *how) -> Aval:
    y = _pooled_aval("pool_pick", x, kernel, *how)
    _fits("pool_pick", taps, y.shape)
    return y


def _put_shape(y: Aval, taps: Aval, kernel, *how) -> Aval:
    _fits("pool_put", taps, y.shape)
    return _unpooled_aval("pool_put", y, kernel, *how)


def _in_front(call, size, mapped, args, static):
    return call(*all_spread(size, mapped, args), *static)


_alone = Stated(lambda size, *static: static)

# The largest element of each window and its tap, the first one of equal ones. Of a window that is
# −∞ alone it is the first tap that is not before the array along any axis.
max_pool: Caller = general(
    "max_pool",
    shape=_max_shape,
    push=lambda tangents, y, x, *how: (pool_pick(tangents[0], y[1], *how), None),
    pull=lambda g, taps, *how: (pool_put(g[0], taps, *how),),
    keep=lambda y, x, *how: (y[1],),
    arity=1,
    outputs=2,
    promote=(0,),
    floating=True,
    batch=_alone,
    sample=samples("max_pools"),
)

# Of each window the element at a tap.
pool_pick: Caller = linear(
    "pool_pick",
    shape=_pick_shape,
    transpose=[lambda g, x, taps, *how: pool_put(g, taps, *how), None],
    reads="taps",
    promote=(0,),
    floating=True,
    static=True,
    moves="values",
    batch=_in_front,
    sample=samples("picks"),
)

# Zeros, with each window's number added at its tap.
pool_put: Caller = linear(
    "pool_put",
    shape=_put_shape,
    transpose=[lambda g, y, taps, *how: pool_pick(g, taps, *how), None],
    reads="taps",
    promote=(0,),
    floating=True,
    static=True,
    moves="values",
    batch=_in_front,
    sample=samples("puts"),
)


def _dense_window(kernel, stride, padding) -> tuple:
    return kernel, stride, padding, (1,) * len(kernel)


# The sum of each window's elements.
sum_pool: Caller = linear(
    "sum_pool",
    shape=lambda x, *how: _pooled_aval("sum_pool", x, *_dense_window(*how)),
    transpose=[lambda g, x, *how: spread_pool(g, *how)],
    reads="",
    promote=(0,),
    floating=True,
    static=True,
    precision="single",
    batch=_alone,
    sample=samples("sum_pools"),
)

# Zeros, with each window's number added to all its elements.
spread_pool: Caller = linear(
    "spread_pool",
    shape=lambda y, *how: _unpooled_aval("spread_pool", y, *_dense_window(*how)),
    transpose=[lambda g, y, *how: sum_pool(g, *how)],
    reads="",
    promote=(0,),
    floating=True,
    static=True,
    precision="single",
    batch=_alone,
    sample=samples("spreads"),
)
