"""Looking at everything that a run needs, without training."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from fnmatch import fnmatchcase
from re import sub
from typing import TYPE_CHECKING, Any

import weft as wf

from ..data import scan
from ..flux import Flux
from ..weights import model_sizes
from . import build
from .fitting import check_folders, check_paths, check_sizes, check_validation

if TYPE_CHECKING:
    from .config import TrainConfig


def check_run(config: TrainConfig, say: Callable[[Any], None]) -> None:
    """Read the model's sizes, match the adapters' patterns, scan the folders; raise at problems.

    config  the configuration
    say     prints a line or a report
    """
    check_paths(config)
    check_folders(config)
    check_validation(config)
    wf.zeros(0, device=config.train.device)  # an error if there is none of this name
    sizes = model_sizes(config.model.path)
    say(
        f"model: {sizes.num_layers} double and {sizes.num_single_layers} single blocks, width "
        f"{sizes.width}{', told the guidance' if sizes.guidance_embeds else ''}"
    )
    named = linear_names(sizes)
    chosen = matched(config, named)
    say(f"adapters: {len(chosen)} of {len(named)} linear layers, {config.adapter.kind}")
    encoders = build.make_encoders(config.encoders, sizes)
    image, settings = encoders.image, build.make_settings(config)
    check_sizes(config, image)
    say(f"encoders: latents of {image.channels} channels, 1/{image.factor} of the pixels' sides")
    report = scan(
        *(build.make_sources(config), settings.scan, settings.buckets),
        augmentation=settings.augmentation,
    )
    say(report)
    if not report.samples:
        raise wf.errors.DatasetError("no image can be trained on; see the list of problems")


def linear_names(sizes: Any) -> list[str]:
    """The names of a model's linear layers."""
    model = Flux(sizes, empty=True)
    return [name for name, m in model.named_modules() if isinstance(m, wf.nn.Linear)]


def matched(config: TrainConfig, names: list[str]) -> list[str]:
    """The layers that get adapters; a pattern that matches none is an error."""
    section = config.adapter
    patterns = [*[rule.pattern for rule in section.rules], *section.targets]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            kinds = dict.fromkeys(sub(r"\.\d+\.", ".*.", name) for name in names)
            near = get_close_matches(pattern, kinds, 4, 0.0)
            raise wf.errors.ConfigError(
                f"adapter: {pattern!r} matches none of the {len(names)} linear layers; among them "
                f"are {', '.join(near)}"
            )
    return [name for name in names if any(fnmatchcase(name, p) for p in patterns)]
