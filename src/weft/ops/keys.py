"""NumPy's indexing keys: a basic index, then arrays that index its result."""

from collections.abc import Sequence
from operator import index as as_int
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..core.aval import Shape
from ..core.backends import BACKENDS
from ..core.types import Array
from ..core.value import TENSORS, as_seen_by_trace
from ..errors import IndexingError
from .positions import within
from .slicing import Entry, Index, everything, indexed_shape, span


class Selector(NamedTuple):
    """Indices of one axis, or a mask over some, counted after the basic index."""

    axes: tuple[int, ...]
    array: Any
    is_mask: bool


class Key(NamedTuple):
    """`index` is a basic index; `front`: the selected axes go before all others."""

    index: Index  # type: ignore[assignment]  # nobody calls tuple.index
    selectors: tuple[Selector, ...]
    front: bool

    def whole(self, shape: Shape) -> bool:
        """Whether the basic index takes everything."""
        return self.index == everything(shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape after the basic index."""
        return indexed_shape(self.index)


class _ArrayKey(NamedTuple):
    """An array in a key, and how many axes it indexes."""

    array: Any
    is_mask: bool
    ndim: int


def _fault(message: str) -> IndexingError:
    return IndexingError(f"index: {message}")


def basic_index(key: Any, shape: Shape) -> Index | None:
    """The basic index of a key of ints, slices, None and Ellipsis; None for other keys."""
    if key.__class__ is slice and len(shape) == 1:
        return (span(key, shape[0]),)
    entries = key if key.__class__ is tuple else (key,)
    index: list[Entry] = []
    axis, ndim = 0, len(shape)
    for k, e in enumerate(entries):
        cls = e.__class__
        if cls is int or cls is slice:
            if axis == ndim:
                return None if _has_arrays(entries) else _refuse_surplus(entries, ndim)
            index.append(_basic(e, axis, shape[axis]))
            axis += 1
        elif e is None:
            index.append(None)
        elif e is Ellipsis and not _has_arrays(entries):
            rest = [later for later in entries[k + 1 :] if later is not None]
            if any([later is Ellipsis for later in rest]):
                raise _fault("two ellipses, expected at most one")
            stop = max(axis, ndim - len(rest))
            index += everything(shape[axis:stop])
            axis = stop
        else:
            return None
    return (*index, *everything(shape[axis:])) if axis < ndim else tuple(index)


def _basic(entry, axis: int, n: int):
    """An int or a slice of an axis of length n, in the form of a basic index."""
    if entry.__class__ is slice:
        return span(entry, n)
    if not -n <= entry < n:
        raise _fault(f"{entry} is out of range for axis {axis} of length {n}")
    return entry + n if entry < 0 else entry


def _has_arrays(entries) -> bool:
    basic = (int, slice, type(None), type(Ellipsis))
    return not all([e.__class__ in basic for e in entries])


def _refuse_surplus(entries: Sequence[Any], ndim: int) -> NoReturn:
    used = len([e for e in entries if e is not None and e is not Ellipsis])
    raise _fault(f"{used} indices for {ndim} axes")


def parse(key: Any, shape: Shape) -> Key:
    """Any key of an array of this shape."""
    index = basic_index(key, shape)
    if index is not None:
        return Key(index, (), False)
    written = [_entry(e) for e in (key if key.__class__ is tuple else (key,))]
    entries = _without_ellipsis(written, len(shape))
    if any([e.__class__ is _ArrayKey for e in entries]):
        return Key(*_split_mixed_key(entries, shape), _are_scattered(written))
    # A basic index, as no array is left.
    return Key(basic_index(tuple(entries), shape), (), False)  # type: ignore[arg-type]


def dtype_kind(x: Array) -> str:
    """The one-letter kind of a tensor's or raw array's dtype: b, i, u, f, c or V."""
    raw = x._data if type(x) in TENSORS else x
    return BACKENDS[type(raw)].dtype_of(raw).kind


def _as_array(e) -> np.ndarray:
    try:
        return np.asarray(e)
    except ValueError:
        raise _fault(f"{e!r} has lists of different lengths") from None


def _entry(e):
    """An entry of a key; integers of any kind become ints, arrays `_ArrayKey`s."""
    if e is None or e is Ellipsis or e.__class__ is slice or e.__class__ is int:
        return e
    if not hasattr(e, "dtype"):
        if hasattr(e, "__index__") and not isinstance(e, bool):
            return as_int(e)
        e = _as_array(e)
        if not e.size:  # an empty list has no dtype of its own
            e = e.astype(np.intp)
    kind = dtype_kind(e)
    if kind == "b":
        return _ArrayKey(e, True, len(e.shape))
    if kind not in "iu":
        raise _fault(f"got an array of {e.dtype}, expected integers or booleans")
    raw = as_seen_by_trace(e)._data if type(e) in TENSORS else e
    if not len(e.shape) and isinstance(raw, np.ndarray | np.generic):
        return int(raw)
    return _ArrayKey(e, False, 1)


def _are_scattered(entries) -> bool:
    """Whether another entry (even an Ellipsis of no axes) separates the arrays of a key.

    Integers beside arrays count as arrays, as they do in NumPy.
    """
    places = [k for k, e in enumerate(entries) if e.__class__ in (_ArrayKey, int)]
    return places[-1] - places[0] >= len(places)


def _without_ellipsis(entries: Sequence[Any], ndim: int) -> list[Any]:
    """The entries with an Ellipsis, or its absence at the end, as full slices."""
    at = [k for k, e in enumerate(entries) if e is Ellipsis]
    if len(at) > 1:
        raise _fault("two ellipses, expected at most one")
    consuming = [e for e in entries if e is not None and e is not Ellipsis]
    used = sum([e.ndim if e.__class__ is _ArrayKey else 1 for e in consuming])
    if used > ndim:
        raise _fault(f"{used} indices for {ndim} axes")
    rest = [slice(None)] * (ndim - used)
    if not at:
        return [*entries, *rest]
    return [*entries[: at[0]], *rest, *entries[at[0] + 1 :]]


def _split_mixed_key(entries: list[Any], shape: Shape) -> tuple[Index, tuple[Selector, ...]]:
    """The basic index of a key with arrays, which keeps the axes they index, and its selectors."""
    index: list[Entry] = []
    selectors = []
    axis = out = 0
    for e in entries:
        if e.__class__ is _ArrayKey:
            # A mask without axes selects along a new one.
            index += everything(_covered_lengths(e, axis, shape)) if e.ndim else [None]
            axes = tuple(range(out, out + max(e.ndim, 1)))
            array = e.array if e.is_mask else _check_index(e.array, axis, shape[axis])
            selectors.append(Selector(axes, array, e.is_mask))
            axis, out = axis + e.ndim, out + len(axes)
        elif e is None:
            index.append(None)
            out += 1
        else:
            index.append(_basic(e, axis, shape[axis]))
            axis, out = axis + 1, out + (e.__class__ is slice)
    return tuple(index), tuple(selectors)


def _check_index(i, axis: int, n: int):
    """An index; a traced scalar gets a guard in the program, since its value is not known here."""
    x = as_seen_by_trace(i) if type(i) in TENSORS else i
    if len(i.shape) or not getattr(getattr(x, "_data", x), "staged", False):
        return i
    return within(x, -n, n, f"index: {{index}} is out of range for axis {axis} of length {n}")


def _covered_lengths(e: _ArrayKey, axis: int, shape: Shape) -> tuple[int, ...]:
    """The lengths of the axes an array indexes: a mask's own, or 0 where it has none."""
    lengths = tuple(shape[axis : axis + e.ndim])
    if e.is_mask:
        own = tuple(e.array.shape)
        if not all([m in (n, 0) for m, n in zip(own, lengths, strict=True)]):
            raise _fault(
                f"a mask of shape {own} over axes of lengths {lengths}; they must be the same"
            )
    return lengths
