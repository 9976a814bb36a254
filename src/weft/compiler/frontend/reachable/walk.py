"""The walk over the reachable state: all that the code that ran can reach, in a fixed order.

A walk begins at the traced function, the objects among its arguments and the globals of the
functions that ran, and goes on through containers, closures, attributes, classes and modules. Of an
object's attributes it visits those whose names occur in the code that ran. It runs no user code.
Each place becomes an entry: two walks with equal entries have found the same values in the same
places, shared in the same way. The walk also collects links, each of which tells by one comparison
whether a place still holds its object.
"""

import gc
from _thread import LockType
from collections import deque
from collections.abc import Iterable
from functools import partial
from types import (
    CodeType,
    FunctionType,
)
from typing import Any

from .... import errors
from ....core.node import Node
from ....core.value import Value
from ..records import MISSING
from .bytecode import find_names
from .frames import RanCode, ReadPlace
from .leaves import (
    Content,
    ReadTensor,
    UnreadTensor,
    content_of,
    describe_leaf,
    facts_of,
    is_array,
    is_large,
    is_plain,
    is_tensor,
    refuse_large,
)
from .links import Links, ListElements, Name, ReadValue
from .names import Names, has_attributes, is_closed, is_silent
from .opaque import is_cached, names_in
from .parts import FIELDS, ItemKey, Object, Parts, ReadEntry, VariableName, dict_of

MOST = 200_000  # entries


