"""Reading and writing parts of tensors: `x[i]`, `y[i] = v`, `x.at[i].add(v)`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from .. import errors
from ..core import dtypes, share
from ..core.backends import BACKENDS
from ..core.box import BOXED, BOXES
from ..core.node import Leaf
from ..core.origin import assigns_item
from ..core.settings import current
from ..core.value import RESULT
from ..ops import collide, index
from . import make

if TYPE_CHECKING:
    from collections.abc import Callable

    from .tensor import Tensor
    from .types import ArrayLike, Index


def getitem(self: Tensor, key: Index) -> Tensor:
    """`x[key]` with NumPy's keys; differentiable."""
    return index.get(self, key)


class _ReferenceProbe:
    """Counts the references to itself while something is assigned into it."""

    def __setitem__(self, key, value):
        self.count = sys.getrefcount(self)


def _references_to_a_temporary() -> int | None:
    """What `__setitem__` counts for `y[0]` in `y[0][1] = v`, or None if that tells nothing."""
    named = _ReferenceProbe()
    named[0] = 0
    seen = []

    class Temporary(_ReferenceProbe):
        def __setitem__(self, key, value):
            seen.append(sys.getrefcount(self))

    Temporary()[0] = 0
    return seen[0] if seen[0] < named.count else None


_TEMPORARY = _references_to_a_temporary()


def _references_to_own_memory() -> int:
    """What `_writes_in_place` counts where the tensor alone holds its raw array."""
    holder: Any = _ReferenceProbe()
    holder.raw = object()
    raw = holder.raw
    return sys.getrefcount(raw)


_ALONE = _references_to_own_memory()


def _is_lost(references: int) -> bool:
    """Whether the statement that called `setitem` assigns into a temporary.

    `y.__setitem__(i, v)` holds fewer references than `y[i] = v`, so only the latter counts.
    """
    if _TEMPORARY is None or references > _TEMPORARY:
        return False
    return assigns_item(sys._getframe(2))


def setitem(self: Tensor, key: Index, value: ArrayLike) -> None:
    """`y[key] = value`: y becomes a new value; nobody else's tensor changes."""
    if _is_lost(sys.getrefcount(self)):
        raise errors.TemporaryAssignment(
            "assignment into a temporary, which would be lost: write y[i, j] = v instead of "
            "y[i][j] = v"
        )
    check_assignable(self, "y[i] = v", "y = x.at[i].set(v)")
    new: Any = _value_for(self, value)
    if not _is_boxed(key) and _writes_in_place(self, new):
        index.assign(self._data, key, new._data)
        if current.get().grad and self._node is None:
            self._node = new._node  # the mark of a severed gradient, or None
        return
    become(self, index.set_(self, key, new))


def become(x: Tensor, new: Any) -> None:
    """Make x another value; it stays the leaf that it is where nothing is recorded."""
    settings = current.get()
    share.leave(x)
    if settings.staging is not None and x.__class__ not in BOXED:
        settings.staging.assign(x, new, rebinds=True)
        return
    if new.__class__ is not x.__class__ and new._data.__class__ in BOXES:
        _refuse_kept(x, new._data)
        x.__class__ = new.__class__  # the value is at a higher level, and so is the result
    x._data = new._data
    if settings.grad:
        x._node = new._node


def _refuse_kept(x, box: Any) -> None:
    """Refuse to store a transformation's value in a parameter or leaf, which outlives it."""
    result = x.__class__ is RESULT[0] or (x.__class__ in BOXED and not box.staged)
    if not result or (x._node.__class__ is Leaf and x._node.requested):
        raise errors.InPlaceOnTracked(
            f"a value computed inside {box.maker} is assigned to a parameter or leaf from outside, "
            "which would outlive it; return it from the function, and assign it there"
        )


def check_assignable(x: Tensor, what: str, instead: str) -> None:
    """Refuse assignments that would be lost, or after which a gradient would be missing."""
    share.refuse_view(x, what)
    if not x.requires_grad:
        return
    recording = current.get().grad
    if recording and x._node.__class__ is Leaf and (x._node.requested or x._node.watchers):
        raise errors.InPlaceOnTracked(
            f"{what} on a leaf that requires a gradient would cut it off from its gradient: use "
            f"{instead}, or assign into x.clone(); to change the leaf itself use wf.no_grad()"
        )
    if not x.is_leaf and not recording:
        raise errors.InPlaceOnTracked(
            f"{what} under no_grad(): the tensor was made by {x._node.name} (at {x._node.line}), "
            "whose gradient would not know of the assignment: assign into y.detach().clone()"
        )


def _value_for(x, value):
    """The value to write into x, as a tensor of its dtype and device."""
    whole = not dtypes.is_inexact(x.dtype)
    if whole and current.get().grad and make.asarray(value).requires_grad:
        raise errors.NotDifferentiable(
            f"assignment: a value that is being differentiated into a tensor of {x.dtype} would "
            "drop its gradient; use value.detach() if that is meant"
        )
    return make.asarray(value, dtype=x.dtype, device=x.device)


