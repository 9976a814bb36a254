"""Places of Python's and the objects that they hold, written down for native code to compare."""

from collections.abc import Callable, Iterable, Sequence
from ctypes import c_void_p
from functools import cached_property, lru_cache
from typing import Any

from ...core.node import Extra, Leaf
from ...core.value import Value
from ..native.builtin import counting, watching
from ..native.layout import UnknownLayout
from ..native.watch import Record
from ..native.words import WordArray, address, words

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
        self._noted: dict[int, list[int]] = {}  # of a dict, where its versions are noted

    def table(self, held: dict[Any, Any], keys: Sequence[Any], values: Sequence[Any]) -> None:
        """A whole dict, in order; ANY for values that do not count."""
        self._noted.setdefault(id(held), []).append(len(self._numbers) + 2)
        self._numbers += [Record.TABLE, id(held), 0, len(keys)]
        for key, value in zip(keys, values, strict=True):
            self._numbers += (id(key), 0 if value is ANY else id(value))
        self._alive += [held, keys, values]

    def name(self, held: dict[Any, Any], key: Any, value: Any) -> None:
        """A key of a dict; MISSING if it is not there."""
        self._numbers += [Record.NAME, id(held), id(key), _pointer(value)]
        self._alive += [held, key, value]

    def elements(self, held: list[Any], values: Sequence[Any]) -> None:
        """The elements of a list."""
        self._numbers += [Record.LIST, id(held), len(values), *map(id, values)]
        self._alive += [held, values]

    def word(self, held: Any, offset: int, value: Any) -> None:
        """A pointer so many bytes into an object."""
        self._numbers += [Record.WORD, id(held) + offset, _pointer(value)]
        self._alive += [held, value]

    def alike(self, key: Any, dicts: Sequence[dict[Any, Any]]) -> None:
        """The key of several dicts, all of which hold one object, whichever it is."""
        self._numbers += [Record.ALIKE, id(key), len(dicts)]
        for held in dicts:
            self._noted.setdefault(id(held), []).append(len(self._numbers) + 1)
            self._numbers += (id(held), 0)
        self._alive += [key, dicts]

    @cached_property
    def _words(self) -> WordArray:
        """All of it, as native code reads it."""
        records = words(len(self._numbers) + 1, self._alive)
        records[: len(self._numbers)] = self._numbers
        return records

    def watching(self) -> Callable[[], bool]:
        """Whether every place holds what it held, as native code."""
        return watching(self._words)

    def counting(self, dicts: Sequence[dict[Any, Any]]) -> Callable[[Any, Any], bool]:
        """What writes (key, value) into these dicts, which then still hold what they held.

        The key is one that `alike` tells of, or whose value does not count.
        """
        start = address(self._words)
        numbers = [len(dicts), len(self._noted[id(dicts[0])])]
        for held in dicts:
            numbers += (id(held), *[start + 8 * i for i in self._noted[id(held)]])
        records = words(len(numbers), (self._words, dicts))
        records[:] = numbers
        return counting(records)


class BoundTensors:
    """Whether tensors have the arrays, the nodes and the hooks they had when they were taken."""

    holds: Callable[[], bool]

    def __init__(self, tensors: Sequence[Value]):
        self._tensors, at = tensors, fields_of_tensors()
        self._words = words(9 * len(tensors) + 1)
        self._words[: 9 * len(tensors)] = [
            n
            for t in tensors
            for n in (
                *(Record.WORD, id(t) + at["_data"], 0),
                *(Record.WORD, id(t) + at["_node"], 0),
                *(Record.WORD, 0, 0),
            )
        ]
        self._plain = watching(self._words)
        self.matches: Callable[[], bool] = self._plain

    def take(self) -> list[Any]:
        """Take the tensors as they are now; their arrays."""
        tensors, at, extra = self._tensors, fields_of_tensors(), place_of_extra()
        arrays, nodes = [t._data for t in tensors], [t._node for t in tensors]
        # A tensor that is no leaf has no hooks: its node is looked at once more.
        leaves = [node.__class__ is Leaf for node in nodes]
        pairs = [*zip(tensors, nodes, leaves, strict=True)]
        end = 9 * len(arrays)
        self._words[2:end:9] = [*map(id, arrays)]
        self._words[5:end:9] = [*map(id, nodes)]
        self._words[7:end:9] = [
            id(n) + extra if leaf else id(t) + at["_node"] for t, n, leaf in pairs
        ]
        self._words[8:end:9] = [id(n.extra) if leaf else id(n) for _, n, leaf in pairs]
        extras = [n.extra for n, leaf in zip(nodes, leaves, strict=True) if leaf]
        self._words.hold = arrays, nodes, extras
        self.matches = self._beside([e.hooks for e in extras if e is not None])
        return arrays

    def _beside(self, tables: list[dict[Any, Any]]) -> Callable[[], bool]:
        """The comparison, with that of these dicts."""
        if not tables:
            return self._plain
        records, plain = Records(), self._plain
        for hooks in tables:
            records.table(hooks, [*hooks], [*hooks.values()])
        hooked = records.watching()
        return lambda: plain() and hooked()


def _pointer(x) -> int:
    return 0 if x is MISSING else id(x)


def word_at(x: object, offset: int) -> int:
    """The pointer in an object's memory; 0 for none."""
    return c_void_p.from_address(id(x) + offset).value or 0


def offset_of(x: object, value: object) -> int | None:
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


@lru_cache(maxsize=1)
def place_of_extra() -> int:
    """Where a leaf keeps what few leaves have: its hooks."""
    sample = Leaf.__new__(Leaf)
    sample.extra = Extra()
    return offsets(sample, ("extra",), "leaves")["extra"]
