"""What a cache serves is what the files, the models and the settings say now."""

import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from weft.diffusion.data import (
    Augmentation,
    BucketLoader,
    BucketSettings,
    DataSettings,
    Encoders,
    PixelEncoder,
    ScanSettings,
    TokenShuffle,
    cache,
    choose,
)
from weft.errors import ArgumentError, CheckpointLocked, DatasetError
from weft.io import locked

from .random_folders import picture
from .small_data import AUGMENTED, CountingPixels, encoders, expected_batch, settings, write_images

SOAK = bool(os.environ.get("WEFT_SOAK"))


def verify(dataset, found) -> None:
    """Every item under random choices holds what its own files say."""
    for item in range(len(dataset)):
        choice = choose(dataset.settings.augmentation, 0, 0, item)
        batch = dataset.batch([item], [choice])
        latents, embeds, pooled = expected_batch(dataset, found, item, choice)
        np.testing.assert_allclose(batch.latents, latents, atol=1e-6)
        np.testing.assert_array_equal(batch.prompt_embeds, embeds)
        np.testing.assert_array_equal(batch.pooled, pooled)
        assert batch.paths == (dataset.samples[item].path,)


def run(tmp_path, source, mine, with_settings, folder="cache"):
    return cache([source], mine, with_settings, tmp_path / folder)


@pytest.mark.parametrize("augmentation", [Augmentation(), AUGMENTED])
def test_a_cache_is_computed_once(tmp_path, augmentation):
    source, mine = write_images(tmp_path / "images", 7), encoders()
    dataset, report = run(tmp_path, source, mine, settings(augmentation))
    images = 7 * (4 if augmentation is AUGMENTED else 1)
    assert mine.image.calls == report.computed["latents"] <= images
    assert mine.image.released == mine.text.released == 1
    verify(dataset, mine)
    again = encoders()
    second, report = run(tmp_path, source, again, settings(augmentation))
    assert again.image.calls == again.text.calls == 0 and not report.computed
    assert report.reused == {k: v for k, v in report.reused.items() if v} and not report.repaired
    assert second.digest == dataset.digest and not second.orphans()
    verify(second, mine)


def swap_images(folder):
    a, b = folder / "00.png", folder / "03.png"
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)


def swap_captions(folder):
    a, b = folder / "01.txt", folder / "02.txt"
    os.rename(a, folder / "x")
    os.rename(b, a)
    os.rename(folder / "x", b)


