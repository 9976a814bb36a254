"""The layers that a Flux transformer is made of, with initial values or waiting for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import weft as wf

if TYPE_CHECKING:
    from ..arrays.types import Device, DTypeLike


@dataclass(frozen=True)
class Layers:
    """How layers are made.

    device, dtype  of their parameters
    empty          whether parameters have no elements until a file gives them
    """

    device: Device | None = None
    dtype: DTypeLike | None = None
    empty: bool = False

    def linear(self, in_features: int, out_features: int) -> wf.nn.Linear:
        """x·Wᵀ + b."""
        if not self.empty:
            return wf.nn.Linear(in_features, out_features, device=self.device, dtype=self.dtype)
        layer = wf.nn.Linear(0, 0)
        layer.in_features, layer.out_features = in_features, out_features
        return layer

    def rms_norm(self, width: int) -> wf.nn.RMSNorm:
        """The norm of queries or keys."""
        if not self.empty:
            return wf.nn.RMSNorm(width, eps=1e-6, device=self.device, dtype=self.dtype)
        layer = wf.nn.RMSNorm(1, eps=1e-6)
        layer.normalized_shape = (width,)
        return layer


def shapes(model: wf.nn.Module) -> dict[str, tuple[int, ...]]:
    """The shapes of a model's parameters by name, also of those that have no elements yet."""
    found: dict[str, tuple[int, ...]] = {}
    for name, layer in model.named_modules():
        if isinstance(layer, wf.nn.Linear):
            found[f"{name}.weight"] = (layer.out_features, layer.in_features)
            found[f"{name}.bias"] = (layer.out_features,)
        elif isinstance(layer, wf.nn.RMSNorm):
            found[f"{name}.weight"] = layer.normalized_shape
    return found
