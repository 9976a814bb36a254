"""Places of Python's and the objects that they hold, written down for native code to compare."""

from collections.abc import Callable, Iterable, Sequence
from ctypes import c_void_p
from functools import lru_cache
from typing import Any

from ..core.value import Value
from .builtin import watching
from .llvm.layout import UnknownLayout
from .llvm.watch import Record
from .words import words

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "nothing"})()
ANY: Any = type("Any", (), {})()  # a value that does not count


class Records:
    """Places and what each of them holds, by identity; all of it stays alive with `watching`.

    any  stands for a value that does not count
    """

    any = ANY

    def __init__(self):
        self._numbers: list[int] = []
        self._alive: list[Any] = []

    def table(self, held: dict, keys: Sequence, values: Sequence) -> None:
        """A whole dict, in order; ANY for values that do not count."""
        self._numbers += [Record.TABLE, id(held), 0, len(keys)]
        for key, value in zip(keys, values, strict=True):
            self._numbers += (id(key), 0 if value is ANY else id(value))
        self._alive += [held, keys, values]

    def name(self, held: dict, key: Any, value: Any) -> None:
        """A key of a dict; MISSING if it is not there."""
        self._numbers += [Record.NAME, id(held), id(key), _pointer(value)]
        self._alive += [held, key, value]

    def elements(self, held: list, values: Sequence) -> None:
        """The elements of a list."""
        self._numbers += [Record.LIST, id(held), len(values), *map(id, values)]
        self._alive += [held, values]

    def word(self, held: Any, offset: int, value: Any) -> None:
        """A pointer so many bytes into an object."""
        self._numbers += [Record.WORD, id(held) + offset, _pointer(value)]
        self._alive += [held, value]

    def alike(self, key: Any, dicts: Sequence[dict]) -> None:
        """The key of several dicts, all of which hold one object, whichever it is."""
        self._numbers += [Record.ALIKE, id(key), len(dicts), *map(id, dicts)]
        self._alive += [key, dicts]

    def watching(self) -> Callable[[], bool]:
        """Whether every place holds what it held, as native code."""
        records = words(len(self._numbers) + 1, self._alive)
        records[: len(self._numbers)] = self._numbers
        return watching(records)


class Bound:
    """Whether tensors have the arrays and the nodes that they had when they were taken."""

    def __init__(self, tensors: Sequence):
        self._tensors, at = tensors, fields_of_tensors()
        self._words = words(6 * len(tensors) + 1)
        self._words[: 6 * len(tensors)] = [
            n
            for t in tensors
            for n in (Record.WORD, id(t) + at["_data"], 0, Record.WORD, id(t) + at["_node"], 0)
        ]
        self.holds: Callable[[], bool] = watching(self._words)

    def take(self) -> list:
        """Take the tensors as they are now; their arrays."""
        arrays, nodes = [t._data for t in self._tensors], [t._node for t in self._tensors]
        end = 6 * len(arrays)
        self._words[2:end:6] = [*map(id, arrays)]
        self._words[5:end:6] = [*map(id, nodes)]
        self._words.hold = arrays, nodes
        return arrays


def _pointer(x) -> int:
    return 0 if x is MISSING else id(x)


def word_at(x, offset: int) -> int:
    """The pointer in an object's memory; 0 for none."""
    return c_void_p.from_address(id(x) + offset).value or 0


def offset_of(x, value) -> int | None:
    """Where an object keeps a pointer to another one, in bytes; None if that is not certain."""
    size = type(x).__basicsize__
    places = [at for at in range(object.__basicsize__, size, 8) if word_at(x, at) == id(value)]
    return places[0] if len(places) == 1 else None


def offsets(sample: Any, names: Iterable[str], what: str) -> dict[str, int]:
    """Where objects like this one keep the values of these attributes, in bytes."""
    found = {}
    for name in names:
        at = offset_of(sample, getattr(sample, name))
        if at is None:
            raise UnknownLayout(f"where {what} of this Python keep their {name} is not known")
        found[name] = at
    return found


@lru_cache(maxsize=1)
def fields_of_functions() -> dict[str, int]:
    """Where functions keep what they can be given anew, in bytes; a pointer to nothing is None."""

    def sample(a=(), *, b=()):
        """A function that has everything."""

    return offsets(sample, ("__code__", "__defaults__", "__kwdefaults__"), "functions")


@lru_cache(maxsize=1)
def fields_of_tensors() -> dict[str, int]:
    """Where tensors keep their array, their node and what else they have, in bytes."""
    sample, names = Value(), ("_data", "_grad", "_node", "_share")
    for name in names:
        setattr(sample, name, object())
    return offsets(sample, names, "tensors")