def _is_boxed(key) -> bool:
    """Whether a key contains boxed indices."""
    entries = key if key.__class__ is tuple else (key,)
    return any([e.__class__ in BOXED for e in entries])


def _writes_in_place(x, value) -> bool:
    """Whether x alone holds its memory, and nothing has to be recorded."""
    if current.get().staging is not None:
        return False
    raw = x._data
    tracked = x.requires_grad or value.requires_grad
    if (tracked and current.get().grad) or value._data.__class__ in BOXES:
        return False
    xp = BACKENDS[type(raw)]
    return sys.getrefcount(raw) <= _ALONE and xp.owns(raw) and not xp.is_frozen(raw)


class At:
    """`x.at`: results with some elements changed, leaving x alone."""

    __slots__ = ("_x",)

    def __init__(self, x: Tensor):
        self._x = x

    def __getitem__(self, key: Index) -> "IndexedTensor":
        return IndexedTensor(self._x, key)


class IndexedTensor:
    """`x.at[key]`: `.set(v)`, `.add(v)` and the like give the changed tensor.

    >>> import weft as wf
    >>> wf.zeros(3).at[1].add(2.0).tolist()
    [0.0, 2.0, 0.0]
    """

    __slots__ = ("_key", "_x")

    def __init__(self, x: Tensor, key: Index):
        self._x, self._key = x, key

    def _value(self, v):
        return _value_for(self._x, v)

    def get(self) -> Tensor:
        """The elements at the key."""
        return index.get(self._x, self._key)

    def set(self, v: ArrayLike) -> Tensor:
        """Replaced by v; the last of duplicate indices wins."""
        return index.set_(self._x, self._key, self._value(v))

    def add(self, v: ArrayLike) -> Tensor:
        """With v added; duplicate indices add up."""
        return index.add_at(self._x, self._key, self._value(v))

    def subtract(self, v: ArrayLike) -> Tensor:
        """With v subtracted; duplicate indices add up."""
        return index.add_at(self._x, self._key, -self._value(v))

    def multiply(self, v: ArrayLike) -> Tensor:
        """Multiplied by v; at duplicate indices by all of them."""
        return collide.combine_at(self._x, self._key, self._value(v), collide.MULTIPLY)

    def divide(self, v: ArrayLike) -> Tensor:
        """Divided by v; at duplicate indices by all of them."""
        return collide.combine_at(self._x, self._key, self._value(v), collide.DIVIDE)

    def power(self, v: ArrayLike) -> Tensor:
        """To the power of v; at duplicate indices of their product."""
        return collide.combine_at(self._x, self._key, self._value(v), collide.POWER)

    def maximum(self, v: ArrayLike) -> Tensor:
        """The larger of element and v; at duplicate indices the largest."""
        return collide.combine_at(self._x, self._key, self._value(v), collide.MAXIMUM)

    def minimum(self, v: ArrayLike) -> Tensor:
        """The smaller of element and v; at duplicate indices the smallest."""
        return collide.combine_at(self._x, self._key, self._value(v), collide.MINIMUM)

    def apply(self, f: Callable[[Tensor], Tensor]) -> Tensor:
        """With f applied to the elements: once to each, however often it is named."""
        return self.set(f(self.get()))

    def sub(self, v: ArrayLike) -> Tensor:
        """`subtract`."""
        return self.subtract(v)

    def mul(self, v: ArrayLike) -> Tensor:
        """`multiply`."""
        return self.multiply(v)

    def div(self, v: ArrayLike) -> Tensor:
        """`divide`."""
        return self.divide(v)

    def pow(self, v: ArrayLike) -> Tensor:
        """`power`."""
        return self.power(v)

    def max(self, v: ArrayLike) -> Tensor:
        """`maximum`."""
        return self.maximum(v)

    def min(self, v: ArrayLike) -> Tensor:
        """`minimum`."""
        return self.minimum(v)


def add_at_index(self: Tensor, position: int, value: ArrayLike) -> Tensor:
    """A copy with `value` added to the element at a flat position.

    position  an index, or a tuple of them
    value     what is added

    >>> import weft as wf
    >>> wf.tensor([1.0, 2.0]).add_at_index(1, 5.0).tolist()
    [1.0, 7.0]
    """
    return _flat_add(self, position, value)


def sub_at_index(self: Tensor, position: int, value: Tensor | complex) -> Tensor:
    """A copy with `value` subtracted from the element at a flat position.

    position  an index, or a tuple of them
    value     what is subtracted

    >>> import weft as wf
    >>> wf.tensor([1.0, 2.0]).sub_at_index(1, 5.0).tolist()
    [1.0, -3.0]
    """
    return _flat_add(self, position, -value)


def _flat_add(x, position: int, value):
    if not -x.size <= position < x.size:
        raise errors.IndexingError(
            f"add_at_index: position {position} is out of range for {x.size} elements"
        )
    place, key = position % x.size, []
    for n in reversed(x.shape):
        place, k = divmod(place, n)
        key.append(k)
    return x.at[tuple(reversed(key))].add(value)
