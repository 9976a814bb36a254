"""Noticing what a function does to Python's objects while it is written down: it does so once.

Looked at are the globals and outer variables that the function and the user's functions it calls
name, the attributes of objects and the contents of lists and dicts among them. A new attribute or
key is no cause for alarm (tables are made when they are first needed), unless it holds a tensor.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from dis import get_instructions
from functools import partial
from inspect import isclass, isfunction, ismethod, ismodule
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

from ..core.origin import is_internal
from ..core.value import TENSORS
from ..errors import SideEffectWarning
from ..graph.picture import shortened
from .arguments import is_whole

_SIMPLE = (bool, int, float, complex, str, bytes, type(None))
_MISSING = object()
_MOST = 200  # functions and objects that are looked at
_REMEDY = (
    "That happens when the function is compiled, not at each call. Return what changes, keep it in "
    "a tensor, or do it outside of the function"
)


@dataclass
class Seen:
    """Something by name: what it was, and how to find it now."""

    what: str
    code: CodeType | None
    names: tuple[str, ...]
    before: Any
    now: Callable[[], Any]
    begun: bool = False  # whether it may come into being without a word


class Watch:
    """Python's state as a function finds it, to be compared with what it leaves."""

    def __init__(self, function: Callable, arguments: list):
        self._seen: list[Seen] = []
        self._plain: dict[tuple[str, int], Callable[[], Any]] = {}  # what `outer` keeps an eye on
        self._known: dict[int, Any] = {}
        self._todo: list[tuple[str, Any]] = [("", function), *[("", a) for a in arguments]]
        while self._todo and len(self._known) < _MOST:
            self._look(*self._todo.pop())

    def _look(self, label: str, x) -> None:
        if id(x) in self._known or x.__class__ in TENSORS or ismodule(x) or isclass(x):
            return
        self._known[id(x)] = x
        if isfunction(x):
            self._look_into(x)
        elif ismethod(x):
            self._todo += [("", x.__func__), (_spelled(x.__self__), x.__self__)]
        elif isinstance(x, partial):
            self._todo += [("", x.func), *[("", a) for a in (*x.args, *x.keywords.values())]]
        elif hasattr(x, "__dict__") and not _is_ours(type(x)):
            self._look_at(label or _spelled(x), x)
        elif is_whole(x):
            self._go_on(label, x)
        elif hasattr(x, "__wrapped__"):
            self._todo.append(("", x.__wrapped__))

    def _look_into(self, f: FunctionType) -> None:
        """The variables that a function finds outside of itself."""
        cells = zip(f.__code__.co_freevars, f.__closure__ or (), strict=True)
        found = [(n, partial(_content, c)) for n, c in cells]
        ours = is_internal(f.__code__.co_filename)
        codes = list(_codes(f.__code__))
        if not ours:
            names = dict.fromkeys([n for code in codes for n in _globals(code)])
            found += [(n, partial(f.__globals__.get, n, _MISSING)) for n in names]
        for name, read in found:
            value = read()
            if value is _MISSING:
                continue
            if not ours:
                self._note(name, (name,), f.__code__, value, read)
                if _is_plain(value):
                    self._plain.setdefault((name, id(value)), read)
            self._todo.append((name, value))

    def _look_at(self, label: str, x) -> None:
        """The attributes of an object."""
        forward = getattr(type(x), "forward", None) or vars(type(x)).get("__call__")
        code = getattr(forward, "__code__", None)
        if isfunction(forward) and not is_internal(forward.__code__.co_filename):
            self._todo.append(("", forward))
        held = vars(x)
        self._seen.append(
            Seen(f"the attributes of {label}", code, (), dict(held), lambda: held, begun=True)
        )
        for name, value in list(held.items()):
            self._note(f"{label}.{name}", (name,), code, value, None)
        self._go_on(label, x)

    def _go_on(self, label: str, x) -> None:
        """What an object holds, also in dicts: a module's modules."""
        for name, value in vars(x).items():
            inside = value.items() if isinstance(value, dict) else [(name, value)]
            for key, part in inside:
                if hasattr(part, "__dict__"):
                    self._todo.append((f"{label}.{key}".strip("."), part))

    def _note(self, what: str, names, code, value, read) -> None:
        """A variable, and the contents of what it holds."""
        if read is not None and type(value) in _SIMPLE:
            self._seen.append(Seen(what, code, names, value, read))
        elif type(value) in (list, set):
            self._seen.append(Seen(what, code, names, list(value), lambda: list(value)))
        elif type(value) is dict:
            self._seen.append(Seen(what, code, names, dict(value), lambda: value, begun=True))
        elif read is not None:
            self._seen.append(Seen(what, code, names, value, read, begun=True))

    def outer(self) -> list["Outer"]:
        """The plain values that the function has found outside of itself, if any."""
        found = [(name, read, read()) for (name, _), read in self._plain.items()]
        return [Outer(found)] if found else []

    def report(self, name: str) -> None:
        """Warn of what is not as it was."""
        told: set[str] = set()
        for seen in self._seen:
            for what, names, change in _changes(seen):
                if what not in told:
                    told.add(what)
                    self._warn(f"{name}: {what} {change}. {_REMEDY}", seen.code, names)

    def _warn(self, text: str, code: CodeType | None, names: tuple[str, ...]) -> None:
        functions = [x.__code__ for x in self._known.values() if isfunction(x)]
        line = _line(functions if code is None else [code, *functions], names)
        if line is None:
            warnings.warn(text, SideEffectWarning, stacklevel=5)
        else:
            warnings.warn_explicit(text, SideEffectWarning, *line)


