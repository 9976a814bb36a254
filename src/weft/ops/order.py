"""Rows: sorting, and elements chosen by their order."""

from math import prod

from ..core import dtypes
from ..core.aval import Aval, axis_in
from ..core.op import Caller
from ..core.types import Array
from ..core.value import aval_of
from ..errors import ArgumentError, ShapeError
from .along import scatter_sum, take_along_axis
from .axes import real_only
from .batching import Along, spread
from .elementwise import minimum, where
from .index import as_array
from .logic import isnan, less, less_equal, logical_and, logical_not, logical_or
from .rows import general, row_without_derivative
from .samples import order as samples
from .structural import cast, reshape, squeeze


def _order_shape(name: str, dtype=None):
    def shape(x: Aval, axis: int, descending: bool) -> Aval:
        axis_in(name, axis, x.ndim)
        real_only(name, x)
        return x.like(dtype=dtype)

    return shape


argsort: Caller = row_without_derivative(
    "argsort", shape=_order_shape("argsort", dtypes.int64), batch=Along(), sample=samples("orders")
)


def _sort_push(tangents, y, x, axis, descending):
    return take_along_axis(tangents[0], argsort(x, axis, descending), axis)


def _sort_pull(g, y, x, axis, descending):
    return (scatter_sum(g, argsort(x, axis, descending), axis, x.shape[axis]),)


# The order is computed again in the derivative: NumPy sorts values several times
# faster than it sorts indices.
sort: Caller = general(
    "sort",
    shape=_order_shape("sort"),
    push=_sort_push,
    pull=_sort_pull,
    reads="x",
    arity=1,
    batch=Along(),
    sample=samples("orders"),
)


def _routing_row(name: str, shape, axis_at: int, sample):
    """A row (values, indices) whose derivative gathers and scatters by these indices.

    `axis_at` says which of the static parameters is the axis.
    """

    def push(tangents, y, x, *static):
        return take_along_axis(tangents[0], y[1], static[axis_at]), None

    def pull(g, index, n, *static):
        return (scatter_sum(g[0], index, static[axis_at], n),)

    def keep(y, x, *static):
        return y[1], x.shape[static[axis_at]]

    return general(
        name,
        shape=shape,
        push=push,
        pull=pull,
        keep=keep,
        arity=1,
        outputs=2,
        batch=Along((axis_at,)),
        sample=sample,
    )


def _with_indices(x: Aval, shape) -> tuple[Aval, Aval]:
    return x.like(shape), x.like(shape, dtypes.int64)


def _running_shape(name: str):
    def shape(x: Aval, axis: int):
        axis_in(name, axis, x.ndim)
        real_only(name, x)
        return _with_indices(x, x.shape)

    return shape


# Of equal elements the last one counts, as it would if the array ended there.
cummax: Caller = _routing_row("cummax", _running_shape("cummax"), 0, samples("running"))
cummin: Caller = _routing_row("cummin", _running_shape("cummin"), 0, samples("running"))


def _topk_shape(x: Aval, k: int, axis: int, largest: bool):
    axis_in("topk", axis, x.ndim)
    real_only("topk", x)
    if not 0 <= k <= x.shape[axis]:
        raise ArgumentError(
            f"topk: k = {k}, expected 0 to {x.shape[axis]}, the length of axis {axis}"
        )
    return _with_indices(x, (*x.shape[:axis], k, *x.shape[axis + 1 :]))


topk: Caller = _routing_row("topk", _topk_shape, 1, samples("topk"))


def _found_shape(name: str):
    def shape(x: Aval, axis: int):
        axis_in(name, axis, x.ndim)
        real_only(name, x)
        if not x.shape[axis]:
            raise ShapeError(f"{name}: shape {x.shape} has no element along axis {axis}")
        return _with_indices(x, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))

    return shape


_max_found = _routing_row("max_with_indices", _found_shape("max_with_indices"), 0, samples("peaks"))
_min_found = _routing_row("min_with_indices", _found_shape("min_with_indices"), 0, samples("peaks"))


def max_with_indices(x: Array, axis: int, keepdims: bool = False) -> tuple[Array, Array]:
    """The largest elements along an axis, and where the first of each is."""
    found = _max_found(x, axis)
    return found if keepdims else tuple(squeeze(a, (axis,)) for a in found)


def min_with_indices(x: Array, axis: int, keepdims: bool = False) -> tuple[Array, Array]:
    """The smallest elements along an axis, and where the first of each is."""
    found = _min_found(x, axis)
    return found if keepdims else tuple(squeeze(a, (axis,)) for a in found)


def _searchsorted_shape(sequence: Aval, x: Aval, right: bool) -> Aval:
    real_only("searchsorted", sequence)
    real_only("searchsorted", x)
    if sequence.ndim != 1:
        raise ShapeError(
            f"searchsorted: the sorted array has shape {sequence.shape}, expected one axis"
        )
    return x.like(dtype=dtypes.int64)


def _comes_before(a, x, right: bool):
    """Whether an element of a sorted array lies before the insertion point of x.

    NaN is sorted after all numbers.
    """
    passed = less_equal(a, x) if right else less(a, x)
    if not dtypes.is_inexact(aval_of(a).dtype):
        return passed
    by_nan = isnan(x) if right else logical_and(isnan(x), logical_not(isnan(a)))
    return logical_or(passed, by_nan)


def _batch_searchsorted(call, size, mapped, args, static):
    """Where each element has a sorted array of its own: bisection, all of them at once."""
    (sequence, x), (right,) = args, static
    if not mapped[0]:
        return call(sequence, x, right)
    x = x if mapped[1] else spread(as_array(sequence, x), size)
    (_, n), shape = sequence.shape, tuple(x.shape)
    x = reshape(x, (size, prod(shape[1:])))
    passed = cast(less(x, x), dtypes.int64)  # zeros, wherever x is
    for k in reversed(range(n.bit_length())):
        further = passed + (1 << k)
        last = take_along_axis(sequence, minimum(further, n) - 1, 1)
        goes = logical_and(less_equal(further, n), _comes_before(last, x, right))
        passed = where(goes, further, passed)
    return reshape(passed, shape)


searchsorted: Caller = row_without_derivative(
    "searchsorted",
    shape=_searchsorted_shape,
    arity=2,
    promote=(0, 1),
    static=True,
    batch=_batch_searchsorted,
    sample=samples("searches"),
)
