"""The parts of each kind of object, and the links to them; no user code runs."""

import gc
import sys
from abc import ABCMeta, abstractmethod, get_cache_token
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable
from contextvars import ContextVar
from functools import cached_property, partial
from threading import local
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    MappingProxyType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from ...native.layout import TYPE
from ..records import ANY, MISSING, fields_of_functions, offset_of
from .frames import INSTALLED, LIBRARY, USER, RanCode, owner_of_code
from .leaves import alike, is_array, is_plain
from .links import Links, ListElements, Name, ReadValue, Table, Word
from .names import MADE, Names, owner_of_class, owner_of_module, slots_of
from .opaque import is_cached, times_cleared

_TABLE = 128  # the largest dict of attributes that is compared as a whole


class VariableName(str):
    """The name of a variable."""

    __slots__ = ()


class ItemKey(NamedTuple):
    """A key or a position in a container."""

    key: Any


class Object(NamedTuple):
    """An object with parts, by the order in which the walk found it.

    address  of one that is compared by identity
    """

    number: int
    kind: str
    address: int = 0


class ReadEntry(NamedTuple):
    """A place: its owner's number, its key there (a str for an attribute), and its value."""

    owner: int
    key: Any
    value: Any

    def equals(self, other: "ReadEntry") -> bool:
        """Whether two places hold the same value, as far as a program can tell."""
        if self.owner != other.owner or type(self.key) is not type(other.key):
            return False
        same_key = (
            alike(self.key.key, other.key.key)
            if type(self.key) is ItemKey
            else (self.key == other.key)
        )
        if type(self.value) is Object or type(other.value) is Object:
            return same_key and self.value == other.value
        return same_key and alike(self.value, other.value)


