"""Files that a run reads: each command on a fresh folder, on damaged files, on read-only disks."""

import errno
import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import weft as wf
from weft.cli import main
from weft.io import disk

from ..data.small_models import save_models
from .tiny import SIZES, make_files, write_config

STEM = "diffusion_pytorch_model"
COMMANDS = {
    "check": ["train", "{}", "--check"],
    "estimate": ["estimate", "{}", "--no-time"],
    "cache": ["cache", "{}"],
    "train": ["train", "{}"],
    "sample": ["sample", "{}", "--base"],
}
ENCODERS = {
    "pixels": "",
    "vae": 'vae = "pipeline/vae"\n',
    "texts": 'clip = "pipeline/text_encoder"\nt5 = "pipeline/text_encoder_2"\n',
}
ENCODERS["all"] = ENCODERS["vae"] + ENCODERS["texts"]
WIDE = {"joint_attention_dim": 16, "pooled_projection_dim": 12}


def sections(kind):
    found = {"encoders": f"tokens = 4\n{ENCODERS[kind]}"}
    found["train"] = 'steps = 1\nbatch = 2\nprecision = "float32"'
    if "vae" in ENCODERS[kind]:  # a latent is 8 pixels
        found["images"] = "resolutions = [64]\nstep = 16\nshortest = 16\nlongest = 64"
        found["preview"] = 'prompts = ["a cat"]\nsteps = 1\nwidth = 16\nheight = 16'
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A base for each kind of latents, images, and the folders of a pipeline's encoders."""
    folder = tmp_path_factory.mktemp("made")
    make_files(folder)
    save_models(folder / "pipeline")
    for name, channels in (("pixels", 48), ("vae", 64)):
        sizes = wf.diffusion.FluxConfig(**{**SIZES.__dict__, **WIDE, "in_channels": channels})
        wf.diffusion.Flux(sizes).save(folder / f"model-{name}")
    wf.diffusion.data.demo.draw_shapes(folder / "large", images=4, size=64)
    return folder


@pytest.fixture
def fresh(made, tmp_path, monkeypatch):
    """Make a folder with all that a run reads, and nothing that it writes."""
    monkeypatch.chdir(tmp_path)

    def make(kind):
        wide = "vae" in ENCODERS[kind]
        shutil.copytree(made / f"model-{'vae' if wide else 'pixels'}", tmp_path / "model")
        shutil.copytree(made / "pipeline", tmp_path / "pipeline")
        shutil.copytree(made / ("large" if wide else "images"), tmp_path / "images")
        return write_config(tmp_path, **sections(kind))

    return make


def run(command, config, *more):
    return main([word.format(config) for word in (*COMMANDS[command], *more)])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_begins_in_a_fresh_folder(fresh, tmp_path, command, kind, capsys):
    config = fresh(kind)
    before = {p for p in tmp_path.rglob("*")}
    assert run(command, config) == 0, capsys.readouterr().err
    if command in ("check", "estimate"):
        assert {p for p in tmp_path.rglob("*")} == before


# -- damaged files ---------------------------------------------------------------------------------


def weights_of(folder: Path) -> Path:
    return folder / f"{STEM}.safetensors"


def rewrite(change):
    def damage(folder: Path):
        arrays = load_file(weights_of(folder))
        save_file(change(arrays, sorted(arrays)) or arrays, weights_of(folder))

    return damage


def configure(**values):
    def damage(folder: Path):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return damage


def shard(change):
    """A damage of a base in two shards."""

    def damage(folder: Path):
        arrays = load_file(weights_of(folder))
        weights_of(folder).unlink()
        files = [f"{STEM}-0000{n}-of-00002.safetensors" for n in (1, 2)]
        places = {name: files[n % 2] for n, name in enumerate(sorted(arrays))}
        for file in files:
            save_file({n: a for n, a in arrays.items() if places[n] == file}, folder / file)
        change(folder, files, places)
        index = folder / f"{STEM}.safetensors.index.json"
        index.write_text(json.dumps({"metadata": {}, "weight_map": places}))

    return damage


def cut(path: Path, share: float):
    os.truncate(path, int(path.stat().st_size * share))


