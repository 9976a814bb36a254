"""Constants that choose schedules and kernels are part of their keys on disk."""

import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

import weft.compiler as compiler
from weft.compiler import pipeline
from weft.compiler.cache import schedules
from weft.compiler.cuda import tuning

from ..passes.graphs import X, Y, traced
from .emulated_gpu import emulated_target

CONSTANTS = tuning._names()


def changed(value):
    """Another value of the same kind."""
    if isinstance(value, tuple):
        return (*value, 1)
    if isinstance(value, dict):
        return {**value, "more": 1}
    return f"{value}x" if isinstance(value, str) else (value or 0) + 1


def key(monkeypatch, target):
    """The key under which a program is looked up."""
    found = []

    def fetch(key):
        found.append(key)
        raise LookupError

    monkeypatch.setattr(schedules, "fetch", fetch)
    with pytest.raises(LookupError):
        pipeline.lower(traced(lambda x, y: x + y, X, Y), {}, target)
    assert found[0] is not None
    return found[0]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "objects"))


def test_the_constants_of_all_passes_are_found():
    names = {f"{module.removeprefix('weft.compiler.')}.{name}" for module, name in CONSTANTS}
    assert {"cuda.sums.FLOPS", "cuda.padding.FLOPS", "cuda.many.ELEMENTS"} <= names
    assert {"passes.fold.LARGE", "cuda.routines.rows.BLOCKS", "fusion.parts._MOST_GAPS"} <= names
    assert len(names) > 100


@pytest.mark.parametrize("module", sorted({module for module, _ in CONSTANTS}))
def test_each_constant_changes_the_key(module, monkeypatch):
    target, own = emulated_target(), [name for m, name in CONSTANTS if m == module]
    keys = [key(monkeypatch, target)]
    for name in own:
        with monkeypatch.context() as now:
            now.setattr(sys.modules[module], name, changed(getattr(sys.modules[module], name)))
            keys.append(key(now, target))
    assert len(set(keys)) == 1 + len(own)
    assert key(monkeypatch, target) == keys[0]


def test_each_limit_changes_the_key(monkeypatch):
    target = emulated_target()
    keys, limits = [key(monkeypatch, target)], target.limits
    for field in fields(limits):
        target.limits = replace(limits, **{field.name: changed(getattr(limits, field.name))})
        keys.append(key(monkeypatch, target))
    assert len(set(keys)) == 1 + len(fields(limits))


def test_keys_do_not_depend_on_what_a_process_has_loaded():
    code = "import weft.compiler.cuda.target as t; print(t.tuning())"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == tuning.tuning()


def test_what_is_left_out_exists():
    root = Path(compiler.__file__).parent
    assert all((root / f"{name.replace('.', '/')}.py").is_file() for name in tuning.WITHOUT)
