"""Rows: distinct values, and how often values occur."""

from math import prod

from ..core import dtypes
from ..core.aval import Aval
from ..core.op import Caller
from ..core.types import Array
from ..errors import ArgumentError, DTypeError, ShapeError
from .elementwise import where
from .index import segment_sum
from .logic import equal
from .order import searchsorted
from .positions import own_places
from .reduce import amax, amin
from .rows import row_without_derivative
from .samples import order as samples
from .slicing import narrow
from .structural import reshape

UNKNOWN = -1  # a length that depends on the values


def _unique_shape(x: Aval):
    values, counts = x.like((UNKNOWN,)), x.like((UNKNOWN,), dtypes.int64)
    return values, counts, x.like(dtype=dtypes.int64), counts


unique_values: Caller = row_without_derivative(
    "unique_values", shape=lambda x: _unique_shape(x)[0], sample=samples("duplicates")
)

# Values, the index of each one's first occurrence, each element's value by index, and counts.
unique_all: Caller = row_without_derivative(
    "unique_all", shape=_unique_shape, outputs=4, sample=samples("duplicates")
)


def unique_counts(x: Array) -> tuple[Array, Array]:
    """The distinct values of x in order, and how often each occurs."""
    values, _, _, counts = unique_all(x)
    return values, counts


def unique_inverse(x: Array) -> tuple[Array, Array]:
    """The distinct values of x in order, and which of them each element is."""
    values, _, inverse, _ = unique_all(x)
    return values, inverse


def _bincount_shape(x: Aval, length: int) -> Aval:
    if dtypes.is_inexact(x.dtype):
        raise DTypeError(f"bincount: got {x.dtype}, expected integers")
    if x.ndim != 1:
        raise ShapeError(f"bincount: shape {x.shape}, expected one axis; reshape it")
    return x.like((length,), dtypes.int64)


def _batch_bincount(call, size, mapped, args, static):
    (x,), (length,) = args, static
    places = own_places(x, (), length)
    counts = call(reshape(places, (prod(places.shape),)), size * length)
    return reshape(counts, (size, length))


_bincount = row_without_derivative(
    "bincount", shape=_bincount_shape, batch=_batch_bincount, sample=samples("bins")
)


def _ends(x) -> tuple[int, int]:
    """The smallest and the largest element of an array that is not batched."""
    axes = tuple(range(len(x.shape)))
    return int(amin(x, axes, False).item()), int(amax(x, axes, False).item())


def bincount(x: Array, weights: Array | None = None, minlength: int = 0) -> Array:
    """How often 0, 1, 2, … occur in x, or the sum of the weights of each."""
    low, high = _ends(x) if prod(x.shape) else (0, -1)
    if low < 0:
        raise ArgumentError(f"bincount: got {low}, expected no negative number")
    length = max(minlength, high + 1)
    return _bincount(x, length) if weights is None else segment_sum(weights, x, 0, length)


def histogram(x: Array, edges: Array, weights: Array | None = None) -> Array:
    """How many elements lie between each two edges, the last edge included."""
    n, size = edges.shape[0], prod(x.shape)
    x = reshape(x, (size,))
    bins = searchsorted(edges, x, True)
    last = reshape(narrow(edges, 0, n - 1, n), ())
    bins = where(equal(x, last), n - 1, bins)
    if weights is None:
        counts = _bincount(bins, n + 1)
    else:
        counts = segment_sum(reshape(weights, (size,)), bins, 0, n + 1)
    return narrow(counts, 0, 1, n)
