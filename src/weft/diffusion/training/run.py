"""A training run from its configuration to its adapter file."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import weft as wf

from ..data import CachedDataset, CacheReport, Encoders, cache
from ..weights import model_sizes
from . import build
from .callbacks import AdapterFiles, Previews, Prompt
from .config import TrainConfig, read_config
from .fitting import check_paths, check_sizes
from .objective import FlowObjective
from .pictures import Sampling
from .validation import ValidationBatches, split_samples

if TYPE_CHECKING:
    from ..flux import Flux


@dataclass(frozen=True)
class RunData:
    """The data of a run, all of it in the cache.

    encoders    that the cache was made with
    trained     what is trained on
    validation  what is validated on; None: nothing
    report      what was found and computed
    """

    encoders: Encoders
    trained: CachedDataset
    validation: CachedDataset | None
    report: CacheReport


def prepare_data(
    config: TrainConfig, progress: Callable[[str, int, int], None] | None = None
) -> RunData:
    """Scan the folders, and compute what is missing of the cache.

    config    the configuration
    progress  called with a stage, how much of it is done, and how much there is
    """
    check_paths(config)
    encoders = build.make_encoders(config.encoders, model_sizes(config.model.path))
    check_sizes(config, encoders.image)
    sources, settings = build.make_sources(config), build.make_settings(config)
    folder = config.encoders.cache
    whole, report = cache(
        sources, encoders, settings, folder, progress, prompts=config.preview.prompts
    )
    apart = len(sources) - 1 if config.validation.folder is not None else None
    trained, kept = split_samples(whole.samples, config.validation.share, apart)
    if not trained:
        raise wf.errors.DatasetError(
            "no image is left to train on; see the list of problems, or lower validation.share"
        )
    prompts = config.preview.prompts
    return RunData(
        encoders,
        CachedDataset(trained, encoders, settings, folder, prompts),
        CachedDataset(kept, encoders, settings, folder) if kept else None,
        report,
    )


def make_trainer(config: TrainConfig, model: Flux, data: RunData, steps: int) -> Any:
    """The trainer of a run: objective, optimizer, schedule, callbacks.

    config  the configuration
    model   with its adapters
    data    what `prepare_data` gave
    steps   how long the run is
    """
    train, output = config.train, config.output
    optimizer = build.make_optimizer(model, config)
    lr = config.optimizer.lr
    budget = None
    if train.memory_budget_mb is not None:
        budget = wf.CheckpointConfig("auto", memory_budget_mb=train.memory_budget_mb)
    callbacks: list[Any] = [AdapterFiles(output), wf.train.Curves(output.directory / "curves.png")]
    if output.tensorboard:
        callbacks.append(wf.train.TensorBoard(output.directory / "events"))
    if config.preview.prompts:
        callbacks.append(_previews(config, data))
    return wf.train.Trainer(
        model,
        optimizer,
        FlowObjective(config.noise, config.model.guidance),
        schedule=None if lr is None else config.schedule.make(lr, steps),
        accumulate=train.accumulate,
        precision="bfloat16" if train.precision == "bfloat16" else None,
        clip_norm=train.clip_norm,
        compile=train.compile,
        checkpoint=budget,
        ema=train.ema,
        callbacks=callbacks,
        directory=output.directory,
        save_every=output.save_every,
        save_frozen=False,
        keep=output.keep,
        log_every=output.log_every,
    )


def _previews(config: TrainConfig, data: RunData) -> Previews:
    section, image = config.preview, data.encoders.image
    how = Sampling(
        section.steps,
        section.guidance,
        section.seed,
        section.width // image.factor,
        section.height // image.factor,
    )
    prompts = [Prompt(text, *data.trained.embeddings(text)) for text in section.prompts]
    return Previews(prompts, how, section.every, config.output.directory / "previews", image)


def train(
    config: TrainConfig | str | PathLike[str],
    progress: Callable[[str, int, int], None] | None = None,
) -> Path:
    """Train adapters; a run that was interrupted goes on. Returns the adapter file.

    config    a TOML file, or what `read_config` gave
    progress  of the cache: called with a stage, how much of it is done, and how much there is

    >>> import weft as wf
    >>> wf.diffusion.train("none.toml")
    Traceback (most recent call last):
        ...
    weft.errors.ConfigError: none.toml: cannot be read: No such file or directory (at ...)
    """
    if not isinstance(config, TrainConfig):
        config = read_config(config)
    data = prepare_data(config, progress)
    wf.random.seed(config.train.seed)
    model = build.load_model(config)
    build.add_adapters(model, config)
    loader = build.make_loader(data.trained, config)
    trainer = make_trainer(config, model, data, build.run_length(config, len(loader)))
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
    layout = "" if "peft" in config.output.layouts else "-kohya"
    return config.output.directory / "adapters" / f"{config.output.name}{layout}.safetensors"
