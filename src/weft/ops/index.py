"""Rows: indexing by integer arrays and masks.

Selection by any number of arrays is selection by one: the axes they index are joined by
`reshape`, their indices by `ravel_index`. So one gather and its transpose carry it all.
"""

from math import prod
from typing import Any

from ..core import dispatch, dtypes
from ..core.aval import Aval, Shape, axis_in, broadcast
from ..core.backends import BACKENDS, PYTHON_SCALARS
from ..core.op import Caller
from ..core.types import Array, Raw
from ..core.value import TENSORS, aval_of, wrap
from ..errors import DTypeError, ShapeError
from .batching import align_batch, pointwise, spread
from .elementwise import where
from .keys import Key, Selector, basic_index, dtype_kind, parse
from .positions import in_range, index_like, integers, own_places, ravel_index
from .rows import linear, row_without_derivative
from .samples import index as samples
from .samples import structural as structural_samples
from .slicing import indexed_shape, slice_, unslice
from .structural import broadcast_to, cast, inverse, moveaxis, permute, reshape, unbroadcast


def _selected_shape(name: str, x: Aval, i: Aval, axis: int) -> tuple[int, ...]:
    """The shape of x indexed by an array along an axis."""
    integers(name, i)
    axis_in(name, axis, x.ndim)
    return (*x.shape[:axis], *i.shape, *x.shape[axis + 1 :])


def _segment_sum_shape(x: Aval, i: Aval, axis: int, size: int) -> Aval:
    integers("segment_sum", i)
    if x.shape[axis : axis + i.ndim] != i.shape:
        raise ShapeError(
            f"segment_sum: {i.shape} indices on axis {axis} of {x.shape}; expected one for each "
            "element"
        )
    return x.like((*x.shape[:axis], size, *x.shape[axis + i.ndim :]))


def _batch_take(call, size, mapped, args, static):
    (x, i), (axis,) = args, static
    if not mapped[1]:
        return call(x, i, axis + 1)
    if not mapped[0]:
        return moveaxis(call(x, i, axis), (axis,), (0,))
    lead, n, rest = x.shape[1 : axis + 1], x.shape[axis + 1], x.shape[axis + 2 :]
    line = reshape(x, (size * prod(lead) * n, *rest))
    return call(line, own_places(i, lead, n), 0)


def _batch_segment_sum(call, size, mapped, args, static):
    (x, i), (axis, n) = args, static
    if not mapped[1]:
        return call(x, i, axis + 1, n)
    x = x if mapped[0] else spread(x, size)
    lead, rest = x.shape[1 : axis + 1], x.shape[axis + len(i.shape) :]
    line = call(x, own_places(i, lead, n), 0, size * prod(lead) * n)
    return reshape(line, (size, *lead, n, *rest))


take: Caller = linear(
    "take",
    compute=in_range("take"),
    shape=lambda x, i, axis: x.like(_selected_shape("take", x, i, axis)),
    transpose=[lambda g, x, i, axis: segment_sum(g, i, axis, x.shape[axis]), None],
    reads="i",
    static=True,
    moves="indices",
    batch=_batch_take,
    sample=samples("takes"),
)

# Zeros of length `size` along an axis, with x added at its indices.
segment_sum: Caller = linear(
    "segment_sum",
    compute=in_range("segment_sum", "index"),
    shape=_segment_sum_shape,
    transpose=[lambda g, x, i, axis, size: take(g, i, axis), None],
    reads="i",
    static=True,
    precision="single",
    moves="sums",
    batch=_batch_segment_sum,
    sample=samples("segment_sums"),
)


def _fits(name: str, v: Aval, shape) -> None:
    if broadcast(name, v.shape, shape) != tuple(shape):
        raise ShapeError(f"{name}: a value of shape {v.shape} for places of shape {tuple(shape)}")


def _index_put_shape(x: Aval, i: Aval, v: Aval, axis: int) -> Aval:
    _fits("index", v, _selected_shape("index_put", x, i, axis))
    return x


def _surviving(g, x, i, v, axis):
    """The cotangent of the written values: zero where a later write overwrote them."""
    last = last_writes(i, g.shape[axis])
    last = reshape(last, (*i.shape, *(1,) * (len(g.shape) - 1 - axis)))
    return unbroadcast(where(last, take(g, i, axis), 0.0), v.shape)


def _batch_index_put(call, size, mapped, args, static):
    (x, i, v), (axis,) = args, static
    x = x if mapped[0] else spread(x, size)
    if mapped[2]:
        v = align_batch(v, len(x.shape) - 1 + len(i.shape) - mapped[1])
    if not mapped[1]:
        return call(x, i, v, axis + 1)
    lead, n, rest = x.shape[1 : axis + 1], x.shape[axis + 1], x.shape[axis + 2 :]
    line = reshape(x, (size * prod(lead) * n, *rest))
    return reshape(call(line, own_places(i, lead, n), v, 0), x.shape)


