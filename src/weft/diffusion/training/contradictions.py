"""What a configuration must not say: values out of range, and sections that do not go together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import weft as wf
from weft.io.toml_lines import Path as Place

if TYPE_CHECKING:
    from .config import TrainConfig

Problem = tuple[Place, str]

# The least value of numbers, by their places; those with a second number are at most that.
_RANGES: dict[tuple[str, str], tuple[float, float | None]] = {
    ("model", "guidance"): (0, None),
    ("adapter", "rank"): (1, None),
    ("adapter", "dropout"): (0, 1),
    ("images", "shortest"): (1, None),
    ("images", "step"): (1, None),
    ("images", "keep"): (0, 1),
    ("images", "crops"): (1, 1000),
    ("images", "flip"): (0, 1),
    ("images", "caption_dropout"): (0, 1),
    ("images", "orders"): (1, 1000),
    ("images", "keep_parts"): (0, None),
    ("encoders", "tokens"): (1, None),
    ("train", "steps"): (1, None),
    ("train", "epochs"): (1, None),
    ("train", "batch"): (1, None),
    ("train", "accumulate"): (1, None),
    ("train", "seed"): (0, None),
    ("train", "workers"): (0, None),
    ("train", "clip_norm"): (0, None),
    ("train", "ema"): (0, 1),
    ("train", "unet_lr_scale"): (0, None),
    ("output", "save_every"): (1, None),
    ("output", "keep"): (1, None),
    ("output", "log_every"): (1, None),
    ("validation", "share"): (0, 0.9),
    ("validation", "every"): (1, None),
    ("validation", "levels"): (1, None),
    ("preview", "every"): (1, None),
    ("preview", "steps"): (1, None),
    ("preview", "guidance"): (0, None),
    ("preview", "seed"): (0, None),
}


def contradictions(config: TrainConfig) -> Iterator[Problem]:
    """What is wrong in a configuration whose keys and types are right, with its place."""
    for place, (least, most) in _RANGES.items():
        yield from _in_range(config, place, least, most)
    yield from _run(config)
    yield from _adapters(config)
    yield from _data(config)
    yield from _images(config)
    yield from _encoders(config)
    yield from _pictures(config)


def _in_range(config: Any, place: tuple[str, str], least: float, most: Any) -> Iterator[Problem]:
    value = getattr(getattr(config, place[0]), place[1])
    if value is not None and not (least <= value and (most is None or value <= most)):
        upper = "" if most is None else f" and at most {most:g}"
        yield place, f"{value:g}, expected at least {least:g}{upper}"


def _run(config: TrainConfig) -> Iterator[Problem]:
    train, name = config.train, config.output.name
    if train.steps is None and train.epochs is None:
        yield ("train",), "neither steps nor epochs is given; give one of them"
    if train.text_encoder_lr_scale is not None:
        yield (
            ("train", "text_encoder_lr_scale"),
            "no adapters of text encoders are trained, so that nothing would read it; leave it out",
        )
    if train.memory_budget_mb is not None and not train.memory_budget_mb > 0:
        yield ("train", "memory_budget_mb"), f"{train.memory_budget_mb:g}, expected more than 0"
    if train.device == "cpu" and train.deterministic:
        yield ("train", "deterministic"), "runs on the CPU repeat to the bit anyway; leave it out"
    if not name or Path(name).name != name or not name.isprintable() or name.startswith("."):
        yield ("output", "name"), f"{name!r}, expected the name of a file, without folders"
    if not config.output.layouts:
        yield ("output", "layouts"), "empty; give 'peft', 'kohya' or both"
    if config.optimizer.lr is None and config.schedule.name != "constant":
        yield (
            ("schedule", "name"),
            f"{config.schedule.name!r} beside an optimizer without a learning rate, which finds "
            "its own; give optimizer.lr, or leave the schedule out",
        )
    elif config.optimizer.lr is not None and train.steps is not None and train.epochs is None:
        try:
            config.schedule.make(config.optimizer.lr, train.steps)
        except wf.errors.ArgumentError as e:
            yield ("schedule",), e.message


def _adapters(config: TrainConfig) -> Iterator[Problem]:
    adapter = config.adapter
    if not adapter.targets and not adapter.rules:
        yield ("adapter", "targets"), "empty, and there are no rules: nothing would be trained"
    for i, rule in enumerate(adapter.rules):
        if rule.rank < 1:
            yield ("adapter", "rules", i, "rank"), f"{rule.rank}, expected at least 1"
        if not 0 <= rule.dropout < 1:
            yield ("adapter", "rules", i, "dropout"), f"{rule.dropout:g}, expected from 0 to 1"
    if adapter.kind == "lokr" and config.output.layouts != ("kohya",):
        yield (
            ("output", "layouts"),
            "LoKr adapters exist in the layout 'kohya' only, which LyCORIS and ComfyUI read; "
            "diffusers has no loader for them",
        )


def _data(config: TrainConfig) -> Iterator[Problem]:
    if not config.data:
        yield ("data",), "no folder; give one or more [[data]]"
    for i, folder in enumerate(config.data):
        if folder.repeats < 1:
            yield ("data", i, "repeats"), f"{folder.repeats}, expected at least 1"
        if not folder.weight >= 0:
            yield ("data", i, "weight"), f"{folder.weight:g}, expected at least 0"
    if config.validation.folder is not None and config.validation.share:
        yield ("validation", "share"), "beside a folder; give one of them"


def _images(config: TrainConfig) -> Iterator[Problem]:
    images = config.images
    if not images.resolutions:
        yield ("images", "resolutions"), "empty; give one or more"
    for i, side in enumerate(images.resolutions):
        if not images.shortest <= side <= images.longest:
            yield (
                ("images", "resolutions", i),
                f"{side}, expected from shortest = {images.shortest} to longest = {images.longest}",
            )
    if (images.crop == "random") != (images.crops is not None):
        yield (
            ("images", "crops"),
            "latents are cached, so that crop = 'random' needs crops, how many places of each "
            "image are; crop = 'center' has one",
        )
    if images.shortest > images.longest:
        yield ("images", "shortest"), f"more than longest = {images.longest}"


def _encoders(config: TrainConfig) -> Iterator[Problem]:
    encoders = config.encoders
    for name in ("clip", "t5"):
        given = getattr(encoders, f"{name}_tokenizer") is not None
        if given and getattr(encoders, name) == "hash":
            yield ("encoders", f"{name}_tokenizer"), f"{name} is 'hash', which has no tokenizer"
    if (encoders.clip == "hash") != (encoders.t5 == "hash"):
        yield ("encoders",), "clip and t5 are both folders, or both 'hash'"


def _pictures(config: TrainConfig) -> Iterator[Problem]:
    for name in ("width", "height"):
        side = getattr(config.preview, name)
        if side < 1 or side % 2:
            yield ("preview", name), f"{side}, expected an even number > 0"
