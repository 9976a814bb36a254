"""A small Flux model learns shapes, and its adapter a new one, from the file that is left."""

import os

import numpy as np
import pytest
from examples import flux_lora
from PIL import Image

import weft as wf
from weft.diffusion.data.demo import COLOURS, SHAPES, draw_shape

SOAK = os.environ.get("WEFT_SOAK") == "1"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A whole run, or a short one; its folder and what it gave."""
    folder = tmp_path_factory.mktemp("demo") / "flux_lora"
    lengths = {} if SOAK else {"base_steps": 150, "steps": 20}
    return folder, flux_lora.main(str(folder), **lengths)


def test_the_base_learns(run):
    losses = run[1][0]
    assert np.mean(losses[-20:]) < (0.08 if SOAK else 0.5) < losses[0]


def test_the_adapter_is_whole_and_draws_something_else(run, drawn):
    folder, (_, before, after) = run
    found = wf.nn.lora_summary(folder / "run/adapters/star.safetensors")
    assert len(found.modules) == 22 and not found.faults
    assert all(m.norm > 0 and m.rank == 16 for m in found.modules.values())
    drawn(folder / "run/curves.png")
    drawn(folder / "before_after.png")
    assert np.mean(np.abs(after[:3].astype(int) - before[:3])) > 1


def cut(grid, count, side):
    """The pictures of a grid of three columns."""
    pixels = np.asarray(Image.open(grid))
    at = [divmod(k, 3) for k in range(count)]
    step = side + 2
    return np.stack([pixels[y * step : y * step + side, x * step : x * step + side] for y, x in at])


def test_previews_are_what_the_file_draws(run):
    """The first one is the base, the last one the adapter that was saved, to a level or two."""
    folder, (_, before, after) = run
    first, *_, last = sorted((folder / "run/previews").glob("*.png"))
    for path, expected in ((first, before), (last, after)):
        np.testing.assert_allclose(cut(path, 6, 16).astype(int), expected, atol=2)


def test_a_folder_that_is_not_empty_is_left_alone(run):
    with pytest.raises(SystemExit, match="holds a run already"):
        flux_lora.main(str(run[0]))


def covered(picture):
    """Which pixels are coloured: their least channel is dark."""
    return picture.min(-1) < 150


def likest(picture):
    """The shape and the colour of which some picture covers most nearly the same pixels."""
    found, rng = covered(picture), np.random.default_rng(3)
    likeness = {}
    for shape in (*SHAPES, "star"):
        masks = [covered(draw_shape(shape, "red", 16, rng)) for _ in range(300)]
        likeness[shape] = max(np.sum(found & m) / np.sum(found | m) for m in masks)
    ink = picture[covered(picture)].astype(float).mean(0)
    near = {c: np.abs(ink - rgb).max() for c, rgb in COLOURS.items()}
    return f"a {min(near, key=near.__getitem__)} {max(likeness, key=likeness.__getitem__)}"


@pytest.mark.parametrize("shape", [*SHAPES, "star"])
def test_shapes_are_told_apart(shape):
    rng = np.random.default_rng(4)
    assert all(likest(draw_shape(shape, "blue", 16, rng)) == f"a blue {shape}" for _ in range(5))


@pytest.mark.skipif(not SOAK, reason="the whole run; WEFT_SOAK=1")
def test_a_person_sees_the_difference(run):
    """Each picture is likest to its prompt, and before a star is none."""
    _, (_, before, after) = run
    assert [likest(picture) for picture in after] == flux_lora.PROMPTS
    assert not any("star" in likest(picture) for picture in before[:3])
    assert [likest(picture) for picture in before[3:]] == flux_lora.PROMPTS[3:]
