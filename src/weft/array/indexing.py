"""Reading and writing parts of tensors: `x[i]`, `y[i] = v`, `x.at[i].add(v)`."""

import sys

from .. import errors
from ..core.backends import BACKENDS
from ..core.settings import current
from ..ops import index
from ..ops.elementwise import divide, maximum, minimum, multiply
from . import make


def getitem(self, key):
    """`x[key]` with NumPy's keys; differentiable."""
    return index.get(self, key)


class _Probe:
    """Counts the references to itself while something is assigned into it."""

    def __setitem__(self, key, value):
        self.count = sys.getrefcount(self)


def _references_to_a_temporary() -> int | None:
    """What `__setitem__` counts for `y[0]` in `y[0][1] = v`, or None if that tells nothing."""
    named = _Probe()
    named[0] = 0
    seen = []

    class Temporary(_Probe):
        def __setitem__(self, key, value):
            seen.append(sys.getrefcount(self))

    Temporary()[0] = 0
    return seen[0] if seen[0] < named.count else None


_TEMPORARY = _references_to_a_temporary()


def setitem(self, key, value):
    """`y[key] = value`: y becomes a new value; nobody else's tensor changes."""
    if _TEMPORARY is not None and sys.getrefcount(self) <= _TEMPORARY:
        raise errors.TemporaryAssignment(
            "assignment into a temporary, which would be lost: write y[i, j] = v instead of "
            f"y[i][j] = v"
        )
    if self._node is not None and self.is_leaf and self.requires_grad and current.get().grad:
        raise errors.InPlaceOnTracked(
            "y[i] = v on a leaf that requires a gradient would cut it off from its gradient: "
            f"use y = x.at[i].set(v), or assign into x.clone()"
        )
    value = make.asarray(value, dtype=self.dtype, device=self.device)
    if _writes_in_place(self, value):
        index.assign(self._data, key, value._data)
        return
    new = index.set_(self, key, value)
    self._data, self._node = new._data, new._node


def _writes_in_place(x, value) -> bool:
    """Whether nobody else can see the memory of x, and nothing has to be recorded."""
    raw = x._data
    tracked = x.requires_grad or value.requires_grad
    if tracked and current.get().grad:
        return False
    xp = BACKENDS[type(raw)]
    # 3: the tensor's slot, the local name and the argument of getrefcount.
    return sys.getrefcount(raw) <= 3 and xp.owns(raw) and not xp.frozen(raw)


class At:
    """`x.at`: results with some elements changed, leaving x alone."""

    __slots__ = ("_x",)

    def __init__(self, x):
        self._x = x

    def __getitem__(self, key) -> "Place":
        return Place(self._x, key)


class Place:
    """`x.at[key]`: `.set(v)`, `.add(v)` and the like give the changed tensor.

    >>> import weft as wf
    >>> wf.zeros(3).at[1].add(2.0).tolist()
    [0.0, 2.0, 0.0]
    """

    __slots__ = ("_key", "_x")

    def __init__(self, x, key):
        self._x, self._key = x, key

    def _value(self, v):
        return make.asarray(v, dtype=self._x.dtype, device=self._x.device)

    def get(self):
        """The elements at the key."""
        return index.get(self._x, self._key)

    def set(self, v):
        """Replaced by v; the last of duplicate indices wins."""
        return index.set_(self._x, self._key, self._value(v))

    def add(self, v):
        """With v added; duplicate indices add up."""
        return index.add_at(self._x, self._key, self._value(v))

    def subtract(self, v):
        """With v subtracted; duplicate indices add up."""
        return index.add_at(self._x, self._key, -self._value(v))

    def multiply(self, v):
        """Multiplied by v; of duplicate indices the last wins."""
        return self.set(multiply(self.get(), self._value(v)))

    def divide(self, v):
        """Divided by v; of duplicate indices the last wins."""
        return self.set(divide(self.get(), self._value(v)))

    def maximum(self, v):
        """The larger of element and v; of duplicate indices the last wins."""
        return self.set(maximum(self.get(), self._value(v)))

    def minimum(self, v):
        """The smaller of element and v; of duplicate indices the last wins."""
        return self.set(minimum(self.get(), self._value(v)))


def add_at_index(self, position: int, value):
    """A copy with `value` added to the element at a flat position."""
    return _flat_add(self, position, value)


def sub_at_index(self, position: int, value):
    """A copy with `value` subtracted from the element at a flat position."""
    return _flat_add(self, position, -value)


def _flat_add(x, position: int, value):
    if not -x.size <= position < x.size:
        raise errors.IndexingError(
            f"position {position} is out of range for {x.size} elements"
        )
    place, key = position % x.size, []
    for n in reversed(x.shape):
        place, k = divmod(place, n)
        key.append(k)
    return x.at[tuple(reversed(key))].add(value)
