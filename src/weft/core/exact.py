"""Keys that distinguish what `==` does not: 1, 1.0 and True, 0.0 and -0.0; NaN equals itself.

Caches for static values (plans, programs, equations) are looked up by these keys: another type or
another sign of zero may give another result.
"""

from dataclasses import fields, is_dataclass
from struct import Struct
from typing import Any

from numpy import generic

_bits = Struct("d").pack


def exact(x: Any) -> Any:
    """x as a key of its type and bits, in tuples, lists, slices, frozensets and dataclasses too.

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
    return _exact_object(kind, x)


def _exact_object(kind: type, x: Any) -> Any:
    if kind is frozenset:
        return kind, frozenset([exact(v) for v in x])
    if kind.__hash__ is object.__hash__ and kind.__eq__ is not object.__eq__:
        return IdentityKey(x)  # a tensor: its == compares elements
    if kind.__hash__ is not object.__hash__ and is_dataclass(kind):
        counting = [f.compare if f.hash is None else f.hash for f in fields(kind)]
        named = [f.name for f, counts in zip(fields(kind), counting, strict=True) if counts]
        return kind, *[exact(getattr(x, name)) for name in named]
    return kind, x


class IdentityKey:
    """An object as a key by its identity."""

    __slots__ = ("_held",)

    def __init__(self, held: Any):
        self._held = held

    def __eq__(self, other: Any) -> bool:
        return other.__class__ is IdentityKey and other._held is self._held

    def __hash__(self) -> int:
        return id(self._held)


class Exact:
    """A value that compares by its `exact` key, and has its own `repr`."""

    __slots__ = ("_key", "value")
    value: Any

    def __init__(self, value: Any):
        self.value, self._key = value, exact(value)

    def __eq__(self, other: Any) -> bool:
        return other.__class__ is Exact and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return repr(self.value)
