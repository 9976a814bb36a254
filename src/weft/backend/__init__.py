"""Namespaces over raw arrays: NumPy by default, PyTorch where it is asked for."""

from importlib import import_module
from types import ModuleType

from ..core.backends import BACKENDS
from .numpy import namespace as numpy_


def _find_torch(cls: type) -> ModuleType | None:
    """Load the torch backend when a torch array is first met; torch itself is loaded then."""
    if cls.__module__.partition(".")[0] != "torch":
        return None
    import_module(f"{__name__}.torch.namespace")
    return BACKENDS.get(cls)


BACKENDS.finders.append(_find_torch)

__all__ = ["BACKENDS", "numpy_"]
