"""Configurations: what is read, and what is refused with its line."""

from pathlib import Path

import pytest

import weft as wf
from weft.diffusion.training.config import TARGETS, read_config
from weft.diffusion.training.recipes import OPTIMIZERS, OptimizerRecipe, ScheduleRecipe

from .tiny import write_config


def test_what_is_not_given_has_defaults(tmp_path):
    config = read_config(write_config(tmp_path))
    assert config.model.path == tmp_path / "model" and config.adapter.targets == TARGETS
    assert config.encoders.vae == "pixels" and config.encoders.cache == tmp_path / "cache"
    assert config.optimizer == OptimizerRecipe("adamw", wf.optim.AdamWConfig(lr=1e-2))
    assert config.schedule == ScheduleRecipe() and config.data[0].repeats == 1


def test_paths_are_beside_the_file(tmp_path):
    config = read_config(write_config(tmp_path, encoders='vae = "../vae"\ncache = "/c"'))
    assert config.encoders.vae == tmp_path / "../vae" and config.encoders.cache == Path("/c")


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_every_optimizer_by_name(name, tmp_path):
    train = "steps = 6"  # without averages, which one of them makes by itself
    config = read_config(write_config(tmp_path, optimizer=f'name = "{name}"', train=train))
    p = wf.Parameter(wf.ones((4, 4)))
    optimizer = config.optimizer.make([("p", p)])
    optimizer.step([wf.ones((4, 4))])
    assert type(optimizer).__name__.lower() == name


