"""Pictures of prompts with the base of a configuration and an adapter file."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import Any

import weft as wf
from weft.io.durable import make_directories
from weft.nn.lora.inject import adapted_layers
from weft.nn.lora.reading import find_adapter

from ..data.prompts import embed_prompts
from ..digests import content_digest
from . import build
from .base import base_sizes
from .blaming import blaming
from .callbacks import newest_adapter
from .config import TrainConfig, read_config
from .pictures import Prompt, draw, facts_of, sampling_of, write_grid


def sample(
    config: TrainConfig | str | PathLike[str],
    adapter: str | PathLike[str] | None = None,
    *,
    base: bool = False,
    prompts: Iterable[str] | None = None,
    steps: int | None = None,
    guidance: float | None = None,
    width: int | None = None,
    height: int | None = None,
    seed: int | None = None,
    strength: float = 1.0,
    out: str | PathLike[str] = "grid.png",
) -> Path:
    """Draw prompts with a base and an adapter into one PNG file; returns its path.

    config          a TOML file, or what `read_config` gave: its base, its encoders, its [preview]
    adapter         an adapter file of any layout; None: the newest of the run
    base            whether to draw with the base alone
    prompts         one picture for each; None: those of [preview], as all that follows
    steps           of the sampler
    guidance        what models with a guidance embedding are told
    width, height   of the pictures
    seed            of the noise
    strength        what the adapter's update is multiplied by
    out             the file; what made it is written beside it, as JSON

    With the same settings a picture is, to the bit, the one that training drew at the step of the
    adapter file.

    >>> import weft as wf
    >>> wf.diffusion.sample("none.toml")
    Traceback (most recent call last):
        ...
    weft.errors.ConfigError: none.toml: cannot be read: No such file or directory (at ...)
    """
    if not isinstance(config, TrainConfig):
        config = read_config(config)
    given: dict[str, Any] = {
        "steps": steps,
        "guidance": guidance,
        "width": width,
        "height": height,
        "seed": seed,
        "prompts": None if prompts is None else tuple(prompts),
    }
    config = _with_preview(config, {k: v for k, v in given.items() if v is not None})
    out = _png(out)
    file = _adapter_file(config, adapter, base, strength)
    section, folder = config.preview, config.encoders.cache
    sizes = base_sizes(config)
    with blaming(config, ("encoders",)):
        encoders = build.make_encoders(config.encoders, sizes)
    how = sampling_of(section, encoders.image)
    make_directories(folder)  # digests of encoders are kept there
    texts = embed_prompts(section.prompts, encoders, build.make_settings(config), folder)
    model = build.load_model(config)
    if file is not None:
        wf.nn.load_lora(model, file)
        _scale(model, strength, file)
    drawn = [Prompt(text, *embeds) for text, embeds in zip(section.prompts, texts, strict=True)]
    deterministic = wf.deterministic(config.train.seed) if config.train.deterministic else None
    with deterministic or nullcontext():
        pictures = draw(model, drawn, how, encoders.image)
    facts = facts_of(model, how, section.prompts, encoders.image.factor)
    facts |= _origin(config, file, strength)
    write_grid(out, pictures, facts)
    return out


def _with_preview(config: TrainConfig, given: dict[str, Any]) -> TrainConfig:
    """A configuration with other settings of [preview], checked as those of a file are."""
    try:
        config = replace(config, preview=replace(config.preview, **given))
    except wf.errors.ConfigError as e:
        raise wf.errors.ConfigError(f"sample: {e.message}") from None
    if not config.preview.prompts:
        raise wf.errors.ConfigError(
            "sample: no prompts: give some here, or in the configuration as preview.prompts"
        )
    return config


def _png(out: str | PathLike[str]) -> Path:
    path = Path(out)
    if path.suffix.lower() != ".png":
        raise wf.errors.ArgumentError(f"sample: out={str(out)!r:.200}, expected the name of a .png")
    return path


def _adapter_file(config: TrainConfig, adapter: Any, base: bool, strength: float) -> Path | None:
    """The adapter file to draw with; None: none."""
    if base and (adapter is not None or strength != 1):
        raise wf.errors.ArgumentError(
            "sample: the base alone, and an adapter or its strength; give one of them"
        )
    if not isfinite(strength):
        raise wf.errors.ArgumentError(f"sample: strength={strength}, expected a finite number")
    if base:
        return None
    return newest_adapter(config.output) if adapter is None else find_adapter(Path(adapter))


def _scale(model: Any, strength: float, file: Path) -> None:
    """Multiply the updates of a model's adapters."""
    if strength == 1:
        return
    layers = adapted_layers(model).values()
    if any(layer.kind == "dora" for layer in layers):
        raise wf.errors.ArgumentError(
            f"sample: strength={strength:g}, and {file} is a DoRA, whose magnitudes do not scale "
            "with its update: programs differ in what another strength of it is; leave it at 1"
        )
    with wf.no_grad():
        for layer in layers:
            factor = getattr(layer, "lokr_w1" if layer.kind == "lokr" else "lora_B")
            factor.copy_(factor * strength)


def _origin(config: TrainConfig, file: Path | None, strength: float) -> dict[str, Any]:
    """What a grid was drawn with, for the file beside it."""
    model = config.model
    return {
        "base": str(model.path),
        "dtype": model.dtype,
        "quantise": model.quantise,
        "adapter": None if file is None else str(file),
        "adapter_sha256": None if file is None else content_digest(file),
        "strength": None if file is None else strength,
    }
