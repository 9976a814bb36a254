"""Neural networks: operations on tensors as functions, in `functional`."""

from . import functional

__all__ = ["functional"]