SCHEDULES = {
    "constant": ("warmup_steps = 5", [0.0, 0.002, 0.01, 0.01]),
    "linear": ("warmup_steps = 5", [0.0, 0.002, 0.01 * 10 / 15, 0.0]),
    "cosine": ("min_lr = 1e-3", [0.01, None, 0.0055, 1e-3]),
    "polynomial": ("power = 2.0", [0.01, None, 0.0025, 0.0]),
    "exponential": ("decay_rate = 0.5", [0.01, 0.005, None, None]),
    "step": ("step_size = 10", [0.01, 0.01, 0.001, None]),
    "one_cycle": ("", [0.01 / 25, None, None, None]),
    "wsd": ("warmup_steps = 5\nstable_steps = 10\ndecay_steps = 5", [0.0, 0.002, 0.01, 0.0]),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_by_name(name, tmp_path):
    options, rates = SCHEDULES[name]
    path = write_config(tmp_path, schedule=f'name = "{name}"\n{options}')
    schedule = read_config(path).schedule.make(0.01, 20)
    for step, rate in zip((0, 1, 10, 20), rates, strict=True):
        if rate is not None:
            assert schedule.get_lr(step) == pytest.approx(rate, abs=1e-12)


BAD = {
    ("train", "steps = 6\nbtach = 2"): "train.btach: unknown key; did you mean batch?",
    ("train", "batch = 2"): "train: neither steps nor epochs is given",
    ("train", "steps = 0"): "train.steps: 0, expected at least 1",
    ("train", "steps = 1\nema = 1.5"): "train.ema: 1.5, expected at least 0 and at most 1",
    ("train", "steps = 1\ntext_encoder_lr_scale = 0.1"): "no adapters of text encoders",
    ("train", "steps = 1\nmemory_budget_mb = -1"): "train.memory_budget_mb: -1, expected",
    (
        "output",
        'directory = "r"\nname = "../a"',
    ): "output.name: '../a', expected the name of a file",
    ("output", 'directory = "r"\nname = "a/b"'): "output.name",
    ("output", 'directory = "r"\nlayouts = []'): "output.layouts: empty",
    ("output", 'directory = "r"\nlayouts = ["comfy"]'): "output.layouts[0]: 'comfy', expected",
    ("output", "name = 'a'"): "output: directory is missing",
    ("optimizer", 'name = "adam-w"'): "'adam-w' is not known; did you mean adamw?",
    ("optimizer", "lr = -1.0"): "optimizer",
    ("optimizer", "beta1 = 'x'"): "optimizer.beta1: 'x', expected a finite number",
    ("schedule", 'name = "wsd"'): "schedule: warmup_steps is missing, which 'wsd' needs",
    ("schedule", 'name = "cosine"\ngamma = 1'): "schedule.gamma: unknown key",
    ("schedule", 'name = "cosine"\nwarmup_steps = 9'): "schedule.warmup_steps: 9 is more than",
    ("optimizer", "lr = 0.0"): "optimizer.lr: 0, with which nothing is trained",
    ("train", "steps = 1\nclip_norm = 0.0"): "train.clip_norm: 0, with which nothing is trained",
    ("train", "steps = 1\nunet_lr_scale = 0.0"): "train.unet_lr_scale: 0, with which nothing",
    ("train", "steps = 1\nema = 1.0"): "train.ema: 1, with which averages stay",
    ("train", "steps = 1\nbatch = 100000"): "train.batch: 100000, expected at least 1 and at most",
    ("output", f'directory = "r"\nname = "{"a" * 201}"'): "output.name: 201 characters",
    ("encoders", "tokens = 100000"): "encoders.tokens: 100000, expected at least 1 and at most",
    ("preview", "height = 100000"): "preview.height: 100000, expected an even number",
    ("adapter", "dropout = 1.0"): "adapter.dropout: 1, with which nothing is trained",
    ("adapter", "alpha = 0.0"): "adapter.alpha: 0, expected more than 0",
    ("adapter", "rank = 100000"): "adapter.rank: 100000, expected at least 1 and at most 8192",
    (
        "adapter",
        '[[adapter.rules]]\npattern = "*"\nrank = 2\nalpha = -1.0',
    ): "adapter.rules[0].alpha: -1, expected more than 0",
    ("adapter", "targets = []"): "nothing would be trained",
    ("adapter", "rank = 0"): "adapter.rank: 0, expected at least 1",
    ("adapter", '[[adapter.rules]]\npattern = "*"\nrank = 0'): "adapter.rules[0].rank: 0",
    ("images", 'crop = "random"'): "images.crops: latents are cached",
    ("images", "resolutions = [4096]"): "images.resolutions[0]: 4096, expected from",
    ("images", "flip = 2.0"): "images.flip: 2, expected at least 0 and at most 1",
    ("encoders", 'clip = "c"'): "encoders.clip: clip and t5 are both folders, or both 'hash'",
    ("encoders", 't5_tokenizer = "t"'): "encoders.t5_tokenizer: t5 is 'hash'",
    ("validation", 'folder = "v"\nshare = 0.1'): "validation.share: beside a folder",
    ("preview", "width = 15"): "preview.width: 15, expected an even number",
    ("noise", 'sampling = "logitnormal"'): "did you mean 'logit_normal'?",
    ("noise", "shift = -1.0"): "noise.shift: -1.0, expected",
    ("modle", "x = 1"): "modle: unknown key; did you mean model?",
}


@pytest.mark.parametrize("given", BAD)
def test_errors_name_the_key(given, tmp_path):
    section, lines = given
    path = write_config(tmp_path, **{section: lines})
    with pytest.raises(wf.errors.ConfigError) as e:
        read_config(path)
    (found,) = [line for line in e.value.message.splitlines() if BAD[given] in line]
    number = int(found.removeprefix(f"{path}:").split(":")[0])
    written = path.read_text().splitlines()
    # A key's own line; what is missing, and what a table makes impossible, at the table's.
    place = BAD[given].partition(":")[0]
    key = place.split(".")[-1].partition("[")[0]
    if found.split(": ")[1] == place and f"{key} =" in lines:
        assert f"{key} =" in written[number - 1]
    else:
        assert 1 <= number <= len(written)


MASKS = {
    'masks = "m"\nmask_suffix = "-m"': "data[0].mask_suffix: together with masks",
    'mask_suffix = ""': "data[0].mask_suffix: '', expected the end of names",
    'mask_suffix = "a/b"': "data[0].mask_suffix: 'a/b', expected the end of names",
    'masks = "m"\nrecursive = true': "images and give mask_suffix, or leave recursive out",
}


@pytest.mark.parametrize("lines", MASKS)
def test_masks_are_named_in_one_way(lines, tmp_path):
    path = write_config(tmp_path)
    path.write_text(path.read_text().replace("[[data]]", f"[[data]]\n{lines}"))
    with pytest.raises(wf.errors.ConfigError) as e:
        read_config(path)
    assert MASKS[lines] in e.value.message
