"""Elements combined with values at indices: `x.at[i].multiply(v)`, where every duplicate counts."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ..core import dtypes
from ..core.backends import BACKENDS
from ..core.box import BOXES
from ..core.op import Caller
from ..core.record import record
from ..core.settings import current
from ..core.types import Array
from ..core.value import TENSORS, aval_of
from ..errors import StagingError
from .elementwise import add, divide, maximum, minimum, multiply, pow_, where
from .index import Way, as_array, as_value, index_put, slice_set, take, trim_axes
from .keys import parse
from .logic import equal, less
from .positions import index_like
from .reduce import amax, amin
from .reduce import prod as prod_
from .slicing import slice_
from .structural import broadcast_to, reshape

_MOST = 1 << 26  # comparisons of traced indices, which have no values yet


@record
class Combination:
    """How values for one position are combined, first with each other, then with the old one."""

    join: Caller
    apply: Caller
    fold: Caller  # `join` over an axis
    unit: Callable[[np.dtype], float]  # dtype -> the neutral element


def _least(dtype: np.dtype) -> float:
    return -np.inf if dtypes.is_inexact(dtype) else dtypes.bounds(dtype)[0]


def _largest(dtype: np.dtype) -> float:
    return np.inf if dtypes.is_inexact(dtype) else dtypes.bounds(dtype)[1]


MULTIPLY = Combination(multiply, multiply, prod_, lambda _: 1)
DIVIDE = Combination(multiply, divide, prod_, lambda _: 1)
POWER = Combination(multiply, pow_, prod_, lambda _: 1)
MAXIMUM = Combination(maximum, maximum, amax, _least)
MINIMUM = Combination(minimum, minimum, amin, _largest)


def combine_at(x: Array, key: Any, v: Array, how: Combination) -> Array:
    """x with x[key] combined with v; values for one position are combined first."""
    key = parse(key, x.shape)
    v = as_array(x, as_value(x, v))
    part = slice_(x, key.index)
    if not key.selectors:
        return slice_set(x, as_value(x, how.apply(part, trim_axes(v, key.shape))), key.index)
    way = Way(key, part)
    index, axis = way.index, way.axis
    shape = (*way.shape[:axis], prod(index.shape), *way.shape[axis + len(index.shape) :])
    values = reshape(broadcast_to(trim_axes(v, way.shape), way.shape), shape)
    index = reshape(index, (shape[axis],))
    flat = way.go(part)
    if shape[axis] and not all(s.is_mask for s in key.selectors):
        index, values = _join_duplicates(index, values, axis, way.length, how)
    new = as_value(x, how.apply(take(flat, index, axis), values))
    part = way.back(index_put(flat, index, new, axis))
    return part if key.whole(x.shape) else slice_set(x, part, key.index)


def _join_duplicates(index, values, axis: int, length: int, how: Combination):
    """Indices and values in which duplicates of an index have one value."""
    raw = index._data if index.__class__ in TENSORS else index
    staged = current.get().staging is not None and raw.__class__ not in BOXES
    if raw.__class__ in BOXES or staged:
        return _joined_unseen(index, values, axis, length, how)
    places = BACKENDS[raw.__class__].to_numpy(raw)
    if places.size and not -length <= places.min() <= places.max() < length:
        take(values, index, axis)  # which says what is wrong
    order, rank = _occurrences(places % length if length else places)
    while (rank > 0).any():
        # Of each position's values, those at even ranks absorb the next: log₂(duplicates) rounds.
        even = np.flatnonzero(rank % 2 == 0)
        partner = np.minimum(even + 1, len(rank) - 1)
        has = (even + 1 < len(rank)) & (rank[partner] == rank[even] + 1)
        one, two = (take(values, index_like(values, order[k]), axis) for k in (even, partner))
        values = _choose(values, has, how.join(one, two), one, axis)
        places, rank = places[order[even]], rank[even] // 2
        order = np.arange(len(even))
    return index_like(values, places), values


def _occurrences(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order that sorts the positions, and each one's rank among its duplicates."""
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else order
    lengths = np.diff(np.r_[starts, len(ordered)])
    return order, np.arange(len(ordered)) - np.repeat(starts, lengths)


def _choose(values, has: np.ndarray, joined, alone, axis: int):
    mask = has.reshape([-1 if k == axis else 1 for k in range(len(values.shape))])
    return where(index_like(values, mask), joined, alone)


def _joined_unseen(index, values, axis: int, length: int, how: Combination):
    """`_join_duplicates` of traced indices: each value becomes that of all its duplicates."""
    n = index.shape[0]
    if n * prod(values.shape) > _MOST:
        raise StagingError(
            f"at[i]: {n} indices that are not known yet are compared with each other, which is too "
            "many; give them as a constant, or call this outside of the compiled or mapped function"
        )
    index = where(less(index, 0), add(index, length), index)
    same = equal(reshape(index, (n, 1)), reshape(index, (1, n)))
    lead, tail = tuple(values.shape[:axis]), tuple(values.shape[axis + 1 :])
    spread = reshape(values, (*lead, 1, n, *tail))
    mask = reshape(same, (*(1,) * len(lead), n, n, *(1,) * len(tail)))
    unit = as_array(values, how.unit(aval_of(values).dtype))
    return index, how.fold(where(mask, spread, unit), (axis + 1,), False)
