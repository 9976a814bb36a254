"""Who holds an object: the variable, list, attribute or closure that keeps it alive, in words."""

import gc
import os
import sys
from collections import deque
from collections.abc import Iterator
from types import CellType, FrameType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

from ..core.origin import is_internal
from .origins import variables_of

_CONTAINERS = (list, tuple, dict, set, frozenset, deque)
_DEPTH = 8  # of containers within containers


def user_frames() -> list[FrameType]:
    """The frames of the user's code that are running, of all threads."""
    found = []
    at: FrameType | None
    for at in sys._current_frames().values():
        while at is not None:  # so that no variable is left that holds this frame itself
            if not is_internal(at.f_code.co_filename):
                found.append(at)
            at = at.f_back
    return found


def variables() -> dict[int, str]:
    """Names of the objects that running functions of the user hold in variables, by identity."""
    found: dict[int, str] = {}
    for frame in user_frames():
        code = frame.f_code
        if frame.f_locals is frame.f_globals:
            where = f"in module {frame.f_globals.get('__name__')}"
        else:
            where = f"of function {code.co_name} ({os.path.basename(code.co_filename)})"
        for name, value in variables_of(frame).items():
            found.setdefault(id(value), f"`{name}` {where}")
    return found


class Holders:
    """Finds who holds objects, at one moment.

    apart  the identities of objects that do not count: the searcher's own containers
    """

    def __init__(self, apart: set[int]):
        self._apart = apart
        self._variables = variables()
        self._modules = {
            id(vars(m)): name for name, m in list(sys.modules.items()) if isinstance(m, ModuleType)
        }

    def describe(self, held: object) -> str | None:
        """What holds an object: "list `losses` of function train (train.py)"; None: unknown."""
        return self._find(held, {id(held)}, _DEPTH)

    def _find(self, held: object, seen: set[int], depth: int) -> str | None:
        name = self._variables.get(id(held))
        if name is not None or depth == 0:
            return name
        referrers = gc.get_referrers(held)
        self._apart.add(id(referrers))
        best = None
        for holder in referrers:
            if id(holder) in seen or id(holder) in self._apart or isinstance(holder, FrameType):
                continue
            seen.add(id(holder))
            found, is_named = self._through(holder, held, seen, depth - 1)
            if is_named:
                return found
            best = best or found
        return best

    def _through(
        self, holder: Any, held: object, seen: set[int], depth: int
    ) -> tuple[str | None, bool]:
        """How an object is held by another one, and whether that has a name of the user's."""
        if id(holder) in self._modules:
            if is_internal(getattr(sys.modules[self._modules[id(holder)]], "__file__", "") or ""):
                return None, False
            return f"`{_key(holder, held)}` in module {self._modules[id(holder)]}", True
        if isinstance(holder, FunctionType | GeneratorType):
            return _in_function(holder, held), True
        if isinstance(holder, CellType | MethodType):
            outer = self._find(holder, seen, depth)
            return outer, outer is not None
        if isinstance(holder, dict) and (owner := _instance(holder)) is not None:
            return f"`.{_key(holder, held)}` of {type(owner).__name__}", True
        if isinstance(holder, _CONTAINERS):
            outer, kind = self._find(holder, seen, depth), type(holder).__name__
            if outer is None:
                return f"a {kind}", False
            if outer.startswith("closure"):  # a tuple of cells
                return outer, True
            return f"{kind} {outer}" if outer.startswith("`") else f"a {kind} in {outer}", True
        if isinstance(holder, type) or type(holder).__module__.startswith("weft.core"):
            return None, False
        name = next((n for n, v in _attributes(holder) if v is held), None)
        kind = type(holder).__name__
        return (f"`.{name}` of {kind}", True) if name else (f"a {kind}", False)


def _in_function(holder: Any, held: object) -> str:
    """How a function or a suspended generator holds an object."""
    if isinstance(holder, FunctionType):
        code = holder.__code__
        line = f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}"
        return f"closure of function {holder.__name__} ({line})"
    name = "" if holder.gi_frame is None else _key(variables_of(holder.gi_frame), held)
    return f"`{name}` of generator {holder.__name__}"


def _key(holder: dict[Any, Any], held: object) -> Any:
    return next((k for k, v in list(holder.items()) if v is held), "?")


def _instance(attributes: dict[Any, Any]) -> object | None:
    """The object whose `__dict__` this is."""
    for owner in gc.get_referrers(attributes):
        if getattr(owner, "__dict__", None) is attributes:
            return owner
    return None


def _attributes(holder: object) -> Iterator[tuple[str, Any]]:
    """The attributes of an object: its dict's, and its slots'."""
    yield from getattr(holder, "__dict__", {}).items()
    for cls in type(holder).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(holder, name):
                yield name, getattr(holder, name)
