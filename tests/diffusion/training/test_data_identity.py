"""A run whose data differs says which keys and which files do, before anything is computed."""

import shutil

import numpy as np
import pytest
from PIL import Image

import weft as wf
from weft.diffusion.training.config import read_config
from weft.diffusion.training.data_identity import FILES
from weft.diffusion.training.run import prepare_data, train

from .tiny import make_files, write_config

SHORT = {"train": 'steps = 1\nbatch = 2\nprecision = "float32"\ncompile = false', "preview": ""}
SHORT["validation"] = ""  # every image is trained on
SHORT |= {"images": "resolutions = [16]\nstep = 8\nshortest = 8\nlongest = 32"}
IMAGES, TRAIN = SHORT["images"], SHORT["train"]


def write(folder, **sections):
    """The configuration of a run whose images may have masks beside them."""
    path = write_config(folder, **{**SHORT, **sections})
    path.write_text(path.read_text().replace("[[data]]", '[[data]]\nmask_suffix = "-mask"'))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with a finished run of one step; one image has a mask."""
    folder = tmp_path_factory.mktemp("run")
    make_files(folder)
    grey(folder / "images" / f"{names(folder)[0]}-mask.png", 100)
    train(write(folder))
    return folder


def grey(path, level):
    Image.fromarray(np.full((16, 16), level, np.uint8)).save(path)


def names(folder):
    found = sorted(p.stem for p in (folder / "images").glob("*.png"))
    return [stem for stem in found if not stem.endswith("-mask")]


def caption(folder):
    (folder / "images" / f"{names(folder)[2]}.txt").write_text("something else")


def picture(folder):
    file = folder / "images" / f"{names(folder)[2]}.png"
    Image.fromarray(np.full((16, 16, 3), 9, np.uint8)).save(file)


def added(folder):
    shutil.copy(folder / "images" / f"{names(folder)[2]}.png", folder / "images" / "new.png")
    (folder / "images" / "new.txt").write_text("new")


def removed(folder):
    stem = names(folder)[2]
    for extension in ("png", "txt"):
        (folder / "images" / f"{stem}.{extension}").unlink()


def masked(folder):
    grey(folder / "images" / f"{names(folder)[2]}-mask.png", 200)


CHANGES = {
    "images.flip is 0.5, it was 0.0": {"images": IMAGES + "\nflip = 0.5"},
    "images.caption_dropout is 0.25": {"images": IMAGES + "\ncaption_dropout = 0.25"},
    "images.resolutions is (8,)": {"images": IMAGES.replace("16", "8")},
    "encoders.tokens is 5, it was 4": {"encoders": "tokens = 5"},
    "validation.share is 0.5": {"validation": "share = 0.5\nevery = 3\nlevels = 2"},
    "train.batch is 3, it was 2": {"train": TRAIN.replace("batch = 2", "batch = 3")},
    "data[0].weight is 0.5, it was 1.0": "weight = 0.5",
    "data[0].repeats is 2, it was 1": "repeats = 2",
    "data[0].path: captions changed: ": caption,
    "data[0].path: images changed: ": picture,
    "data[0].path: images added: new.png": added,
    "data[0].path: images removed: ": removed,
    "data[0].path: masks changed: ": masked,
}


@pytest.mark.parametrize("told", CHANGES)
def test_what_differs_is_named(run, told, tmp_path):
    folder, change = tmp_path / "copy", CHANGES[told]
    shutil.copytree(run, folder)
    changed = change if isinstance(change, dict) else {}
    path = write(folder, **changed)
    if isinstance(change, str):
        path.write_text(path.read_text().replace("[[data]]", f"[[data]]\n{change}"))
    elif callable(change):
        change(folder)
    before = {p for p in (folder / "cache").rglob("*.safetensors")}
    with pytest.raises(wf.errors.StateMismatch) as e:
        prepare_data(read_config(path))
    assert told in e.value.message, e.value.message
    assert "another output.directory" in e.value.message
    assert {p for p in (folder / "cache").rglob("*.safetensors")} == before


def test_settings_that_change_no_number_may_change(run):
    images = IMAGES + "\nkeep = 0.4\nmax_pixels = 1000000"
    prepare_data(read_config(write(run, images=images)))


def test_what_a_checkpoint_has_of_it_is_bounded(run):
    assert FILES <= 2000
    (manifest,) = run.glob("run/step-*/manifest.json")
    assert manifest.stat().st_size < 40_000