def same_times(path, write):
    """Change a file without its times showing it."""
    before = path.stat()
    write(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def new_image(path):
    picture(np.random.default_rng(99), (32, 32)).save(path)


CHANGES = {
    "image": lambda f: new_image(f / "00.png"),
    "image under its old times": lambda f: same_times(f / "00.png", new_image),
    "caption": lambda f: (f / "01.txt").write_text("another"),
    "caption under its old times": lambda f: same_times(f / "01.txt", lambda p: p.write_text("b")),
    "images swapped": swap_images,
    "captions swapped": swap_captions,
    "removed": lambda f: (os.remove(f / "01.png"), os.remove(f / "01.txt")),
    "added in front": lambda f: (new_image(f / "!.png"), (f / "!.txt").write_text("new")),
    "renamed": lambda f: [os.rename(f / f"02{e}", f / f"zz{e}") for e in (".png", ".txt")],
    "copied": lambda f: [shutil.copy(f / f"02{e}", f / f"c{e}") for e in (".png", ".txt")],
    "shifted": lambda f: (
        [os.rename(f / f"{i:02d}.txt", f / f"{i - 1:02d}.txt") for i in range(6) if i]
        and (f / "05.txt").write_text("last")
    ),
}


@pytest.mark.parametrize("augmentation", [Augmentation(), AUGMENTED])
@pytest.mark.parametrize("change", CHANGES)
def test_nothing_stale_after_a_change_of_files(tmp_path, change, augmentation):
    source, mine = write_images(tmp_path / "images", 6), encoders()
    before, _ = run(tmp_path, source, mine, settings(augmentation))
    CHANGES[change](tmp_path / "images")
    dataset, _ = run(tmp_path, source, mine, settings(augmentation))
    verify(dataset, mine)
    assert dataset.digest != before.digest
    with pytest.raises(ValueError, match="data"):
        BucketLoader(dataset).load_state_dict(BucketLoader(before).state_dict())


OTHERS = {
    "image encoder": (lambda: encoders(image=2.0), settings(AUGMENTED)),
    "text encoder": (lambda: encoders(text=2.0), settings(AUGMENTED)),
    "factor": (lambda: Encoders(CountingPixels(factor=4), encoders().text), settings(AUGMENTED)),
    "dtype": (encoders, settings(AUGMENTED, latents_dtype="float16")),
    "filter": (
        encoders,
        DataSettings(
            buckets=replace(settings().buckets, filter="area"),
            augmentation=AUGMENTED,
            text_dtype="float32",
        ),
    ),
    "resolution": (
        encoders,
        DataSettings(
            buckets=replace(settings().buckets, resolutions=(24,)),
            augmentation=AUGMENTED,
            text_dtype="float32",
        ),
    ),
    "crops": (encoders, settings(replace(AUGMENTED, crops=3))),
    "shuffle": (encoders, settings(replace(AUGMENTED, shuffle=TokenShuffle("number", 0, 3)))),
    "alpha": (
        encoders,
        replace(settings(AUGMENTED), scan=ScanSettings(alpha="refuse")),
    ),
}


@pytest.mark.parametrize("other", OTHERS)
def test_other_models_and_settings_are_as_in_a_fresh_cache(tmp_path, other):
    source = write_images(tmp_path / "images", 4)
    before, _ = run(tmp_path, source, encoders(), settings(AUGMENTED))
    make, changed = OTHERS[other]
    used, report = run(tmp_path, source, make(), changed)
    fresh, _ = run(tmp_path, source, make(), changed, "fresh")
    assert used.digest == fresh.digest != before.digest
    for item in range(4):
        for epoch in range(3):
            choice = choose(changed.augmentation, 0, epoch, item)
            a, b = used.batch([item], [choice]), fresh.batch([item], [choice])
            for x, y in zip(a[:3], b[:3], strict=True):
                np.testing.assert_array_equal(x, y)
    # The entries of the first settings are still there, and removed only on demand.
    assert report.orphans == len(used.orphans())
    assert (report.orphans > 0) is (other != "crops")  # where the third is one more
    kept = set(used.orphans())
    assert {os.fspath(p) for p in used.remove_orphans()} == kept and not used.orphans()
    _, report = run(tmp_path, source, make(), changed)
    assert not report.computed


def entry_files(directory):
    return sorted(directory.rglob("*.safetensors"))


@pytest.mark.parametrize("seed", range(60 if SOAK else 6))
def test_damaged_entries_are_made_anew(tmp_path, seed):
    rng = np.random.default_rng(seed)
    source, mine = write_images(tmp_path / "images", 3, masks=True), encoders()
    dataset, _ = run(tmp_path, source, mine, settings())
    good = {p: p.read_bytes() for p in entry_files(tmp_path / "cache")}
    hurt = rng.choice(list(good), 3, replace=False)
    for path in hurt:
        damage(path, rng)
    for path in hurt:
        index = next(i for i, e in enumerate(dataset.entries) if belongs(path, e))
        with pytest.raises(DatasetError, match="weft cache"):
            dataset.batch([index])
    again = encoders()
    second, report = run(tmp_path, source, again, settings())
    assert sum(report.computed.values()) == 3
    assert {p: p.read_bytes() for p in entry_files(tmp_path / "cache")} == good
    assert len(report.repaired) == 3
    verify(second, mine)


def belongs(path, entries) -> bool:
    own = [*(x for flips in entries.latents for x in flips), *entries.masks, *entries.texts]
    return any(os.fspath(path).endswith(entry.path) for entry in own)


def damage(path, rng) -> None:
    data = bytearray(path.read_bytes())
    kind = rng.integers(4)
    if kind == 0:
        data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    elif kind == 1:
        del data[rng.integers(len(data)) :]
    elif kind == 2:
        at = rng.integers(len(data))
        data[at : at + 50] = bytes(len(data[at : at + 50]))
        data += b"\0" if bytes(data) == path.read_bytes() else b""
    else:
        data = bytearray(rng.bytes(len(data)))
    path.write_bytes(data)


def test_entries_under_each_others_names_are_refused(tmp_path):
    source, mine = write_images(tmp_path / "images", 4), encoders()
    dataset, _ = run(tmp_path, source, mine, settings())
    first, second = [tmp_path / "cache" / e.latents[0][0].path for e in dataset.entries[0:4:3]]
    os.rename(first, tmp_path / "x")
    os.rename(second, first)
    os.rename(tmp_path / "x", second)
    with pytest.raises(DatasetError, match="something else"):
        dataset.batch([0])
    dataset, report = run(tmp_path, source, mine, settings())
    assert len(report.repaired) == 2
    verify(dataset, mine)


def test_remembered_sizes_may_be_damaged(tmp_path):
    source, mine = write_images(tmp_path / "images", 3), encoders()
    before, _ = run(tmp_path, source, mine, settings())
    memory = tmp_path / "cache" / "images.json"
    whole = memory.read_bytes()
    assert b"[32,32,0,0,32,32]" in whole
    for wrong in (
        whole.replace(b"[32,32,0,0,32,32]", b"[48,32,0,0,48,32]"),
        whole[:-9],
        b"",
        b"[]",
        b'{"a":1}',
    ):
        memory.write_bytes(wrong)
        dataset, _ = run(tmp_path, source, mine, settings())
        assert dataset.digest == before.digest and memory.read_bytes() == whole


def test_masks(tmp_path):
    source, mine = write_images(tmp_path / "images", 4, masks=True), encoders()
    augmentation = Augmentation(flip=0.5)
    dataset, report = run(tmp_path, source, mine, settings(augmentation))
    assert report.computed["masks"] == 2
    choices = [choose(Augmentation(flip=p), 0, 0, 0) for p in (0.0, 1.0)]
    with Image.open(tmp_path / "images" / "03-mask.png") as mask:
        means = np.asarray(mask).reshape(16, 2, 16, 2).mean((1, 3)) / 255
    plain, flipped = (dataset.batch([3], [c]).mask for c in choices)
    assert plain.shape == (1, 1, 16, 16) and plain.dtype == np.float32
    assert np.abs(plain[0, 0] - means).max() <= 1.001 / 255  # a rounding of 8 bits
    np.testing.assert_array_equal(flipped, plain[..., ::-1])
    both = dataset.batch([3, 0])
    assert both.mask.shape == (2, 1, 16, 16) and (both.mask[1] == 1).all()
    os.remove(tmp_path / "images" / "03-mask.png")
    changed, _ = run(tmp_path, source, mine, settings(augmentation))
    assert (changed.batch([3]).mask == 1).all() and changed.digest != dataset.digest


def test_batches(tmp_path):
    sources = [
        replace(write_images(tmp_path / "a", 4), repeats=2),
        replace(write_images(tmp_path / "b", 3, seed=1), regularisation=True, loss_weight=0.25),
    ]
    mine = encoders()
    dataset, report = cache(sources, mine, settings(), tmp_path / "cache")
    assert len(dataset) == 11 and "7 used" in str(report)
    loader = BucketLoader(dataset, 3, fill=True)
    seen = []
    for batch in loader:
        assert len(batch.latents) == 3 and batch.mask is None
        assert batch.latents.dtype == batch.prompt_embeds.dtype == np.float32
        real = batch.weights > 0
        seen += batch.indexes[real].tolist()
        np.testing.assert_array_equal(
            batch.weights[real], np.where(batch.regularisation[real], 0.25, 1.0)
        )
        assert [dataset.samples[i].path for i in batch.indexes] == list(batch.paths)
    assert sorted(seen) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6]


