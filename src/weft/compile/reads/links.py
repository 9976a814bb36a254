"""Places and the objects that they held: whether each still holds that one.

A link is looked at by identity, without running anybody's code. Dicts, lists, names and words of
objects are compared by native code, a few nanoseconds each; the rest by Python.
"""

from collections.abc import Callable
from ctypes import c_void_p
from functools import cached_property, lru_cache
from operator import is_not
from typing import Any, NamedTuple

from ..builtin import watching
from ..llvm.layout import UnknownLayout
from ..llvm.watch import Record
from ..words import words
from .leaves import MISSING, facts_of

ANY: Any = type("Any", (), {})()  # a value that does not count


class Table(NamedTuple):
    """The keys and values of a dict; `number` is that of the object whose dict it is.

    names  the keys that count, of attributes; None: all
    """

    held: dict
    keys: list
    values: list
    number: int
    names: frozenset[str] | None = None


class Name(NamedTuple):
    """A variable of a module, or an attribute of the object of that number."""

    held: dict
    key: str
    value: Any
    number: int


class Elements(NamedTuple):
    """The elements of a list."""

    held: list
    values: list
    number: int


class Word(NamedTuple):
    """A pointer so many bytes into an object, and the place that it is to the user."""

    held: Any
    offset: int
    value: Any
    number: int
    key: Any


class Given(NamedTuple):
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
        self.lists: list[Elements] = []
        self.words: list[Word] = []
        self.contents: list[Given] = []
        self.others: list[Given] = []
        self.tensors: list[list] = []

    @cached_property
    def hold(self) -> Callable[[], bool]:
        """Whether every place holds what it held, or an equal content."""
        places, contents = self._places(), self._contents_hold
        if not (self.contents or self.others or self.tensors):
            return places
        return lambda: places() and contents()

    def _places(self) -> Callable[[], bool]:
        """The native code that compares all but what functions give."""
        numbers: list[int] = []
        for held, keys, values, *_ in self.tables:
            numbers += [Record.TABLE, id(held), len(keys)]
            for key, value in zip(keys, values, strict=True):
                numbers += (id(key), 0 if value is ANY else id(value))
        for held, key, value, _ in self.names:
            numbers += [Record.NAME, id(held), id(key), _pointer(value)]
        for held, values, _ in self.lists:
            numbers += [Record.LIST, id(held), len(values), *map(id, values)]
        for w in self.words:
            numbers += [Record.WORD, id(w.held) + w.offset, _pointer(w.value)]
        records = words(len(numbers) + 1, self._alive())
        records[: len(numbers)] = numbers
        return watching(records)

    def _alive(self) -> list:
        """Everything whose address is in the records."""
        return [*self.tables, *self.names, *self.lists, *self.words]

    def _contents_hold(self) -> bool:
        for read, values, *_ in self.contents:
            now = read()
            if len(now) != len(values) or any(map(is_not, now, values)):
                return False
        for read, value, *_ in self.others:
            if read() != value:
                return False
        return all(map(_same_tensor, self.tensors))


def _pointer(x) -> int:
    return 0 if x is MISSING else id(x)


def _same_tensor(link: list) -> bool:
    """Whether a tensor has the shape and the tracking it had; another array is noted."""
    tensor, raw, node, facts = link
    if tensor._data is raw and tensor._node is node:
        return True
    if facts_of(tensor) != facts:
        return False
    link[1:3] = tensor._data, tensor._node
    return True


def word_at(x, offset: int) -> int:
    """The pointer in an object's memory; 0 for none."""
    return c_void_p.from_address(id(x) + offset).value or 0


def offset_of(x, value) -> int | None:
    """Where an object keeps a pointer to another one, in bytes; None if that is not certain."""
    size = type(x).__basicsize__
    places = [at for at in range(object.__basicsize__, size, 8) if word_at(x, at) == id(value)]
    return places[0] if len(places) == 1 else None


@lru_cache(maxsize=1)
def fields_of_functions() -> dict[str, int]:
    """Where functions keep what they can be given anew, in bytes; a pointer to nothing is None."""

    def sample(a=(), *, b=()):
        """A function that has everything."""

    found = {}
    for name in ("__code__", "__defaults__", "__kwdefaults__"):
        at = offset_of(sample, getattr(sample, name))
        if at is None:
            raise UnknownLayout(f"where functions of this Python keep their {name} is not known")
        found[name] = at
    return found
