"""Imports every module of routines, each of which registers its own."""

from . import (
    along,  # noqa: F401
    attention,  # noqa: F401
    attention_gradient,  # noqa: F401
    control,  # noqa: F401
    convolve,  # noqa: F401
    draws,  # noqa: F401
    gather,  # noqa: F401
    order,  # noqa: F401
    pooling,  # noqa: F401
    running,  # noqa: F401
    scatter,  # noqa: F401
    straight,  # noqa: F401
    thin,  # noqa: F401
)
from .registry import MAKERS, readable, routine_of

__all__ = ["MAKERS", "readable", "routine_of"]
