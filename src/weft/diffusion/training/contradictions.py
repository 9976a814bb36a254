"""What a configuration must not say: values out of range, and sections that do not go together."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import weft as wf
from weft.io.toml_lines import Path as Place
from weft.io.typed_toml import misfits_of

from ..data.folders import OTHER_IMAGES, READABLE
from ..data.settings import PILLOW_LIMIT
from .recipes import RATES

if TYPE_CHECKING:
    from .config import FolderSection, TrainConfig

Problem = tuple[Place, str]

_MOST_RANK = 8192
_MOST_REPEATS = 100_000

_MOST_STEPS = 10**9

# The least value of numbers, by their places; those with a second number are at most that.
_RANGES: dict[tuple[str, str], tuple[float, float | None]] = {
    ("model", "guidance"): (0, None),
    ("adapter", "rank"): (1, _MOST_RANK),
    ("adapter", "dropout"): (0, 1),
    ("images", "shortest"): (1, 65536),
    ("images", "longest"): (1, 65536),
    ("images", "step"): (1, 65536),
    ("images", "keep"): (0, 1),
    ("images", "crops"): (1, 1000),
    ("images", "flip"): (0, 1),
    ("images", "caption_dropout"): (0, 1),
    ("images", "orders"): (1, 1000),
    ("images", "keep_parts"): (0, None),
    ("images", "max_pixels"): (1, PILLOW_LIMIT),
    ("images", "max_bytes"): (1, 1 << 40),
    ("encoders", "pixels"): (1, 1024),
    ("encoders", "tokens"): (1, 8192),
    ("train", "steps"): (1, _MOST_STEPS),
    ("train", "epochs"): (1, _MOST_STEPS),
    ("train", "batch"): (1, 4096),
    ("train", "accumulate"): (1, 4096),
    ("train", "seed"): (0, 2**63 - 1),
    ("train", "workers"): (0, 256),
    ("train", "clip_norm"): (0, None),
    ("train", "ema"): (0, 1),
    ("train", "memory_budget_mb"): (0, 10**9),
    ("train", "unet_lr_scale"): (0, None),
    ("output", "save_every"): (1, _MOST_STEPS),
    ("output", "keep"): (1, _MOST_STEPS),
    ("output", "log_every"): (1, _MOST_STEPS),
    ("validation", "share"): (0, 0.9),
    ("validation", "every"): (1, _MOST_STEPS),
    ("validation", "levels"): (1, 10_000),
    ("preview", "every"): (1, _MOST_STEPS),
    ("preview", "steps"): (1, 10_000),
    ("preview", "guidance"): (0, None),
    ("preview", "seed"): (0, 2**63 - 1),
}
_DEVICES = {
    "train": re.compile(r"cpu|torch|cuda(:\d{1,3})?"),  # "torch": PyTorch on the CPU
    "encoders": re.compile(r"cpu|cuda(:\d{1,3})?"),
}


def contradictions(config: TrainConfig) -> Iterator[Problem]:
    """What is wrong in a configuration whose keys and types are right, with its place."""
    for place, (least, most) in _RANGES.items():
        yield from _in_range(config, place, least, most)
    yield from _devices(config)
    yield from _model(config)
    yield from _run(config)
    yield from schedule_misfits(config, config.train.steps)
    yield from _output(config)
    yield from _idle(config)
    yield from _adapters(config)
    yield from _data(config)
    yield from _images(config)
    yield from _encoders(config)
    yield from _pictures(config)


def _in_range(config: Any, place: tuple[str, str], least: float, most: Any) -> Iterator[Problem]:
    value = getattr(getattr(config, place[0]), place[1])
    if value is not None and not (least <= value and (most is None or value <= most)):
        upper = "" if most is None else f" and at most {_number(most)}"
        yield place, f"{_number(value)}, expected at least {least:g}{upper}"


def _number(value: float) -> str:
    return f"{value}" if isinstance(value, int) else f"{value:g}"


def _devices(config: TrainConfig) -> Iterator[Problem]:
    for section, known in _DEVICES.items():
        name = getattr(config, section).device
        if not known.fullmatch(name):
            yield (section, "device"), f"{name!r:.60}, expected 'cpu', 'cuda' or 'cuda:1' and so on"


def _model(config: TrainConfig) -> Iterator[Problem]:
    if config.model.cache is not None and config.model.quantise is None:
        yield (
            ("model", "cache"),
            "only quantised weights are kept, and there is no model.quantise; leave one out, or "
            "give both",
        )


def schedule_misfits(config: TrainConfig, steps: int | None) -> Iterator[Problem]:
    """What is wrong in the schedule of a run of so many steps; None: it is not known yet."""
    lr, kind = config.optimizer.lr, config.schedule.kind
    if lr is None or (steps is None and config.schedule.follows_length):
        return
    try:
        config.schedule.make(lr, steps or 1)
    except wf.errors.WeftError as e:
        for place, text in misfits_of(kind, e):
            text = text.replace("total_steps", "the run's total_steps")
            yield ("optimizer", "lr") if place and place[0] in RATES else ("schedule", *place), text


def _run(config: TrainConfig) -> Iterator[Problem]:
    train = config.train
    if train.steps is None and train.epochs is None:
        yield ("train",), "neither steps nor epochs is given; give one of them"
    if train.text_encoder_lr_scale is not None:
        yield (
            ("train", "text_encoder_lr_scale"),
            "no adapters of text encoders are trained, so that nothing would read it; leave it out",
        )
    if train.memory_budget_mb == 0:
        yield ("train", "memory_budget_mb"), f"{train.memory_budget_mb:g}, expected more than 0"
    if train.device == "cpu" and train.deterministic:
        yield ("train", "deterministic"), "runs on the CPU repeat to the bit anyway; leave it out"
    if config.optimizer.lr is None and config.schedule.name != "constant":
        yield (
            ("schedule", "name"),
            f"{config.schedule.name!r} beside an optimizer without a learning rate, which finds "
            "its own; give optimizer.lr, or leave the schedule out",
        )
    scheduled = config.schedule.name != "constant" or config.schedule.options.get("warmup_steps")
    if config.optimizer.averages and scheduled:
        yield (
            ("schedule", "name" if config.schedule.name != "constant" else "warmup_steps"),
            f"a schedule beside {config.optimizer.name!r}, which does without one; leave it out "
            "(optimizer.warmup_steps warms up), or give another optimizer.name",
        )
    if train.ema is not None and config.optimizer.averages:
        yield (
            ("train", "ema"),
            f"averages beside those of {config.optimizer.name!r}, which averages by itself; leave "
            "train.ema out, or give another optimizer.name",
        )


def _output(config: TrainConfig) -> Iterator[Problem]:
    name = config.output.name
    if not name or Path(name).name != name or not name.isprintable() or name.startswith("."):
        yield ("output", "name"), f"{name!r}, expected the name of a file, without folders"
    if len(name) > 200:
        yield ("output", "name"), f"{len(name)} characters, expected at most 200"
    if not config.output.layouts:
        yield ("output", "layouts"), "empty; give 'peft', 'kohya' or both"


def _idle(config: TrainConfig) -> Iterator[Problem]:
    """Numbers within their ranges with which nothing would be trained or averaged."""
    train = config.train
    for name in ("clip_norm", "unet_lr_scale"):
        if getattr(train, name) == 0:
            yield ("train", name), "0, with which nothing is trained; give more than 0"
    if train.ema == 1:
        yield ("train", "ema"), "1, with which averages stay what they are; give less than 1"
    if config.adapter.dropout == 1:
        yield ("adapter", "dropout"), "1, with which nothing is trained; give less than 1"
    if all([folder.weight == 0 for folder in config.data]) and config.data:
        yield ("data", 0, "weight"), "0 for all folders, with which nothing is trained"
    if config.optimizer.lr == 0:
        yield ("optimizer", "lr"), "0, with which nothing is trained; give more than 0"


def _adapters(config: TrainConfig) -> Iterator[Problem]:
    adapter, most = config.adapter, _MOST_RANK
    places: list[tuple[Place, Any]] = [(("adapter",), adapter)]
    places += [(("adapter", "rules", i), rule) for i, rule in enumerate(adapter.rules)]
    for place, part in places:
        if part.alpha is not None and not part.alpha > 0:
            yield (*place, "alpha"), f"{part.alpha:g}, expected more than 0"
    if not adapter.targets and not adapter.rules:
        yield ("adapter", "targets"), "empty, and there are no rules: nothing would be trained"
    for i, rule in enumerate(adapter.rules):
        if not 1 <= rule.rank <= most:
            problem = f"{rule.rank}, expected at least 1 and at most {most}"
            yield ("adapter", "rules", i, "rank"), problem
        if not 0 <= rule.dropout < 1:
            yield ("adapter", "rules", i, "dropout"), f"{rule.dropout:g}, expected from 0 to 1"


def _data(config: TrainConfig) -> Iterator[Problem]:
    if not config.data:
        yield ("data",), "no folder; give one or more [[data]]"
    for i, folder in enumerate(config.data):
        if not 1 <= folder.repeats <= _MOST_REPEATS:
            text = f"{folder.repeats}, expected at least 1 and at most {_MOST_REPEATS}"
            yield ("data", i, "repeats"), text
        yield from _extension(("data", i, "extension"), folder.extension)
        if folder.recursive and folder.masks is not None:
            yield (
                ("data", i, "masks"),
                "together with recursive, with which names are not unique; put masks beside their "
                "images and give mask_suffix, or leave recursive out",
            )
        yield from _mask_suffix(("data", i, "mask_suffix"), folder)
        if not folder.weight >= 0:
            yield ("data", i, "weight"), f"{folder.weight:g}, expected at least 0"
    if config.validation.folder is not None and config.validation.share:
        yield ("validation", "share"), "beside a folder; give one of them"


def _mask_suffix(place: Place, folder: FolderSection) -> Iterator[Problem]:
    suffix = folder.mask_suffix
    if suffix is not None and folder.masks is not None:
        yield place, "together with masks; give one of them"
    elif suffix is not None and (not suffix or {"/", os.sep} & set(suffix)):
        yield place, f"{suffix!r:.60}, expected the end of names without extension, as '-mask'"


def _extension(place: Place, extension: str) -> Iterator[Problem]:
    if not extension.startswith(".") or len(extension) < 2 or {"/", os.sep} & set(extension):
        yield place, f"{extension!r:.60}, expected a dot and letters, as '.txt'"
    elif extension.lower() in READABLE | OTHER_IMAGES:
        yield place, f"{extension!r:.60} is that of images; give '.txt'"


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
    if images.shortest < images.step:
        text = f"{images.shortest}, expected at least step = {images.step}"
        yield ("images", "shortest"), text
    if not images.separator and images.orders > 1:
        yield ("images", "separator"), "empty; give what stands between the parts of a caption"
    if images.shortest > images.longest:
        yield ("images", "shortest"), f"more than longest = {images.longest}"


def _encoders(config: TrainConfig) -> Iterator[Problem]:
    encoders = config.encoders
    for name in ("clip", "t5"):
        given = getattr(encoders, f"{name}_tokenizer") is not None
        if given and getattr(encoders, name) == "hash":
            yield ("encoders", f"{name}_tokenizer"), f"{name} is 'hash', which has no tokenizer"
    if (encoders.clip == "hash") != (encoders.t5 == "hash"):
        folder = "clip" if encoders.t5 == "hash" else "t5"
        yield ("encoders", folder), "clip and t5 are both folders, or both 'hash'"


def _pictures(config: TrainConfig) -> Iterator[Problem]:
    for name in ("width", "height"):
        side = getattr(config.preview, name)
        if not 0 < side <= 16384 or side % 2:
            yield ("preview", name), f"{side}, expected an even number from 2 to 16384"