class Parts:
    """Visits the parts of objects; a subclass defines `_meet`, which handles each part."""

    links: Links
    _ran: RanCode
    _names: Names

    @abstractmethod
    def _meet(self, whose: int, key, x) -> None:
        """Handle the value x of a place."""

    @abstractmethod
    def _opaque(self, number: int, x) -> None:
        """Handle an object whose parts cannot be read."""

    def _expand(self, number: int, x) -> None:
        if isinstance(x, FunctionType):
            self._function(number, x)
        elif isinstance(x, type):
            self._class(number, x)
        elif isinstance(x, ModuleType):
            self._attributes(number, x.__dict__, self._names.user)
        elif isinstance(x, MethodType):
            self._meet(number, "__func__", x.__func__)
            self._meet(number, VariableName(type(x.__self__).__name__), x.__self__)
        elif type(x) in _PARTS:
            for name in _PARTS[type(x)]:
                self._part(number, x, name)
            if type(x) is partial:
                self._attributes(number, x.__dict__, self._names.user)
        elif hasattr(type(x), "__next__") and owner_of_class(type(x)) in (LIBRARY, INSTALLED):
            self._opaque(number, x)  # an iterator or generator: its position cannot be compared
        else:
            known = self._container(number, x)
            known = self._reference(number, x) or self._keeper(number, x) or known
            if not (type(x) in _CONTAINERS or self._instance(number, x) or known):
                self._opaque(number, x)

    def _function(self, number: int, f: FunctionType) -> None:
        users = owner_of_code(f.__code__, f.__globals__) in (USER, INSTALLED)
        self._field(number, f, "__code__")
        if users:
            self._attributes(number, f.__dict__, self._names.user)
            self._labels(number, f)
        if users and f.__code__ not in self._ran:
            return
        if users:
            self._ran.note_function(f)
            for name in FIELDS:
                self._field(number, f, name)
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            held = _content(cell)
            variable = VariableName(name)
            self.links.words.append(Word(cell, object.__basicsize__, held, number, variable))
            if users or not isinstance(held, dict):  # dicts of Weft's functions are caches
                self._meet(number, variable, held)
        if "__wrapped__" in f.__dict__:
            self._meet(number, "__wrapped__", f.__dict__["__wrapped__"])

    def _labels(self, number: int, x) -> None:
        """The name of a function or a class, if user code reads it."""
        for name in self._names.labels:
            read = partial(getattr, x, name)
            self._meet(number, name, read())
            self.links.others.append(ReadValue(read, read(), number, name))

    def _field(self, number: int, f: FunctionType, name: str) -> None:
        held = getattr(f, name)
        self._meet(number, name, held)
        kept = MISSING if held is None else held
        self.links.words.append(Word(f, fields_of_functions()[name], kept, number, name))

    def _class(self, number: int, kind: type) -> None:
        self._meet(number, "__mro__", kind.__mro__[1:])
        self._pointer(number, kind, "__mro__", kind.__mro__)
        if type(kind) is not type:
            self._meet(number, "__class__", type(kind))
        if isinstance(kind, ABCMeta):
            self.links.others.append(
                ReadValue(get_cache_token, get_cache_token(), number, "register")
            )
            self._meet(number, "register", get_cache_token())
        self._labels(number, kind)
        held = gc.get_referents(kind.__dict__)[0]  # the dict behind the proxy
        self._attributes(number, held, self._names.of_class(kind, held))

    def _attributes(self, number: int, held: dict, names: frozenset[str] | None) -> None:
        """The named attributes in a dict; all of them for None."""
        counting = {n for n in held if isinstance(n, str) and (names is None or n in names)}
        for name in sorted(counting):
            self._meet(number, name, held[name])
        if names is None or len(held) <= _TABLE:
            values = [v if k in counting else ANY for k, v in held.items()]
            self.links.tables.append(Table(held, list(held), values, number, names))
        else:
            for name in names:
                self.links.names.append(Name(held, name, held.get(name, MISSING), number))

    def _variables(self, names, variables: dict[str, Any]) -> None:
        """The globals that a code object reads, and the modules that it imports."""
        for name in sorted(names.globals):
            value = variables.get(name, MISSING)
            self.links.names.append(Name(variables, name, value, 0))
            self._meet(0, VariableName(name), value)
            if isinstance(value, ModuleType) and not self._ran.changes:
                self._library(name, value, names.attributes)
        for name in sorted(names.modules):
            for path in (name, f"{variables.get('__package__') or ''}.{name}"):
                if path in sys.modules:
                    self.links.names.append(Name(sys.modules, path, sys.modules[path], 0))
                    self._meet(0, VariableName(path), sys.modules[path])

    def _library(self, label: str, module: ModuleType, names: frozenset[str]) -> None:
        """The named members of a library module: numbers, functions, classes, lists."""
        if owner_of_module(module) not in (LIBRARY, INSTALLED):
            return
        for name in sorted(names & module.__dict__.keys()):
            value = module.__dict__[name]
            if is_plain(value) or type(value) is list or callable(value):
                self.links.names.append(Name(module.__dict__, name, value, 0))
                self._meet(0, VariableName(f"{label}.{name}"), value)

    def _container(self, number: int, x) -> bool:
        if isinstance(x, dict):
            self._table(number, x)
        elif isinstance(x, list | tuple):
            items = list(_elements(x))
            self._items(number, items)
            if isinstance(x, list):
                self.links.lists.append(ListElements(x, items, number))
        elif is_array(x):
            self._meet(number, "()", x.view(np.ndarray))
        elif isinstance(x, set | frozenset | deque | np.ndarray):
            read = partial(_elements, x)
            held = read()
            self._items(number, held)
            self.links.contents.append(ReadValue(read, held, number))
        else:
            return False
        return True

    def _items(self, number: int, items: Iterable) -> None:
        for k, value in enumerate(items):
            self._meet(number, ItemKey(k), value)

    def _table(self, number: int, x: dict) -> None:
        items = list(OrderedDict.items(x) if isinstance(x, OrderedDict) else dict.items(x))
        for k, (key, value) in enumerate(items):
            if not is_plain(key):
                self._meet(number, ItemKey(f"key {k}"), key)
            self._meet(number, ItemKey(key if is_plain(key) else f"value {k}"), value)
        self.links.tables.append(Table(x, list(dict.keys(x)), list(dict.values(x)), number))
        if isinstance(x, OrderedDict):  # it keeps an order of its own, apart from the dict's
            keys = tuple([k for k, _ in items])
            self.links.contents.append(ReadValue(lambda: tuple(OrderedDict.keys(x)), keys, number))
        if isinstance(x, defaultdict):
            self._meet(number, "default_factory", x.default_factory)

    def _reference(self, number: int, x) -> bool:
        """The parts of objects that refer to another one; whether x is one."""
        if isinstance(x, ref):
            target = x()
            self._meet(number, "()", MISSING if target is None else target)
            self.links.others.append(ReadValue(lambda: id(x()), id(target), number))
        elif isinstance(x, ContextVar):
            held = x.get(MISSING)
            self._meet(number, "get()", held)
            self.links.contents.append(
                ReadValue(lambda: (x.get(MISSING),), (held,), number, "get()")
            )
        elif isinstance(x, MappingProxyType):
            self._meet(number, "copy()", gc.get_referents(x)[0])
        else:
            return False
        return True

    def _keeper(self, number: int, x) -> bool:
        """The parts of exceptions, thread-locals and cached functions; whether x is one."""
        if isinstance(x, BaseException):
            self._part(number, x, "args")
        elif isinstance(x, local):
            held = x.__dict__
            counting = sorted(self._names.relevant_names(held))
            for name in counting:
                self._meet(number, name, held[name])
            read = partial(_of_thread, x, tuple(counting), self._names.user is None)
            self.links.contents.append(ReadValue(read, read(), number))
        elif is_cached(x):
            self._meet(number, "__wrapped__", x.__wrapped__)
            self._meet(number, "cache_clear", times_cleared(x))
            self.links.others.append(
                ReadValue(partial(times_cleared, x), times_cleared(x), number, "cache_clear")
            )
        else:
            return False
        return True

    def _part(self, number: int, x, name: str) -> None:
        """An attribute that always exists."""
        held = getattr(x, name)
        self._meet(number, name, held)
        self._pointer(number, x, name, held)

    def _pointer(self, number: int, x, name: str, held) -> None:
        """Add a link to a field of x, if its offset is known."""
        at = offset_of(x, held)
        if at is not None:
            self.links.words.append(Word(x, at, held, number, name))

    def _instance(self, number: int, x) -> bool:
        """The class and the attributes of an object; whether it has any."""
        kind = type(x)
        self._meet(number, "__class__", kind)
        if kind.__flags__ & MADE:
            self.links.words.append(Word(x, TYPE, kind, number, "__class__"))
        names = self._names.of_instance(kind)
        slots = slots_of(kind)
        for name, member in slots:
            if names is None or name in names:
                self._slot(number, x, name, member)
        held = dict_of(x)
        if held is not None:
            self._attributes(number, held, names)
        return held is not None or bool(slots) or owner_of_class(kind) == USER

    def _slot(self, number: int, x, name: str, member) -> None:
        held = _slot_content(x, member)[0]
        self._meet(number, name, held)
        at = None if held is MISSING else offset_of(x, held)
        if at is not None:
            self.links.words.append(Word(x, at, held, number, name))
        else:
            read = partial(_slot_content, x, member)
            self.links.contents.append(ReadValue(read, (held,), number, name))


