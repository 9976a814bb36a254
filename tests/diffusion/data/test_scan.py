"""Every file is accounted for, with the right reason, in folders of random good and bad files."""

import os
import re
from functools import partial

import numpy as np
import pytest
from PIL import Image, ImageFile
from rich.console import Console

from weft.diffusion.data import Augmentation, BucketSettings, ScanSettings, Source, scan
from weft.errors import ArgumentError, DatasetError

from .random_folders import KINDS, Maker, picture, random_folder, with_caption

SOAK = bool(os.environ.get("WEFT_SOAK"))
BUCKETS = BucketSettings(resolutions=(64,), step=8, min_side=32, max_side=128, keep=0.4)
LIMITS = ScanSettings(max_pixels=4_000_000)
MASKED = partial(Source, mask_suffix="-mask")


def outcomes(report) -> dict:
    found = {s.path: "used" for s in report.samples}
    found |= {r.path: r.problem for r in report.refused}
    return found | {i.path: "ignored" for i in report.ignored}


def check(report, expected: dict) -> None:
    assert report.adds_up() and report.entries == len(expected)
    found = outcomes(report)
    for path, what in expected.items():
        if what in ("caption", "mask"):
            assert path not in found, path
        else:
            assert found.pop(path) in (what if isinstance(what, set) else {what}), path
    assert not found
    texts = sum(w in ("caption", "orphan-caption") for w in expected.values())
    assert report.captions == texts
    assert report.masks == sum(w == "mask" for w in expected.values())


@pytest.mark.parametrize("seed", range(40 if SOAK else 5))
def test_random_folders(tmp_path, seed):
    expected = random_folder(tmp_path / "images", seed, 30)
    report = scan([MASKED(tmp_path / "images")], LIMITS, BUCKETS)
    check(report, expected)
    assert report == scan([MASKED(tmp_path / "images")], LIMITS, BUCKETS)
    assert [s.path for s in report.samples] == sorted(
        (s.path for s in report.samples), key=os.fsencode
    )
    plain = str(report)
    for path, what in expected.items():
        if what not in ("used", "caption", "mask"):
            assert os.path.basename(path).isprintable() is (os.path.basename(path) in plain)
    console = Console(width=300, file=open(os.devnull, "w", encoding="ascii", errors="replace"))
    with console.file:
        console.print(report)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(tmp_path, kind):
    maker = Maker(tmp_path / "images", np.random.default_rng(1))
    for _ in range(2):
        getattr(maker, kind)()
    check(scan([MASKED(tmp_path / "images")], LIMITS, BUCKETS), maker.expected)


def one_image(folder, name="a.png", caption="a cat", size=(64, 64), mode="RGB"):
    folder.mkdir(exist_ok=True, parents=True)
    picture(np.random.default_rng(0), size, mode).save(folder / name)
    if caption is not None:
        with_caption(folder / name, caption)


def test_problems_stop_with_the_whole_list(tmp_path):
    for i in range(3):
        one_image(tmp_path / "images", f"{i}.png", caption=None)
    one_image(tmp_path / "images", "good.png")
    stop = ScanSettings(problems={"missing-caption": "stop"})
    with pytest.raises(DatasetError, match=r"(?s)3 files.*0\.png.*1\.png.*2\.png.*default_caption"):
        scan([Source(tmp_path / "images")], stop, BUCKETS)
    assert len(scan([Source(tmp_path / "images")], LIMITS, BUCKETS).samples) == 1
    with pytest.raises(ArgumentError, match="missing-captions"):
        ScanSettings(problems={"missing-captions": "stop"})
    with pytest.raises(ArgumentError, match="ignore"):
        ScanSettings(problems={"missing-caption": "ignore"})


def test_captions(tmp_path):
    folder = tmp_path / "images"
    one_image(folder, "a.png", "\ufeff  two\nlines é \n")
    one_image(folder, "b.png", None)
    one_image(folder, "c.png", " ")
    found = scan([Source(folder, default_caption="a thing")], LIMITS, BUCKETS)
    assert [s.caption for s in found.samples] == ["two\nlines é", "a thing", "a thing"]
    assert "2 images have their source's default caption" in str(found)
    (folder / "b.caption").write_text("b")
    found = scan([Source(folder, caption_extension=".caption")], LIMITS, BUCKETS)
    assert [s.caption for s in found.samples] == ["b"]
    assert sorted(i.path[-5:] for i in found.ignored) == ["a.txt", "c.txt"]
    assert [r.problem for r in found.refused] == ["missing-caption"] * 2
    empty = scan([Source(folder, default_caption="")], LIMITS, BUCKETS)
    assert [s.caption for s in empty.samples] == ["two\nlines é", "", ""]


def test_masks_in_a_folder(tmp_path):
    folder = tmp_path / "images"
    one_image(folder, "a.png")
    one_image(folder, "b.jpg")
    one_image(folder / "masks", "a.jpg", None, mode="L")
    one_image(folder / "masks", "c.png", None, mode="L")
    (folder / "masks" / "readme").write_text("x")
    report = scan([Source(folder, mask_folder=folder / "masks")], LIMITS, BUCKETS)
    assert report.adds_up() and report.masks == 1 and len(report.ignored) == 1
    assert [(r.problem, r.path[-11:]) for r in report.refused] == [("orphan-mask", "masks/c.png")]
    (folder / "masks" / "c.png").unlink()
    assert [s.mask and s.mask[-11:] for s in report.samples] == ["masks/a.jpg", None]
    (folder / "masks" / "a.png").write_bytes((folder / "a.png").read_bytes())
    report = scan([Source(folder, mask_folder=folder / "masks")], LIMITS, BUCKETS)
    assert [r.problem for r in report.refused] == ["duplicate-mask"]


