"""`wf.diffusion.sample` draws what training drew, to the bit, and says what it drew with."""

import json
import os
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import pytest
from PIL import Image

import weft as wf
from weft.diffusion.training import pictures
from weft.diffusion.training.callbacks import newest_adapter
from weft.diffusion.training.config import read_config
from weft.diffusion.training.run import train

from .tiny import SIZES, make_files, write_config

TRAIN = 'steps = 4\nbatch = 2\nprecision = "float32"\ncompile = false'
PREVIEW = 'prompts = ["a red circle", "b"]\nevery = 2\nsteps = 2\nwidth = 8\nheight = 16'
# What a file holds in another form than the run, or needs to be told by averages.
RUNS = {
    "alpha": {"adapter": "rank = 3\nalpha = 1.7", "train": f"{TRAIN}\nema = 0.9"},
    "half": {"adapter": 'kind = "dora"\nalpha = 5.0', "output": 'dtype = "bfloat16"'},
    "lokr": {
        "adapter": 'kind = "lokr"\nrank = 2\nalpha = 3.0',
        "output": 'layouts = ["kohya"]',
        "optimizer": 'name = "schedulefreeadamw"\nlr = 1e-2',
    },
    "kohya": {
        "adapter": 'targets = ["*"]\nalpha = 3.0\n[[adapter.rules]]\npattern = "*.to_k"\nrank = 2',
        "output": 'layouts = ["kohya"]',
        "model": 'path = "model"\ndtype = "bfloat16"\nquantise = "int8"',
    },
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    make_files(folder)
    return folder


@pytest.fixture
def latents(monkeypatch):
    """The latents of all pictures that were drawn, before they are rounded to bytes."""
    drawn = []
    right = pictures.sample_latents

    def noting(*arguments):
        drawn.append(right(*arguments))
        return drawn[-1]

    monkeypatch.setattr(pictures, "sample_latents", noting)
    return drawn


def configured(folder, name: str, **sections: str):
    output = f'directory = "{name}"\nsave_every = 2\nlog_every = 100\n{sections.pop("output", "")}'
    chosen = {"train": TRAIN, "preview": PREVIEW, "validation": "", "output": output} | sections
    return read_config(write_config(folder, f"{name}.toml", **chosen))


@pytest.mark.filterwarnings("ignore:save_lora")
@pytest.mark.parametrize("name", RUNS)
def test_a_picture_is_that_of_training(files, latents, name):
    config = configured(files, name, **RUNS[name])
    file = train(config)
    previews, latents[:] = list(latents), []
    assert len(previews) == 6 and not np.array_equal(previews[0], previews[4])
    made = wf.diffusion.sample(config, out=files / "end.png")
    wf.diffusion.sample(config, file.with_name(f"adapter-00000002{file.name[7:]}"), out=made)
    for mine, right in zip(latents, previews[4:] + previews[2:4], strict=True):
        assert np.array_equal(mine, right)
    assert made.read_bytes() == (files / name / "previews/step-00000002.png").read_bytes()


def test_settings_and_facts(files, latents):
    config = configured(files, "facts", encoders='tokens = 4\ncache = "facts-cache"')
    with pytest.raises(wf.errors.CheckpointNotFound, match="train first"):
        wf.diffusion.sample(config)
    out = wf.diffusion.sample(config, base=True, out=files / "base.png")
    facts = json.loads(out.with_suffix(".json").read_text())
    assert facts["adapter"] is None and facts["base"] == str(files / "model")
    assert facts["prompts"] == ["a red circle", "b"] and facts["guidance"] == 3.5
    assert (facts["width"], facts["height"]) == (8, 16)  # pixels, of each of the pictures
    file = train(config)
    own: dict[str, Any] = {"prompts": ["one of its own"], "steps": 3, "guidance": 2.0, "seed": 7}
    own |= {"width": 12, "height": 8}
    out = wf.diffusion.sample(config, out=files / "own.png", **own)
    facts = json.loads(out.with_suffix(".json").read_text())
    levels = wf.diffusion.sigma_schedule(3, 6)
    assert facts["sigmas"] == pytest.approx(levels.tolist()) and facts["seed"] == 7
    assert facts["prompts"] == ["one of its own"] and facts["guidance"] == 2.0
    assert facts["adapter"] == str(file) and facts["strength"] == 1
    assert facts["adapter_sha256"] == sha256(file.read_bytes()).hexdigest()
    with Image.open(out) as picture:
        assert picture.size == (12, 8)
    # A prompt that training has cached is drawn as the same prompt is without the cache.
    elsewhere = replace(config, encoders=replace(config.encoders, cache=files / "no-cache"))
    alike: dict[str, Any] = dict(prompts=["a red circle"], adapter=file, out=files / "c.png")
    wf.diffusion.sample(config, **alike)
    wf.diffusion.sample(elsewhere, **alike)
    assert np.array_equal(latents[-1], latents[-2])
    assert not list((files / "no-cache").rglob("*.safetensors"))


@pytest.mark.filterwarnings("ignore:save_lora")
@pytest.mark.parametrize(("kind", "scaled"), [("lora", "lora_B"), ("lokr", "lokr_w1")])
def test_strength_multiplies_the_update(files, latents, kind, scaled):
    adapter = f'kind = "{kind}"\nrank = 2\nalpha = 2.0'
    layouts = f'layouts = ["{"kohya" if kind == "lokr" else "peft"}"]'
    config = configured(files, f"strong-{kind}", adapter=adapter, output=layouts, preview=PREVIEW)
    file, out = train(config), files / "s.png"
    stored = wf.io.load_safetensors(file)
    half = {n: x * 0.5 if scaled in n else x for n, x in stored.items()}
    wf.io.save_safetensors(files / "half.safetensors", half)
    latents.clear()
    wf.diffusion.sample(config, file, strength=0.5, out=out)
    wf.diffusion.sample(config, files / "half.safetensors", out=out)
    wf.diffusion.sample(config, file, strength=0.0, out=out)
    wf.diffusion.sample(config, base=True, out=out)
    wf.diffusion.sample(config, file, out=out)
    one, same, none, base, whole = latents[::2]
    assert np.array_equal(one, same) and np.array_equal(none, base)
    assert not np.array_equal(one, base) and not np.array_equal(one, whole)


def test_another_strength_of_a_dora_is_refused(files):
    dora = configured(files, "half", **RUNS["half"])
    with pytest.raises(wf.errors.ArgumentError, match="is a DoRA"):
        wf.diffusion.sample(dora, train(dora), strength=0.5)


def test_the_newest_adapter_is_that_of_the_run_as_it_is(files):
    config = configured(files, "ages", preview="")
    folder = config.output.directory / "adapters"
    folder.mkdir(parents=True)
    both = replace(config.output, layouts=("kohya", "peft"))
    for age, name in enumerate(["00000002", "00000004-kohya", "00000004", "", "00000006"]):
        file = folder / f"adapter{'-' if name else ''}{name}.safetensors"
        file.touch()
        os.utime(file, ns=(0, age // 2))
        assert newest_adapter(both) == {2: folder / "adapter-00000004-kohya.safetensors"}.get(
            age, file
        )
    for other in (
        "adapter-2.safetensors",
        "adapters.safetensors",
        "adapter-00000009-x.safetensors",
    ):
        (folder / other).touch()
    assert newest_adapter(config.output) == folder / "adapter-00000006.safetensors"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 10}, r"preview.width = 10, expected a multiple of 4.*8 or 12 will do"),
        ({"steps": 0}, "preview.steps: 0, expected at least 1"),
        ({"prompts": []}, "no prompts"),
        ({"out": "grid.jpg"}, "expected the name of a .png"),
        ({"base": True, "strength": 2.0}, "give one of them"),
        ({"strength": float("nan")}, "strength=nan"),
        ({"adapter": "none.safetensors"}, "none.safetensors"),
    ],
)
def test_mistakes_are_told(files, options, message):
    config = configured(files, "alpha", **RUNS["alpha"])
    given: dict[str, Any] = {"base": not {"adapter", "strength"} & set(options), **options}
    with pytest.raises(wf.errors.WeftError, match=message):
        wf.diffusion.sample(config, **given)


