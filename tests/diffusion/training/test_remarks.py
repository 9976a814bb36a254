"""What a run says at its start and while it goes on, where its settings do what few will want."""

import re
import resource
import shutil
import sys
import warnings
from subprocess import run as run_process

import pytest

import weft as wf
from weft.cli import main
from weft.diffusion.training.callbacks import AdapterFiles
from weft.diffusion.training.check import remarks
from weft.diffusion.training.config import OutputSection, read_config

from .tiny import make_files, write_config


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("remarks")
    make_files(folder)
    return folder


@pytest.fixture
def files(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


def said(capsys, *arguments, status=2):
    found = main([str(a) for a in arguments])
    shown = capsys.readouterr()
    assert found == status, shown.err
    return " ".join(shown.err.split()), " ".join(shown.out.split())


def train_lines(**more):
    plain = {"steps": 6, "batch": 2, "precision": '"float32"'}
    return "\n".join(f"{k} = {v}" for k, v in {**plain, **more}.items() if v != "")


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.999])
@pytest.mark.parametrize("steps", [1, 10, 100, 500, 5000])
def test_averages_of_what_was_not_trained(files, decay, steps):
    config = read_config(write_config(files, train=train_lines(ema=decay, steps=steps)))
    found = remarks(config, steps)
    assert bool(found) is (decay**steps > 0.05)
    if found:
        given = float(re.search(r"give ([\d.]+)", found[0])[1])
        better = read_config(write_config(files, train=train_lines(ema=given, steps=steps)))
        assert not remarks(better, steps)


def test_averages_are_remarked_on_by_the_check(files, capsys):
    config = write_config(files, train=train_lines(ema=0.999))
    _, out = said(capsys, "train", config, "--check", status=0)
    assert "99 % of the averages" in out


@pytest.mark.parametrize("optimizer", ["adafactor", "prodigy", "adamw"])
def test_rates_that_optimizers_find_are_not_shown(files, optimizer, capsys):
    config = write_config(files, optimizer=f'name = "{optimizer}"', train=train_lines(steps=1))
    err, _ = said(capsys, "train", config, status=0)
    assert "step 1/1 epoch 1 loss" in err
    assert (" lr " in err) is (optimizer == "adamw") and "lr nan" not in err


def test_epochs_are_counted_as_users_count(files, capsys):
    config = write_config(files, train=train_lines(steps="", epochs=2), validation="", preview="")
    err, _ = said(capsys, "train", config, status=0)
    assert "step 8/8 epoch 2 " in err and "epoch 0" not in err


@pytest.mark.parametrize("schedule", ['name = "cosine"', "warmup_steps = 2"])
def test_no_schedule_beside_an_optimizer_without_one(files, schedule, capsys):
    own = {"optimizer": 'name = "schedulefreeadamw"', "train": train_lines()}
    config = write_config(files, schedule=schedule, **own)
    err, _ = said(capsys, "train", config, "--check")
    assert "schedule." in err and "schedulefreeadamw" in err
    said(capsys, "train", write_config(files, **own), "--check", status=0)


def test_rules_that_never_match_are_refused(files, capsys):
    rules = ['"*attn*"', '"*attn.to_q"', '"*ff*"']
    text = "".join(f"[[adapter.rules]]\npattern = {r}\nrank = 2\n" for r in rules)
    config = write_config(files, train=train_lines())
    config.write_text(config.read_text() + text)
    err, _ = said(capsys, "train", config, "--check")
    assert "adapter.rules[1].pattern" in err and "earlier rules" in err
    assert "rules[0]" not in err and "rules[2]" not in err


@pytest.mark.parametrize("key", ["masks", "mask_suffix"])
def test_masks_that_are_none_are_refused(files, key, capsys):
    (files / "masks").mkdir()
    value = "masks" if key == "masks" else "-mask"
    config = write_config(files, train=train_lines())
    text = config.read_text()
    config.write_text(text.replace('path = "images"', f'path = "images"\n{key} = "{value}"'))
    for command in (["train", config, "--check"], ["cache", config], ["train", config]):
        err, _ = said(capsys, *command)
        assert f"data[0].{key}" in err and "no mask" in err
    assert not (files / "cache" / "latents").exists()


def test_a_folder_in_the_place_of_a_file_is_named(files, capsys):
    model = wf.diffusion.Flux.load(files / "model")
    wf.nn.add_lora(model, ["*"], rank=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wf.nn.save_lora(model, files / "a.safetensors")
    (files / "there").mkdir()
    err, _ = said(capsys, "convert", "a.safetensors", "there", "--layout", "peft")
    assert err.startswith("weft: there: ") and ".weft-" not in err


def test_what_is_wrong_with_adapters_is_said_once(files):
    model = wf.diffusion.Flux.load(files / "model")
    wf.nn.add_lora(model, ["*"], rank=2)

    class Trainer:
        checkpoint = idle = None

        def averaged(self):
            return warnings.catch_warnings()  # any block

    Trainer.model = model
    callback = AdapterFiles(OutputSection(files / "run", layouts=("peft", "kohya")))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(3):
            callback._write(Trainer(), f"adapter-{step}")
    texts = [str(w.message) for w in caught]
    assert 1 <= len(texts) == len({t.split(":\n")[1] for t in texts}) <= 2, texts


def test_a_limit_of_the_size_of_files_is_explained(files):
    config = write_config(files, train=train_lines())

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = run_process(
        [sys.executable, "-m", "weft", "train", config], preexec_fn=limit, capture_output=True
    )
    err = " ".join(done.stderr.decode().split())
    assert done.returncode == 2 and "ulimit -f" in err and "/run/" in err and ".weft-" not in err
