"""Keys that tell apart what Python finds equal: 1, 1.0 and True, 0.0 and -0.0; NaN equals itself.

What is kept for static values (plans, programs, equations that were computed) is looked up by
these, since another type or another sign of zero may give another result.
"""

from struct import Struct
from typing import Any

from numpy import generic

_bits = Struct("d").pack


def exact(x: Any) -> Any:
    """x as a key of its type and bits, in tuples, lists and slices too.

    >>> exact((1, 0.0)) == exact((True, 0.0)), exact(0.0) == exact(-0.0)
    (False, False)
    >>> exact(float("nan")) == exact(float("nan"))
    True
    """
    kind = type(x)
    if kind is int or kind is str or x is None:
        return x
    if kind is tuple:
        return tuple([exact(v) for v in x])
    if isinstance(x, float):
        return kind, _bits(x)
    if isinstance(x, complex):
        return kind, _bits(x.real), _bits(x.imag)
    if isinstance(x, generic):
        return kind, x.dtype, x.tobytes()
    if isinstance(x, tuple | list):
        return kind, *[exact(v) for v in x]
    if kind is slice:
        return kind, exact(x.start), exact(x.stop), exact(x.step)
    return kind, x


class Exact:
    """A value that equals no other one than itself, shown as it is."""

    __slots__ = ("_key", "value")

    def __init__(self, value: Any):
        self.value, self._key = value, exact(value)

    def __eq__(self, other) -> bool:
        return other.__class__ is Exact and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return repr(self.value)