FIELDS = ("__defaults__", "__kwdefaults__")
_CONTAINERS = frozenset((dict, list, tuple, set, frozenset, deque, np.ndarray))
_PARTS: dict[type, tuple[str, ...]] = {
    partial: ("func", "args", "keywords"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget",),
    cached_property: ("func",),
    BuiltinFunctionType: ("__name__", "__self__"),
    MethodWrapperType: ("__name__", "__self__"),
}


def _of_thread(x: local, names: tuple[str, ...], every: bool) -> tuple:
    """The values of a thread's own variables."""
    held = x.__dict__
    return tuple(held.values()) if every else tuple([held.get(n, MISSING) for n in names])


def _elements(x) -> tuple:
    """The elements of a container, without calling methods of its class."""
    if isinstance(x, np.ndarray):
        return tuple(x.flat)
    base: Any = next(b for b in (list, tuple, set, frozenset, deque) if isinstance(x, b))
    return tuple(base.__iter__(x))


def _slot_content(x, member) -> tuple:
    try:
        return (member.__get__(x),)
    except AttributeError:  # it is not assigned
        return (MISSING,)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is not assigned yet
        return MISSING


def dict_of(x: object) -> dict[str, Any] | None:
    """The dict of an object's attributes, without calling methods of its class."""
    try:
        held = object.__getattribute__(x, "__dict__")
    except AttributeError:
        return None
    return held if isinstance(held, dict) else None
