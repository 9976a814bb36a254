"""Where a function finds its tensors: names and attributes that must still hold them at a call.

Captured tensors are known by identity. So that another tensor under the same name is not missed,
variables, attributes and items that lead from the function to them are looked at before each call.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from inspect import isclass, isfunction, ismethod, ismodule
from types import CellType, CodeType, FunctionType
from typing import Any

from ..core.origin import is_internal
from ..core.value import TENSORS
from .arguments import is_whole

_MOST = 20_000  # objects that are looked at
_LEAVES = (str, bytes, int, float, complex, bool, type(None), type)

# (holder, key, what it holds)
Link = tuple[Any, Any, Any]


class Holders:
    """The links between a function and the tensors it found."""

    def __init__(self, links: Iterable[Link]):
        links = list(links)
        self._dicts = [x for x in links if isinstance(x[0], dict)]
        self._lists = [x for x in links if isinstance(x[0], list)]
        self._cells = [x for x in links if isinstance(x[0], CellType)]

    def changed(self) -> str | None:
        """What holds something else now; None if nothing does."""
        for holder, key, value in self._dicts:
            if holder.get(key) is not value:
                return f"what {key!r} is"
        for holder, key, value in self._lists:
            if key >= len(holder) or holder[key] is not value:
                return f"item {key} of a list"
        for cell, name, value in self._cells:
            if cell.cell_contents is not value:
                return f"what {name!r} is"
        return None


def holders(function: Callable, arguments: list, tensors: list) -> Holders:
    """What leads from a function and its static arguments to tensors that it found."""
    wanted = {id(t) for t in tensors}
    if not wanted:
        return Holders(())
    above: dict[int, list[tuple[int, Link]]] = {}
    for source, link in _links([function, *arguments]):
        above.setdefault(id(link[2]), []).append((source, link))
    leading: list[Link] = []
    todo, done = list(wanted), set()
    while todo:
        target = todo.pop()
        if target in done:
            continue
        done.add(target)
        for source, link in above.get(target, ()):
            if isinstance(link[0], dict | list | CellType):
                leading.append(link)
            todo.append(source)
    return Holders(leading)


def _links(roots: list) -> list[tuple[int, Link]]:
    """(whose part it is, the link) for everything that can be reached."""
    found: list[tuple[int, Link]] = []
    known: dict[int, Any] = {}
    todo = list(roots)
    while todo and len(known) < _MOST:
        x = todo.pop()
        if id(x) in known:
            continue
        known[id(x)] = x
        for link in _parts(x):
            if not isinstance(link[2], _LEAVES) and not ismodule(link[2]):
                found.append((id(x), link))
                if link[2].__class__ not in TENSORS:
                    todo.append(link[2])
    return found


def _parts(x) -> Iterator[Link]:
    """What an object holds, and by which key."""
    if isinstance(x, dict):
        yield from [(x, k, v) for k, v in x.items()]
    elif isinstance(x, list):
        yield from [(x, k, v) for k, v in enumerate(x)]
    elif isinstance(x, tuple | set | frozenset):
        yield from [(None, None, v) for v in x]
    elif isfunction(x):
        yield from _variables(x)
    elif ismethod(x):
        yield from [(None, None, x.__func__), (None, None, x.__self__)]
    elif isinstance(x, partial):
        yield from [(None, None, v) for v in (x.func, *x.args, *x.keywords.values())]
    elif not isclass(x) and hasattr(x, "__dict__") and (is_whole(x) or not _is_ours(type(x))):
        yield from [(vars(x), k, v) for k, v in vars(x).items()]
        forward = getattr(type(x), "forward", None) or vars(type(x)).get("__call__")
        if isfunction(forward):
            yield (None, None, forward)
    elif (wrapped := getattr(x, "__wrapped__", None)) is not None:
        yield (None, None, wrapped)


def _variables(f: FunctionType) -> Iterator[Link]:
    """The variables outside of a function that it names."""
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        try:
            yield (cell, name, cell.cell_contents)
        except ValueError:  # it is not assigned yet
            continue
    if is_internal(f.__code__.co_filename):
        return
    given = (*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values())
    yield from [(None, None, v) for v in given]
    for name in dict.fromkeys(_names(f.__code__)):
        if name in f.__globals__:
            yield (f.__globals__, name, f.__globals__[name])


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_ours(kind: type) -> bool:
    """Whether a class is this package's, which keeps track of its tensors by itself."""
    module = sys.modules.get(kind.__module__)
    return is_internal(getattr(module, "__file__", None) or "")
