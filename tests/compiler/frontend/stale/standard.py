"""Every class of Python's library that few arguments construct, and what can be read of it."""

import array
import collections
import contextvars
import ctypes
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import itertools
import operator
import pathlib
import random
import re
import string
import threading
import types
import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

MODULES = (
    *(array, collections, contextvars, dataclasses, datetime, decimal, enum, fractions),
    *(functools, itertools, operator, pathlib, random, re, string, threading, types, uuid, weakref),
)
BUILTINS = (
    *(int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, range, slice),
    *(ctypes.c_double, ctypes.c_int),
    *(memoryview, property, staticmethod, classmethod, enumerate, map, zip, object),
    *(ValueError, OSError, KeyError, StopIteration, UnicodeDecodeError, ImportError, SystemExit),
)
NUMPY = (
    *(np.float32, np.float64, np.int64, np.bool_, np.str_, np.bytes_, np.datetime64),
    *(np.timedelta64, np.dtype, np.poly1d, np.matrix, np.recarray, np.vectorize, np.finfo),
    np.ndarray,
)


class Target:
    """Something that can be referred to weakly."""

    def __init__(self, a: float):
        self.a = a


def first(x: float = 2.0) -> float:
    return 2.0 * x


def second(x: float = 5.0) -> float:
    return 5.0 * x


TARGETS = Target(2.0), Target(5.0)
# Arguments in pairs: what is made of the first is replaced by what is made of the second.
ARGUMENTS: tuple[tuple[tuple[Any, ...], tuple[Any, ...]], ...] = (
    ((3,), (5,)),
    ((1.5,), (2.5,)),
    (("1",), ("23",)),
    (("a",), ("bc",)),
    ((b"ab",), (b"cde",)),
    (([1, 2],), ([1, 3, 4],)),
    (({"a": 1},), ({"a": 2, "b": 3},)),
    ((("a", 1),), (("b", 2),)),
    ((first,), (second,)),
    ((first, [1, 2]), (second, [3, 4])),
    ((first, 2.0), (second, 2.0)),
    ((1, 2), (1, 4)),
    ((0, 3, 2), (0, 4, 2)),
    ((2000, 1, 2), (2001, 3, 4)),
    (("d", [1.0, 2.0]), ("d", [3.0])),
    (([1], 2), ([1], 3)),
    ((int, {"a": 2}), (int, {"a": 4})),
    ((list, {"a": 2}), (dict, {"a": 2})),
    ((TARGETS[0],), (TARGETS[1],)),
    ((datetime.timedelta(0, 60), "one"), (datetime.timedelta(0, 60), "two")),
    ((datetime.timedelta(0, 60),), (datetime.timedelta(0, 3600),)),
    (("utf-8", b"ab", 0, 1, "one"), ("utf-8", b"ab", 0, 2, "two")),
    (("12345678123456781234567812345678",), ("12345678123456781234567812345679",)),
    (("count", "a"), ("count", "ab")),
    (("float32",), ("float64",)),
    ((), ()),
)


class Read(NamedTuple):
    """What a function reads of a value, as an expression of `v`."""

    name: str
    text: str


READS = (
    *(Read("repr", "repr(v)"), Read("str", "str(v)"), Read("len", "len(v)")),
    *(Read("elements", "[*zip(v, range(9))]"), Read("float", "float(v)"), Read("int", "int(v)")),
    *(Read("truth", "bool(v)"), Read("item", "v[0]"), Read("key", "v['a']")),
    *(Read("call", "v()"), Read("call of a list", "v([4.0, 7.0, 9.0])"), Read("sum", "v + v")),
    Read("type", "type(v).__name__"),
)


def number(x: Any) -> float:
    """A number that tells values apart, whatever they are."""
    if isinstance(x, bytes | bytearray | memoryview):
        x = list(x)
    if callable(x):
        return 1.0
    text = repr(x)
    if " at 0x" in text or "Parameter(" in text:  # an address, or values that a trace does not have
        return 2.0
    return float(sum([(k + 1) * ord(c) for k, c in enumerate(text)]) % 9973)


def reads_of(value: Any) -> Iterator[Read]:
    """The attributes of a value, and what else may be read."""
    yield from READS
    for name in dir(value):
        if not name.startswith("_"):
            yield Read(name, f"v.{name}")


def reader(read: Read, **more: Any) -> Callable[[Any, Any], Any]:
    """A function whose code names what it reads, as a user's does."""
    variables = {"number": number, "__file__": __file__, "__name__": __name__, **more}
    made: Callable[[Any, Any], Any] = eval(f"lambda v, x: x * number({read.text})", variables)
    return made


def classes() -> list[type]:
    found = [*BUILTINS, *NUMPY]
    for module in MODULES:
        for name in getattr(module, "__all__", dir(module)):
            kind = getattr(module, name, None)
            if isinstance(kind, type) and not name.startswith("_") and kind not in found:
                found.append(kind)
    outside = threading.Thread, weakref.finalize  # they have effects of their own
    return [k for k in found if not issubclass(k, outside)]


def made(kind: type, args: tuple[Any, ...]) -> Any:
    """A value of a class; None if it does not take these arguments."""
    try:
        return kind(*args)
    except Exception:
        return None


def heir(kind: type) -> type | None:
    """A class derived from another one, as users do; None if none can be."""
    try:
        return type("Heir", (kind,), {"tag": 1.0})
    except Exception:
        return None


def pairs(kind: type) -> Iterator[tuple[Callable[[], Any], Callable[[], Any]]]:
    """Functions that make two different values of a class."""
    for one, other in ARGUMENTS:
        if made(kind, one) is not None and made(kind, other) is not None:
            yield functools.partial(made, kind, one), functools.partial(made, kind, other)
