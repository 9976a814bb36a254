"""Keys as NumPy takes them: a basic index, then arrays that select along what it leaves."""

from operator import index as as_int
from typing import Any, NamedTuple

import numpy as np

from ..core import dtypes
from ..core.value import GROUND, aval_of
from ..errors import IndexingError
from .slicing import everything, indexed_shape, span

_BASIC = frozenset((int, slice, type(None), type(Ellipsis)))


class Selector(NamedTuple):
    """Indices of one axis, or a mask over some, counted after the basic index."""

    axes: tuple[int, ...]
    array: Any
    is_mask: bool


class Key(NamedTuple):
    """`index` is a basic index; `front`: the selected axes go before all others."""

    index: tuple
    selectors: tuple[Selector, ...] = ()
    front: bool = False

    def whole(self, shape) -> bool:
        """Whether the basic index takes everything."""
        return self.index == everything(shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape after the basic index."""
        return indexed_shape(self.index)


class _Array(NamedTuple):
    """An entry of a key that is an array, and how many axes it stands for."""

    array: Any
    is_mask: bool
    ndim: int


def _fault(message: str) -> IndexingError:
    return IndexingError(f"index: {message}")


def parse(key, shape) -> Key:
    """The key of an array of this shape."""
    entries = key if key.__class__ is tuple else (key,)
    if not all([e.__class__ in _BASIC for e in entries]):
        entries = [e if e.__class__ in _BASIC else _entry(e) for e in entries]
    written, entries = entries, _without_ellipsis(entries, len(shape))
    if any([e.__class__ is _Array for e in entries]):
        return Key(*_mixed(entries, shape), _scattered(written))
    axes = iter(enumerate(shape))
    return Key(tuple([None if e is None else _basic(e, *next(axes)) for e in entries]))


def _scattered(entries) -> bool:
    """Whether something (if only an Ellipsis of no axes) stands between the arrays of a key.

    Integers beside arrays count as arrays, as they do in NumPy.
    """
    places = [k for k, e in enumerate(entries) if e.__class__ in (_Array, int)]
    return places[-1] - places[0] >= len(places)


def _basic(entry, axis: int, n: int):
    """An int or a slice of an axis of length n, in the form of a basic index."""
    if entry.__class__ is slice:
        return span(entry, n)
    if not -n <= entry < n:
        raise _fault(f"{entry} is out of range for axis {axis} of length {n}")
    return entry + n if entry < 0 else entry


def _entry(e):
    """An entry that is not basic on the face of it: an integer of another kind or an array."""
    if not hasattr(e, "dtype"):
        if hasattr(e, "__index__") and not isinstance(e, bool):
            return as_int(e)
        e = np.asarray(e)
        if not e.size:  # an empty list says nothing of its type
            e = e.astype(np.intp)
    aval = aval_of(e)
    if aval.dtype == dtypes.bool_:
        return _Array(e, True, aval.ndim)
    if aval.dtype not in dtypes.SIGNED + dtypes.UNSIGNED:
        raise _fault(f"got an array of {aval.dtype}, expected integers or booleans")
    raw = e._data if type(e) in GROUND else e
    if not aval.ndim and isinstance(raw, np.ndarray | np.generic):
        return int(raw)
    return _Array(e, False, 1)


def _without_ellipsis(entries, ndim: int) -> list:
    """The entries with an Ellipsis, or its absence at the end, as full slices."""
    used = 0
    at = []
    for k, e in enumerate(entries):
        if e is Ellipsis:
            at.append(k)
        elif e is not None:
            used += e.ndim if e.__class__ is _Array else 1
    if len(at) > 1:
        raise _fault(f"{len(at)} ellipses, expected at most one")
    if used > ndim:
        raise _fault(f"{used} indices for {ndim} axes")
    rest = [slice(None)] * (ndim - used)
    if not at:
        return [*entries, *rest]
    return [*entries[: at[0]], *rest, *entries[at[0] + 1 :]]


def _mixed(entries: list, shape) -> tuple[tuple, tuple[Selector, ...]]:
    """The basic index and the selectors of a key with arrays, whose axes the index keeps."""
    index: list = []
    selectors = []
    axis = out = 0
    for e in entries:
        if e.__class__ is _Array:
            # A mask without axes selects along a new one.
            index += everything(_covered(e, axis, shape)) if e.ndim else [None]
            axes = tuple(range(out, out + max(e.ndim, 1)))
            selectors.append(Selector(axes, e.array, e.is_mask))
            axis, out = axis + e.ndim, out + len(axes)
        elif e is None:
            index.append(None)
            out += 1
        else:
            index.append(_basic(e, axis, shape[axis]))
            axis, out = axis + 1, out + (e.__class__ is slice)
    return tuple(index), tuple(selectors)


def _covered(e: _Array, axis: int, shape) -> tuple[int, ...]:
    """The lengths of the axes an array stands for, which must be a mask's own."""
    lengths = tuple(shape[axis : axis + e.ndim])
    if e.is_mask and aval_of(e.array).shape != lengths:
        raise _fault(
            f"a mask of shape {aval_of(e.array).shape} over axes of lengths {lengths}; "
            "they must be the same"
        )
    return lengths
