"""What a run's data was, in its checkpoints: what differs is named where a run does not go on."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..data import CachedDataset, Sample
    from .config import TrainConfig

FILES = 2000  # images that are described one by one
_NAMED = 5  # names in a message
_FREE = ("problems", "max_pixels", "max_bytes")
_FOLDER = ("repeats", "weight", "regularisation", "masks", "mask_suffix", "recursive", "caption")


def describe_data(config: TrainConfig, dataset: CachedDataset) -> dict[str, Any]:
    """The digest of a run's data, and what it is made of: plain values.

    config   the configuration
    dataset  what is trained on
    """
    samples = dataset.samples
    return {
        "digest": dataset.digest,
        "count": len(samples),
        "settings": dict(_settings(config, dataset)),
        "files": [[s.source, s.name, *_digests(s)] for s in samples[:FILES]],
    }


def _settings(config: TrainConfig, dataset: CachedDataset) -> Iterator[tuple[str, str]]:
    for f in fields(config.images):
        if f.name not in _FREE:
            yield f"images.{f.name}", repr(getattr(config.images, f.name))
    for i, folder in enumerate(config.data):
        for name in _FOLDER:
            value = getattr(folder, name)
            yield f"data[{i}].{name}", repr(value if name != "masks" else value is not None)
    for name in ("pixels", "tokens", "dtype"):
        yield f"encoders.{name}", repr(getattr(config.encoders, name))
    entries = dataset.entries[0] if dataset.entries else None
    for name in ("vae", "clip", "t5"):
        path = getattr(config.encoders, name)
        text = repr(path)
        if isinstance(path, Path) and entries is not None:
            entry = entries.latents[0][0] if name == "vae" else entries.texts[0]
            text = f"a folder of digest {json.loads(entry.description)['encoder']:.12}"
        yield f"encoders.{name}", text
    yield "validation.share", repr(config.validation.share)


def _digests(sample: Sample) -> list[str]:
    """Short digests of an image, its caption and its mask."""
    caption = sha256(sample.caption.encode("utf-8")).hexdigest()
    return [sample.digest[:10], caption[:10], (sample.mask_digest or "")[:10]]


def data_differences(now: Mapping[str, Any], saved: Mapping[str, Any]) -> Iterator[str]:
    """What differs, a line each; nothing where the digests are the same.

    now, saved  what `describe_data` gave
    """
    if now["digest"] == saved["digest"]:
        return
    found = [*_setting_lines(now["settings"], saved["settings"]), *_file_lines(now, saved)]
    yield from found
    if not found:
        yield f"the data differs ({now['count']} images are trained on, they were {saved['count']})"


def _setting_lines(now: Mapping[str, str], saved: Mapping[str, str]) -> Iterator[str]:
    for name in {**saved, **now}:
        if now.get(name) != saved.get(name):
            yield f"{name} is {now.get(name, 'absent')}, it was {saved.get(name, 'absent')}"


def _file_lines(now: Mapping[str, Any], saved: Mapping[str, Any]) -> Iterator[str]:
    mine, before = ({(f[0], f[1]): f[2:] for f in d["files"]} for d in (now, saved))
    listed: dict[tuple[int, str], list[str]] = {}
    for key in {**before, **mine}:
        if key not in before or key not in mine:
            what = "added" if key in mine else "removed"
            listed.setdefault((key[0], f"images {what}"), []).append(key[1])
            continue
        for what, a, b in zip(("images", "captions", "masks"), mine[key], before[key], strict=True):
            if a != b:
                listed.setdefault((key[0], f"{what} changed"), []).append(key[1])
    for (source, what), names in sorted(listed.items()):
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield f"data[{source}].path: {what}: {', '.join(names[:_NAMED])}{more}"
