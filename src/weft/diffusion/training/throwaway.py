"""Models and batches of a configuration's sizes for trying it out: no file has their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import weft as wf
from weft.profile.valueless import valueless
from weft.train.epochs import EpochLoader

from ..flux import Flux
from ..making import shapes
from ..quantised_base import is_quantised
from .build import add_adapters

if TYPE_CHECKING:
    from ..config import FluxConfig
    from .config import TrainConfig

_SPREAD = 0.02  # standard deviation of throwaway weights


def make_model(config: TrainConfig, sizes: FluxConfig, device: str) -> Flux:
    """The model that a run trains, with adapters; its base has no values and takes no memory.

    config  the configuration
    sizes   of the model
    device  where it is
    """
    model = Flux(sizes, empty=True)
    for name, shape in shapes(model).items():
        where, _, last = name.rpartition(".")
        layer: Any = model.get_submodule(where)
        if last == "weight" and config.model.quantise and is_quantised(where):
            if isinstance(layer, wf.nn.Linear):
                layer = _in_8_bits(layer, device)
                parent, _, child = where.rpartition(".")
                setattr(model.get_submodule(parent), child, layer)
                continue
        setattr(layer, last, _frozen(shape, config.model.dtype, device))
    add_adapters(model, config)
    return model


def _frozen(shape: tuple[int, ...], dtype: str, device: str) -> wf.Parameter:
    p = wf.Parameter(wf.zeros(()), requires_grad=False)
    p._data = valueless(shape, dtype, device)._data
    return p


def _in_8_bits(layer: Any, device: str) -> Any:
    """The layer in 8 bits in the place of one that has no elements; its bias comes next."""
    rows, width = layer.out_features, layer.in_features
    made = wf.nn.Linear8bit(0, 0)
    made.in_features, made.out_features = width, rows
    made.codes = valueless((rows, width), wf.int8, device)
    made.scales = valueless((rows, -(-width // made.block)), wf.bfloat16, device)
    return made


def fill_model(model: Flux) -> None:
    """Give a model of `make_model` values, and memory for them.

    model  with its adapters, which have values
    """
    for p in model.parameters():
        if not p.requires_grad:
            p._data = _draw(p, _SPREAD).to(p.dtype)._data
    for layer in model.modules():
        if isinstance(layer, wf.nn.Linear8bit):
            layer.codes = wf.round(_draw(layer.codes, 42.0).clip(-127, 127)).to(wf.int8)
            layer.scales = wf.full(
                layer.scales.shape, _SPREAD / 42, dtype=wf.bfloat16, device=layer.scales.device
            )


def _draw(like: Any, spread: float) -> Any:
    return wf.randn(like.shape, dtype=wf.float32, device=like.device) * spread


@dataclass(frozen=True, order=True)
class BatchKind:
    """Batches of one size.

    count          images
    width, height  of each, in pixels
    """

    count: int
    width: int
    height: int

    def __str__(self) -> str:
        return f"{self.count} × {self.width}×{self.height}"


@dataclass(frozen=True)
class BatchMaker:
    """Makes batches of the shapes and dtypes that a run's loader gives.

    channels  of latents
    factor    pixels along a side of a latent
    tokens    of a text
    sizes     of the model
    masks     whether the data has masks
    device    where the tensors are
    """

    channels: int
    factor: int
    tokens: int
    sizes: FluxConfig
    masks: bool
    device: str

    def nbytes(self, kind: BatchKind) -> int:
        """The bytes of a training batch."""
        cells = (kind.height // self.factor) * (kind.width // self.factor)
        text = self.tokens * self.sizes.joint_attention_dim + self.sizes.pooled_projection_dim
        return 4 * kind.count * (cells * (self.channels + self.masks) + text + 1)

    def make(self, kind: BatchKind) -> dict[str, Any]:
        """A training batch: tensors by name, drawn by a stream of their own."""
        n, place = kind.count, (kind.height // self.factor, kind.width // self.factor)
        stream = wf.random.Generator(0)

        def draw(*shape: int) -> Any:
            return wf.randn(shape, dtype=wf.float32, device=self.device, generator=stream)

        found = {
            "latents": draw(n, self.channels, *place),
            "prompt_embeds": draw(n, self.tokens, self.sizes.joint_attention_dim),
            "pooled": draw(n, self.sizes.pooled_projection_dim),
            "weights": wf.ones((n,), dtype=wf.float32, device=self.device),
        }
        if self.masks:
            found["mask"] = wf.ones((n, 1, *place), dtype=wf.float32, device=self.device)
        return found

    def make_validation(self, kind: BatchKind) -> dict[str, Any]:
        """A batch of validation, which has its noise and levels."""
        made = self.make(kind)
        n, latents = kind.count, made["latents"]
        sigma = wf.full((n,), 0.5, dtype=wf.float32, device=self.device)
        return made | {"noise": latents.clone(), "sigma": sigma}


class Repeated(EpochLoader):
    """A loader of batches that are there already.

    batches  of an epoch
    """

    def __init__(self, batches: list[Any]):
        super().__init__(0, 1)
        self.batches = batches

    def __len__(self) -> int:
        """How many batches an epoch has."""
        return len(self.batches)

    def _meaning(self) -> dict[str, Any]:
        return {"batches": len(self.batches)}

    def _check_length(self) -> None:
        """The batches are there."""

    def _maker(self, epoch: int) -> Callable[[int, Callable[[], bool]], Any]:
        return lambda k, stopped: self.batches[k]
