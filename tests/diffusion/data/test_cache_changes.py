"""Whatever changes, a kept cache serves what a fresh one would: random changes, one after another.

Files change with size and times as before wherever that is possible; the memories of digests and
of sizes, and the entries of all earlier states, are kept from one change to the next.
"""

import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from weft.diffusion import digests
from weft.diffusion.data import (
    Augmentation,
    BucketSettings,
    Choice,
    DataSettings,
    DiffusersVAE,
    Encoders,
    FileDigests,
    ScanSettings,
    Source,
    TokenShuffle,
    cache,
    dataset,
)

from .random_folders import picture
from .small_models import WORDS, save_models, text_encoder

SOAK = bool(os.environ.get("WEFT_SOAK"))
ORIENTATION = 0x0112
KINDS = (".bmp", ".png", ".jpg")


@dataclass
class State:
    """A folder with images and one with models, and settings; changes are made to it."""

    root: Path
    draw: random.Random
    rng: np.random.Generator
    settings: DataSettings = field(
        default_factory=lambda: DataSettings(
            buckets=BucketSettings((32,), 16, min_side=16, max_side=64, upscale=True, keep=0.1),
            augmentation=Augmentation(flip=0.5),
        )
    )
    encoding: dict[str, Any] = field(default_factory=dict)
    made: int = 0

    @property
    def images(self) -> list[Path]:
        found = sorted(p for p in (self.root / "images").iterdir() if p.suffix in KINDS)
        return [p for p in found if "-mask" not in p.name]

    def add(self) -> None:
        """An image of any kind, with a caption."""
        kind = KINDS[self.made % len(KINDS)]
        path = self.root / "images" / f"{self.draw.choice('abcxyz')}{self.made:02d}{kind}"
        self.made += 1
        save_picture(path, picture(self.rng, self.draw.choice([(32, 32), (48, 32), (40, 56)])), 1)
        self.caption(path)

    def caption(self, path: Path) -> None:
        words = [self.draw.choice(WORDS[1:4]) for _ in range(3)]
        write_over(path.with_suffix(".txt"), ", ".join(words).encode())

    def encoders(self, known: Path | None) -> Encoders:
        memory, precision = FileDigests(known), self.encoding.get("dtype", "float32")
        vae = DiffusersVAE(self.root / "models" / "vae", dtype=precision, digests=memory)
        return Encoders(vae, text_encoder(self.root / "models", digests=memory, **self.encoding))

    def serve(self, folder: Path) -> tuple[str, list[Any], dict[str, int]]:
        """What a cache in a folder gives: its identity, all batches, and what was computed."""
        folder.mkdir(exist_ok=True)
        encoders = self.encoders(folder / "digests.json")
        made, report = cache(
            [Source(self.root / "images", mask_suffix="-mask")], encoders, self.settings, folder
        )
        augmentation = self.settings.augmentation
        orders = augmentation.shuffle.variants if augmentation.shuffle else 1
        choices = [
            Choice(flip, crop, drop, crop % orders)
            for crop in range(augmentation.crops or 1)
            for flip, drop in ((False, False), (augmentation.flip > 0, augmentation.flip > 0))
            if not drop or augmentation.caption_dropout
        ]
        batches = [made.batch([i], [c]) for i in range(len(made)) for c in choices]
        return made.digest, batches, dict(report.computed)


def save_picture(path: Path, image: Image.Image, orientation: int) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    image.save(path, **({"exif": exif} if path.suffix == ".jpg" else {}))


def write_over(path: Path, content: bytes) -> None:
    """Other content in a file, under its times if it was there."""
    before = path.stat() if path.exists() else None
    path.write_bytes(content)
    if before is not None:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def swap(a: Path, b: Path) -> None:
    first, second = a.read_bytes(), b.read_bytes()
    write_over(a, second)
    write_over(b, first)


# Changes


