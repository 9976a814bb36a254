"""Saving a transformer: a folder as diffusers has it, or one file in the original's layout."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .. import errors
from ..io import disk, save_safetensors, strict_json
from ..io.durable import make_directories, write_file
from .config import FluxConfig
from .files import CONFIG, INDEX, STEM
from .layout import Shape, to_original

if TYPE_CHECKING:
    from os import PathLike

    from ..arrays.tensor import Tensor

_METADATA = {"format": "pt"}  # readers of PyTorch's world look for it


def save(
    weights: Mapping[str, Tensor],
    expected: Mapping[str, Shape],
    config: FluxConfig,
    path: str | PathLike[str],
    layout: str,
    shard_bytes: int,
) -> None:
    """Save as `Flux.save` does.

    weights   by name, as the model has them
    expected  the shapes of a plain transformer's weights
    """
    if layout not in ("diffusers", "original"):
        raise errors.ArgumentError(
            f"Flux.save: layout={layout!r}, expected 'diffusers' or 'original'"
        )
    if {name: w.shape for name, w in weights.items()} != dict(expected):
        other = sorted(weights.keys() ^ expected.keys())
        raise errors.ArgumentError(
            f"Flux.save: the model is not a plain transformer: {', '.join(other[:4])}; merge its "
            "adapters, and save one that is not in 8 bits"
        )
    path = Path(path)
    if layout == "original":
        save_safetensors(path, to_original(weights), _METADATA)
    else:
        _save_folder(path, weights, config, shard_bytes)


def _save_folder(
    folder: Path, weights: Mapping[str, Tensor], config: FluxConfig, shard_bytes: int
) -> None:
    make_directories(folder)
    here = [f.name for f in folder.iterdir() if f.name.endswith((".safetensors", INDEX, CONFIG))]
    if here:
        raise errors.ArgumentError(
            f"Flux.save: {folder} has {', '.join(here[:4])} already, which would be mixed with the "
            "new files; take another folder, or remove them"
        )
    shards = _shards(weights, shard_bytes)
    names = [f"{STEM}-{k:05d}-of-{len(shards):05d}.safetensors" for k in range(1, len(shards) + 1)]
    names = [f"{STEM}.safetensors"] if len(shards) == 1 else names
    for name, shard in zip(names, shards, strict=True):
        save_safetensors(folder / name, shard, _METADATA)
    if len(shards) > 1:
        places = {n: name for name, shard in zip(names, shards, strict=True) for n in shard}
        total = sum(_bytes(w) for w in weights.values())
        index = {"metadata": {"total_size": total}, "weight_map": places}
        write_file(folder / f"{STEM}{INDEX}", [strict_json.dumps(index).encode()])
    # The config comes last: without it a folder is not taken for a model.
    write_file(folder / CONFIG, [strict_json.dumps(config.to_dict()).encode()])
    disk.sync_directory(folder)


def _bytes(x: Tensor) -> int:
    return x.size * x.dtype.itemsize


def _shards(weights: Mapping[str, Tensor], limit: int) -> list[dict[str, Tensor]]:
    """The weights in their order, in parts of at most `limit` bytes where one is not larger."""
    shards: list[dict[str, Tensor]] = [{}]
    held = 0
    for name, w in weights.items():
        if shards[-1] and held + _bytes(w) > limit:
            shards.append({})
            held = 0
        shards[-1][name] = w
        held += _bytes(w)
    return shards
