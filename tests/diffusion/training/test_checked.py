"""What `weft train --check` accepts, trains, saves and goes on; what it refuses, is not begun.

Settings are put together at random. WEFT_SOAK=1 does more of it.
"""

import os
import re
import shutil
import warnings

import numpy as np
import pytest

import weft as wf
from weft.cli import main
from weft.diffusion.training.check import check_run
from weft.diffusion.training.config import read_config
from weft.diffusion.training.run import train

from .settings_values import BASE, VALID, to_toml
from .tiny import make_files

SOAK = bool(os.environ.get("WEFT_SOAK"))
FIRST = int(os.environ.get("WEFT_SEED", "0"))
RUNS = range(FIRST, FIRST + (400 if SOAK else 12))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checked")
    make_files(folder)
    shutil.copytree(folder / "images", folder / "kept")
    (folder / "masks").mkdir()
    (folder / "afile").write_text("no folder")
    model = wf.diffusion.Flux.load(folder / "model")
    wf.nn.add_lora(model, ["*"], rank=2)
    wf.nn.save_lora(model, folder / "start.safetensors")
    return folder


def draw(rng):
    """The sections of a configuration with some settings of their own, and which these are."""
    sections = {name: dict(keys) for name, keys in BASE.items()}
    places = [(s, k) for s, keys in VALID.items() for k in keys]
    chosen = [places[i] for i in rng.choice(len(places), int(rng.integers(2, 5)), replace=False)]
    named = []
    for section, key in chosen:
        value = VALID[section][key][int(rng.integers(len(VALID[section][key])))]
        sections.setdefault(section, {})[key] = value
        named.append(f"{section}.{key} = {value or '(left out)'}")
    return sections, named


def written(folder):
    """The files that a run leaves."""
    places = ("run", "cache", "cache-2", "base")
    return {p for name in places for p in (folder / name).rglob("*") if p.is_file()}


def clean(folder):
    for name in ("run", "cache", "cache-2", "base"):
        shutil.rmtree(folder / name, ignore_errors=True)


def attempt(act):
    """What an action raises that a user is meant to see; anything else is a failure."""
    try:
        act()
    except (wf.errors.ConfigError, wf.errors.DatasetError, wf.errors.BudgetExceeded) as e:
        return e
    return None


def one_more(path, text):
    """Give a run another step or epoch."""
    more = re.sub(r"(?m)^steps = 2$", "steps = 3", text, count=1)
    if more == text:
        more = re.sub(r"(?m)^epochs = 1$", "epochs = 2", text)
    path.write_text(more)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", RUNS)
def test_what_is_checked_trains(files, seed, capsys):
    rng = np.random.default_rng(seed)
    sections, named = draw(rng)
    path = files / "config.toml"
    text = to_toml(sections)
    path.write_text(text)
    clean(files)
    why = f"{named}"
    refused = attempt(lambda: check_run(read_config(path), lambda line: None))
    left = {p for p in files.rglob("*") if p.name in ("run", "cache", "cache-2", "base")}
    assert not left, f"{why}: --check wrote {left}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if refused is not None:
            again = attempt(lambda: train(path))
            assert again is not None, f"{why}: --check refused ({refused}), and it was trained"
            assert {p.name for p in written(files)} <= {"images.json", ".lock", "digests.json"}, why
            return
        train(path)
        assert (files / "run" / "adapters").is_dir(), why
        one_more(path, text)
        read = read_config(path)
        train(path)
        assert len(wf.io.steps(read.output.directory)) >= 1, why
    capsys.readouterr()


PAIRS = {
    "a layer of kohya's layout in parts": {
        ("adapter", "kind"): '"dora"',
        ("adapter", "targets"): '["*to_v", "*proj_mlp"]',
        ("output", "layouts"): '["peft", "kohya"]',
    },
    "two averages": {("optimizer", "name"): '"schedulefreeadamw"', ("train", "ema"): "0.9"},
    "nothing to keep": {("model", "cache"): '"base"'},
    "a file": {("output", "directory"): '"afile"'},
    "below a file": {("output", "directory"): '"afile/run"'},
    "no folder can be made": {("output", "directory"): '"/proc/none"'},
    "no layer": {("adapter", "targets"): '["*attn9*"]'},
    "masks among many folders": {("data", "masks"): '"masks"', ("data", "recursive"): "true"},
    "two sources of steps": {
        ("optimizer", "name"): '"adafactor"',
        ("optimizer", "relative_step"): "true",
    },
    "a schedule that epochs end": {
        ("train", "steps"): "",
        ("train", "epochs"): "1",
        ("schedule", "name"): '"cosine"',
        ("schedule", "warmup_steps"): "9",
    },
    "a budget": {("train", "memory_budget_mb"): "0.25", ("train", "compile"): "true"},
}


@pytest.mark.parametrize("name", PAIRS)
def test_refused_with_key_and_line(files, name, capsys):
    """Each is refused alike by --check, cache, train and estimate, and nothing is cached."""
    sections = {section: dict(keys) for section, keys in BASE.items()}
    for (section, key), value in PAIRS[name].items():
        sections.setdefault(section, {})[key] = value
    path = files / "refused.toml"
    path.write_text(to_toml(sections))
    clean(files)
    asked = [["train", str(path), "--check"], ["cache", str(path)], ["train", str(path)]]
    folder = name in ("a file", "below a file", "no folder can be made")
    asked += [] if folder or name == "a budget" else [["estimate", str(path), "--no-time"]]
    told = set()
    for arguments in asked:
        assert main(arguments) == 2, arguments
        told.add(re.sub(r"\s+", " ", capsys.readouterr().err.partition("weft: ")[2]))
    (message,) = told
    places = [".".join(place).replace("data.", r"data\[0\].") for place in PAIRS[name]]
    assert re.match(rf"{re.escape(str(path))}:\d+: ({'|'.join(places)})", message), message
    assert not (files / "cache" / "latents").exists()
