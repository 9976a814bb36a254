"""The commands, as a user types them."""

import json
import os
import re
import subprocess
import sys
import warnings

import pytest
from tests.diffusion.training.tiny import SECTIONS, SIZES, make_files, write_config

import weft as wf
from weft.cli import main


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    make_files(folder)
    return folder


def test_train_check_and_cache(files, capsys):
    path = str(write_config(files))
    assert main(["train", path, "--check"]) == 0
    shown = capsys.readouterr().out
    assert "1 double and 1 single blocks" in shown and "8 images: 8 used, 0 refused" in shown
    assert not (files / "run").exists()
    assert main(["cache", path]) == 0
    assert "8 images" in capsys.readouterr().out
    assert main(["train", path]) == 0
    shown = capsys.readouterr()
    assert "adapter.safetensors" in shown.out
    assert re.search(r"loss .* lr 0.01 .* images/s  memory [\d.]+ .iB, peak [\d.]+ .iB", shown.err)


def test_sample(files, tmp_path, capsys):
    path, grid = str(write_config(files)), tmp_path / "grid.png"
    options = ["--prompt", "a", "--prompt", "b", "--steps", "1", "--width", "8", "--height", "4"]
    options += ["--guidance", "2", "--seed", "3", "--out", str(grid)]
    assert main(["sample", path, "--base", *options]) == 0
    assert str(grid) in capsys.readouterr().out
    facts = json.loads(grid.with_suffix(".json").read_text())
    assert facts["prompts"] == ["a", "b"] and facts["seed"] == 3 and facts["guidance"] == 2
    assert facts["steps"] == 1 and facts["adapter"] is None
    assert main(["sample", path, "--adapter", "none.safetensors", "--strength", "2"]) == 2
    assert "none.safetensors" in capsys.readouterr().err


def test_inspect(tmp_path, capsys):
    model = wf.diffusion.Flux(SIZES)
    wf.nn.add_lora(model, "*.attn.to_q", rank=2)
    for _, p in model.lora_parameters():
        wf.nn.init.normal_(p)
    wf.nn.save_lora(model, tmp_path / "a.safetensors")
    assert main(["inspect", str(tmp_path / "a.safetensors")]) == 0
    shown = capsys.readouterr().out
    assert "transformer.transformer_blocks.0.attn.to_q" in shown
    assert "layout peft, 2 modules" in shown


@pytest.mark.parametrize(("value", "said"), [(0.0, "update of 0"), (float("nan"), "is NaN or inf")])
def test_inspect_says_what_is_no_use(tmp_path, capsys, value, said):
    name = "transformer.transformer_blocks.0.attn.to_q"
    factors = {f"{name}.lora_A.weight": wf.ones((1, 8))}
    factors[f"{name}.lora_B.weight"] = wf.full((8, 1), value)
    file = str(tmp_path / "a.safetensors")
    wf.io.save_safetensors(file, factors)
    assert main(["inspect", file]) == 1
    assert said in capsys.readouterr().err
    assert main(["convert", file, f"{tmp_path}/none/b.safetensors", "--layout", "kohya"]) == 2
    assert "create it" in capsys.readouterr().err or said == "is NaN or inf"


