"""Links: places and the objects they held, and whether each place still holds its object.

Links are compared by identity, without running user code. Dicts, lists, names and fields of objects
are compared by native code, in a few nanoseconds each; the others by Python.
"""

from collections.abc import Callable
from functools import cached_property
from operator import is_not
from typing import Any, NamedTuple

from ..records import Records
from .leaves import facts_of


class Table(NamedTuple):
    """The keys and values of a dict; `number` is that of the object the dict belongs to.

    names  of a dict of attributes, the keys that are compared; None: all
    """

    held: dict[Any, Any]
    keys: list[Any]
    values: list[Any]
    number: int
    names: frozenset[str] | None = None


class Name(NamedTuple):
    """A variable of a module, or an attribute of the object with this number."""

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
    """The pointer at an offset (bytes) in an object, and the place that it is for the user."""

    held: Any
    offset: int
    value: Any
    number: int
    key: Any


class ReadValue(NamedTuple):
    """The value that a function reads from the object with this number."""

    read: Callable[[], Any]
    value: Any
    number: int
    key: Any = None


class Links:
    """Links between places and objects.

    tables    a whole dict, in order; ANY for values that are not compared
    names     a key of a dict; MISSING if it is not there
    lists     the elements of a list
    words     a pointer in the memory of an object
    contents  objects that a function reads, by identity
    others    values that a function reads, by equality: the contents of arrays
    tensors   tensors that the program does not read: [tensor, its array, its node, facts]
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
        """A function: whether every place still holds its object, or equal contents."""
        places, contents = self._places(), self._contents_match
        if not (self.contents or self.others or self.tensors):
            return places
        return lambda: places() and contents()

    def _places(self) -> Callable[[], bool]:
        """The native function that compares tables, names, lists and words."""
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
        """Accept new arrays of tensors with the same facts; whether every place then matches."""
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