def test_an_adapter_of_another_model_is_refused(files, tmp_path):
    other = wf.diffusion.Flux(replace(SIZES, num_layers=3))
    wf.nn.add_lora(other, "transformer_blocks.2.attn.to_q", rank=1)
    with pytest.warns(wf.errors.AdapterWarning, match="update of 0"):
        wf.nn.save_lora(other, tmp_path / "a.safetensors")
    with pytest.raises(wf.errors.StateMismatch, match=r"transformer_blocks\.2"):
        wf.diffusion.sample(configured(files, "other"), tmp_path / "a.safetensors")


def test_encoders_of_diffusers_and_transformers(files, tmp_path):
    from ..data.small_models import save_models

    save_models(tmp_path)
    sizes = replace(SIZES, in_channels=64, joint_attention_dim=16, pooled_projection_dim=12)
    wf.random.seed(1)
    wf.diffusion.Flux(sizes).save(tmp_path / "transformer")
    paths = {"vae": "vae", "clip": "text_encoder", "t5": "text_encoder_2"}
    lines = [f'{name} = "{tmp_path / folder}"' for name, folder in paths.items()]
    encoders = "\n".join([*lines, "tokens = 8", f'cache = "{tmp_path / "cache"}"'])
    config = configured(
        files,
        "reference",
        model=f'path = "{tmp_path}"\ndtype = "float32"',
        encoders=encoders,
        preview='prompts = ["a red cat"]\nsteps = 1\nwidth = 32\nheight = 16',
    )
    made = wf.diffusion.sample(config, base=True, out=tmp_path / "a.png")
    with Image.open(made) as picture:
        assert picture.size == (32, 16) and np.ptp(np.asarray(picture)) > 0
