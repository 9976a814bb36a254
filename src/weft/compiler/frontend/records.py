"""Records of Python's places (dict entries, list elements, fields) for native code to compare."""

from collections.abc import Callable, Iterable, Sequence
from ctypes import c_void_p
from functools import cached_property, lru_cache
from typing import Any

from ...core.node import Leaf, NodeExtra
from ...core.value import Value
from ..native.builtin import make_counter, make_watch
from ..native.layout import UnknownLayout
from ..native.watch import Record
from ..native.words import WordArray, address, words

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "nothing"})()
ANY: Any = type("Any", (), {})()  # a value that is not compared


class Records:
    """Places and the objects they hold, by identity; the result of `watching` keeps all alive.

    any  stands for a value that is not compared
    """

    any = ANY

    def __init__(self):
        self._numbers: list[int] = []
        self._alive: list[Any] = []
        self._noted: dict[int, list[int]] = {}  # by dict, where its versions are stored

    def table(self, held: dict[Any, Any], keys: Sequence[Any], values: Sequence[Any]) -> None:
        """Add a whole dict, in order; ANY for values that are not compared."""
        self._noted.setdefault(id(held), []).append(len(self._numbers) + 2)
        self._numbers += [Record.TABLE, id(held), 0, len(keys)]
        for key, value in zip(keys, values, strict=True):
            self._numbers += (id(key), 0 if value is ANY else id(value))
        self._alive += [held, keys, values]

    def name(self, held: dict[Any, Any], key: Any, value: Any) -> None:
        """Add a key of a dict; MISSING if it is not there."""
        self._numbers += [Record.NAME, id(held), id(key), _pointer(value)]
        self._alive += [held, key, value]

    def elements(self, held: list[Any], values: Sequence[Any]) -> None:
        """Add the elements of a list."""
        self._numbers += [Record.LIST, id(held), len(values), *map(id, values)]
        self._alive += [held, values]

    def word(self, held: Any, offset: int, value: Any) -> None:
        """Add the pointer at an offset (bytes) in an object."""
        self._numbers += [Record.WORD, id(held) + offset, _pointer(value)]
        self._alive += [held, value]

    def alike(self, key: Any, dicts: Sequence[dict[Any, Any]]) -> None:
        """Add a key of several dicts, all of which must hold the same object, whichever it is."""
        self._numbers += [Record.ALIKE, id(key), len(dicts)]
        for held in dicts:
            self._noted.setdefault(id(held), []).append(len(self._numbers) + 1)
            self._numbers += (id(held), 0)
        self._alive += [key, dicts]

    @cached_property
    def _words(self) -> WordArray:
        """The records as native code reads them."""
        records = words(len(self._numbers) + 1, self._alive)
        records[: len(self._numbers)] = self._numbers
        return records

    def watching(self) -> Callable[[], bool]:
        """A native function: whether every place still holds its object."""
        return make_watch(self._words)

    def counting(self, dicts: Sequence[dict[Any, Any]]) -> Callable[[Any, Any], bool]:
        """A native function that writes (key, value) into these dicts, so that they still match.

        The key is one of `alike`, or one whose value is not compared.
        """
        start = address(self._words)
        numbers = [len(dicts), len(self._noted[id(dicts[0])])]
        for held in dicts:
            numbers += (id(held), *[start + 8 * i for i in self._noted[id(held)]])
        records = words(len(numbers), (self._words, dicts))
        records[:] = numbers
        return make_counter(records)


class BoundTensors:
    """Whether tensors have the same arrays, nodes and hooks as at the last `take`."""

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
        self._plain = make_watch(self._words)
        self.matches: Callable[[], bool] = self._plain

    def take(self) -> list[Any]:
        """Record the tensors' current arrays, nodes and hooks; give the arrays."""
        tensors, at, extra = self._tensors, fields_of_tensors(), place_of_extra()
        arrays, nodes = [t._data for t in tensors], [t._node for t in tensors]
        # A tensor that is no leaf has no hooks: its node is compared a second time instead.
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
        """The comparison, extended by these dicts."""
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
    """The offset (bytes) of an object's pointer to another one; None if it is not unique."""
    size = type(x).__basicsize__
    places = [at for at in range(object.__basicsize__, size, 8) if word_at(x, at) == id(value)]
    return places[0] if len(places) == 1 else None


def offsets(sample: Any, names: Iterable[str], what: str) -> dict[str, int]:
    """The offsets (bytes) of these attributes in objects of this type."""
    found = {}
    for name in names:
        at = offset_of(sample, getattr(sample, name))
        if at is None:
            raise UnknownLayout(f"where {what} of this Python keep their {name} is not known")
        found[name] = at
    return found


@lru_cache(maxsize=1)
def fields_of_functions() -> dict[str, int]:
    """The offsets (bytes) of a function's assignable fields; a null pointer means None."""

    def sample(a=(), *, b=()):
        """A function that has everything."""

    return offsets(sample, ("__code__", "__defaults__", "__kwdefaults__"), "functions")


@lru_cache(maxsize=1)
def fields_of_tensors() -> dict[str, int]:
    """The offsets (bytes) of a tensor's fields."""
    sample, names = Value(), ("_data", "_grad", "_node", "_share")
    for name in names:
        setattr(sample, name, object())
    return offsets(sample, names, "tensors")


@lru_cache(maxsize=1)
def place_of_extra() -> int:
    """The offset (bytes) of a leaf's `extra`, which holds its hooks."""
    sample = Leaf.__new__(Leaf)
    sample.extra = NodeExtra()
    return offsets(sample, ("extra",), "leaves")["extra"]
