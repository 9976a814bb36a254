"""Everything that the functions that ran can reach by the names in their code, in a fixed order.

A walk begins at the traced function, at the objects among its arguments and at the globals of the
functions that ran, and goes on through containers, closures, attributes, classes and modules. Of an
object's attributes those count whose names occur in the code that ran. It runs none of the user's
code. What it meets becomes entries: two walks with equal entries have met the same values in the
same places, shared in the same way. On the way it collects links, which say by one comparison each
that a place still holds the object that it held.
"""

import gc
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable
from contextvars import ContextVar
from functools import cached_property, partial
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from ... import errors
from ..records import ANY, MISSING, fields_of_functions, offset_of
from .bytecode import named
from .frames import INSTALLED, LIBRARY, USER, Ran, owner_of_code
from .leaves import (
    Content,
    Facts,
    Found,
    alike,
    content_of,
    facts_of,
    is_array,
    is_large,
    is_plain,
    is_tensor,
    refuse_large,
    shown,
)
from .links import Elements, Given, Links, Name, Table, Word
from .names import Names, is_closed, owner_of_class, slots_of

MOST = 200_000  # entries
_TABLE = 128  # the largest dict of attributes that is compared as a whole


class Variable(str):
    """The name of a variable."""

    __slots__ = ()


class Item(NamedTuple):
    """A key or a position in a container."""

    key: Any


class Object(NamedTuple):
    """Something with parts, by the order in which it was met."""

    number: int
    kind: str


class Entry(NamedTuple):
    """A place: whose it is, its key there (a str for an attribute), and what it holds."""

    owner: int
    key: Any
    value: Any

    def equals(self, other: "Entry") -> bool:
        """Whether two places hold the same, by all that a program can see."""
        if self.owner != other.owner or type(self.key) is not type(other.key):
            return False
        same_key = (
            alike(self.key.key, other.key.key)
            if type(self.key) is Item
            else (self.key == other.key)
        )
        if type(self.value) is Object or type(other.value) is Object:
            return same_key and self.value == other.value
        return same_key and alike(self.value, other.value)


