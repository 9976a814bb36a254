"""Runs from a configuration: what they leave, that they go on, and what others read of it."""

import json

import numpy as np
import pytest
from PIL import Image

import weft as wf
from weft.diffusion.training.config import read_config
from weft.diffusion.training.run import prepare_data, train
from weft.diffusion.training.validation import ValidationBatches, split_samples

from .tiny import SECTIONS, SIZES, make_files, write_config


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    make_files(folder)
    return folder


def run(folder, name: str, **sections: str):
    """A run in a directory of its own; its adapter file."""
    output = f'directory = "{name}"\nsave_every = 3\nlog_every = 100'
    path = write_config(folder, f"{name}.toml", **({"output": output} | sections))
    return train(read_config(path))


@pytest.fixture(scope="module")
def whole(files):
    """The adapter files of finished runs, compiled and eager."""
    options = f"{SECTIONS['train']}\ncompile = "
    return {c: run(files, f"whole-{c}", train=options + c) for c in ("true", "false")}


def test_what_a_run_leaves(files, whole):
    file, folder = whole["true"], files / "whole-true"
    left = {str(p.relative_to(folder)) for p in folder.rglob("*")}
    assert {"curves.png", "adapters/adapter.safetensors", "step-00000006"} <= left
    assert {f"previews/step-0000000{k}.png" for k in (0, 3, 6)} <= left
    facts = json.loads((folder / "previews/step-00000006.json").read_text())
    assert facts["prompts"] == ["a red circle"] and facts["seed"] == 0 and facts["guidance"] == 3.5
    levels = wf.diffusion.sigma_schedule(2, 16)
    assert facts["sigmas"] == pytest.approx(levels.tolist()) and facts["step"] == 6
    with Image.open(folder / "previews/step-00000006.png") as picture:
        assert picture.size == (16, 16)
    found = wf.nn.lora_summary(file)
    assert len(found.modules) == 17 and all(m.norm > 0 for m in found.modules.values())


@pytest.mark.parametrize("compiled", ["true", "false"])
def test_a_run_goes_on_to_the_bit(files, whole, compiled):
    """Three steps and then three more are six, with averages, dropout of captions and flips."""
    options = f"{SECTIONS['train']}\ncompile = {compiled}".replace("steps = 6", "steps = {}")
    run(files, f"parts-{compiled}", train=options.format(3))
    parts = run(files, f"parts-{compiled}", train=options.format(6))
    assert whole[compiled].read_bytes() == parts.read_bytes()


def test_compiled_runs_are_eager_ones(files):
    """To rounding; Adam's steps would make much of it where gradients are small."""
    options = f"{SECTIONS['train']}\ncompile = false"
    others = {"optimizer": 'name = "sgd"\nlr = 20.0', "preview": "", "validation": ""}
    a = wf.io.load_safetensors(run(files, "compiled", **others))
    b = wf.io.load_safetensors(run(files, "eager", train=options, **others))
    assert list(a) == list(b)
    for name, x in a.items():
        assert name.endswith(".lora_A.weight") or np.abs(x.numpy()).max() > 1e-4  # B began at zero
        np.testing.assert_allclose(x.numpy(), b[name].numpy(), atol=1e-6)


def test_an_adapter_starts_where_another_ended(files, whole):
    again = run(
        *(files, "again"),
        adapter=f'start = "{whole["true"]}"',
        optimizer='name = "sgd"\nlr = 1e-30',
        preview="",
        validation="",
        train=f"{SECTIONS['train']}\ncompile = false".replace("steps = 6", "steps = 1"),
    )
    a, b = wf.io.load_safetensors(whole["true"]), wf.io.load_safetensors(again)
    for name, x in a.items():
        np.testing.assert_allclose(x.numpy(), b[name].numpy(), atol=1e-6)


def test_validation_has_the_same_noise_each_time(files):
    data = prepare_data(read_config(write_config(files)))
    assert data.validation is not None
    batches = ValidationBatches(data.validation, levels=3, seed=1)
    twice = [list(batches), list(batches)]
    assert len(twice[0]) == len(batches) == 3 * len(data.validation.samples)
    for a, b in zip(*twice, strict=True):
        assert all(np.array_equal(a[name], b[name]) for name in a)
    sigmas = {float(batch["sigma"][0]) for batch in twice[0]}
    assert sigmas == {np.float32(1 / 6), np.float32(0.5), np.float32(5 / 6)}
    noises = {batch["noise"].tobytes() for batch in twice[0]}
    assert len(noises) == len(batches)


def test_a_share_is_kept_apart_by_content(files):
    samples = prepare_data(read_config(write_config(files))).trained.samples
    samples += prepare_data(read_config(write_config(files))).validation.samples
    trained, kept = split_samples(samples, 0.5, None)
    assert len(trained) + len(kept) == len(samples) == 8
    some = split_samples(samples[::2], 0.5, None)
    assert {s.digest for s in some[1]} == {s.digest for s in kept} & {
        s.digest for s in samples[::2]
    }
    assert split_samples(samples, 0.0, 0)[1] == list(samples)
    for n in range(1, 9):  # however small the share is, there is one to validate on
        assert len(split_samples(samples[:n], 1e-9, None)[1]) == 1


@pytest.mark.parametrize("quantise", ["", 'quantise = "int8"'])
def test_checkpoints_hold_adapters_only(files, quantise):
    """Neither frozen parameters nor 8-bit weights; another base is refused."""
    name = "eight" if quantise else "plain"
    model = f"{SECTIONS['model']}\n{quantise}"
    short = f"{SECTIONS['train']}\ncompile = false".replace("steps = 6", "steps = {}")
    options = {"preview": "", "validation": ""}
    run(files, name, model=model, train=short.format(1), **options)
    (state,) = (files / name / "step-00000001").glob("model_state*.safetensors")
    header = wf.io.read_header(state)
    assert len(header.entries) == 34 and all(".lora_" in n for n in header.entries)
    wf.random.seed(6)
    wf.diffusion.Flux(SIZES).save(files / f"other-{name}")
    other = model.replace("model", f"other-{name}")
    with pytest.raises(wf.errors.StateMismatch, match="other values than the base"):
        run(files, name, model=other, train=short.format(2), **options)
