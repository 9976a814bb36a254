"""Namespaces over raw arrays: NumPy by default, PyTorch where its devices are used."""

from importlib import import_module
from types import ModuleType

from ..core.backends import BACKENDS
from .numpy import namespace as numpy_


def _find_torch(cls: type) -> ModuleType | None:
    """Load the torch backend at the first torch array; torch itself is loaded by then."""
    if cls.__module__.partition(".")[0] != "torch":
        return None
    import_module(f"{__name__}.torch.namespace")
    return BACKENDS.get(cls)


BACKENDS.finders.append(_find_torch)

__all__ = ["BACKENDS", "numpy_"]
