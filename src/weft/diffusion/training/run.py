"""A training run from its configuration to its adapter file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import weft as wf
from weft.train.joining import joined_ranks
from weft.train.rewind import check_step, go_back

from ..data import CachedDataset, CacheReport, Encoders, ScanReport, cache
from . import build
from .callbacks import AdapterFiles, Previews
from .config import TrainConfig, read_config
from .fitting import check_data, check_fit
from .footprint import reserved_bytes
from .identity import RunIdentity
from .joining import Progress, in_turn, joined
from .kinds import RunKinds
from .out_of_memory import out_of_memory_explained
from .pictures import Prompt, sampling_of
from .validation import ValidationBatches


@dataclass(frozen=True)
class RunData:
    """The data of a run, all of it in the cache.

    encoders    that the cache was made with
    trained     what is trained on
    validation  what is validated on; None: nothing
    report      what was found and computed
    reserve     bytes of a budget that steps do not get
    """

    encoders: Encoders
    trained: CachedDataset
    validation: CachedDataset | None
    report: CacheReport
    reserve: int


def prepare_data(
    config: TrainConfig,
    progress: Callable[[str, int, int], None] | None = None,
    from_step: int | None = None,
) -> RunData:
    """Scan the folders, and compute what is missing of the cache.

    config     the configuration
    progress   called with a stage, how much of it is done, and how much there is
    from_step  as of `train`

    Ranks do it one after the other: rank 0 computes, the others find it in the cache.
    """
    ranks = joined_ranks(config.train.dist and wf.dist.is_initialized())
    return in_turn(ranks, "the data", partial(_prepare, config, from_step), progress)


def _prepare(config: TrainConfig, from_step: int | None, progress: Progress) -> RunData:
    sizes, encoders = check_fit(config)
    sources, settings = build.make_sources(config), build.make_settings(config)
    folder, prompts = config.encoders.cache, config.preview.prompts
    found: list[RunKinds] = []

    def examine(report: ScanReport) -> None:
        found.append(check_data(config, sizes, encoders, report, from_step))

    _, report = cache(sources, encoders, settings, folder, progress, prompts, examine)
    (kinds,) = found
    trained, kept = kinds.samples
    return RunData(
        encoders,
        CachedDataset(trained, encoders, settings, folder, prompts),
        CachedDataset(kept, encoders, settings, folder) if kept else None,
        report,
        reserved_bytes(config, sizes, kinds),
    )


def run_callbacks(config: TrainConfig, data: RunData) -> list[Any]:
    """What a run leaves while it goes on: adapter files, curves, pictures.

    config  the configuration
    data    what `prepare_data` gave
    """
    output = config.output
    found: list[Any] = [RunIdentity(config, data.trained), AdapterFiles(output)]
    found.append(wf.train.Curves(output.directory / "curves.png"))
    if output.tensorboard:
        found.append(wf.train.TensorBoard(output.directory / "events"))
    if config.preview.prompts:
        found.append(_previews(config, data))
    return found


def _previews(config: TrainConfig, data: RunData) -> Previews:
    section, image = config.preview, data.encoders.image
    how = sampling_of(section, image)
    prompts = [Prompt(text, *data.trained.embeddings(text)) for text in section.prompts]
    output = config.output
    folder = output.directory / "previews"
    return Previews(prompts, how, section.every, folder, image, output.dtype)


def train(
    config: TrainConfig | str | PathLike[str],
    progress: Callable[[str, int, int], None] | None = None,
    from_step: int | None = None,
) -> Path:
    """Train adapters; a run that was interrupted goes on. Returns the adapter file.

    config     a TOML file, or what `read_config` gave
    progress   of the cache: called with a stage, how much of it is done, and how much there is
    from_step  go on from the checkpoint of this step, and set later ones aside; 0: begin anew

    >>> import weft as wf
    >>> wf.diffusion.train("none.toml")
    Traceback (most recent call last):
        ...
    weft.errors.ConfigError: none.toml: cannot be read: No such file or directory (at ...)
    """
    if not isinstance(config, TrainConfig):
        config = read_config(config)
    if from_step is not None:
        check_step(config.output.directory, from_step)
    with joined(config) as (config, _):
        return train_on(config, prepare_data(config, progress, from_step), from_step)


def train_on(config: TrainConfig, data: RunData, from_step: int | None = None) -> Path:
    """Train adapters on data that is in the cache; returns the adapter file.

    config     the configuration
    data       what `prepare_data` gave
    from_step  as of `train`
    """
    if from_step is not None:
        ranks, folder = joined_ranks(config.train.dist), config.output.directory
        ranks.from_first("going back", lambda: go_back(folder, from_step))
    with out_of_memory_explained(config), _counted(config.train.device):
        _fit(config, data)
    layout = "" if "peft" in config.output.layouts else "-kohya"
    return config.output.directory / "adapters" / f"{config.output.name}{layout}.safetensors"


def _counted(device: str) -> AbstractContextManager[Any]:
    """A block whose memory the progress shows: the model's and the steps', not the encoders'."""
    if device.startswith("cuda"):
        wf.cuda.reset_peak_memory_stats(device)
    return wf.profile.Counter() if device == "cpu" else nullcontext()


def _fit(config: TrainConfig, data: RunData) -> None:
    wf.random.seed(config.train.seed)
    model = build.load_model(config)
    build.add_adapters(model, config)
    loader = build.make_loader(data.trained, config)
    steps = build.run_length(config, len(loader))
    directory, callbacks = config.output.directory, run_callbacks(config, data)
    trainer = build.make_trainer(config, model, steps, callbacks, directory, data.reserve)
    validation = None
    if data.validation is not None:
        section = config.validation
        validation = ValidationBatches(data.validation, section.levels, config.train.seed)
    deterministic = wf.deterministic(config.train.seed) if config.train.deterministic else None
    with deterministic or nullcontext():
        trainer.fit(
            loader,
            epochs=config.train.epochs,
            steps=config.train.steps,
            validation=validation,
            validate_every=None if validation is None else config.validation.every,
            resume="auto",
        )
