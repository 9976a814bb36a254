"""Diffusion transformers of the Flux architecture, and training of their adapters."""

from .config import FluxConfig
from .flow import NoiseConfig
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
from .sampler import euler_sample, sigma_schedule
from .training.config import TrainConfig, read_config
from .training.drawing import sample
from .training.run import train

__all__ = [
    "Flux",
    "FluxConfig",
    "NoiseConfig",
    "TrainConfig",
    "euler_sample",
    "image_ids",
    "pack_latents",
    "read_config",
    "sample",
    "scale_latents",
    "sigma_schedule",
    "text_ids",
    "to_original",
    "train",
    "unpack_latents",
    "unscale_latents",
]


def __dir__() -> list[str]:
    return list(__all__)
