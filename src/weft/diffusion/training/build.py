"""The parts of a run, made as a configuration says."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import weft as wf
from weft.nn.lora.inject import adapted_layers

from ..data import (
    Augmentation,
    BucketLoader,
    BucketSettings,
    CachedDataset,
    DataSettings,
    DiffusersVAE,
    Encoders,
    FileDigests,
    HashTextEncoder,
    PixelEncoder,
    ScanSettings,
    Source,
    TokenShuffle,
    TransformersTextEncoder,
)
from ..flux import Flux
from .objective import ARRAYS, FlowObjective

if TYPE_CHECKING:
    from weft.optim.optimizer import Optimizer

    from ..config import FluxConfig
    from ..data import Batch
    from .config import EncodersSection, TrainConfig


def make_sources(config: TrainConfig) -> list[Source]:
    """The folders of a configuration, and last that of its validation, if there is one."""
    found = [
        Source(
            folder.path,
            repeats=folder.repeats,
            caption_extension=folder.extension,
            default_caption=folder.caption,
            mask_folder=folder.masks,
            mask_suffix=folder.mask_suffix,
            regularisation=folder.regularisation,
            loss_weight=folder.weight,
            recursive=folder.recursive,
        )
        for folder in config.data
    ]
    if config.validation.folder is not None:
        found.append(Source(config.validation.folder))
    return found


def make_settings(config: TrainConfig) -> DataSettings:
    """How images and captions are read, brought to sizes, and changed at random."""
    images = config.images
    shuffle = None
    if images.orders > 1:
        shuffle = TokenShuffle(images.separator, images.keep_parts, images.orders)
    return DataSettings(
        ScanSettings(images.max_pixels, images.max_bytes, images.alpha, images.problems),
        BucketSettings(
            images.resolutions,
            images.step,
            images.shortest,
            images.longest,
            images.upscale,
            images.keep,
        ),
        Augmentation(images.flip, images.crop, images.crops, images.caption_dropout, shuffle),
    )


def make_encoders(section: EncodersSection, sizes: FluxConfig) -> Encoders:
    """The encoders of a configuration, for a model of these sizes; nothing is loaded yet."""
    digests = FileDigests(section.cache / "digests.json")
    image: Any = PixelEncoder(section.pixels)
    if isinstance(section.vae, Path):
        image = DiffusersVAE(section.vae, section.device, section.dtype, digests)
    text: Any = HashTextEncoder(
        section.tokens, sizes.joint_attention_dim, sizes.pooled_projection_dim
    )
    if isinstance(section.t5, Path) and isinstance(section.clip, Path):
        text = TransformersTextEncoder(
            section.t5,
            section.t5_tokenizer or _beside(section.t5, "tokenizer_2"),
            section.clip,
            section.clip_tokenizer or _beside(section.clip, "tokenizer"),
            section.tokens,
            section.device,
            section.dtype,
            digests,
        )
    return Encoders(image, text)


def _beside(folder: Path, name: str) -> Path:
    """Where a pipeline's folder has the tokenizer of an encoder."""
    return folder.parent / name


def load_model(config: TrainConfig, sizes: FluxConfig | None = None) -> Flux:
    """The base on its device, without adapters."""
    section = config.model
    return Flux.load(
        section.path,
        section.dtype,
        config.train.device,
        section.quantise,
        config=sizes,
        cache_dir=section.cache,
    )


def add_adapters(model: Any, config: TrainConfig) -> list[str]:
    """Put adapters into a model; returns the names of the layers."""
    section = config.adapter
    alpha = section.rank if section.alpha is None else section.alpha
    common = {"rank": section.rank, "alpha": alpha, "dropout": section.dropout}
    patterns = [
        (
            rule.pattern,
            {
                "rank": rule.rank,
                "alpha": rule.rank if rule.alpha is None else rule.alpha,
                "dropout": rule.dropout,
            },
        )
        for rule in section.rules
    ]
    patterns += [(target, common) for target in section.targets]
    names = wf.nn.add_lora(model, patterns, kind=section.kind)
    if section.start is not None:
        wf.nn.load_lora(model, section.start)
    return names


def adapted(model: Any) -> set[str]:
    """The names of a model's layers that have adapters."""
    return {*adapted_layers(model)}


def make_optimizer(model: Any, config: TrainConfig) -> Optimizer:
    """The optimizer of a model's adapters."""
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    scale = config.train.unet_lr_scale
    return config.optimizer.make([{"params": trained, "lr_scale": scale}])


def run_length(config: TrainConfig, batches: int) -> int:
    """How many steps a run has whose epochs have so many batches."""
    ends = [] if config.train.steps is None else [config.train.steps]
    if config.train.epochs is not None:
        ends.append(config.train.epochs * ceil(batches / config.train.accumulate))
    return min(ends)


def arrays_of(batch: Batch) -> dict[str, Any]:
    """The arrays of a batch that steps read, by name."""
    return {n: getattr(batch, n) for n in ARRAYS if getattr(batch, n, None) is not None}


class TrainingLoader(BucketLoader):
    """The arrays of batches, without what steps do not read: programs are guarded by the rest."""

    def _present(self, batch: Batch) -> dict[str, Any]:
        return arrays_of(batch)


def make_loader(dataset: CachedDataset, config: TrainConfig) -> TrainingLoader:
    """The loader of a run."""
    train = config.train
    return TrainingLoader(dataset, train.batch, train.seed, workers=train.workers)


def make_trainer(
    config: TrainConfig,
    model: Flux,
    steps: int,
    callbacks: Sequence[Any] = (),
    directory: Path | None = None,
    reserve: int = 0,
) -> Any:
    """The trainer of a run: objective, optimizer, schedule.

    config     the configuration
    model      with its adapters
    steps      how long the run is
    callbacks  what is called while it goes on
    directory  where checkpoints go; None: there are none, and nothing is printed
    reserve    bytes of the budget that steps do not get
    """
    train, output, lr = config.train, config.output, config.optimizer.lr
    budget = None
    if train.memory_budget_mb is not None:
        left = max(train.memory_budget_mb - reserve / (1 << 20), 1 / 1024)
        budget = wf.CheckpointConfig("auto", memory_budget_mb=left)
    return wf.train.Trainer(
        model,
        make_optimizer(model, config),
        FlowObjective(config.noise, config.model.guidance),
        schedule=None if lr is None else config.schedule.make(lr, steps),
        accumulate=train.accumulate,
        precision="bfloat16" if train.precision == "bfloat16" else None,
        clip_norm=train.clip_norm,
        compile=train.compile,
        checkpoint=budget,
        ema=train.ema,
        callbacks=callbacks,
        directory=directory,
        save_every=None if directory is None else output.save_every,
        save_frozen=False,
        keep=output.keep,
        log_every=output.log_every,
        progress=directory is not None,
        nonfinite="rewind",
        dist=train.dist and directory is not None,
    )