# x with v written at the indices; of several writes to a position the last wins.
index_put: Caller = linear(
    "index_put",
    compute=in_range("index_put", "index"),
    shape=_index_put_shape,
    transpose=[lambda g, x, i, v, axis: index_put(g, i, 0, axis), None, _surviving],
    reads="i",
    joint=True,
    static=True,
    moves="indices",
    batch=_batch_index_put,
    sample=samples("index_puts"),
)


def _last_writes_shape(i: Aval, size: int) -> Aval:
    integers("last_writes", i)
    return i.like(dtype=dtypes.bool_)


def _batch_last_writes(call, size, mapped, args, static):
    (i,), (n,) = args, static
    return call(own_places(i, (), n), size * n)


# Which of the indices of an axis occur again later.
last_writes: Caller = row_without_derivative(
    "last_writes",
    compute=in_range("last_writes"),
    shape=_last_writes_shape,
    batch=_batch_last_writes,
    sample=samples("writes"),
)


def _slice_set_shape(x: Aval, v: Aval, index) -> Aval:
    _fits("index", v, indexed_shape(index))
    return x


def _batch_slice_set(call, size, mapped, args, static):
    (x, v), (index,) = args, static
    x = x if mapped[0] else spread(x, size)
    v = align_batch(v, 1 + len(indexed_shape(index))) if mapped[1] else v
    return call(x, v, ((0, size, 1), *index))


slice_set: Caller = linear(
    "slice_set",
    shape=_slice_set_shape,
    transpose=[
        lambda g, x, v, index: slice_set(g, 0, index),
        lambda g, x, v, index: unbroadcast(slice_(g, index), v.shape),
    ],
    reads="",
    joint=True,
    static=True,
    moves="parts",
    batch=_batch_slice_set,
    sample=structural_samples("slice_sets"),
)


# The number of nonzeros depends on the values: -1 stands for it.
flatnonzero: Caller = row_without_derivative(
    "flatnonzero", shape=lambda x: x.like((-1,), dtypes.int64), sample=samples("masks")
)
argwhere: Caller = row_without_derivative(
    "argwhere", shape=lambda x: x.like((-1, x.ndim), dtypes.int64), sample=samples("masks")
)


def nonzero(x: Array) -> tuple[Array, ...]:
    """The places where x is not zero: for each axis an array of indices."""
    places = argwhere(x)
    return tuple(slice_(places, ((0, places.shape[0], 1), k)) for k in range(len(x.shape)))


def _one_hot_shape(i: Aval, n: int, dtype) -> Aval:
    integers("one_hot", i)
    return i.like((*i.shape, n), dtypes.canonical(dtype))


one_hot: Caller = row_without_derivative(
    "one_hot",
    compute=in_range("one_hot"),
    shape=_one_hot_shape,
    batch=pointwise,
    sample=samples("one_hots"),
)


def embedding(weight: Array, i: Array) -> Array:
    """The rows of a table at the indices."""
    return take(weight, i, 0)


def index_add(x: Array, i: Array, v: Array, axis: int) -> Array:
    """x with v added at the indices along an axis; duplicates add up."""
    shape = (*x.shape[:axis], *i.shape, *x.shape[axis + 1 :])
    return x + segment_sum(broadcast_to(as_array(x, as_value(x, v)), shape), i, axis, x.shape[axis])


def get(x: Array, key: Any) -> Array:
    """x[key] for any key that NumPy takes."""
    index = basic_index(key, (x._data if type(x) in TENSORS else x).shape)
    if index is not None:
        return slice_(x, index)
    if type(key) in TENSORS and key.shape and x.shape and dtype_kind(key) in "iu":
        return take(x, index_like(x, key), 0)  # fast path of the most common key
    key = parse(key, x.shape)
    if not key.selectors:
        return slice_(x, key.index)
    if not key.whole(x.shape):
        x = slice_(x, key.index)
    way = Way(key, x)
    return take(way.go(x), way.index, way.axis)


def set_(x: Array, key: Any, v: Array) -> Array:
    """x with x[key] = v; of several writes to a place the last wins."""
    key = parse(key, x.shape)
    v = as_value(x, v)
    if not key.selectors:
        return slice_set(x, trim_axes(v, key.shape), key.index)
    whole = key.whole(x.shape)
    part = x if whole else slice_(x, key.index)
    mask = _lone_mask(key, part)
    if mask is not None and (type(v) in PYTHON_SCALARS or not v.shape):
        part = where(mask, v, part)
    else:
        way = Way(key, part)
        part = index_put(way.go(part), way.index, trim_axes(v, way.shape), way.axis)
        part = way.back(part)
    return part if whole else slice_set(x, part, key.index)