def test_convert_there_and_back(tmp_path, capsys):
    """A file of Flux's own sizes, of which no weights are needed."""
    model = wf.diffusion.Flux(
        wf.diffusion.FluxConfig(num_layers=1, num_single_layers=1), empty=True
    )
    wf.nn.add_lora(model, ["*.attn.to_q", "norm_out.linear", "*.ff.net.2"], rank=2)
    for _, p in model.lora_parameters():
        wf.nn.init.normal_(p)
    files = [str(tmp_path / f"{name}.safetensors") for name in "abc"]
    wf.nn.save_lora(model, files[0])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["convert", *files[:2], "--layout", "kohya"]) == 0
    shown = capsys.readouterr().err.replace("\n", " ")
    assert "weft: warning: save_lora" in shown and "diffusers passes over" in shown
    assert "norm_out" in shown and "test_commands.py" not in shown
    assert wf.nn.lora_summary(files[1]).layout == "kohya"
    assert main(["convert", *files[1:], "--layout", "peft"]) == 0
    before, after = (wf.io.load_safetensors(files[k]) for k in (0, 2))
    assert set(before) == set(after)
    assert all(wf.allclose(before[name], after[name], atol=1e-6) for name in before)
    assert main(["convert", *files[1:], "--layout", "comfy"]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "none.toml"], "none.toml: cannot be read"),
        (["inspect", "none.safetensors"], "none.safetensors"),
        (["train"], "Missing argument"),
        (["trian", "x"], "No such command"),
        (["train", "x", "--chek"], "No such option"),
    ],
)
def test_mistakes_are_told_without_a_traceback(arguments, message, capsys):
    assert main(arguments) == 2
    told = capsys.readouterr().err
    assert message in told.replace("\n", " ") and "Traceback" not in told


def run_in(columns, encoding, *arguments):
    """A command in a process of its own, whose output is a pipe: (status, stdout, stderr)."""
    given = {**os.environ, "COLUMNS": columns, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    code = "import sys; from weft.cli import main; sys.exit(main(sys.argv[1:]))"
    made = subprocess.run(
        [sys.executable, "-c", code, *arguments], env=given, capture_output=True, timeout=120
    )
    return made.returncode, made.stdout.decode(encoding), made.stderr.decode(encoding)


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """Many images that cannot be used, in a folder with a long name."""
    folder = tmp_path_factory.mktemp("a_home_of_a_user_with_projects_and_a_long_name")
    make_files(folder)
    for n in range(30):
        (folder / "images" / f"broken-{n:03d}-ü.png").write_bytes(b"no image")
    return folder


def test_each_refused_image_is_a_line(refused, capsys):
    """Also those after the first 20, and with problems at which to stop."""
    path = str(write_config(refused))
    assert main(["train", path, "--check"]) == 2
    shown = capsys.readouterr()
    for n in range(30):
        file = refused / "images" / f"broken-{n:03d}-ü.png"
        (line,) = [line for line in shown.out.splitlines() if str(file) in line]
        assert "unreadable" in line and "save the image again" in line
    assert "30 files have problems" in shown.err
    assert main(["train", path]) == 2
    assert "and 10 more: `weft train --check`" in capsys.readouterr().err
    assert not (refused / "cache" / "latents").exists()


def test_output_that_has_no_such_characters(refused, tmp_path):
    """Narrow, and in ASCII: names are whole, and what cannot be written is an escape."""
    path = str(
        write_config(refused, "skip.toml", images=SECTIONS["images"] + '\nproblems = "skip"')
    )
    status, shown, told = run_in("30", "ascii", "train", path, "--check")
    assert status == 0, told
    file = refused / "images" / "broken-007-"
    assert [line for line in shown.splitlines() if line.count(str(file)) == 1]
    assert "16\\xd716" in shown
    status, shown, told = run_in("30", "ascii", "estimate", path, "--no-time")
    assert status == 0 and "at the peak" in shown, told


def test_layers_in_narrow_output(tmp_path, capsys, monkeypatch):
    model = wf.diffusion.Flux(SIZES, empty=True)
    wf.nn.add_lora(model, "*", rank=1)
    for _, p in model.lora_parameters():
        wf.nn.init.ones_(p)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wf.nn.save_lora(model, tmp_path / "a.safetensors")
    monkeypatch.setenv("COLUMNS", "30")
    assert main(["inspect", str(tmp_path / "a.safetensors")]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in wf.nn.lora_summary(tmp_path / "a.safetensors").modules:
        (line,) = [text for text in lines if text.split()[:1] == [name]]
        assert line.split()[1] == "lora"