def test_progress_is_told(tmp_path):
    told = []
    source = write_images(tmp_path / "images", 3)
    cache([source], encoders(), settings(), tmp_path / "c", lambda *args: told.append(args))
    for stage in ("scan", "check", "latents", "text"):
        rows = [row for row in told if row[0] == stage]
        assert [done for _, done, _ in rows] == list(range(1, rows[-1][2] + 1))


def test_captions_that_are_cut_are_reported(tmp_path):
    source = write_images(tmp_path / "images", 2)
    (tmp_path / "images" / "00.txt").write_text("word " * 9000)
    _, report = run(tmp_path, source, encoders(), settings())
    (line,) = report.truncated
    assert "6 of 9000 words" in line and line in str(report)


def test_values_that_are_not_finite_are_refused(tmp_path):
    source = write_images(tmp_path / "images", 2)

    class Infinite(CountingPixels):
        def encode(self, pixels):
            return super().encode(pixels) + np.float32("inf")

    infinite = Encoders(Infinite(), encoders().text)
    for mine, stored in ((infinite, "float32"), (encoders(1e30), "float16")):
        with pytest.raises(DatasetError, match="not finite"):
            run(tmp_path, source, mine, settings(latents_dtype=stored))
    assert not entry_files(tmp_path / "cache")


