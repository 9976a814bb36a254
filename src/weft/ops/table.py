"""The whole table; otherwise a row is registered when its module is first imported."""

from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules

from ..core.op import TABLE, Op
from . import __path__


@lru_cache(maxsize=1)
def whole() -> dict[str, Op]:
    """Every row by its name."""
    for module in iter_modules(__path__):
        import_module(f"{__package__}.{module.name}")
    return TABLE