class Outer:
    """Numbers, strings and flags in globals and outer variables: a program is built on them."""

    def __init__(self, known: list[tuple[str, Callable[[], Any], Any]]):
        self._known = known

    def holds(self) -> bool:
        """Whether all are what they were."""
        for _, read, value in self._known:
            now = read()
            if now is not value and not _alike(now, value):
                return False
        return True

    def broken(self) -> str:
        """What is not as it was."""
        for name, read, value in self._known:
            if not _alike(read(), value):
                return f"the variable {name!r}: was {value!r}, is {read()!r}"
        return "a variable that has changed meanwhile"

    def __str__(self) -> str:
        return f"these variables: {', '.join(f'{n} = {v!r}' for n, _, v in self._known)}"


def _alike(a, b) -> bool:
    """Whether two values are the same to a program: -0.0 is not 0.0, and NaN is NaN."""
    return a is b or (type(a) is type(b) and repr(a) == repr(b))


def _is_plain(value) -> bool:
    if type(value) is tuple:
        return all([_is_plain(v) for v in value])
    return type(value) in _SIMPLE


def _changes(seen: Seen) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """(what, the names it is changed by, how) for what is not as it was."""
    now = seen.now()
    if isinstance(seen.before, dict) and isinstance(now, dict):
        yield from _changed_items(seen, now)
    elif isinstance(seen.before, list) and isinstance(now, list):
        fresh = [x for x in now if not any(x is y for y in seen.before)]
        if len(now) != len(seen.before) or fresh:
            tensors = any(x.__class__ in TENSORS for x in fresh)
            how = f"had {len(seen.before)} elements and has {len(now)}"
            yield (
                seen.what,
                seen.names,
                how + (", with tensors that have no values afterwards" * tensors),
            )
    elif _differs(seen.before, now, seen.begun):
        yield seen.what, seen.names, _told(seen.before, now)


def _changed_items(seen: Seen, now: dict) -> Iterator[tuple[str, tuple[str, ...], str]]:
    for key, value in now.items():
        was = seen.before.get(key, _MISSING)
        simple = was is _MISSING or type(was) in _SIMPLE
        if not (simple or value.__class__ in TENSORS) or not _differs(was, value, True):
            continue
        owner = seen.what.removeprefix("the attributes of ")
        attribute = owner != seen.what
        what = f"{owner}.{key}" if attribute else f"{owner}[{key!r}]"
        yield what, (key,) if attribute else seen.names, _told(was, value)


def _differs(was, now, begun: bool) -> bool:
    """Whether a change is worth a word."""
    if now is was or now is _MISSING:
        return False
    if now.__class__ in TENSORS and getattr(now._data, "staged", False):
        return True
    if begun and (was is _MISSING or was is None):
        return False
    if type(was) not in _SIMPLE or type(now) not in _SIMPLE:
        return False
    return type(was) is not type(now) or (was != now and not (was != was and now != now))


def _told(was, now) -> str:
    if now.__class__ in TENSORS:
        return "was given a tensor that has no values afterwards"
    return f"was {shortened(repr(was), 24)} and is {shortened(repr(now), 24)}"


# Finding things


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _globals(code: CodeType) -> Iterator[str]:
    """The global names that a code reads or assigns; attributes are called the same sometimes."""
    for i in get_instructions(code):
        if i.opname in ("LOAD_GLOBAL", "STORE_GLOBAL", "LOAD_NAME"):
            yield i.argval


def _content(cell) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is not assigned yet
        return _MISSING


def _is_ours(kind: type) -> bool:
    """Whether a class is this package's or Python's own, and not a plain holder of attributes."""
    module = sys.modules.get(kind.__module__)
    return is_internal(getattr(module, "__file__", None) or "") and kind is not SimpleNamespace


def _spelled(x) -> str:
    return type(x).__name__


_STORES = ("STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR", "DELETE_GLOBAL", "DELETE_ATTR")


def _line(functions: list[CodeType], names: tuple[str, ...]) -> tuple[str, int] | None:
    """Where one of the names is assigned, else named, in the user's functions."""
    codes = [c for top in functions for c in _codes(top) if not is_internal(c.co_filename)]
    for wanted in (_STORES, None):
        for c in codes:
            for i in get_instructions(c):
                if i.argval in names and (wanted is None or i.opname in wanted):
                    at = i.positions and i.positions.lineno
                    return c.co_filename, at or c.co_firstlineno
    return (codes[0].co_filename, codes[0].co_firstlineno) if codes else None
