"""Whether a configuration fits what it names: files that are there, and the encoders' sizes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import weft as wf

if TYPE_CHECKING:
    from ..data.encoders import ImageEncoder
    from .config import TrainConfig


def check_paths(config: TrainConfig) -> None:
    """Raise if files or folders that a configuration names are not there; all of them are listed.

    config  the configuration
    """
    missing = [f"{key}: {path} does not exist" for key, path in _paths(config) if not path.exists()]
    if missing:
        raise wf.errors.ConfigError("\n".join([*missing, "Relative paths are beside the file"]))


def _paths(config: TrainConfig) -> Iterator[tuple[str, Path]]:
    """What is read, by its key."""
    named: dict[str, Any] = {"model.path": config.model.path, "adapter.start": config.adapter.start}
    for i, folder in enumerate(config.data):
        named |= {f"data[{i}].path": folder.path, f"data[{i}].masks": folder.masks}
    named["validation.folder"] = config.validation.folder
    for name in ("vae", "clip", "t5", "clip_tokenizer", "t5_tokenizer"):
        named[f"encoders.{name}"] = getattr(config.encoders, name)
    return ((key, path) for key, path in named.items() if isinstance(path, Path))


def check_folders(config: TrainConfig) -> None:
    """Raise if what a run writes would lie among what it reads.

    config  the configuration
    """
    writes = {"output.directory": config.output.directory, "encoders.cache": config.encoders.cache}
    for key, written in writes.items():
        place = written.resolve()
        for i, folder in enumerate(config.data):
            read = folder.path.resolve()
            if place == read or (folder.recursive and place.is_relative_to(read)):
                raise wf.errors.ConfigError(
                    f"{key}: {written} is in the folder data[{i}].path, whose pictures are trained "
                    "on; give a folder beside it"
                )
        if place == config.model.path.resolve():
            raise wf.errors.ConfigError(f"{key}: {written} is model.path; give a folder of its own")


def check_validation(config: TrainConfig) -> None:
    """Raise if a share of the images is to be validated on, and none of them may be.

    config  the configuration
    """
    if config.validation.share and all([folder.regularisation for folder in config.data]):
        raise wf.errors.ConfigError(
            "validation.share: all folders have regularisation = true, whose images are not "
            "validated on; give validation.folder, or leave share out"
        )


def check_sizes(config: TrainConfig, image: ImageEncoder) -> None:
    """Raise if sizes in pixels are not whole tokens of the model.

    config  the configuration
    image   the encoder of images: a token is 2 × 2 of its latents
    """
    side = 2 * image.factor
    sizes = {"images.step": config.images.step}
    if config.preview.prompts:
        sizes |= {f"preview.{n}": getattr(config.preview, n) for n in ("width", "height")}
    wrong = [f"{key}: {size}, expected a multiple of {side}" for key, size in sizes.items()]
    wrong = [line for line, size in zip(wrong, sizes.values(), strict=True) if size % side]
    if wrong:
        why = f"A token is {side} × {side} pixels: two by two latents of {image.factor} each"
        raise wf.errors.ConfigError("\n".join([*wrong, why]))