class ReadWalk(Parts):
    """One walk: its entries and links.

    ran      the code that ran during the trace
    found    the tensors that the program reads, by identity
    roots    where it begins, by name
    lenient  whether it skips what cannot be compared; else it raises
    """

    links: Links

    def __init__(
        self, ran: RanCode, found: set[int], roots: Iterable[tuple[str, Any]], lenient: bool = False
    ):
        self._ran, self._found, self._lenient = ran, found, lenient
        roots, known = [*roots], -1
        while len(ran.library) > known:  # repeat: the walk found more names
            known = len(ran.library)
            self._go(roots)

    def _go(self, roots: list[tuple[str, Any]]) -> None:
        self.entries: list[ReadEntry] = []
        self.links, self._names = Links(), Names(self._ran)
        self._objects: list[Any] = [None]  # by number, kept alive; 0 is the outside
        self._numbers: dict[int, int] = {}
        self._tensors: dict[int, int] = {}  # numbers of the tensors that the program does not read
        self._first: list[ReadEntry | None] = [None]  # the first place of each object
        self._todo: deque[int] = deque()
        for label, root in roots:
            self._meet(0, VariableName(label), root)
        for place in [*self._ran.places.values()]:
            self._place(place)
        for code, variables in self._ran.user:
            self._variables(find_names(code), variables)
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
        """Visit functions that ran but cannot be reached by names, found by Python's collector."""
        inside = {id(c) for code in self._ran.codes.values() for c in code.co_consts}
        known = {id(x.__code__) for x in self._objects if isinstance(x, FunctionType)}
        known |= inside
        lost = [c for c, _ in self._ran.user if c.co_freevars and id(c) not in known]
        for f in gc.get_referrers(*lost) if lost else ():
            if isinstance(f, FunctionType):
                self._meet(0, VariableName(f.__qualname__), f)

    # Visiting values

    def _meet(self, whose: int, key, x) -> None:
        """Add an entry for the value x of a place."""
        entry = ReadEntry(whose, key, None)
        self.entries.append(entry._replace(value=self._token(entry, x)))

    def _place(self, place: ReadPlace) -> None:
        """Visit a value that user code has read in a way that its names do not tell."""
        label, held, key, shallow = place
        value = held.get(key, MISSING)
        self.links.names.append(Name(held, key, value, 0))
        if not shallow:
            self._meet(0, VariableName(label), value)
            return
        self.links.lists.append(ListElements(value, [*value], 0))
        labels = [label, *[f"{label}[{k}]" for k in range(len(value))]]
        for which, x in zip(labels, [value, *value], strict=True):
            token = Object(0, type(x).__qualname__, id(x))
            self.entries.append(ReadEntry(0, VariableName(which), token))

    def _token(self, entry: ReadEntry, x):
        """The token by which x is compared."""
        if x is MISSING or type(x) is Content or (is_plain(x) and not self._names.beside(x)):
            self._names.meet(x)
            return x
        if is_tensor(x):
            return self._tensor(entry, x)
        if is_array(x) and not has_attributes(x):
            return self._array(entry, x)
        self._ran.library.update(names_in(x))
        if is_closed(x):
            self._settings(entry, x)
            return x
        if id(x) not in self._numbers:
            self._numbers[id(x)] = len(self._objects)
            self._todo.append(len(self._objects))
            self._objects.append(x)
            self._first.append(entry)
        same = self._names.identities or hasattr(type(x), "_guarded") or is_cached(x)
        return Object(self._numbers[id(x)], type(x).__qualname__, id(x) if same else 0)

    def _settings(self, entry: ReadEntry, x) -> None:
        """The named plain attributes of an object that is otherwise skipped: a logger's level."""
        held = (dict_of(x) or {}) if is_silent(x) else {}
        for name in sorted(self._names.relevant_names(held)):
            if is_plain(held[name]):
                self.links.names.append(Name(held, name, held[name], entry.owner))
                self._meet(entry.owner, ItemKey(f"{entry.key}.{name}"), held[name])
        if isinstance(x, LockType) and self._names.may_read("locked"):
            self._read(entry.owner, ItemKey(f"{entry.key}.locked()"), x.locked)

    def _content(self, number: int, x) -> None:
        """The contents of an array that has attributes besides."""
        entry = ReadEntry(number, "()", None)
        self.entries.append(entry._replace(value=self._array(entry, x)))

    def _array(self, entry: ReadEntry, x):
        if not self._lenient or not is_large(x):
            refuse_large(x, self.label(entry))
            content = content_of(x)
            self.links.others.append(
                ReadValue(partial(content_of, x), content, entry.owner, entry.key)
            )
            return content
        return x

    def _tensor(self, entry: ReadEntry, x):
        if x._node.__class__ is Node and self._names.may_read("grad"):
            self._read_pointers(entry.owner, ItemKey(f"{entry.key}.grad"), partial(_retained, x))
        if id(x) in self._found:
            return ReadTensor(x)
        facts = facts_of(x)
        self.links.tensors.append([x, x._data, x._node, facts])
        same = self._names.identities or id(x) in self._ran.identified
        which = self._tensors.setdefault(id(x), len(self._tensors))
        return UnreadTensor(facts, id(x) if same else which)

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
        """The object with this number."""
        return self._objects[number]

    def place(self, number: int) -> ReadEntry:
        """The first place of the object with this number."""
        return self._first[number] or ReadEntry(0, VariableName("it"), None)

    # Texts

    def label(self, entry: ReadEntry) -> str:
        """A place as a Python expression: `model.layers[0].p`."""
        if type(entry.key) is VariableName:
            return str(entry.key)
        first = self._first[entry.owner]
        above = "" if first is None else self.label(first)
        if type(entry.key) is ItemKey:
            store, dot, name = above.rpartition(".")
            if name in _STORES:
                return f"{store}{dot}{entry.key.key}"
            return f"{above}[{entry.key.key!r}]"
        return f"{above}.{entry.key}" if above else str(entry.key)

    def lines(self) -> list[str]:
        """The places that hold leaves: `model.layers[0].p = 0.1`."""
        leaves = [e for e in self.entries if type(e.value) is not Object and e.value is not MISSING]
        leaves = [e for e in leaves if e.key not in FIELDS or e.value is not None]
        texts = [
            f"{self.label(e)} = {describe_leaf(e.value)}" for e in leaves if not _is_given(e.value)
        ]
        return list(dict.fromkeys(texts))

    def difference(self, now: "ReadWalk") -> str | None:
        """A text for the first entry in which another walk differs; None if none does."""
        for was, new in zip(self.entries, now.entries, strict=False):
            if not was.equals(new):
                return self._describe_change(was, new)
        if len(self.entries) != len(now.entries):
            longer = max(self, now, key=lambda walk: len(walk.entries))
            at = min(len(self.entries), len(now.entries))
            return f"whether there is {longer.label(longer.entries[at])}"
        return None

    def _describe_change(self, was: ReadEntry, now: ReadEntry) -> str:
        label = self.label(was)
        place = f"the variable {label!r}" if type(was.key) is VariableName else label
        if was.owner != now.owner or was.key != now.key:
            return f"what {label} is"
        if type(was.value) is ReadTensor:
            return f"{place}: another tensor"
        return f"{place}: was {_spell(was.value)}, is {_spell(now.value)}"


def _retained(tensor: Value) -> tuple[Any]:
    """The gradient that a computed tensor keeps."""
    node = tensor._node
    extra = node.extra if node.__class__ is Node else None
    return (MISSING if extra is None or extra.grad is None else extra.grad,)


_STORES = ("_modules", "_parameters", "_buffers")  # dicts whose keys are a module's attributes


def _is_given(value) -> bool:
    """Whether a value is left out of texts: code, classes, modules and library objects."""
    return (
        not (is_plain(value) or type(value) in (Content, UnreadTensor)) or type(value) is CodeType
    )


def _spell(value) -> str:
    return f"a {value.kind}" if type(value) is Object else describe_leaf(value)