def test_impossible_caches(tmp_path):
    source = write_images(tmp_path / "images", 2)
    with pytest.raises(ArgumentError, match="multiple"):
        run(tmp_path, source, Encoders(PixelEncoder(3), encoders().text), settings())
    tiny = replace(settings(), buckets=BucketSettings((1024,)))
    with pytest.raises(DatasetError, match=r"(?s)no image can be used.*too-small"):
        run(tmp_path, source, encoders(), tiny)

    class Wrong(CountingPixels):
        def encode(self, pixels):
            return super().encode(pixels)[..., 1:]

    with pytest.raises(DatasetError, match="expected"):
        run(tmp_path, source, Encoders(Wrong(), encoders().text), settings())


def test_an_image_that_changes_meanwhile(tmp_path):
    source = write_images(tmp_path / "images", 4)

    class Changing(CountingPixels):
        def encode(self, pixels):
            new_image(tmp_path / "images" / "03.png")  # of the same size
            return super().encode(pixels)

    mine = Encoders(Changing(), encoders().text)
    with pytest.raises(DatasetError, match="changed while"):
        run(tmp_path, source, mine, settings())
    dataset, _ = run(tmp_path, source, mine, settings())
    verify(dataset, mine)


def test_one_writer_at_a_time(tmp_path):
    source = write_images(tmp_path / "images", 2)
    (tmp_path / "cache").mkdir()
    pid = os.fork()
    if pid == 0:
        with locked(tmp_path / "cache"):
            os.write(1, b"")
            (tmp_path / "ready").touch()
            while not (tmp_path / "done").exists():
                pass
        os._exit(0)
    while not (tmp_path / "ready").exists():
        pass
    try:
        with pytest.raises(CheckpointLocked, match=str(pid)):
            run(tmp_path, source, encoders(), settings())
    finally:
        (tmp_path / "done").touch()
        os.waitpid(pid, 0)


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    from weft.io import disk

    source, mine = write_images(tmp_path / "images", 4), encoders()
    left, write = [9], disk.write

    def fails(fd, data):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr(disk, "write", fails)
    with pytest.raises(OSError, match="No space") as raised:
        run(tmp_path, source, mine, settings())
    assert any("run it again" in note for note in raised.value.__notes__)
    monkeypatch.undo()
    done = len(entry_files(tmp_path / "cache"))
    dataset, report = run(tmp_path, source, mine, settings())
    assert 0 < done == sum(report.reused.values()) and not report.repaired
    verify(dataset, mine)
