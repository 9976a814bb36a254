"""Places and the objects that they held: whether each still holds that one.

A link is looked at by identity, without running anybody's code. Dicts, lists, names and words of
objects are compared by native code, a few nanoseconds each; the rest by Python.
"""

from collections.abc import Callable
from functools import cached_property
from operator import is_not
from typing import Any, NamedTuple

from ..records import Records
from .leaves import facts_of


class Table(NamedTuple):
    """The keys and values of a dict; `number` is that of the object whose dict it is.

    names  the keys that count, of attributes; None: all
    """

    held: dict[Any, Any]
    keys: list[Any]
    values: list[Any]
    number: int
    names: frozenset[str] | None = None


class Name(NamedTuple):
    """A variable of a module, or an attribute of the object of that number."""

    held: dict[Any, Any]
    key: str
    value: Any
    number: int


class ListElements(NamedTuple):
    """The elements of a list."""

    held: list[Any]
    values: list[Any]
    number: int


class Word(NamedTuple):
    """A pointer so many bytes into an object, and the place that it is to the user."""

    held: Any
    offset: int
    value: Any
    number: int
    key: Any


class ReadValue(NamedTuple):
    """What a function gives of the object of that number."""

    read: Callable[[], Any]
    value: Any
    number: int
    key: Any = None


class Links:
    """Links between places and objects.

    tables    a whole dict, in order; ANY for values that do not count
    names     a key of a dict; MISSING if it is not there
    lists     the elements of a list
    words     a pointer in the memory of an object
    contents  objects that a function gives
    others    what a function gives, by equality: the contents of arrays
    tensors   tensors that no program reads: [tensor, its array, its node, facts]
    """

    def __init__(self):
        self.tables: list[Table] = []
        self.names: list[Name] = []
        self.lists: list[ListElements] = []
        self.words: list[Word] = []
        self.contents: list[ReadValue] = []
        self.others: list[ReadValue] = []
        self.tensors: list[list[Any]] = []

    @cached_property
    def match(self) -> Callable[[], bool]:
        """Whether every place holds what it held, or an equal content."""
        places, contents = self._places(), self._contents_match
        if not (self.contents or self.others or self.tensors):
            return places
        return lambda: places() and contents()

    def _places(self) -> Callable[[], bool]:
        """The native code that compares all but what functions give."""
        records = Records()
        for t in self.tables:
            records.table(t.held, t.keys, t.values)
        for n in self.names:
            records.name(n.held, n.key, n.value)
        for e in self.lists:
            records.elements(e.held, e.values)
        for w in self.words:
            records.word(w.held, w.offset, w.value)
        return records.watching()

    def renew(self) -> bool:
        """Note other arrays of tensors that are else as they were; whether every place matches."""
        for link in self.tensors:
            tensor, raw, node, facts = link
            if tensor._data is raw and tensor._node is node:
                continue
            if facts_of(tensor) != facts:
                return False
            link[1:3] = tensor._data, tensor._node
        return self.match()

    def _contents_match(self) -> bool:
        for read, values, *_ in self.contents:
            now = read()
            if len(now) != len(values) or any(map(is_not, now, values)):
                return False
        for read, value, *_ in self.others:
            if read() != value:
                return False
        return all([t._data is raw and t._node is node for t, raw, node, _ in self.tensors])
