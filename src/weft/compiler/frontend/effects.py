"""Side effects of a traced function on Python's objects: they happen once, not at each call.

Compared is everything that the function, and the user's functions that it can reach, can name. A
new attribute or key gives no warning (caches are filled at first use), unless it holds a tensor;
but a variant whose trace has added one is used for that call only.
"""

import warnings
from collections.abc import Callable, Iterator
from dis import get_instructions
from types import CodeType
from typing import Any, NamedTuple

from ...core.origin import is_internal
from ...core.value import TENSORS
from ...errors import SideEffectWarning
from ...graph.picture import shorten
from .arguments import argument_name, label, positional_names
from .containers import CONSTANTS, ContainerCopies
from .reachable.frames import MayRun, User
from .reachable.leaves import Content
from .reachable.links import Table
from .reachable.parts import ItemKey, ReadEntry, VariableName
from .reachable.walk import ReadWalk
from .records import ANY, MISSING

_REMEDY = (
    "That happens when the function is compiled, not at each call. Return what changes, keep it in "
    "a tensor, or do it outside of the function"
)
_LOST = (
    "The containers among the arguments of a compiled function are copies, so the caller's is as "
    "it was, at each call. Return what changes, or write into a tensor that is in it"
)


class Change(NamedTuple):
    """A place whose value has changed."""

    place: ReadEntry
    was: Any
    now: Any


class StateBefore:
    """The reachable state before a trace, to be compared with the state after it."""

    def __init__(self, name: str, function: Callable[..., Any], objects: list[Any]):
        self._name, self._ran = name, MayRun()
        roots = [(name, function), *[(f"argument {k}", x) for k, x in enumerate(objects)]]
        known = -1
        while len(self._ran.user) > known:  # repeat: new functions name more
            known = len(self._ran.user)
            self._walk = ReadWalk(self._ran, set(), roots, lenient=True)

    def report(self) -> list[str]:
        """Warn of changes; give the labels of new places, for which there is no warning."""
        silent, warned = [], set()
        for change in self._changes():
            how = _how(change)
            label = self._walk.label(change.place)
            if how is None:
                silent.append(label)
            elif label not in warned:
                warned.add(label)
                key = str(getattr(change.place.key, "key", change.place.key))
                _warn(f"{self._name}: {label} {how}. {_REMEDY}", self._ran.user, key)
        return silent

    def _changes(self) -> Iterator[Change]:
        links = self._walk.links
        for table in links.tables:
            yield from self._changed_items(table)
        for held, key, value, number in links.names:
            now = held.get(key, MISSING)
            if now is not value:
                place = VariableName(key) if number == 0 else key
                yield Change(ReadEntry(number, place, None), value, now)
        for w in links.words:
            now = self._now(w)
            if now is not w.value:
                yield Change(ReadEntry(w.number, w.key, None), w.value, now)
        yield from self._changed_contents()

    def _now(self, word) -> Any:
        """The current value of a cell or a slot."""
        name = "cell_contents" if type(word.key) is VariableName else word.key
        try:
            now = getattr(word.held, name)
        except (AttributeError, ValueError):  # it is empty
            return MISSING
        return MISSING if now is None and word.value is MISSING else now

    def _changed_items(self, table: Table) -> Iterator[Change]:
        held, number, names = table.held, table.number, table.names
        attributes = held is not self._walk.object(number)
        before = dict(zip(table.keys, table.values, strict=True))
        new = [k for k in held if k not in before and (names is None or k in names)]
        for key in [*before, *new]:
            was, now = before.get(key, MISSING), held.get(key, MISSING)
            if was is not now and was is not ANY:
                yield Change(ReadEntry(number, key if attributes else ItemKey(key), None), was, now)

    def _changed_contents(self) -> Iterator[Change]:
        links = self._walk.links
        lists = [(tuple(x.held), tuple(x.values), x.number, None) for x in links.lists]
        given = [(x.read(), x.value, x.number, x.key) for x in links.contents]
        for now, was, number, key in (*lists, *given):
            if len(now) != len(was) or any(a is not b for a, b in zip(now, was, strict=True)):
                place = self._walk.place(number) if key is None else ReadEntry(number, key, None)
                yield Change(place, was if key is None else was[0], now if key is None else now[0])
        for x in links.others:
            if x.read() != x.value:
                yield Change(ReadEntry(x.number, x.key, None), x.value, x.read())


def report_copies(
    name: str, f: Callable[..., Any], copies: ContainerCopies, users: list[User]
) -> None:
    """Warn of changes of the copied containers among the arguments."""
    for path, how in copies.changes():
        parameters = positional_names(f)
        where = label(path, parameters)
        text = f"{name}: {where} {how}. {_LOST}"
        _warn(text, users, str(argument_name(path[0], parameters)))


def _warn(text: str, users: list[User], name: str) -> None:
    line = _line([code for code, _ in users], name)
    if line is None:
        warnings.warn(text, SideEffectWarning, stacklevel=5)
    else:
        warnings.warn_explicit(text, SideEffectWarning, *line)


def _how(change: Change) -> str | None:
    """A text for a change; None for one without a warning."""
    was, now = change.was, change.now
    if now.__class__ in TENSORS and getattr(now._data, "staged", False):
        return "was given a tensor that has no values afterwards"
    if isinstance(was, tuple) and isinstance(now, tuple):
        fresh = [x for x in now if not any(x is y for y in was)]
        staged = any(x.__class__ in TENSORS for x in fresh)
        lost = ", with tensors that have no values afterwards" * staged
        return f"had {len(was)} elements and has {len(now)}{lost}"
    if was is MISSING or was is None:
        return None
    if type(was) is Content:
        return "has other contents than before"
    if now is MISSING:
        return "was deleted"
    if type(was) not in CONSTANTS or type(now) not in CONSTANTS:
        return None
    if type(was) is type(now) and (was == now or was != was):
        return None
    return f"was {shorten(repr(was), 24)} and is {shorten(repr(now), 24)}"


_STORES = ("STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR", "DELETE_GLOBAL", "DELETE_ATTR")


def _line(codes: list[CodeType], name: str) -> tuple[str, int] | None:
    """The file and line where the user's functions assign a name, else where they read it."""
    codes = [c for c in codes if not is_internal(c.co_filename)]
    codes.sort(key=lambda c: c.co_name == "__init__")  # last: it assigns what others change
    for wanted in (_STORES, None):
        for c in codes:
            for i in get_instructions(c):
                if i.argval == name and (wanted is None or i.opname in wanted):
                    at = i.positions and i.positions.lineno
                    return c.co_filename, at or c.co_firstlineno
    return (codes[0].co_filename, codes[0].co_firstlineno) if codes else None
