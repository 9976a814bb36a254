"""Rows: gather and scatter, with an index along one axis for each element."""

from math import prod

import numpy as np

from ..core import dtypes
from ..core.aval import Aval, axis_in, broadcast
from ..core.op import Caller
from ..core.types import Array
from ..errors import ShapeError
from .batching import all_spread
from .index import as_value, index_add, index_put, segment_sum, take
from .positions import in_range, index_like, integers
from .rows import linear, row_without_derivative
from .samples import index as samples
from .slicing import Index, slice_
from .structural import broadcast_to, moveaxis, reshape


def _other(shape, axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _along_shape(name: str, x: Aval, i: Aval, axis: int) -> None:
    integers(name, i)
    axis_in(name, axis, x.ndim)
    if i.ndim != x.ndim or _other(i.shape, axis) != _other(x.shape, axis):
        raise ShapeError(
            f"{name}: indices of {i.shape} for {x.shape}; expected the same lengths on all axes "
            f"but {axis}"
        )


def _take_along_shape(x: Aval, i: Aval, axis: int) -> Aval:
    _along_shape("take_along_axis", x, i, axis)
    return x.like(i.shape)


def _scatter_sum_shape(x: Aval, i: Aval, axis: int, size: int) -> Aval:
    _along_shape("scatter_sum", x, i, axis)
    return x.like((*x.shape[:axis], size, *x.shape[axis + 1 :]))


def _batch_take_along(call, size, mapped, args, static):
    (x, i), (axis,) = args, static
    if all(mapped):
        return call(x, i, axis + 1)
    if mapped[0]:
        shape = x.shape[1:]
        places = along_positions(i, axis, tuple(shape), "take_along_axis")
        return take(reshape(x, (size, prod(shape))), places, 1)
    apart = moveaxis(i, (0,), (axis,))
    lead, count, rest = apart.shape[:axis], apart.shape[axis + 1], apart.shape[axis + 2 :]
    taken = call(x, reshape(apart, (*lead, size * count, *rest)), axis)
    return moveaxis(reshape(taken, tuple(apart.shape)), (axis,), (0,))


def _batch_scatter_sum(call, size, mapped, args, static):
    (x, i), (axis, n) = args, static
    if mapped[1]:
        return call(*all_spread(size, mapped, args), axis + 1, n)
    shape = (*x.shape[1 : axis + 1], n, *x.shape[axis + 2 :])
    places = along_positions(i, axis, shape, "scatter_sum")
    line = segment_sum(x, places, 1, prod(shape))
    return reshape(line, (size, *shape))


_take_along = linear(
    "take_along_axis",
    compute=in_range("take_along_axis"),
    shape=_take_along_shape,
    transpose=[lambda g, x, i, axis: scatter_sum(g, i, axis, x.shape[axis]), None],
    reads="i",
    static=True,
    moves="indices",
    batch=_batch_take_along,
    sample=samples("alongs"),
)

# Zeros of length `size` along an axis, with each element of x added at its index.
scatter_sum: Caller = linear(
    "scatter_sum",
    compute=in_range("scatter_sum"),
    shape=_scatter_sum_shape,
    transpose=[lambda g, x, i, axis, size: _take_along(g, i, axis), None],
    reads="i",
    static=True,
    precision="single",
    moves="sums",
    batch=_batch_scatter_sum,
    sample=samples("scatter_sums"),
)


def _positions_shape(i: Aval, axis: int, shape, called: str) -> Aval:
    integers(called, i)
    return i.like(dtype=dtypes.int64)


def _positions(xp, i, axis, shape, called):
    return in_range("along_positions", called)(xp, i, axis, shape)


def _batch_positions(call, size, mapped, args, static):
    (i,), (axis, shape, called) = args, static
    places = call(i, axis + 1, (size, *shape), called)
    first = np.arange(size).reshape(size, *(1,) * len(shape)) * prod(shape)
    return places - index_like(places, first)


# Indices along an axis as positions in a flat array of `shape`. On other axes there may be fewer
# indices than elements. Errors name the operation `called`.
along_positions: Caller = row_without_derivative(
    "along_positions",
    compute=_positions,
    shape=_positions_shape,
    batch=_batch_positions,
    sample=samples("positions"),
)


def _broadcast_indices(name: str, x: Array, i: Array, axis: int) -> tuple[Array, Array]:
    """x and the indices broadcast to each other on all axes but one, as NumPy does."""
    if len(x.shape) != len(i.shape):
        raise ShapeError(f"{name}: {len(i.shape)} axes of indices for {len(x.shape)} axes")
    if _other(x.shape, axis) == _other(i.shape, axis):
        return x, i
    common = broadcast(name, _other(x.shape, axis), _other(i.shape, axis))
    lead, rest = common[:axis], common[axis:]
    x = broadcast_to(x, (*lead, x.shape[axis], *rest))
    return x, broadcast_to(i, (*lead, i.shape[axis], *rest))


def take_along_axis(x: Array, i: Array, axis: int) -> Array:
    """The element of x at each index along an axis."""
    return _take_along(*_broadcast_indices("take_along_axis", x, index_like(x, i), axis), axis)


def put_along_axis(x: Array, i: Array, v: Array, axis: int) -> Array:
    """x with v written at the indices along an axis; the last write wins."""
    x, i = _broadcast_indices("put_along_axis", x, index_like(x, i), axis)
    return scatter(x, i, v, axis)


def _corner_index(name: str, x: Array, i: Array, axis: int) -> Index:
    """The basic index of the corner of x whose axes, but one, are as long as the indices'."""
    fits = len(x.shape) == len(i.shape) and all(
        k == axis or a <= b for k, (a, b) in enumerate(zip(i.shape, x.shape, strict=True))
    )
    if not fits:
        raise ShapeError(
            f"{name}: indices of {tuple(i.shape)} for {tuple(x.shape)}; expected at most as many "
            f"on every axis but {axis}"
        )
    return tuple((0, x.shape[k] if k == axis else n, 1) for k, n in enumerate(i.shape))


def gather(x: Array, i: Array, axis: int) -> Array:
    """take_along_axis, with shorter indices allowed on the other axes."""
    i = index_like(x, i)
    return _take_along(slice_(x, _corner_index("gather", x, i, axis)), i, axis)


def _cut(v, i):
    """The corner of v that has the shape of the indices."""
    if not hasattr(v, "shape") or not v.shape or tuple(v.shape) == tuple(i.shape):
        return v
    if len(v.shape) == len(i.shape) and all(a >= b for a, b in zip(v.shape, i.shape, strict=True)):
        return slice_(v, tuple((0, n, 1) for n in i.shape))
    return v


def scatter(x: Array, i: Array, v: Array, axis: int) -> Array:
    """x with v written at the indices along an axis; the last write wins."""
    return _scatter("scatter", index_put, x, i, as_value(x, v), axis)


def scatter_add(x: Array, i: Array, v: Array, axis: int) -> Array:
    """x with v added at the indices along an axis; duplicates add up."""
    return _scatter("scatter_add", index_add, x, i, v, axis)


def _scatter(name: str, write, x, i, v, axis: int):
    i = index_like(x, i)
    _corner_index(name, x, i, axis)
    at = along_positions(i, axis, tuple(x.shape), name)
    return reshape(write(reshape(x, (prod(x.shape),)), at, _cut(v, i), 0), tuple(x.shape))


def put(x: Array, i: Array, v: Array) -> Array:
    """x with v written at places counted in its flat order; a shorter v is repeated."""
    i, v = index_like(x, i), as_value(x, v)
    count = prod(i.shape)
    if hasattr(v, "shape") and 0 < prod(v.shape) != count:
        flat = reshape(v, (prod(v.shape),))
        v = take(flat, index_like(v, [k % prod(v.shape) for k in range(count)]), 0)
    elif hasattr(v, "shape"):
        v = reshape(v, (count,))
    flat = index_put(reshape(x, (prod(x.shape),)), reshape(i, (count,)), v, 0)
    return reshape(flat, tuple(x.shape))
