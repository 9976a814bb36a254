"""The commands, as a user types them."""

import pytest
from tests.diffusion.training.tiny import SIZES, make_files, write_config

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
    assert "adapter.safetensors" in capsys.readouterr().out.replace("\n", "")


def test_inspect_and_convert(tmp_path, capsys):
    model = wf.diffusion.Flux(SIZES)
    wf.nn.add_lora(model, "*.attn.to_q", rank=2)
    for _, p in model.lora_parameters():
        wf.nn.init.normal_(p)
    wf.nn.save_lora(model, tmp_path / "a.safetensors")
    assert main(["inspect", str(tmp_path / "a.safetensors")]) == 0
    shown = capsys.readouterr().out
    assert "transformer_blocks.0.attn.to_q" in shown and "layout peft, 2 modules" in shown


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
