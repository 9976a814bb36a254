"""Clipping gradients, as functions."""

from .optim.gradient_clipping import clip_by_global_norm, clip_by_value

__all__ = ["clip_by_global_norm", "clip_by_value"]


def __dir__() -> list[str]:
    return list(__all__)
