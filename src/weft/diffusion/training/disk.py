"""How much room on the disk a run takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import build

if TYPE_CHECKING:
    from ..config import FluxConfig
    from .config import TrainConfig
    from .footprint import RunBytes
    from .kinds import RunKinds


def disk_bytes(
    config: TrainConfig, sizes: FluxConfig, data: RunKinds, memory: RunBytes
) -> dict[str, int]:
    """The bytes of the cache, the checkpoints and the adapter files, when all are there.

    config  the configuration
    sizes   of the model
    data    the images
    memory  of the run
    """
    output, parts = config.output, memory.parts
    adapters = parts.get("trained parameters", 0)
    one = adapters + parts.get("optimizer", 0) + parts.get("averages", 0)
    width = np.dtype("float32").itemsize if output.dtype == "float32" else 2
    file = adapters // np.dtype("float32").itemsize * width
    saves = -(-build.run_length(config, data.batches) // output.save_every)
    kept = max(output.keep, 2)  # of one, a second may be the last sound one
    return {
        "cache": _cache_bytes(config, sizes, data),
        "checkpoints": one * min(kept + 1, saves),  # the oldest goes after a new one came
        "adapter files": file * len(output.layouts) * (min(kept + 1, saves) + 1),
    }


def _cache_bytes(config: TrainConfig, sizes: FluxConfig, data: RunKinds) -> int:
    """Latents of each image, crop and flip, and embeddings of each text."""
    augmentation = build.make_settings(config).augmentation
    crops = augmentation.crops or 1
    copies = crops * (2 if augmentation.flip else 1)
    latents = masks = 0
    samples = [*data.samples[0], *data.samples[1]]
    for sample in samples:
        cells = (sample.bucket[0] // data.factor) * (sample.bucket[1] // data.factor)
        latents += 4 * cells * data.channels * copies
        masks += 4 * cells * crops if sample.mask is not None else 0
    texts = len({s.caption for s in samples}) * config.images.orders
    texts += len(config.preview.prompts) + bool(augmentation.caption_dropout)
    embeddings = config.encoders.tokens * sizes.joint_attention_dim + sizes.pooled_projection_dim
    return latents + masks + 2 * texts * embeddings
