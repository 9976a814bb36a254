"""`wf.compile(module)`: a module that shares its state, and whose calls are compiled."""

from functools import lru_cache
from typing import Any


class _Forwarded:
    """An attribute that is forwarded to the compiled function, for names the module lacks."""

    def __init__(self, name: str):
        self.name = name

    def __get__(self, module, owner=None):
        return self if module is None else getattr(module._programs, self.name)


_FORWARDED = ("__wrapped__", "explain", "graph", "kernels", "recompilations", "max_variants")


def compile_module(module: Any, programs: Any) -> Any:
    """A module that shares everything with another one, and is called by programs of it.

    Both have one dictionary of attributes. So parameters, buffers, hooks, modes and whatever is
    assigned to the one are the other's, and their names are the same.
    """
    cls: type = type(module)
    made = object.__new__(_kind(cls))
    object.__setattr__(made, "__dict__", vars(module))
    object.__setattr__(made, "_programs", programs)
    return made


def _call(self, *args, **kwargs):
    return self._programs(*args, **kwargs)


def _reduce(self, protocol: int):
    """Copies and pickles are of the module, and compile afresh."""
    return compile_module, (self._programs.__wrapped__, self._programs)


@lru_cache(maxsize=None)
def _kind(cls: type) -> type:
    """The class of compiled modules of a class."""
    body: dict[str, Any] = {name: _Forwarded(name) for name in _FORWARDED if not hasattr(cls, name)}
    body |= {"__slots__": ("_programs",), "__call__": _call, "__reduce_ex__": _reduce}
    body |= {"__doc__": cls.__doc__, "__module__": cls.__module__, "_uncompiled": cls}
    return type(cls)(cls.__name__, (cls,), body)
