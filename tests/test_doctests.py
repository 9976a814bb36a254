"""Every example in a docstring runs and prints what it says; so do the README's programs."""

import contextlib
import doctest
import importlib
import inspect
import io
import pkgutil
import re
from pathlib import Path

import pytest

import weft

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
MODULES = sorted(m.name for m in pkgutil.walk_packages(weft.__path__, "weft."))
README = Path(__file__).parent.parent / "README.md"


@pytest.mark.parametrize("name", ["weft", *MODULES])
def test_examples(name):
    module = importlib.import_module(name)
    if "memory_stats" in inspect.getsource(module):
        weft.clear_tape()  # of what the tracebacks of other tests still hold
    found = doctest.testmod(module, optionflags=FLAGS)
    assert found.failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    tests = [t for m in MODULES for t in finder.find(importlib.import_module(m)) if t.examples]
    assert len(tests) >= 20


def test_the_programs_of_the_readme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # one of them saves checkpoints
    programs = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for program in programs:
            exec(compile(program, str(README), "exec"), names)
    assert names["first"].item() == names["second"].item() == 12.0
    assert len(names["grads"]) == 1 and names["signal"].grad.tolist() == [1.0, 1.0, 1.0]
    losses = names["history"]["loss"]
    assert len(losses) == 800 and losses[-1] < 0.01 * losses[0]
    assert (tmp_path / "run" / "step-00000800").is_dir()
