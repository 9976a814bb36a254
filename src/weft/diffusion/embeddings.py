"""What conditions the blocks of Flux: times, guidance and text as vectors, positions as turns."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING

import numpy as np

import weft as wf

if TYPE_CHECKING:
    from ..arrays.tensor import Tensor
    from .making import Layers

FREQUENCIES = 128
PERIOD = 10_000.0


def sinusoid(t: Tensor) -> Tensor:
    """cos and sin of t·10⁴^(−i/128) for i < 128: (N,) to (N, 256), in float32."""
    # The exponents are rounded as in the models' own code, and the frequencies rightly: at
    # t = 1000 an ulp of a frequency moves the angle by 1e-4.
    steps = np.arange(FREQUENCIES, dtype=np.float32)
    exponents = np.float32(-log(PERIOD)) * steps / np.float32(FREQUENCIES)
    pace = np.exp(exponents.astype(np.float64)).astype(np.float32)
    angles = t.to("float32").reshape(-1, 1) * wf.asarray(pace, device=t.device)
    return wf.concat([wf.cos(angles), wf.sin(angles)], axis=1)


def turns(ids: Tensor, dims: tuple[int, ...]) -> Tensor:
    """The table of `rotate` at positions (tokens, axes): cosines, then sines, (tokens, Σ dims).

    dims  how many features each axis turns

    Angles are computed in float64; the table is in float32.
    """
    where = ids.to("float64")
    angles = []
    for axis, dim in enumerate(dims):
        pace = 1.0 / PERIOD ** (np.arange(0, dim, 2, dtype=np.float64) / dim)
        angles.append(where[:, axis : axis + 1] * wf.asarray(pace, device=ids.device))
    whole = wf.concat(angles, axis=1)
    return wf.concat([wf.cos(whole), wf.sin(whole)], axis=1).to("float32")


class EmbeddingMLP(wf.nn.Module):
    """W₂·silu(W₁·x + b₁) + b₂."""

    def __init__(self, layers: Layers, in_features: int, width: int):
        super().__init__()
        self.linear_1 = layers.linear(in_features, width)
        self.linear_2 = layers.linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear_2(wf.nn.functional.silu(self.linear_1(x)))


class Conditioning(wf.nn.Module):
    """The vector that all modulations are computed from: time + guidance + pooled text."""

    def __init__(self, layers: Layers, width: int, pooled: int, guidance: bool):
        super().__init__()
        self.timestep_embedder = EmbeddingMLP(layers, 2 * FREQUENCIES, width)
        if guidance:
            self.guidance_embedder = EmbeddingMLP(layers, 2 * FREQUENCIES, width)
        self.text_embedder = EmbeddingMLP(layers, pooled, width)

    def forward(self, timestep: Tensor, guidance: Tensor | None, pooled: Tensor) -> Tensor:
        vector = self.timestep_embedder(sinusoid(timestep).to(pooled.dtype))
        if guidance is not None:
            vector = vector + self.guidance_embedder(sinusoid(guidance).to(pooled.dtype))
        return vector + self.text_embedder(pooled)
