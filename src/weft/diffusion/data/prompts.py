"""The embeddings of prompts: those of a cache where it has them, else computed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ...errors import CheckpointError
from .dataset import text_entry
from .encoders import Encoders
from .entries import read_entry, rounded
from .settings import DataSettings


def embed_prompts(
    prompts: Sequence[str], encoders: Encoders, settings: DataSettings, directory: Path
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The embeddings of each prompt, as a run with this cache has them; nothing is written.

    prompts    texts
    encoders   weights are loaded only if a prompt is not in the cache
    settings   whose dtype the embeddings are rounded to
    directory  of the cache
    """
    found = [_embed(prompt, encoders, settings, directory) for prompt in prompts]
    encoders.text.release()
    return [(arrays["prompt_embeds"], arrays["pooled"]) for arrays in found]


def _embed(
    prompt: str, encoders: Encoders, settings: DataSettings, directory: Path
) -> dict[str, np.ndarray]:
    try:
        return read_entry(directory, text_entry(prompt, encoders, settings))
    except CheckpointError:  # not there, or damaged: what is computed is the same
        embeds, pooled = encoders.text.encode([prompt])
    arrays = {"prompt_embeds": embeds[0], "pooled": pooled[0]}
    stored = rounded(arrays, settings.text_dtype, f"the prompt {prompt[:60]!r}")
    return {name: array.astype(np.float32) for name, array in stored.items()}
