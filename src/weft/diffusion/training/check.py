"""Looking at everything that a run needs, without training."""

from __future__ import annotations

from collections.abc import Callable
from math import floor
from typing import TYPE_CHECKING, Any

import weft as wf

from ..data import scan
from . import build
from .fitting import check_data, check_fit, chosen_layers, linear_names

if TYPE_CHECKING:
    from .config import TrainConfig


def check_run(config: TrainConfig, say: Callable[[Any], None]) -> None:
    """Read the model's sizes, match the adapters' patterns, scan the folders; raise at problems.

    config  the configuration
    say     prints lines
    """
    sizes, encoders = check_fit(config)
    say(
        f"model: {sizes.num_layers} double and {sizes.num_single_layers} single blocks, width "
        f"{sizes.width}{', told the guidance' if sizes.guidance_embeds else ''}"
    )
    names = linear_names(sizes)
    chosen = chosen_layers(config, names)
    say(f"adapters: {len(chosen)} of {len(names)} linear layers, {config.adapter.kind}")
    image, settings = encoders.image, build.make_settings(config)
    say(f"encoders: latents of {image.channels} channels, 1/{image.factor} of the pixels' sides")
    report = scan(
        *(build.make_sources(config), settings.scan, settings.buckets),
        augmentation=settings.augmentation,
        stop=False,
    )
    say(report)
    stops = [r for r in report.refused if r.action == "stop"]
    if stops:
        raise wf.errors.DatasetError(
            f"{len(stops)} files have problems at which to stop: mend them, or "
            "give images.problems = 'skip'"
        )
    if not report.samples:
        raise wf.errors.DatasetError("no image can be trained on; see the list of problems")
    kinds = check_data(config, sizes, encoders, report)
    for line in remarks(config, build.run_length(config, kinds.batches)):
        say(line)


_UNTRAINED = 0.05  # the largest share of the beginning in an average that is not remarked on


def remarks(config: TrainConfig, steps: int) -> list[str]:
    """What a run of so many steps does as it is told, and few will want."""
    decay = config.train.ema
    share = 0.0 if decay is None else decay**steps
    if decay is None or share <= _UNTRAINED:
        return []
    most = floor(10_000 * _UNTRAINED ** (1 / steps)) / 10_000
    return [
        f"warning: train.ema = {decay:g}: after {steps} steps {100 * share:.0f} % of the averages, "
        f"which the adapter files hold, are still what there was before the first step; give "
        f"{most:g} or less, or leave ema out"
    ]