def pixels(state: State) -> None:
    """A pixel, without another size of the file where its format allows."""
    path = state.draw.choice(state.images)
    content = bytearray(path.read_bytes())
    if path.suffix == ".bmp":
        content[-1 - state.draw.randrange(32)] ^= 0x7F
        write_over(path, content)
    else:
        other = path.with_name(f"new{path.suffix}")
        with Image.open(path) as image:
            save_picture(other, picture(state.rng, image.size), 1)
        write_over(path, other.read_bytes())
        other.unlink()


def orientation(state: State) -> None:
    """The tag of a photograph: one byte."""
    path = next((p for p in state.images if p.suffix == ".jpg"), None)
    if path is not None:
        content = path.read_bytes()
        # Tag, type and count of EXIF in the order of bytes that Pillow writes.
        at = content.index(bytes.fromhex("0112000300000001")) + 9
        write_over(path, content[:at] + bytes([content[at] % 8 + 1]) + content[at + 1 :])
        with Image.open(path) as image:
            assert image.getexif()[ORIENTATION] == content[at] % 8 + 1


def swapped_images(state: State) -> None:
    kind = state.draw.choice(KINDS)
    same = [p for p in state.images if p.suffix == kind]
    if len(same) > 1:
        swap(*state.draw.sample(same, 2))


def swapped_captions(state: State) -> None:
    swap(*[p.with_suffix(".txt") for p in state.draw.sample(state.images, 2)])


def other_caption(state: State) -> None:
    state.caption(state.draw.choice(state.images))


def renamed(state: State) -> None:
    path = state.draw.choice(state.images)
    state.made += 1
    stem = f"{state.draw.choice('abcxyz')}r{state.made}"
    for p in (path, path.with_suffix(".txt"), mask_of(path)):
        if p.exists():
            os.rename(p, p.with_name(stem + p.name.removeprefix(path.stem)))


def copied(state: State) -> None:
    path = state.draw.choice(state.images)
    state.made += 1
    target = path.with_name(f"{state.draw.choice('abcxyz')}c{state.made}{path.suffix}")
    target.write_bytes(path.read_bytes())
    state.caption(target)


def mask_of(path: Path) -> Path:
    return path.with_name(f"{path.stem}-mask.png")


def mask(state: State) -> None:
    """A new mask, another one, or none."""
    path = state.draw.choice([p for p in state.images if p.suffix != ".jpg"])
    if mask_of(path).exists() and state.draw.random() < 0.3:
        mask_of(path).unlink()
        return
    with Image.open(path) as image:
        size = image.size
    new = path.with_name("new.png")
    Image.fromarray(state.rng.integers(0, 256, size[::-1], dtype=np.uint8)).save(new)
    write_over(mask_of(path), new.read_bytes())
    new.unlink()


def weights(state: State) -> None:
    """Some of a model's weights, in place."""
    part = state.draw.choice(["vae", "text_encoder", "text_encoder_2"])
    (path,) = (state.root / "models" / part).glob("*.safetensors")
    arrays = load_file(path)
    name = state.draw.choice([n for n in arrays if "norm" not in n and arrays[n].ndim > 1])
    arrays[name] = arrays[name] + state.rng.normal(size=arrays[name].shape).astype(np.float32)
    new = path.with_name("new")
    save_file(arrays, new, {"format": "pt"})
    write_over(path, new.read_bytes())
    new.unlink()


def tokens(state: State) -> None:
    """Two words of a tokenizer change their numbers."""
    part = state.draw.choice(["tokenizer", "tokenizer_2"])
    path = state.root / "models" / part / "tokenizer.json"
    content = json.loads(path.read_text())
    words = content["model"]["vocab"]
    a, b = state.draw.sample(WORDS[1:4], 2)
    words[a], words[b] = words[b], words[a]
    write_over(path, json.dumps(content).encode())


def scaling(state: State) -> None:
    """What latents are shifted and scaled by."""
    path = state.root / "models" / "vae" / "config.json"
    content = json.loads(path.read_text())
    name = state.draw.choice(["shift_factor", "scaling_factor"])
    content[name] = round(state.draw.uniform(0.1, 0.4), 4)
    write_over(path, json.dumps(content).encode())


