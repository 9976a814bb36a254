"""The public functions by name, as a graph offers them."""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import lru_cache
from inspect import isfunction
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...arrays.namespace import FUNCTIONS, MODULES

if TYPE_CHECKING:
    from .graph import Graph

# The modules whose functions are not in `wf` itself, and those of `wf` that are loaded lazily.
_SECTIONS = ("nn.functional", *MODULES)
_LATER = ("transform.control.loops", "transform.checkpoint.replayed", "transform.solve.ode")


def public() -> ModuleType:
    """The package itself, imported at first use: its functions are in layers above this one."""
    import weft

    return weft


def section(path: str) -> ModuleType:
    """A module below the package: `nn.functional`, `linalg`."""
    found = public()
    for name in path.split("."):
        found = getattr(found, name)
    return found


def functions_in(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """The public functions of a module: those in `__all__`, else those defined in it."""
    if hasattr(module, "__all__"):
        found = {n: getattr(module, n) for n in module.__all__}
    else:
        found = {n: f for n, f in vars(module).items() if not n.startswith("_") and isfunction(f)}
        found = {n: f for n, f in found.items() if f.__globals__ is vars(module)}
    return {n: f for n, f in found.items() if callable(f) and not isinstance(f, type)}


@lru_cache(maxsize=1)
def functions() -> dict[str, Callable[..., Any]]:
    """All functions that a graph has as methods; for equal names `wf.name` comes first."""
    found: dict[str, Callable[..., Any]] = {}
    for path in reversed(_SECTIONS):
        found |= functions_in(section(path))
    homes = public()._HOMES
    found |= {n: getattr(public(), n) for n, (module, _) in homes.items() if module in _LATER}
    return found | {n: f for n, f in FUNCTIONS.items() if not n.startswith("_")}


class Section:
    """A module whose functions record calls: `g.linalg`, `g.nn.functional`."""

    def __init__(self, graph: "Graph", path: str):
        self._graph, self._path = graph, path

    def __getattr__(self, name: str) -> Any:
        if f"{self._path}.{name}" in _SECTIONS:
            return Section(self._graph, f"{self._path}.{name}")
        found = functions_in(section(self._path)) if self._path in _SECTIONS else {}
        if name not in found:
            raise AttributeError(unknown(f"g.{self._path}", name, found))
        return self._graph.recorder(name, found[name])

    def __dir__(self) -> list[str]:
        inside = {p.removeprefix(f"{self._path}.") for p in _SECTIONS if p.startswith(self._path)}
        return sorted(functions_in(section(self._path)) if self._path in _SECTIONS else inside)


SECTIONS = tuple({p.partition(".")[0] for p in _SECTIONS})


def unknown(where: str, name: str, known: Iterable[str]) -> str:
    """The message for a name that does not exist."""
    near = get_close_matches(name, known, 3)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"{where} has no {name!r}{hint}"
