"""Diffusion transformers of the Flux architecture: the model, its weights on disk, its latents."""

from .config import FluxConfig
from .flux import Flux
from .latents import (
    image_ids,
    pack_latents,
    scale_latents,
    text_ids,
    unpack_latents,
    unscale_latents,
)
from .layout import to_original

__all__ = [
    "Flux",
    "FluxConfig",
    "image_ids",
    "pack_latents",
    "scale_latents",
    "text_ids",
    "to_original",
    "unpack_latents",
    "unscale_latents",
]


def __dir__() -> list[str]:
    return list(__all__)
