"""Every key with wrong values: a message names it as the file has it, with its line."""

import re
from dataclasses import fields, replace

import pytest

import weft as wf
from weft.diffusion.training.config import OutputSection, TrainConfig, read_config
from weft.diffusion.training.recipes import OPTIMIZERS, SCHEDULES, OptimizerRecipe, ScheduleRecipe

from .settings_values import BASE, WRONG, keys_of, to_toml
from .tiny import write_config

INTERNAL = re.compile(r"\b[A-Z]\w+(?:Settings|Config|Encoder|Scheduler|Section|Source)\b|add_lora")


def lines_with(place, value):
    """A configuration with a value at a place, and the line of that."""
    sections = {name: dict(keys) for name, keys in BASE.items()}
    section, *rest = place
    key = rest[-1]
    if section == "adapter" and rest[0] == "rules":
        rule = {"pattern": '"*"', "rank": "2"} | {key: value}
        sections["adapter"] = {"rules": "[{" + ", ".join(f"{k} = {v}" for k, v in rule.items())}
        sections["adapter"]["rules"] += "}]"
        key = "rules"
    else:
        sections.setdefault(section, {})[key] = value
    text = to_toml(sections)
    found = text.index(f"[{section}]")
    at = re.compile(rf"(?m)^{key} = ").search(text, found)
    assert at is not None
    return text, text.count("\n", 0, at.start()) + 1


def spelled(place):
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def judge(path, place, value):
    """None if it is accepted, else whether the message is as it should be."""
    text, line = lines_with(place, value)
    path.write_text(text)
    try:
        read_config(path)
    except wf.errors.ConfigError as e:
        told = [t for t in e.message.splitlines() if t.startswith(f"{path}:{line}: ")]
        right = any(spelled(place).partition("[")[0] in t for t in told)
        return "" if right and not INTERNAL.search(e.message) else e.message
    return None


SECTIONS = sorted({place[0] for place in keys_of()})


@pytest.mark.parametrize("section", SECTIONS)
def test_wrong_values_name_the_key_and_the_line(section, tmp_path):
    for place in keys_of():
        if place[0] == section:
            found = {v: judge(tmp_path / "c.toml", place, v) for v in WRONG}
            bad = {v: told for v, told in found.items() if told}
            assert not bad, (place, bad)
            refused = [v for v, told in found.items() if told is not None]
            assert len(refused) >= 8, (place, refused)  # no key takes all of them


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_options_of_optimizers(name, tmp_path):
    for f in fields(OPTIMIZERS[name][1]):
        for value in WRONG:
            text = f'name = "{name}"\n{f.name} = {value}'
            check_option(tmp_path, "optimizer", f.name, text)


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_options_of_schedules(name, tmp_path):
    from weft.diffusion.training.recipes import RATES

    need = {"exponential": "decay_rate = 0.5", "step": "step_size = 1"}
    need["wsd"] = "warmup_steps = 1\nstable_steps = 1\ndecay_steps = 1"
    for f in fields(SCHEDULES[name][1]):
        for value in WRONG if f.name not in RATES else ():
            others = "\n".join(
                [o for o in need.get(name, "").splitlines() if not o.startswith(f"{f.name} ")]
            )
            text = f'name = "{name}"\n{others}\n{f.name} = {value}'
            check_option(tmp_path, "schedule", f.name, text)


def check_option(folder, section, key, lines):
    path = write_config(folder, train="steps = 6", **{section: lines})
    try:
        read_config(path)
    except wf.errors.ConfigError as e:
        assert re.search(rf":\d+: {section}(\.\w+)?.*\b{key}\b", e.message), (lines, e.message)
        assert not INTERNAL.search(e.message), (lines, e.message)


def test_what_is_made_in_python_is_checked_as_a_file_is(tmp_path):
    config = read_config(write_config(tmp_path))
    for section in fields(TrainConfig):
        part = getattr(config, section.name, None)
        if part is None or isinstance(part, tuple | OptimizerRecipe | ScheduleRecipe):
            continue
        if section.name in ("noise", "_file"):  # checks itself when it is made
            continue
        for f in fields(part):
            if f.type in ("int", "str", "bool", "float") or "Literal" in str(f.type):
                with pytest.raises(wf.errors.ConfigError, match=rf"{section.name}\.{f.name}: "):
                    replace(config, **{section.name: replace(part, **{f.name: object()})})
    with pytest.raises(wf.errors.ConfigError, match=r"output\.layouts\[0\]: 'x', expected 'peft'"):
        replace(config, output=replace(config.output, layouts=("x",)))
    wrong: dict = {"directory": "run"}
    with pytest.raises(wf.errors.ConfigError, match=r"output\.directory: 'run', expected a path"):
        replace(config, output=OutputSection(**wrong))
    for value in ("bogus", "float16"):
        with pytest.raises(wf.errors.ConfigError, match=r"train\.precision"):
            replace(config, train=replace(config.train, precision=value))
    with pytest.raises(wf.errors.ConfigError, match="'adam-w' is not known"):
        OptimizerRecipe("adam-w")
    with pytest.raises(wf.errors.ConfigError, match="gamma: unknown key"):
        ScheduleRecipe("cosine", {"gamma": 1})
