"""The configuration of a training run: what `weft train config.toml` reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, is_dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from weft.io.toml_lines import Path as Place
from weft.io.typed_toml import Misfits, Problems, misfits, read_toml

from ..flow import NoiseConfig
from .contradictions import contradictions
from .recipes import OptimizerRecipe, ScheduleRecipe

# What LoRA is put on unless the configuration says otherwise: attention and the perceptrons.
TARGETS = (
    *("transformer_blocks.*.attn.*", "transformer_blocks.*.ff*.net.*"),
    *("single_transformer_blocks.*.attn.*", "single_transformer_blocks.*.proj_*"),
)


@dataclass(frozen=True)
class ModelSection:
    """[model]: the frozen base.

    path      a folder of diffusers, or a safetensors file in either layout
    dtype     of the weights that are not quantised
    quantise  "int8": linear layers in 8 bits, blockwise
    guidance  what models with a guidance embedding are told while they are trained
    cache     where quantised weights are kept
    """

    path: Path
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    quantise: Literal["int8"] | None = None
    guidance: float = 1.0
    cache: Path | None = None


@dataclass(frozen=True)
class AdapterRule:
    """[[adapter.rules]]: layers with a rank of their own.

    pattern               names of layers; `*` and `?` stand for any characters
    rank, alpha, dropout  of these layers; alpha is the rank if it is not given
    """

    pattern: str
    rank: int
    alpha: float | None = None
    dropout: float = 0.0


@dataclass(frozen=True)
class AdapterSection:
    """[adapter]: what is trained.

    kind     "lora", "dora" or "lokr"
    targets  patterns of names of layers
    rank, alpha, dropout  of all that `rules` do not name; alpha is the rank if it is not given
    rules    layers with a rank of their own; the first that matches counts
    start    an adapter file to begin with
    """

    kind: Literal["lora", "dora", "lokr"] = "lora"
    targets: tuple[str, ...] = TARGETS
    rank: int = 16
    alpha: float | None = None
    dropout: float = 0.0
    rules: tuple[AdapterRule, ...] = ()
    start: Path | None = None


@dataclass(frozen=True)
class FolderSection:
    """[[data]]: a folder of images with captions in text files of the same name.

    path            the folder
    repeats         how often each image is seen in an epoch
    caption         for images without a text file; without it, they are a problem
    extension       of the text files
    masks           a folder of masks of the same names: the loss counts where they are white
    mask_suffix     or the end of the names of masks beside their images, without extension:
                    "-mask" makes cat-mask.png that of cat.png
    weight          what the loss of these images counts
    regularisation  whether they are there to keep what the model knows; they are left out of
                    validation
    recursive       whether folders inside of it are searched
    """

    path: Path
    repeats: int = 1
    caption: str | None = None
    extension: str = ".txt"
    masks: Path | None = None
    mask_suffix: str | None = None
    weight: float = 1.0
    regularisation: bool = False
    recursive: bool = False


@dataclass(frozen=True)
class ImagesSection:
    """[images]: how images become training data.

    resolutions      sides of squares of the areas that images are brought to: the largest that
                     an image has without being enlarged
    step             sides are multiples of so many pixels
    shortest, longest  bounds of the sides
    upscale          whether images that are too small are enlarged
    keep             the least share of an image that its crop keeps
    crop             "center", or "random": one of `crops` places of each image
    crops            how many places there are of each image
    flip             the probability of a horizontal flip
    caption_dropout  the probability that a caption is replaced by the empty one
    orders           how many orders of the parts of a caption there are; 1: as written
    keep_parts       so many parts at the beginning stay where they are
    separator        between the parts of a caption
    max_pixels       images with more are a problem, without being decoded; at most 89478485
    max_bytes        likewise for files with more bytes
    alpha            transparent images: "white" puts them on white, "refuse" makes them a problem
    problems         what to do about images that cannot be used: "stop", or "skip" and list them
    """

    resolutions: tuple[int, ...] = (1024,)
    step: int = 64
    shortest: int = 256
    longest: int = 2048
    upscale: bool = False
    keep: float = 0.5
    crop: Literal["center", "random"] = "center"
    crops: int | None = None
    flip: float = 0.0
    caption_dropout: float = 0.0
    orders: int = 1
    keep_parts: int = 0
    separator: str = ","
    max_pixels: int = 64_000_000
    max_bytes: int = 256 << 20
    alpha: Literal["white", "refuse"] = "white"
    problems: Literal["stop", "skip"] = "stop"


@dataclass(frozen=True)
class EncodersSection:
    """[encoders]: what turns images and captions into what the model takes.

    vae     a folder of diffusers' AutoencoderKL; "pixels": squares of pixels are the latents
    clip    a folder of transformers' CLIPTextModel; "hash": numbers made of the words
    t5      a folder of transformers' T5EncoderModel; "hash": likewise
    clip_tokenizer, t5_tokenizer  their tokenizers' folders; by default, what lies beside them
    pixels  the side of those squares
    tokens  the length of the texts' sequences
    device  where they run
    dtype   in which they compute
    cache   where latents and embeddings are kept
    """

    vae: Literal["pixels"] | Path = "pixels"
    clip: Literal["hash"] | Path = "hash"
    t5: Literal["hash"] | Path = "hash"
    clip_tokenizer: Path | None = None
    t5_tokenizer: Path | None = None
    pixels: int = 2
    tokens: int = 512
    device: str = "cpu"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    cache: Path = Path("cache")


@dataclass(frozen=True)
class TrainSection:
    """[train]: the run.

    steps, epochs     how long it is; one of them, or both
    batch             images of a step, or of a part of it
    accumulate        parts of a step
    seed              of everything that is drawn
    device            where the model is: "cpu", "cuda", …
    precision         of the computation; float32 to compute as the weights are
    compile           whether steps run as compiled programs
    clip_norm         the largest norm of the gradients
    ema               the decay of averages of the adapters
    memory_budget_mb  MiB that a run may take, base and previews included
    unet_lr_scale     what the learning rate of the transformer's adapters is multiplied by
    text_encoder_lr_scale  the same of text encoders' adapters, of which there are none yet
    deterministic     whether runs repeat to the bit on a GPU too
    dist              whether the processes that torchrun or mpiexec has started train together;
                      `batch` is that of all of them
    workers           threads that prepare batches
    """

    steps: int | None = None
    epochs: int | None = None
    batch: int = 1
    accumulate: int = 1
    seed: int = 0
    device: str = "cpu"
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    compile: bool = True
    clip_norm: float | None = 1.0
    ema: float | None = None
    memory_budget_mb: float | None = None
    unet_lr_scale: float = 1.0
    text_encoder_lr_scale: float | None = None
    deterministic: bool = False
    dist: bool = False
    workers: int = 1


@dataclass(frozen=True)
class OutputSection:
    """[output]: what the run leaves.

    directory    checkpoints, adapters, curves and previews
    name         of the adapter files
    save_every   steps from one checkpoint and adapter file to the next
    keep         checkpoints and adapter files that stay
    layouts      of the adapter files: "peft" (diffusers), "kohya"
    dtype        of the adapter files
    log_every    steps from one printed line to the next
    tensorboard  whether event files are written
    """

    directory: Path
    name: str = "adapter"
    save_every: int = 250
    keep: int = 3
    layouts: tuple[Literal["peft", "kohya"], ...] = ("peft",)
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    log_every: int = 10
    tensorboard: bool = False


@dataclass(frozen=True)
class ValidationSection:
    """[validation]: a loss on images that are not trained on, with the same noise each time.

    folder  its images
    share   or the share of each folder's images that is kept apart
    every   steps from one to the next
    levels  levels of noise for each image
    """

    folder: Path | None = None
    share: float = 0.0
    every: int = 250
    levels: int = 4


@dataclass(frozen=True)
class PreviewSection:
    """[preview]: pictures while training.

    prompts        one picture for each
    every          steps from one grid of pictures to the next; one is made before the first
    steps          of the sampler
    guidance       what models with a guidance embedding are told
    width, height  of the pictures
    seed           of the noise: the same in all grids
    """

    prompts: tuple[str, ...] = ()
    every: int = 250
    steps: int = 20
    guidance: float = 3.5
    width: int = 512
    height: int = 512
    seed: int = 0


@dataclass(frozen=True)
class TrainConfig:
    """A whole configuration, as `wf.diffusion.read_config` reads it from a file.

    model, data, train, output  the base, the folders, the run, and what it leaves
    adapter                     what is trained
    images, encoders            how images and captions become what the model takes
    noise                       levels of noise, and the loss
    optimizer, schedule         by name, with their options
    validation, preview         while training

    >>> import weft as wf
    >>> list(wf.diffusion.TrainConfig.__dataclass_fields__)[:4]
    ['model', 'data', 'train', 'output']
    """

    model: ModelSection
    data: tuple[FolderSection, ...]
    train: TrainSection
    output: OutputSection
    adapter: AdapterSection = field(default_factory=AdapterSection)
    images: ImagesSection = field(default_factory=ImagesSection)
    encoders: EncodersSection = field(default_factory=EncodersSection)
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    optimizer: OptimizerRecipe = field(default_factory=OptimizerRecipe)
    schedule: ScheduleRecipe = field(default_factory=ScheduleRecipe)
    validation: ValidationSection = field(default_factory=ValidationSection)
    preview: PreviewSection = field(default_factory=PreviewSection)
    _file: Problems | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = [*misfits(type(self), self)]
        found = found or [*contradictions(self)]
        if found:
            raise Misfits(found)


def refuse(config: TrainConfig, found: Iterable[tuple[Place, str]]) -> None:
    """Raise if something is wrong, with keys, and the lines that they are read from.

    config  the configuration
    found   places and what is wrong there
    """
    listed, file = [*found], config._file
    if file is not None:
        problems = Problems(file.path, file.lines)
        for place, text in listed:
            problems.add(place, text)
        problems.raise_if_any()
    if listed:
        raise Misfits(listed)


def read_config(path: str | PathLike[str]) -> TrainConfig:
    """A configuration from a TOML file; relative paths are those beside the file.

    path  the file

    What is wrong is one `wf.errors.ConfigError` with a line for each problem.

    >>> import tempfile
    >>> from pathlib import Path
    >>> import weft as wf
    >>> with tempfile.TemporaryDirectory() as here:
    ...     file = Path(here, "run.toml")
    ...     _ = file.write_text('''
    ...         model.path = "flux"
    ...         train.steps = 100
    ...         output.directory = "run"
    ...         [[data]]
    ...         path = "images"
    ...     ''')
    ...     wf.diffusion.read_config(file).train.steps
    100
    """
    path = Path(path)
    config, problems = read_toml(path, TrainConfig)
    made = _beside(config, path.parent)
    object.__setattr__(made, "_file", problems)
    return made


def _beside(value: Any, folder: Path) -> Any:
    """A configuration with its relative paths in a folder."""
    if isinstance(value, Path):
        return folder / value
    if isinstance(value, tuple):
        return tuple([_beside(v, folder) for v in value])
    if is_dataclass(value) and not isinstance(value, type | NoiseConfig | OptimizerRecipe):
        own = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
        return replace(value, **{name: _beside(v, folder) for name, v in own.items()})
    return value
