"""The parts of each kind of object, and the links to them; no user code runs."""

import gc
import sys
from abc import ABCMeta, abstractmethod, get_cache_token
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, ItemsView, Iterable, KeysView, ValuesView
from contextvars import ContextVar
from enum import Enum
from functools import partial
from threading import local
from types import (
    CellType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from ...native.layout import TYPE
from ..records import ANY, MISSING, fields_of_functions, offset_of
from .c_types import KNOWN, base_of_c, parts_of, place_of_dict, values_of
from .frames import INSTALLED, LIBRARY, USER, RanCode, owner_of_code
from .leaves import alike, is_array, is_plain, layout_of
from .links import Links, ListElements, Name, ReadValue, Table, Word
from .names import MADE, Names, guarded_names, owner_of_class, owner_of_module, slots_of
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
            names = self._names.user
            if type(x) is ModuleType:
                self._attributes(number, x.__dict__, names)
            else:
                more = None if names is None else names | {"__name__"}
                self._attributes(number, x.__dict__, more)
                self._instance(number, x)
        elif isinstance(x, MethodType):
            self._meet(number, "__func__", x.__func__)
            self._meet(number, VariableName(type(x.__self__).__name__), x.__self__)
        elif hasattr(type(x), "__next__") and owner_of_class(type(x)) in (LIBRARY, INSTALLED):
            self._opaque(number, x)  # an iterator or generator: its position cannot be compared
        else:
            base = base_of_c(type(x))  # type: ignore[arg-type]
            known = self._container(number, x)
            known = self._reference(number, x) or self._keeper(number, x) or known
            if not (self._fields_of_c(number, x, base) or known or base in KNOWN):
                self._opaque(number, x)
            if type(x) is not base or dict_of(x) is not None:
                self._instance(number, x)

    def _fields_of_c(self, number: int, x, base: type) -> bool:
        """What a base in C holds in an object beside containers; whether there is any of it."""
        values, names = values_of(x, base), parts_of(type(x))
        for k, value in enumerate(values or ()):
            self._meet(number, ItemKey(k), value)
        for name in names:
            self._part(number, x, name)
        return values is not None or bool(names)

    def _function(self, number: int, f: FunctionType) -> None:
        users = owner_of_code(f.__code__, f.__globals__) in (USER, INSTALLED)
        self._field(number, f, "__code__")
        if users:
            self._attributes(number, f.__dict__, self._names.user)
            self._place_of_attributes(number, f, f.__dict__)
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
            self._read(number, name, partial(getattr, x, name))

    def _read(self, number: int, key, read: Callable[[], Any]) -> None:
        """A value that a function reads, compared by content."""
        held = read()
        self._meet(number, key, held)
        self.links.others.append(ReadValue(read, held, number, key))

    def _read_pointers(self, number: int, key, read: Callable[[], tuple[Any]]) -> None:
        """A value that a function reads, compared by identity."""
        held = read()
        self._meet(number, key, held[0])
        self.links.contents.append(ReadValue(read, held, number, key))

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
            self._read(number, "register", get_cache_token)
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
            self._content(number, x)
        elif isinstance(x, set | frozenset | deque | np.ndarray):
            read = partial(_elements, x)
            held = read()
            self._items(number, held)
            self.links.contents.append(ReadValue(read, held, number))
            if isinstance(x, deque):
                self._meet(number, "maxlen", deque.maxlen.__get__(x))  # type: ignore[attr-defined]
            elif isinstance(x, np.ndarray):
                self._read(number, "flags", partial(layout_of, x))
        else:
            return False
        return True

    @abstractmethod
    def _content(self, number: int, x) -> None:
        """Handle an array with attributes."""

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
        elif isinstance(x, KeysView | ValuesView | ItemsView) and base_of_c(type(x)) is type(x):
            self._meet(number, "mapping", gc.get_referents(x.mapping)[0])  # type: ignore[union-attr]
        elif isinstance(x, CellType):
            held = _content(x)
            self._meet(number, "cell_contents", held)
            self.links.words.append(Word(x, object.__basicsize__, held, number, "cell_contents"))
        else:
            return False
        return True

    def _keeper(self, number: int, x) -> bool:
        """The parts of thread-locals and cached functions; whether x is one."""
        if isinstance(x, local):
            held = x.__dict__
            counting = sorted(self._names.relevant_names(held))
            for name in counting:
                self._meet(number, name, held[name])
            read = partial(_of_thread, x, tuple(counting), self._names.user is None)
            self.links.contents.append(ReadValue(read, read(), number))
        elif is_cached(x):
            self._meet(number, "__wrapped__", x.__wrapped__)
            self._read(number, "cache_clear", partial(times_cleared, x))
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

    def _instance(self, number: int, x) -> None:
        """The class and the attributes of an object."""
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
        if held is not None and not isinstance(x, local):
            guarded = guarded_names(kind)
            every = frozenset(held) - guarded if guarded else None
            self._attributes(number, held, every if names is None else names)
            self._place_of_attributes(number, x, held)
        if isinstance(x, Enum):
            self._meet(number, "_value_", x._value_)

    def _place_of_attributes(self, number: int, x, held: dict[str, Any]) -> None:
        """Add a link to the dict of an object's attributes, which may be replaced."""
        at = place_of_dict(x, held)
        if at is not None:
            self.links.words.append(Word(x, at, held, number, "__dict__"))
        else:
            read = partial(_dict_in, x)
            self.links.contents.append(ReadValue(read, (held,), number, "__dict__"))

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


def _dict_in(x) -> tuple:
    return (dict_of(x),)


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
