"""Dataclasses from TOML: values of all types, and errors that name the line and the key."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

import weft as wf
from weft.io.typed_toml import LONGEST, read_toml


@dataclass(frozen=True)
class Folder:
    path: Path
    repeats: int = 1

    def __post_init__(self):
        if self.repeats < 1:
            raise wf.errors.ArgumentError(f"repeats={self.repeats}, expected 1 or more")


@dataclass(frozen=True)
class Noise:
    shift: float | Literal["resolution"] = 1.0
    sampling: Literal["uniform", "logit_normal"] = "uniform"


@dataclass(frozen=True)
class Run:
    steps: int
    rate: float = 1e-3
    name: str | None = None
    resume: bool = True
    sizes: tuple[int, ...] = ()
    pair: tuple[int, float] = (0, 0.0)
    patterns: str | tuple[str, ...] = "*"
    noise: Noise = field(default_factory=Noise)
    data: tuple[Folder, ...] = ()


def read(tmp_path, text: str) -> Run:
    file = tmp_path / "run.toml"
    file.write_text(text)
    return read_toml(file, Run)[0]


def test_values_of_all_types(tmp_path):
    text = """
    steps = 3
    rate = 1
    name = "a"
    resume = false
    sizes = [1, 2]
    pair = [3, 4]
    patterns = ["x", "y"]
    [noise]
    shift = "resolution"
    sampling = "logit_normal"
    [[data]]
    path = "images"
    [[data]]
    path = "more"
    repeats = 2
    """
    folders = (Folder(Path("images")), Folder(Path("more"), 2))
    noise = Noise("resolution", "logit_normal")
    expected = Run(3, 1.0, "a", False, (1, 2), (3, 4.0), ("x", "y"), noise, folders)
    assert read(tmp_path, text) == expected
    assert isinstance(read(tmp_path, text).rate, float)
    assert read(tmp_path, "steps = 1") == Run(1)
    assert read(tmp_path, "steps = 1\nnoise.shift = 3").noise == Noise(3.0)


BAD = {
    "step = 3\nsteps = 1": "1: step: unknown key; did you mean steps?",
    "steps = 1\n\nzzz = 1": "3: zzz: unknown key; there are steps, rate",
    "name = 'x'": "1: steps is missing",
    "steps = 1.5": "1: steps: 1.5, expected an integer",
    "steps = true": "1: steps: True, expected an integer",
    "steps = '3'": "1: steps: '3', expected an integer",
    "steps = 1\nrate = inf": "2: rate: inf, expected a finite number",
    "steps = 1\nrate = '1e-4'": "2: rate: '1e-4', expected a finite number",
    "steps = 1\nresume = 1": "2: resume: 1, expected true or false",
    "steps = 1\nsizes = [1,\n'2']": "3: sizes[1]: '2', expected an integer",
    "steps = 1\nsizes = 1": "2: sizes: 1, expected a list of an integer",
    "steps = 1\npair = [1]": "2: pair: 1 items, expected 2",
    "steps = 1\npatterns = 1": "2: patterns: 1, expected a text or a list of a text",
    "steps = 1\n[noise]\nshift = 'big'": "3: noise.shift: 'big', expected a finite number or "
    "'resolution'",
    "steps = 1\n[noise]\nsampling = 'uniforms'": "did you mean 'uniform'?",
    "steps = 1\n[noise]\nshft = 1": "3: noise.shft: unknown key; did you mean shift?",
    "steps = 1\nnoise = 3": "2: noise: 3, expected a table",
    "steps = 1\n[[data]]\nrepeats = 2": "2: data[0]: path is missing",
    "steps = 1\n[[data]]\npath='a'\n[[data]]\npath = 'b'\nrepeats = 0": "6: data[1].repeats: 0, "
    "expected 1 or more",
    'steps = 1\n[[data]]\npath = "a\\u0000b"': "3: data[0].path: 'a\\x00b', expected a path",
    "steps = 1\n[[data]]\npath = ''": "3: data[0].path: '', expected a path",
    "steps = 1\nsteps = 2": "not TOML",
    "steps = ": "not TOML",
}


@pytest.mark.parametrize("text", BAD)
def test_errors_name_line_and_key(text, tmp_path):
    with pytest.raises(wf.errors.ConfigError) as e:
        read(tmp_path, text)
    assert str(e.value).startswith(str(tmp_path / "run.toml"))
    assert BAD[text] in str(e.value)


def test_all_problems_are_told_at_once(tmp_path):
    with pytest.raises(wf.errors.ConfigError) as e:
        read(tmp_path, "rate = 'x'\nstep = 1\n[noise]\nshft = 2")
    assert [line.split(":")[1] for line in str(e.value).splitlines()] == ["1", "1", "2", "4"]


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(wf.errors.ConfigError, match="cannot be read: No such file"):
        read_toml(tmp_path / "none.toml", Run)
    with pytest.raises(wf.errors.ConfigError, match="cannot be read: Is a directory"):
        read_toml(tmp_path, Run)
    file = tmp_path / "latin.toml"
    file.write_bytes(b"name = '\xe9'")
    with pytest.raises(wf.errors.ConfigError, match="not UTF-8"):
        read_toml(file, Run)
    file.write_bytes(b"#" * (LONGEST + 1))
    with pytest.raises(wf.errors.ConfigError, match="bytes, which no configuration has"):
        read_toml(file, Run)


NESTED = {
    "lists": lambda n: "steps = " + "[" * n + "]" * n,
    "tables": lambda n: "steps = " + "{a = " * n + "1" + "}" * n,
    "lists of tables": lambda n: "sizes = " + "[{a = " * n + "1" + "}]" * n,
    "dotted keys": lambda n: "noise" + ".a" * n + " = 1",
    "headers": lambda n: "[noise" + ".a" * n + "]\nb = 1",
    "unknown keys": lambda n: "a" + ".a" * n + " = 1",
}


@pytest.mark.parametrize("depth", [5, 30, 300, 990, 1100, 5000])
@pytest.mark.parametrize("kind", NESTED)
def test_files_that_are_nested_are_refused(kind, depth, tmp_path):
    with pytest.raises(wf.errors.ConfigError, match=r"run\.toml") as caught:
        read(tmp_path, NESTED[kind](depth))
    assert ("nested more" in str(caught.value)) is (depth > 20)


@pytest.mark.parametrize("number", ["9" * 5000, "-" + "9" * 5000, "0x" + "f" * 9999, "1e99999"])
def test_numbers_of_many_digits_are_refused(number, tmp_path):
    with pytest.raises(wf.errors.ConfigError, match=r"run\.toml"):
        read(tmp_path, f"steps = {number}")
