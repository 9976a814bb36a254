"""Looking up a backend's names: in its families of kernels, then in a list of its library's."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from sys import stdlib_module_names
from types import ModuleType
from typing import Any

_OTHERS = stdlib_module_names - {"_operator"}  # of Python's operators, which are kernels too


def lookup(
    namespace: dict[str, Any], families: Sequence[str], library: Mapping[ModuleType, str]
) -> Callable[[str], Any]:
    """The `__getattr__` of a backend's module: a name that is listed nowhere is an error.

    families  the modules beside it, in order; each is loaded when a name is not in those before it
    library   names that the backend's library has as we want them, by its modules
    """
    homes = {name: module for module, names in library.items() for name in names.split()}

    absent: set[str] = set()  # names that were asked for in vain

    def find(attribute: str) -> Any:
        if attribute.startswith("__") or attribute in absent:
            raise AttributeError(f"the {namespace['name']} backend has no {attribute!r}")
        for family in families:
            found = vars(import_module(f"{namespace['__package__']}.{family}")).get(attribute)
            if _is_kernel(found):
                break
        else:
            if attribute not in homes:
                absent.add(attribute)
                raise AttributeError(f"the {namespace['name']} backend has no {attribute!r}")
            found = getattr(homes[attribute], attribute)
        namespace[attribute] = found
        return found

    return find


def _is_kernel(x: Any) -> bool:
    """Whether a family's name is a kernel, and no import of its own (`math.prod`, a class)."""
    return callable(x) and not isinstance(x, type) and getattr(x, "__module__", "") not in _OTHERS