def other_settings(state: State) -> None:
    draw, s = state.draw, state.settings
    shuffle = draw.choice([None, TokenShuffle(variants=2), TokenShuffle(keep=1, variants=2)])
    crop, crops = draw.choice([("center", None), ("random", 2)])
    state.settings = draw.choice(
        [
            replace(s, latents_dtype=draw.choice(["float32", "bfloat16"])),
            replace(s, text_dtype=draw.choice(["float32", "bfloat16"])),
            replace(s, buckets=replace(s.buckets, filter=draw.choice(["lanczos", "area"]))),
            replace(s, buckets=replace(s.buckets, resolutions=(draw.choice([32, 48]),))),
            replace(s, scan=ScanSettings(alpha=draw.choice(["white", "refuse"]))),
            replace(
                s,
                augmentation=Augmentation(
                    draw.choice([0.0, 0.5]), crop, crops, draw.choice([0.0, 0.3]), shuffle
                ),
            ),
        ]
    )


def other_precision(state: State) -> None:
    state.encoding = state.draw.choice([{}, {"dtype": "bfloat16"}, {"max_length": 9}])


def added(state: State) -> None:
    state.add()


def removed(state: State) -> None:
    if len(state.images) > 3:
        path = state.draw.choice(state.images)
        for p in (path, path.with_suffix(".txt"), mask_of(path)):
            p.unlink(missing_ok=True)


CHANGES: list[Callable[[State], None]] = [
    *(pixels, orientation, swapped_images, swapped_captions, other_caption, renamed, copied),
    *(mask, weights, tokens, scaling, other_settings, other_precision, added, removed),
]


def same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(
        all(np.array_equal(p, q) for p, q in zip(x, y, strict=True))
        for x, y in zip(a, b, strict=True)
    )


def begin(folder: Path, seed: int) -> State:
    state = State(folder, random.Random(seed), np.random.default_rng(seed))
    (folder / "images").mkdir(parents=True)
    save_models(folder / "models")
    for _ in range(3):
        state.add()
    return state


def walk(folder: Path, seed: int, changes: list[Callable[[State], None]]) -> list[str]:
    """The changes after which a kept cache gave something else than a fresh one."""
    state, wrong = begin(folder, seed), []
    state.serve(folder / "cache")
    for k, change in enumerate(changes):
        change(state)
        kept, fresh = state.serve(folder / "cache"), state.serve(folder / f"fresh-{k}")
        if kept[0] != fresh[0] or not same(kept[1], fresh[1]):
            wrong.append(change.__name__)
        # The same question again computes nothing: it is the cache that answers.
        assert not state.serve(folder / "cache")[2]
    return wrong


@pytest.fixture
def remembering_at_once(monkeypatch):
    """Files of this moment are remembered, too; the clock of their times ticks meanwhile."""
    monkeypatch.setattr(digests, "_SETTLED_NS", 0)


@pytest.mark.parametrize("seed", range(40 if SOAK else 1))
def test_a_kept_cache_serves_what_a_fresh_one_would(tmp_path, remembering_at_once, seed):
    """All changes, in a random order."""
    changes = random.Random(seed).sample(CHANGES, len(CHANGES))
    assert not walk(tmp_path, seed, changes)


def without(name: str):
    """Entries that do not depend on something."""
    right = dataset.describe
    return lambda kind, **what: right(kind, **{n: v for n, v in what.items() if n != name})


FAULTS = {
    "image": (dataset, "describe", without("image"), pixels),
    "caption": (dataset, "describe", without("caption"), other_caption),
    "encoder": (dataset, "describe", without("encoder"), weights),
    "mask": (dataset, "describe", without("mask"), mask),
    "times": (digests, "_mark", lambda name: [os.stat(name).st_size, 0, 0], weights),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_found(tmp_path, remembering_at_once, monkeypatch, fault):
    owner, name, value, change = FAULTS[fault]
    monkeypatch.setattr(owner, name, value)
    assert walk(tmp_path, 0, [change, change, change])
