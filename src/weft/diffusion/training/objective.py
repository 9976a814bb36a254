"""The objective of flow matching: the error of the velocity that a Flux model predicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import weft as wf

from ..flow import NoiseConfig, draw_sigma, mix, velocity_loss
from ..latents import image_ids, pack_latents, text_ids

if TYPE_CHECKING:
    from weft.arrays.tensor import Tensor

    from ..flux import Flux

# What a batch of training data has; a mask only where the data has masks, noise and levels only
# where they are fixed.
ARRAYS = ("latents", "prompt_embeds", "pooled", "weights", "mask", "noise", "sigma")


@dataclass(frozen=True)
class FlowObjective:
    """The loss of a Flux model on a batch: a dict of arrays by the names in `ARRAYS`.

    noise     how much of it there is, and how errors count
    guidance  what models with a guidance embedding are told

    Noise and levels are drawn by `wf.random`, unless the batch has them.
    """

    noise: NoiseConfig
    guidance: float = 1.0
    unit: ClassVar[str] = "images"  # of a batch, for the progress

    def __call__(self, model: Flux, batch: dict[str, Tensor]) -> Tensor:
        latents = batch["latents"].to(wf.float32)
        n, channels, height, width = latents.shape
        if "noise" in batch:
            noise, sigma = batch["noise"], batch["sigma"]
        else:
            tokens = (height // 2) * (width // 2)
            sigma = draw_sigma(self.noise, n, tokens, latents.device)
            noise = wf.randn(latents.shape, dtype=wf.float32, device=latents.device)
        predicted = self.velocity(model, mix(latents, noise, sigma), batch, sigma)
        mask = batch.get("mask")
        if mask is not None:
            mask = wf.tile(pack_latents(mask.to(wf.float32)), (1, 1, channels))
        target = pack_latents(noise - latents)
        return velocity_loss(self.noise, predicted, target, sigma, mask, batch.get("weights"))

    def velocity(
        self, model: Flux, noisy: Tensor, batch: dict[str, Tensor], sigma: Tensor
    ) -> Tensor:
        """What the model predicts for noisy latents (N, C, H, W), as tokens."""
        return velocity(model, noisy, batch["prompt_embeds"], batch["pooled"], sigma, self.guidance)


def velocity(
    model: Flux, noisy: Tensor, prompt_embeds: Tensor, pooled: Tensor, sigma: Tensor, guidance: Any
) -> Tensor:
    """A model's velocity for noisy latents, as tokens.

    model          a Flux model
    noisy          (N, C, H, W)
    prompt_embeds  (N, length, width)
    pooled         (N, width)
    sigma          (N,)
    guidance       a number, which models without a guidance embedding are not told
    """
    n, _, height, width = noisy.shape
    dtype, device = model.x_embedder.weight.dtype, noisy.device
    told = wf.full((n,), guidance, dtype=wf.float32, device=device)
    return model(
        pack_latents(noisy).to(dtype),
        prompt_embeds.to(dtype),
        pooled.to(dtype),
        sigma,
        image_ids(height, width, device=device),
        text_ids(prompt_embeds.shape[1], device=device),
        told if model.config.guidance_embeds else None,
    )