DAMAGES = {
    "cut in the header": lambda f: os.truncate(weights_of(f), 100),
    "cut": lambda f: cut(weights_of(f), 0.6),
    "cut by a byte": lambda f: os.truncate(weights_of(f), weights_of(f).stat().st_size - 1),
    "empty": lambda f: os.truncate(weights_of(f), 0),
    "no weights": lambda f: weights_of(f).unlink(),
    "a page of a web server": lambda f: weights_of(f).write_text("<html>" * 99),
    "missing tensor": rewrite(lambda d, n: d.pop(n[5]) is None),
    "further tensor": rewrite(lambda d, n: d.update(more=d[n[0]])),
    "another shape": rewrite(lambda d, n: d.update({n[5]: d[n[5]][:1]})),
    "integers": rewrite(lambda d, n: {k: v.astype("int32") for k, v in d.items()}),
    "one of integers": rewrite(lambda d, n: d.update({n[3]: d[n[3]].astype("int8")})),
    "more blocks": configure(num_layers=2),
    "thousands of blocks": configure(num_layers=3000),
    "a billion of blocks": configure(num_single_layers=10**9),
    "fewer blocks": configure(num_layers=0),
    "other heads": configure(num_attention_heads=4),
    "narrower heads": configure(num_attention_heads=4, attention_head_dim=8, axes_dims_rope=[4, 4]),
    "no guidance": configure(guidance_embeds=False),
    "other tokens": configure(in_channels=64),
    "patches": configure(patch_size=2),
    "texts of another width": configure(joint_attention_dim=64),
    "another class": configure(_class_name="SD3Transformer2DModel"),
    "no JSON": lambda f: (f / "config.json").write_text("{"),
    "no config.json": lambda f: (f / "config.json").unlink(),
    "missing shard": shard(lambda f, files, places: (f / files[1]).unlink()),
    "cut shard": shard(lambda f, files, places: cut(f / files[1], 0.5)),
    "a shard elsewhere": shard(lambda f, files, p: p.update(dict.fromkeys(p, f"../{files[0]}"))),
    "a shard twice": shard(lambda f, files, p: shutil.copy(f / files[0], f / files[1])),
}
# What is planned may be planned before the weights are there.
ONLY_PLANNED = {("no weights", "estimate")}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_base_is_refused_before_anything_is_cached(fresh, tmp_path, damage, capsys):
    config = fresh("pixels")
    DAMAGES[damage](tmp_path / "model")
    for command in COMMANDS:
        status = run(command, config)
        said = capsys.readouterr().err
        if (damage, command) in ONLY_PLANNED:
            assert status == 0, said
            continue
        assert status == 2 and "model.path" in said, (command, said)
        assert not (tmp_path / "cache").exists() and not (tmp_path / "run").exists(), command


def test_a_plan_without_weights_is_for_models_of_a_size_that_there_is(fresh, tmp_path, capsys):
    config = fresh("pixels")
    weights_of(tmp_path / "model").unlink()
    assert run("estimate", config) == 0
    assert "no weights yet" in capsys.readouterr().out.replace("\n", " ")
    configure(num_layers=10**9)(tmp_path / "model")
    assert run("estimate", config) == 2
    assert "blocks" in capsys.readouterr().err


ENCODER_DAMAGES = {
    "cut": lambda path: cut(path, 0.9),
    "empty": lambda path: os.truncate(path, 0),
    "a page of a web server": lambda path: path.write_text("<html>"),
    "missing shard": lambda path: path.with_name(f"{path.name}.index.json").write_text(
        json.dumps({"weight_map": {"x": "model-00001-of-00002.safetensors"}})
    ),
}


@pytest.mark.parametrize("folder", ["vae", "text_encoder", "text_encoder_2"])
@pytest.mark.parametrize("damage", ENCODER_DAMAGES)
def test_a_damaged_encoder_is_refused_before_anything_is_cached(
    fresh, tmp_path, damage, folder, capsys
):
    config = fresh("all")
    (path,) = (tmp_path / "pipeline" / folder).glob("*.safetensors")
    ENCODER_DAMAGES[damage](path)
    for command in COMMANDS:
        assert run(command, config) == 2, command
        said = capsys.readouterr().err
        assert "encoders" in said and folder in said, (command, said)
        assert not (tmp_path / "cache").exists(), command


# -- disks that cannot be written to ---------------------------------------------------------------


def make_read_only(monkeypatch, folder: Path):
    """Nothing can be made, written or removed below a folder, whoever asks."""
    real = {"open": os.open, "replace": os.replace, "unlink": os.unlink, "mkdir": os.mkdir}
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT

    def deny(path):
        inside = Path(os.path.abspath(os.fspath(path))).is_relative_to(folder)
        if isinstance(path, str | os.PathLike) and inside:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), os.fspath(path))

    def open_file(path, flags, *rest, **options):
        if flags & writing:
            deny(path)
        return real["open"](path, flags, *rest, **options)

    def denied(name):
        return lambda path, *rest, **o: (deny(path), real[name](path, *rest, **o))[1]

    monkeypatch.setattr(os, "open", open_file)
    for name in ("replace", "unlink", "mkdir"):
        monkeypatch.setattr(os, name, denied(name))
    monkeypatch.setattr(
        tempfile, "TemporaryFile", lambda dir: (deny(dir), tempfile.SpooledTemporaryFile())[1]
    )
    assert disk.create


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["pixels", "all"])
def test_a_whole_cache_is_read_where_nothing_can_be_written(
    fresh, tmp_path, kind, monkeypatch, capsys
):
    config = fresh(kind)
    assert run("cache", config) == 0
    make_read_only(monkeypatch, tmp_path / "cache")
    for command in COMMANDS:
        assert run(command, config) == 0, (command, capsys.readouterr().err)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(tmp_path / "run")
    one = next((tmp_path / "cache" / "latents").rglob("*.safetensors"))
    one.unlink()
    make_read_only(monkeypatch, tmp_path / "cache")
    for command in ("check", "cache", "train"):
        assert run(command, config) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "encoders.cache" in said and "1 entries" in said and ".weft-" not in said, said
    assert not (tmp_path / "run").exists()


def test_weights_that_are_no_numbers_are_refused_when_they_are_read(fresh, tmp_path, capsys):
    config = fresh("pixels")
    rewrite(lambda d, n: d.update({n[2]: np.full_like(d[n[2]], np.nan)}))(tmp_path / "model")
    assert run("check", config) == 0
    assert run("train", config) == 2
    assert "NaN or infinite" in capsys.readouterr().err
    assert not list((tmp_path / "run").glob("step-*"))
