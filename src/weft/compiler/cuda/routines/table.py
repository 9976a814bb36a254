"""Imports every module of routines, each of which registers its own."""

from ...cache import schedules
from ...emit import variates
from . import (
    control,  # noqa: F401
    draws,  # noqa: F401
    gather,  # noqa: F401
    many,  # noqa: F401
    pools,  # noqa: F401
    running,  # noqa: F401
    scatter,  # noqa: F401
    writes,  # noqa: F401
)
from .registry import ROWS, readable, routine_of

__all__ = ["ROWS", "readable", "routine_of"]

schedules.ROUTINES.update((__name__.rpartition(".")[0], variates.__name__))
