"""Rows: indices of several axes as indices of those axes joined, and checks of indices."""

from math import prod
from typing import Any

import numpy as np

from ..core import dtypes
from ..core.aval import Aval, Shape, broadcast
from ..core.backends import BACKENDS, Kernel
from ..core.box import BOXED
from ..core.call import caller
from ..core.op import TABLE, Caller
from ..core.types import Array
from ..core.value import TENSORS, as_new_constant, wrap
from ..errors import DTypeError, IndexingError
from ..graph.guard import WITHIN
from .batching import pointwise
from .logic import greater_equal, less, logical_and
from .rows import row_without_derivative
from .samples import index as samples
from .structural import reshape


def in_range(name: str, called: str = "") -> Kernel:
    """The backend's kernel, which raises IndexingError for an index out of range."""

    def compute(xp, *args):
        try:
            return getattr(xp, name)(*args)
        except IndexError as e:
            raise IndexingError(f"{called or name}: {e}") from None

    return compute


def integers(name: str, i: Aval) -> None:
    """Refuse indices that are not integers."""
    if i.dtype not in dtypes.SIGNED + dtypes.UNSIGNED:
        raise DTypeError(f"{name}: indices of dtype {i.dtype}, expected integers; cast them")


def within(i: Array, least: int, n: int, message: str) -> Array:
    """Traced indices with a guard that checks at each call that all are in [least, n).

    The message is formatted by `graph.guard.index_message`.
    """
    low, high = dtypes.bounds(i.dtype)
    tests = [greater_equal(i, least)] if low < least else []
    tests += [less(i, n)] if high >= n else []
    if not tests:
        return i
    fits = tests[0] if len(tests) == 1 else logical_and(*tests)
    flag = caller(TABLE["all"])(fits, tuple(range(len(i.shape))), False) if i.shape else fits
    return caller(WITHIN)(i, flag, i, message, least, n)


def index_like(x: Array, i: Any) -> Array:
    """Indices as an array, or a tensor, on the backend of x; boxes keep their level."""
    raw = x._data if type(x) in TENSORS else x
    if type(i) in TENSORS:
        return i if type(x) in TENSORS else i._data
    if type(i) is not type(raw) and type(i) not in BOXED:
        i = BACKENDS[type(raw)].as_index(i, raw)
    return as_new_constant(wrap(i)) if type(x) in TENSORS else i


def _ravel_shape(avals: list[Aval], sizes) -> Aval:
    for i in avals:
        integers("ravel_index", i)
    return avals[0].like(broadcast("index", *(i.shape for i in avals)), dtypes.int64)


# Indices of several axes as indices of those axes joined into one.
ravel_index: Caller = row_without_derivative(
    "ravel_index",
    compute=in_range("ravel_index", "index"),
    shape=_ravel_shape,
    arity=None,
    batch=pointwise,
    sample=samples("ravels"),
)


def own_places(i: Array, lead: Shape, n: int) -> Array:
    """Each batch element's indices of an axis of length n, as indices of one joined axis.

    The batch axis, the axes `lead` before the axis and the axis itself are joined.
    """
    size, *own = i.shape
    rows = np.arange(size * prod(lead)).reshape(size, *lead, *(1,) * len(own))
    i = reshape(i, (size, *(1,) * len(lead), *own))
    return ravel_index([index_like(i, rows), i], (size * prod(lead), n))
