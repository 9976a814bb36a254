"""The state that an object has from a base written in C, which its attributes do not show."""

import datetime
import decimal
import random
import weakref
from collections import deque, namedtuple
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache, cached_property, partial
from operator import attrgetter, itemgetter, methodcaller
from threading import local
from types import (
    BuiltinFunctionType,
    CellType,
    GenericAlias,
    MappingProxyType,
    MemberDescriptorType,
    MethodWrapperType,
    SimpleNamespace,
    UnionType,
)
from typing import Any

import numpy as np

from ..records import word_at
from .leaves import content_of
from .names import MADE

_IMMUTABLE, _NO_INSTANCES, _MANAGED_DICT = 1 << 8, 1 << 7, 1 << 4  # Py_TPFLAGS_…


@cache
def base_of_c(kind: type) -> type:
    """The first class in the order of resolution that is written in C."""
    return next(base for base in kind.__mro__ if _is_of_c(base))


def _is_of_c(kind: type) -> bool:
    if not kind.__flags__ & MADE or kind.__flags__ & (_IMMUTABLE | _NO_INSTANCES):
        return True
    new = kind.__dict__.get("__new__")
    return isinstance(new, BuiltinFunctionType) and new.__self__ is kind


def _fields(base: type, *names: str) -> Callable[[Any], tuple[Any, ...]]:
    """A function that reads fields of a base, whatever a class of the user defines."""
    members: Any = [getattr(base, name) for name in names]
    return lambda x: tuple([member.__get__(x) for member in members])


def _reduced(base: Any) -> Callable[[Any], tuple[Any, ...]]:
    """A function that gives what an equal object of a base is made of."""
    return lambda x: base.__reduce__(x)


_DATE, _TIME = ("year", "month", "day"), ("hour", "minute", "second", "microsecond", "fold")
_FIELD: Any = type(vars(namedtuple("Sample", "field"))["field"])


# Immutable bases that users derive classes from: the parts that tell two values apart.
VALUES: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    int: lambda x: (int.__int__(x),),
    float: lambda x: (float.__float__(x),),
    complex: _fields(complex, "real", "imag"),
    str: lambda x: (str.__getitem__(x, slice(None)),),
    bytes: lambda x: (bytes.__getitem__(x, slice(None)),),
    slice: _fields(slice, "start", "stop", "step"),
    decimal.Decimal: lambda x: (decimal.Decimal(x),),
    datetime.timedelta: _fields(datetime.timedelta, "days", "seconds", "microseconds"),
    datetime.datetime: _fields(datetime.datetime, *_DATE, *_TIME, "tzinfo"),
    datetime.date: _fields(datetime.date, *_DATE),
    datetime.time: _fields(datetime.time, *_TIME, "tzinfo"),
    np.generic: lambda x: (content_of(np.frombuffer(np.generic.tobytes(x), x.dtype)),),
    itemgetter: _reduced(itemgetter),
    attrgetter: _reduced(attrgetter),
    methodcaller: _reduced(methodcaller),
    _FIELD: _FIELD.__reduce__,
}
# Bases whose state is in attributes: their names.
PARTS: dict[Any, tuple[str, ...]] = {
    partial: ("func", "args", "keywords"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    cached_property: ("func",),
    property: ("fget", "fset", "fdel"),
    BuiltinFunctionType: ("__name__", "__self__"),
    MethodWrapperType: ("__name__", "__self__"),
    GenericAlias: ("__origin__", "__args__"),
    UnionType: ("__args__",),
    BaseException: ("args", "__cause__", "__context__"),
    ContextVar: ("name",),
}
# Bases without state of their own, or whose state another function visits: containers, arrays,
# references. A stream of `random` is refused where it is read.
KNOWN: tuple[type, ...] = (
    *(object, SimpleNamespace, datetime.tzinfo, random.Random.__bases__[0]),
    *(list, tuple, dict, set, frozenset, deque, np.ndarray),
    *(weakref.ref, ContextVar, MappingProxyType, CellType, local),
)


def values_of(x: Any, base: type) -> tuple[Any, ...] | None:
    """The parts of an immutable value; None for other bases."""
    found = next((known for known in VALUES if issubclass(base, known)), None)
    return None if found is None else VALUES[found](x)


def parts_of(kind: type) -> tuple[str, ...]:
    """The attributes that are the state of an object, whether or not the code names them."""
    found = next((names for known, names in PARTS.items() if issubclass(kind, known)), ())
    if issubclass(kind, BaseException):  # `errno` and the like, which `args` may lack
        found += tuple([name for c in kind.__mro__ for name in _members_of_c(c)])
    return found


def _members_of_c(kind: type) -> list[str]:
    if kind.__flags__ & MADE:
        return []
    members = [n for n, m in vars(kind).items() if isinstance(m, MemberDescriptorType)]
    return [n for n in members if not n.startswith("__")]


def place_of_dict(x: Any, held: dict[str, Any]) -> int | None:
    """The offset (bytes) of an object's pointer to the dict of its attributes; None: unknown."""
    kind = type(x)
    at: int | None = kind.__dictoffset__
    if kind.__flags__ & _MANAGED_DICT:
        at = _place_of_managed_dict()
    known = at is not None and (at > 0 or at in _BEFORE) and word_at(x, at) == id(held)
    return at if known else None


_BEFORE = range(-32, 0, 8)


@cache
def _place_of_managed_dict() -> int | None:
    """Where Python keeps that pointer before objects of ordinary classes."""
    sample: Any = type("Sample", (), {})()
    sample.__dict__["name"] = held = sample.__dict__
    places = [at for at in _BEFORE if word_at(sample, at) == id(held)]
    held.clear()
    return places[0] if len(places) == 1 else None
