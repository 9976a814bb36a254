"""The public names are exactly those that are meant, and each is documented by more than its name."""

import doctest
import importlib
import inspect
import re
from types import ModuleType

import numpy as np
import pytest

import weft as wf

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
MODULES = """
    weft weft.amp weft.errors weft.fft weft.gradient_clipping weft.implicit weft.io weft.linalg
    weft.nn weft.nn.functional weft.nn.init weft.optim weft.optim.gradient_clipping
    weft.optim.schedulers weft.optimize weft.random weft.special weft.train
""".split()
FOLDERS = "arrays backend compiler core graph ops transform".split()
# Constants, which have no docstring of their own.
CONSTANTS = (float, type(None), np.dtype, wf.random.Generator)


def _module(name: str) -> ModuleType:
    found = wf
    for part in name.split(".")[1:]:
        found = getattr(found, part)  # as users reach it
    return found


def _public(name: str):
    """(name, object) of what a public module has and is neither module nor constant."""
    module = _module(name)
    for n in module.__all__:
        value = getattr(module, n)
        if not isinstance(value, (ModuleType, *CONSTANTS)):
            yield f"{name}.{n}", value


def _documented():
    """Every public function and class once, by one of its names; and the methods of classes."""
    found: dict[int, tuple[str, object]] = {}
    for module in MODULES:
        for name, value in _public(module):
            found.setdefault(id(value), (name, value))
            if inspect.isclass(value):
                for method, function in _methods(value):
                    found.setdefault(id(function), (f"{name}.{method}", function))
    return list(found.values())


def _methods(cls: type):
    """The functions that a class, or one it is derived from here, has under public names."""
    for base in cls.__mro__:
        if base.__module__.startswith("weft."):
            for name, value in vars(base).items():
                if isinstance(value, staticmethod | classmethod):
                    value = value.__func__
                if inspect.isfunction(value) and not name.startswith("_"):
                    yield name, value


DOCUMENTED = _documented()
FUNCTIONS = [(n, v) for n, v in DOCUMENTED if inspect.isfunction(v) and "." in n]


@pytest.mark.parametrize("name", MODULES)
def test_names_are_the_public_ones(name):
    module = _module(name)
    assert dir(module) == sorted(module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)
    inside = {m.rpartition(".")[2] for m in MODULES if m.rpartition(".")[0] == name}
    for n in module.__all__:
        value = getattr(module, n)
        if isinstance(value, ModuleType):
            assert n in inside, f"{name}.{n} is a module"
        elif not isinstance(value, CONSTANTS):
            where = getattr(value, "__module__", type(value).__module__)
            assert where.startswith("weft"), f"{name}.{n} is from {where}"
            assert not n.startswith("_") and not n.endswith("_") or name == "weft.nn.init", n


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_are_not_listed_and_can_be_imported(name):
    assert importlib.import_module(f"weft.{name}").__name__ == f"weft.{name}"
    assert name not in dir(wf) and name not in wf.__all__
