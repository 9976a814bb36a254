"""Looking up a backend's names: in a list of its library's, then in its families of kernels."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.abc import SourceLoader
from importlib.util import find_spec
from sys import stdlib_module_names
from types import ModuleType
from typing import Any

_OTHERS = stdlib_module_names - {"_operator"}  # of Python's operators, which are kernels too


def lookup(
    namespace: dict[str, Any], families: Sequence[str], library: Mapping[ModuleType, str]
) -> Callable[[str], Any]:
    """The `__getattr__` of a backend's module: a name that is listed nowhere is an error.

    families  the modules beside it, in order; one whose text has a name is loaded first
    library   names that the backend's library has as we want them, by its modules; no family has
              one of them, so that none is loaded for it
    """
    homes = {name: module for module, names in library.items() for name in names.split()}

    absent: set[str] = set()  # names that were asked for in vain

    def in_families(attribute: str) -> Any:
        modules = [f"{namespace['__package__']}.{family}" for family in families]
        likely = [module for module in modules if attribute in _text(module)]
        for module in (*likely, *modules):  # a name may also be assembled
            found = vars(import_module(module)).get(attribute)
            if _is_kernel(found):
                return found
        return None

    def find(attribute: str) -> Any:
        if attribute.startswith("__") or attribute in absent:
            raise AttributeError(f"the {namespace['name']} backend has no {attribute!r}")
        found = (
            getattr(homes[attribute], attribute) if attribute in homes else in_families(attribute)
        )
        if found is None:
            absent.add(attribute)
            raise AttributeError(f"the {namespace['name']} backend has no {attribute!r}")
        namespace[attribute] = found
        return found

    return find


@lru_cache(maxsize=None)
def _text(module: str) -> str:
    """The source of a module, which is not loaded for it; empty if there is none."""
    spec = find_spec(module)
    loader = None if spec is None else spec.loader
    source = loader.get_source(module) if isinstance(loader, SourceLoader) else None
    return source or ""


def _is_kernel(x: Any) -> bool:
    """Whether a family's name is a kernel, and no import of its own (`math.prod`, a class)."""
    return callable(x) and not isinstance(x, type) and getattr(x, "__module__", "") not in _OTHERS