@pytest.mark.parametrize("seed", range(4))
def test_names_alone_make_no_masks(tmp_path, seed):
    """With masks in a folder or without: an image of any name has its caption and is used."""
    rng, folder = np.random.default_rng(seed), tmp_path / "images"
    stems = [f"{s}{end}" for s in "ab" for end in ("", "-mask", ".mask", "_mask", "-masklabel")]
    for stem in stems:
        one_image(folder, f"{stem}.png", None)
        (folder / f"{stem}.txt").write_text("a cat")
    (tmp_path / "masks").mkdir()
    for stem in rng.permutation(stems)[:3]:
        one_image(tmp_path / "masks", f"{stem}.png", None, mode="L")
    given = {"mask_folder": tmp_path / "masks"} if seed % 2 else {}
    report = scan([Source(folder, **given)], LIMITS, BUCKETS)
    assert len(report.samples) == len(stems) and not report.refused and not report.ignored
    assert sum(s.mask is not None for s in report.samples) == (3 if given else 0)
    report = scan([MASKED(folder)], LIMITS, BUCKETS)
    assert report.adds_up() and report.masks == 2 and len(report.samples) == len(stems) - 2


def test_masks_that_are_black_in_some_crop(tmp_path):
    """What is white lies in the corner, which the centre and some places do not have."""
    one_image(tmp_path, "a.png", size=(300, 64))
    mask = Image.new("L", (300, 64), 0)
    mask.putpixel((1, 1), 255)
    mask.save(tmp_path / "a-mask.png")
    buckets = BucketSettings((64,), step=64, min_side=64, max_side=64, keep=0.1)

    def found(**crops):
        report = scan([MASKED(tmp_path)], LIMITS, buckets, augmentation=Augmentation(**crops))
        return [r.detail for r in report.refused]

    assert found() == ["a-mask.png is black in all of the crop"]
    (detail,) = found(crop="random", crops=50)
    assert re.search("black in all of [1-9][0-9]* of 50 crops", detail)
    mask.paste(1, (0, 0, 300, 64))
    mask.save(tmp_path / "a-mask.png")
    assert found() == [] == found(crop="random", crops=50)


def test_several_sources(tmp_path):
    one_image(tmp_path / "a")
    one_image(tmp_path / "a" / "inner", "b.png")
    one_image(tmp_path / "c")
    sources = [
        Source(tmp_path / "a", repeats=3),
        Source(tmp_path / "c", regularisation=True, loss_weight=0.5),
    ]
    report = scan(sources, LIMITS, BUCKETS)
    assert [(s.source, s.name, s.repeats, s.weight) for s in report.samples] == [
        (0, "a.png", 3, 1.0),
        (1, "a.png", 1, 0.5),
    ]
    report = scan([Source(tmp_path / "a", recursive=True)], LIMITS, BUCKETS)
    assert [s.name for s in report.samples] == ["a.png", "inner/b.png"] and not report.ignored
    for twice in (
        [Source(tmp_path / "a"), Source(tmp_path / "c" / ".." / "a")],
        [Source(tmp_path / "a", recursive=True), Source(tmp_path / "a" / "inner")],
    ):
        with pytest.raises(DatasetError, match="found twice"):
            scan(twice, LIMITS, BUCKETS)
    with pytest.raises(DatasetError, match="nowhere"):
        scan([Source(tmp_path / "nowhere")])


def test_settings_that_make_no_sense(tmp_path):
    for arguments in (
        {"repeats": 0},
        {"repeats": 1.5},
        {"caption_extension": "txt"},
        {"caption_extension": ".a/../b"},
        {"loss_weight": float("nan")},
        {"loss_weight": -1},
        {"recursive": True, "mask_folder": "m"},
        {"mask_suffix": ""},
        {"mask_suffix": "/m"},
        {"mask_suffix": "-mask", "mask_folder": "m"},
    ):
        with pytest.raises(ArgumentError):
            Source(tmp_path, **arguments)
    with pytest.raises(ArgumentError):
        ScanSettings(max_pixels=10**9)
    with pytest.raises(DatasetError, match="of images"):
        scan([Source(tmp_path, caption_extension=".png")])


def test_truncated_images_are_refused_whatever_others_have_set(tmp_path, monkeypatch):
    one_image(tmp_path / "a")
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(ArgumentError, match="LOAD_TRUNCATED_IMAGES"):
        scan([Source(tmp_path / "a")], LIMITS, BUCKETS)


def test_transparency_can_be_refused(tmp_path):
    folder = tmp_path / "a"
    one_image(folder, "opaque.png", mode="RGBA")
    image = picture(np.random.default_rng(0), (64, 64), "RGBA")
    image.putalpha(Image.new("L", image.size, 200))
    image.save(folder / "clear.png")
    with_caption(folder / "clear.png")
    report = scan([Source(folder)], ScanSettings(alpha="refuse"), BUCKETS)
    assert [s.name for s in report.samples] == ["opaque.png"]
    assert [r.problem for r in report.refused] == ["transparent"]
    assert len(scan([Source(folder)], LIMITS, BUCKETS).samples) == 2