def assign(raw: Raw, key: Any, v: Array) -> None:
    """raw[key] = v in the memory of a raw array; of several writes to a place the last wins."""
    key = parse(key, raw.shape)
    xp = BACKENDS[type(raw)]
    v = as_value(raw, v)
    if not key.selectors:
        v = trim_axes(v, key.shape)
        _fits("index", aval_of(v), key.shape)
        xp.write_slice(raw, v, key.index)
        return
    part = raw if key.whole(raw.shape) else slice_(raw, key.index)
    way = Way(key, part)
    v = trim_axes(v, way.shape)
    _fits("index", aval_of(v), way.shape)
    if way.straight and part is raw:
        in_range("write_index", "index")(xp, raw, way.index, v, way.axis)
    else:
        part = way.back(index_put(way.go(part), way.index, v, way.axis))
        xp.write_slice(raw, part, key.index)


def add_at(x: Array, key: Any, v: Array) -> Array:
    """x with v added to x[key]; duplicates add up."""
    key = parse(key, x.shape)
    v = as_array(x, as_value(x, v))
    if not key.selectors:
        term = broadcast_to(trim_axes(v, key.shape), key.shape)
        return x + unslice(term, key.index, tuple(x.shape))
    whole = key.whole(x.shape)
    way = Way(key, x if whole else slice_(x, key.index))
    term = broadcast_to(trim_axes(v, way.shape), way.shape)
    term = way.back(segment_sum(term, way.index, way.axis, way.length))
    return x + (term if whole else unslice(term, key.index, tuple(x.shape)))


class Way:
    """Moves an array to the form in which the selected axes are one axis, and back."""

    def __init__(self, key: Key, x: Array):
        shape = tuple(x.shape)
        axes = [a for s in key.selectors for a in s.axes]
        self.turned: bool = key.front and axes != list(range(len(axes)))
        self.axis: int = 0 if key.front else axes[0]
        if self.turned:
            self.order: tuple[int, ...] = (*axes, *[a for a in range(len(shape)) if a not in axes])
            shape = tuple([shape[a] for a in self.order])
        self.apart: Shape = shape
        lead, tail = shape[: self.axis], shape[self.axis + len(axes) :]
        self.length: int = prod(shape[self.axis : self.axis + len(axes)])
        self.joined: Shape = (*lead, self.length, *tail)
        self.straight: bool = not self.turned and len(axes) == 1
        self.index: Array = _joined_index(key.selectors, x)
        self.shape: Shape = (*lead, *self.index.shape, *tail)

    def go(self, x: Array) -> Array:
        if self.turned:
            x = permute(x, self.order)
        return x if self.joined == self.apart else reshape(x, self.joined)

    def back(self, x: Array) -> Array:
        x = x if self.joined == self.apart else reshape(x, self.apart)
        return permute(x, inverse(self.order)) if self.turned else x


def _joined_index(selectors: tuple[Selector, ...], x):
    """One array of indices of the selected axes joined."""
    arrays = [index_like(x, s.array) for s in selectors]
    arrays = [flatnonzero(a) if s.is_mask else a for s, a in zip(selectors, arrays, strict=True)]
    if len(arrays) == 1:
        return arrays[0]
    return ravel_index(arrays, tuple(prod(x.shape[a] for a in s.axes) for s in selectors))


def _lone_mask(key: Key, x):
    """The mask of a key that is nothing but a mask, reshaped to broadcast with x."""
    if len(key.selectors) != 1 or not key.selectors[0].is_mask:
        return None
    axes, mask, _ = key.selectors[0]
    shape = tuple(n if a in axes else 1 for a, n in enumerate(x.shape))
    return reshape(index_like(x, mask), shape)


def as_value(x: Array, v: Any) -> Array:
    """A value to be written into x, in its dtype; Python scalars that promote to it stay."""
    dtype = aval_of(x).dtype
    scalar = type(v) in PYTHON_SCALARS
    if not scalar and type(x) in TENSORS and type(v) not in TENSORS:
        v = dispatch.above.adopt(v)
    own = dtypes.with_scalar(dtype, v) if scalar else aval_of(v).dtype
    if own == dtype:
        return v
    if dtypes.is_complex(own) and not dtypes.is_complex(dtype):
        raise DTypeError(
            f"index: assigning {own} to {dtype} would lose the imaginary part; take real() of it"
        )
    return as_array(x, v) if scalar else cast(v, dtype)


def as_array(x: Array, v: Array) -> Array:
    """A Python scalar as a 0-d array, or tensor, beside x; arrays stay."""
    if type(v) not in PYTHON_SCALARS:
        return v
    raw = x._data if type(x) in TENSORS else x
    xp = BACKENDS[type(raw)]
    made = xp.full((), v, raw.dtype, xp.device_of(raw))
    return wrap(made) if type(x) in TENSORS else made


def trim_axes(v: Array, shape: Shape) -> Array:
    """v without the leading axes of length 1 that `shape` lacks, as NumPy assigns."""
    extra = 0 if type(v) in PYTHON_SCALARS else len(v.shape) - len(shape)
    if extra > 0 and all(n == 1 for n in v.shape[:extra]):
        return reshape(v, tuple(v.shape[extra:]))
    return v
