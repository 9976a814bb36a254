"""What has to stay when a run goes on: settings that make its numbers, every bit of the base."""

from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

import weft as wf
from weft.diffusion.training.config import AdapterRule, read_config
from weft.diffusion.training.identity import RunIdentity

from .tiny import make_files, write_config


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    make_files(folder)
    return folder


def another(value):
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value / 2 + 0.125
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, tuple):
        return (*value, "more")
    return 0.5


def changed(config):
    """The configuration with one other setting each, by the setting's name; all must stay."""
    for name in ("adapter", "noise"):
        section = getattr(config, name)
        for f in fields(section):
            if f.name not in ("start", "rules"):
                own = {f.name: another(getattr(section, f.name))}
                yield f"{name}.{f.name}", _with(config, {name: _with(section, own)})
    rules = replace(config.adapter, rules=(AdapterRule("*", 2),))
    yield "adapter.rules", replace(config, adapter=rules)
    recipe = config.optimizer
    yield "optimizer.name", _with(config, {"optimizer": _with(recipe, {"name": "lion"})})
    for f in fields(recipe.config):
        if f.name != "lr":
            own = _with(recipe.config, {f.name: another(getattr(recipe.config, f.name))})
            yield (
                f"optimizer.{f.name}",
                _with(config, {"optimizer": _with(recipe, {"config": own})}),
            )
    for name in ("ema", "unet_lr_scale", "seed"):
        own = _with(config.train, {name: another(getattr(config.train, name))})
        yield f"train.{name}", _with(config, {"train": own})
    yield "model.guidance", replace(config, model=replace(config.model, guidance=3.5))


def _with(record: Any, values: dict[str, Any]) -> Any:
    """A frozen dataclass with other values, which need not be right ones."""
    assert is_dataclass(record)
    made = object.__new__(type(record))
    for f in fields(record):
        object.__setattr__(made, f.name, values.get(f.name, getattr(record, f.name)))
    return made


def test_settings_that_make_numbers_stay(files):
    config = read_config(write_config(files))
    saved = RunIdentity(config).state_dict()
    RunIdentity(config).load_state_dict(saved)
    names = []
    for name, other in changed(config):
        names.append(name)
        with pytest.raises(wf.errors.StateMismatch, match=f"{name}.* is .*it was"):
            RunIdentity(other).load_state_dict(saved)
    assert len(names) > 25 and {"adapter.alpha", "optimizer.beta1", "noise.shift"} <= {*names}


def test_others_may_change(files):
    config = read_config(write_config(files))
    saved = RunIdentity(config).state_dict()
    train = replace(config.train, steps=99, workers=3, compile=False, memory_budget_mb=1e5)
    rate = replace(config.optimizer, config=replace(config.optimizer.config, lr=0.5))
    preview = replace(config.preview, every=7)
    RunIdentity(replace(config, train=train, optimizer=rate, preview=preview)).load_state_dict(
        saved
    )


def test_a_changed_rate_is_the_rate_from_then_on(files):
    """Without a schedule, too: the state of the optimizer has the rate of before."""
    config = read_config(write_config(files))
    assert config.schedule.make(0.25, 10).get_lr(3) == 0.25


@pytest.mark.parametrize("seed", range(12))
def test_every_bit_of_the_base_counts(files, seed):
    config = read_config(write_config(files))
    saved = RunIdentity(config).state_dict()
    rng = np.random.default_rng(seed)
    (path,) = (files / "model").glob("*.safetensors")
    whole = bytearray(path.read_bytes())
    at = int(rng.integers(len(whole)))
    whole[at] ^= 1 << int(rng.integers(8))
    before = path.read_bytes()
    try:
        path.write_bytes(bytes(whole))
        with pytest.raises(wf.errors.StateMismatch, match="weights, file 1"):
            RunIdentity(config).load_state_dict(saved)
    finally:
        path.write_bytes(before)
    RunIdentity(config).load_state_dict(saved)


def test_sizes_of_the_base_count(files):
    config = read_config(write_config(files))
    saved = RunIdentity(config).state_dict()
    path = files / "model/config.json"
    before = path.read_text()
    assert "[4,4,8]" in before
    path.write_text(before.replace("[4,4,8]", "[8,4,4]"))
    try:
        with pytest.raises(wf.errors.StateMismatch, match=r"config\.json"):
            RunIdentity(config).load_state_dict(saved)
    finally:
        path.write_text(before)