class Walk:
    """One walk: its entries, and the links between what it met.

    ran    what ran while the function was traced
    found  the tensors that the program reads, by identity
    roots  where it begins, by name
    lenient  whether it passes over what cannot be compared, else it refuses that
    """

    def __init__(
        self, ran: Ran, found: set[int], roots: Iterable[tuple[str, Any]], lenient: bool = False
    ):
        self.entries: list[Entry] = []
        self.links = Links()
        self._ran, self._found, self._names = ran, found, Names(ran)
        self._lenient = lenient
        self._objects: list[Any] = [None]  # by number, alive as long as the walk; 0 is the outside
        self._numbers: dict[int, int] = {}
        self._first: list[Entry | None] = [None]  # where each object was met first
        self._todo: deque[int] = deque()
        for label, root in roots:
            self._meet(0, Variable(label), root)
        for code, variables in ran.user:
            self._variables(named(code), variables)
        self._finish()
        self._meet_lost_functions()
        self._finish()

    def _finish(self) -> None:
        while self._todo:
            number = self._todo.popleft()
            self._expand(number, self._objects[number])
            if len(self.entries) > MOST and self._lenient:
                return
            if len(self.entries) > MOST:
                raise errors.StagingError(
                    f"compile: the function can reach more than {MOST:,} Python values (through "
                    f"{self.label(self.entries[-1])}), which would have to be compared at each "
                    "call; pass what it needs of them as arguments, or keep it in a tensor"
                )

    def _meet_lost_functions(self) -> None:
        """Functions that ran and lie where a walk does not come: Python's collector knows them."""
        inside = {id(c) for code in self._ran.codes.values() for c in code.co_consts}
        known = {id(x.__code__) for x in self._objects if isinstance(x, FunctionType)}
        known |= inside
        lost = [c for c, _ in self._ran.user if c.co_freevars and id(c) not in known]
        for f in gc.get_referrers(*lost) if lost else ():
            if isinstance(f, FunctionType):
                self._meet(0, Variable(f.__qualname__), f)

    # Meeting values

    def _meet(self, whose: int, key, x) -> None:
        """A place holds x."""
        entry = Entry(whose, key, None)
        self.entries.append(entry._replace(value=self._token(entry, x)))

    def _token(self, entry: Entry, x):
        """How x is compared."""
        if x is MISSING or is_plain(x):
            self._names.meet(x)
            return x
        if is_tensor(x):
            return self._tensor(x)
        if is_array(x):
            return self._array(entry, x)
        if is_closed(x):
            return x
        if id(x) not in self._numbers:
            self._numbers[id(x)] = len(self._objects)
            self._todo.append(len(self._objects))
            self._objects.append(x)
            self._first.append(entry)
        return Object(self._numbers[id(x)], type(x).__qualname__)

    def _array(self, entry: Entry, x):
        if not self._lenient or not is_large(x):
            refuse_large(x, self.label(entry))
            content = content_of(x)
            self.links.others.append(Given(partial(content_of, x), content, entry.owner, entry.key))
            return content
        return x

    def _tensor(self, x):
        if id(x) in self._found:
            return Found(x)
        facts = facts_of(x)
        self.links.tensors.append([x, x._data, x._node, facts])
        return facts

    # What each kind of object holds

    def _expand(self, number: int, x) -> None:
        if isinstance(x, FunctionType):
            self._function(number, x)
        elif isinstance(x, type):
            self._class(number, x)
        elif isinstance(x, ModuleType):
            self._attributes(number, x.__dict__, self._names.user)
        elif isinstance(x, MethodType):
            self._meet(number, "__func__", x.__func__)
            self._meet(number, Variable(type(x.__self__).__name__), x.__self__)
        elif type(x) in _PARTS:
            for name in _PARTS[type(x)]:
                self._meet(number, name, getattr(x, name))
        elif hasattr(type(x), "__next__") and owner_of_class(type(x)) in (LIBRARY, INSTALLED):
            self._opaque(number, x)  # an iterator or generator: how far it is cannot be compared
        else:
            known = self._container(number, x)
            known = self._reference(number, x) or known
            if not (type(x) in _CONTAINERS or self._instance(number, x) or known):
                self._opaque(number, x)

    def _function(self, number: int, f: FunctionType) -> None:
        users = owner_of_code(f.__code__, f.__globals__) in (USER, INSTALLED)
        self._field(number, f, "__code__")
        if users and f.__code__ not in self._ran:
            return
        if users:
            self._ran.reached(f)
            for name in _FIELDS:
                self._field(number, f, name)
            self._attributes(number, f.__dict__, self._names.user)
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
            held = _content(cell)
            variable = Variable(name)
            self.links.words.append(Word(cell, object.__basicsize__, held, number, variable))
            if users or not isinstance(held, dict):  # tables of ours are caches
                self._meet(number, variable, held)
        if "__wrapped__" in f.__dict__:
            self._meet(number, "__wrapped__", f.__dict__["__wrapped__"])

    def _field(self, number: int, f: FunctionType, name: str) -> None:
        held = getattr(f, name)
        self._meet(number, name, held)
        kept = MISSING if held is None else held
        self.links.words.append(Word(f, fields_of_functions()[name], kept, number, name))

    def _class(self, number: int, kind: type) -> None:
        self._meet(number, "__mro__", kind.__mro__[1:])
        if type(kind) is not type:
            self._meet(number, "__class__", type(kind))
        held = gc.get_referents(kind.__dict__)[0]  # the dict behind the proxy
        self._attributes(number, held, self._names.of_class(kind, held))

    def _attributes(self, number: int, held: dict, names: frozenset[str] | None) -> None:
        """What counts in a dict of attributes; all of them for None."""
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
        """The globals that a code reads, and the modules that it imports."""
        for name in sorted(names.globals):
            value = variables.get(name, MISSING)
            self.links.names.append(Name(variables, name, value, 0))
            self._meet(0, Variable(name), value)
        for name in sorted(names.modules):
            for path in (name, f"{variables.get('__package__') or ''}.{name}"):
                if path in sys.modules:
                    self._meet(0, Variable(path), sys.modules[path])

    def _container(self, number: int, x) -> bool:
        if isinstance(x, dict):
            self._table(number, x)
        elif isinstance(x, list | tuple):
            items = list(_elements(x))
            self._items(number, items)
            if isinstance(x, list):
                self.links.lists.append(Elements(x, items, number))
        elif isinstance(x, set | frozenset | deque | np.ndarray):
            read = partial(_elements, x)
            held = read()
            self._items(number, held)
            self.links.contents.append(Given(read, held, number))
        else:
            return False
        return True

    def _items(self, number: int, items: Iterable) -> None:
        for k, value in enumerate(items):
            self._meet(number, Item(k), value)

    def _table(self, number: int, x: dict) -> None:
        items = list(OrderedDict.items(x) if isinstance(x, OrderedDict) else dict.items(x))
        for k, (key, value) in enumerate(items):
            if not is_plain(key):
                self._meet(number, Item(f"key {k}"), key)
            self._meet(number, Item(key if is_plain(key) else f"value {k}"), value)
        self.links.tables.append(Table(x, list(dict.keys(x)), list(dict.values(x)), number))
        if isinstance(x, OrderedDict):  # it has an order of its own, which the dict does not know
            keys = tuple([k for k, _ in items])
            self.links.contents.append(Given(lambda: tuple(OrderedDict.keys(x)), keys, number))
        if isinstance(x, defaultdict):
            self._meet(number, "default_factory", x.default_factory)

    def _reference(self, number: int, x) -> bool:
        """Things that stand for another one."""
        if isinstance(x, ref):
            target = x()
            self._meet(number, "()", MISSING if target is None else target)
            self.links.others.append(Given(lambda: id(x()), id(target), number))
        elif isinstance(x, ContextVar):
            held = x.get(MISSING)
            self._meet(number, "get()", held)
            self.links.contents.append(Given(lambda: (x.get(MISSING),), (held,), number, "get()"))
        elif isinstance(x, MappingProxyType):
            self._meet(number, "copy()", gc.get_referents(x)[0])
        else:
            return False
        return True

    def _instance(self, number: int, x) -> bool:
        """The class and the attributes of an object; whether it has any."""
        kind = type(x)
        self._meet(number, "__class__", kind)
        names = self._names.of_instance(kind)
        slots = slots_of(kind)
        for name, member in slots:
            if names is None or name in names:
                self._slot(number, x, name, member)
        held = _dict_of(x)
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
            self.links.contents.append(Given(read, (held,), number, name))

    def _opaque(self, number: int, x) -> None:
        first = self._first[number]
        if self._lenient or first is None:
            return
        raise errors.StagingError(
            f"compile: the function finds a {type(x).__module__}.{type(x).__qualname__} "
            f"({self.label(first)}), and whether that has changed cannot be seen before a call. "
            "Take out of it what the function needs, and pass that as an argument"
        )

    def object(self, number: int) -> Any:
        """What was met as the object of that number."""
        return self._objects[number]

    def place(self, number: int) -> Entry:
        """Where an object was met first."""
        return self._first[number] or Entry(0, Variable("it"), None)

    # In words

    def label(self, entry: Entry) -> str:
        """The place in Python's words: `model.layers[0].p`."""
        if type(entry.key) is Variable:
            return str(entry.key)
        first = self._first[entry.owner]
        above = "" if first is None else self.label(first)
        if type(entry.key) is Item:
            store, dot, name = above.rpartition(".")
            if name in _STORES:
                return f"{store}{dot}{entry.key.key}"
            return f"{above}[{entry.key.key!r}]"
        return f"{above}.{entry.key}" if above else str(entry.key)

    def lines(self) -> list[str]:
        """The places that hold leaves: `model.layers[0].p = 0.1`."""
        leaves = [e for e in self.entries if type(e.value) is not Object and e.value is not MISSING]
        leaves = [e for e in leaves if e.key not in _FIELDS or e.value is not None]
        told = [f"{self.label(e)} = {shown(e.value)}" for e in leaves if not _is_given(e.value)]
        return list(dict.fromkeys(told))

    def difference(self, now: "Walk") -> str | None:
        """What another walk has met in another way; None if it has not."""
        for was, new in zip(self.entries, now.entries, strict=False):
            if not was.equals(new):
                return self._told(was, new)
        if len(self.entries) != len(now.entries):
            longer = max(self, now, key=lambda walk: len(walk.entries))
            at = min(len(self.entries), len(now.entries))
            return f"whether there is {longer.label(longer.entries[at])}"
        return None

    def _told(self, was: Entry, now: Entry) -> str:
        label = self.label(was)
        place = f"the variable {label!r}" if type(was.key) is Variable else label
        if was.owner != now.owner or was.key != now.key:
            return f"what {label} is"
        if type(was.value) is Found:
            return f"{place}: another tensor"
        return f"{place}: was {_spelled(was.value)}, is {_spelled(now.value)}"


_STORES = ("_modules", "_parameters", "_buffers")  # whose keys are attributes of a module
_FIELDS = ("__defaults__", "__kwdefaults__")
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


def _is_given(value) -> bool:
    """Whether a value goes without saying: code, classes, modules and libraries' objects."""
    return not (is_plain(value) or type(value) in (Content, Facts)) or type(value) is CodeType


def _spelled(value) -> str:
    return f"a {value.kind}" if type(value) is Object else shown(value)


def _elements(x) -> tuple:
    """What a container holds, without asking its class."""
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


def _dict_of(x) -> dict | None:
    """The dict of an object's attributes, without asking its class."""
    try:
        held = object.__getattribute__(x, "__dict__")
    except AttributeError:
        return None
    return held if isinstance(held, dict) else None
