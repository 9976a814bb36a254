"""The public names are those that are meant, and each is documented by more than its name."""

import doctest
import importlib
import inspect
import re
from enum import Enum
from types import ModuleType

import numpy as np
import pytest

import weft as wf
from weft.arrays.keywords import signature_of

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
MODULES = """
    weft weft.amp weft.cuda weft.diffusion weft.dist weft.errors weft.fft weft.gradient_clipping
    weft.implicit weft.io weft.linalg weft.nn weft.nn.functional weft.nn.init weft.optim
    weft.optim.gradient_clipping weft.optim.schedulers weft.optimize weft.profile weft.random
    weft.special weft.train
""".split()
FOLDERS = "arrays backend compiler core graph ops transform".split()
CONSTANTS = (float, type(None), np.dtype, wf.random.Generator)
# Methods that authors of optimizers, schedules and callbacks define, and that the house itself
# calls: a docstring that says what they are for is enough.
HOOKS = set(
    """
    Generator.advance Generator.give_back Generator.here Generator.reserve Generator.rewind
    Graph.resolve Graph.record Graph.recorder Graph.update EMA.raw EMA.refuse_swapped
    EMA.count_on EMA.update_if LossScale.memory_on LossScale.update_late skips_on step_if
    GradScaler.is_waiting GradScaler.note_step GradScaler.wait GradientMap.parts
    PrecisionMode.autocast PrecisionMode.read Trainer.settings
    check entries entry_of fitting_gradient flatten keywords not_begun numbers on_epoch_end
    on_error on_fit_end on_fit_start on_gradients on_save on_save_start on_skip on_step_end
    on_validation_end place rate read read_groups refuse_sharded rescale rule rule_of settle
    ShardedOptimizer.ready ShardedOptimizer.sharing ShardedOptimizer.state_bytes slots
    upgrade_state
    """.split()
)
# What the docstring of a module's class states.
STATED = {"forward", "extra_repr"}


def _module(name: str) -> ModuleType:
    found = wf
    for part in name.split(".")[1:]:
        found = getattr(found, part)  # as users reach it
    return found


def _methods(cls: type):
    """(name, function) of the methods of a class, and of those it is derived from here."""
    for base in cls.__mro__:
        if base.__module__.startswith("weft."):
            for name, value in vars(base).items():
                if isinstance(value, staticmethod | classmethod):
                    value = value.__func__
                if inspect.isfunction(value) and not name.startswith("_"):
                    yield name, value


def _documented() -> dict[str, object]:
    """Every public function and class, and every method, under one of its names."""
    found: dict[int, tuple[str, object]] = {}
    for module in MODULES:
        for n in _module(module).__all__:
            value = getattr(_module(module), n)
            if not isinstance(value, (ModuleType, *CONSTANTS)):
                found.setdefault(id(value), (f"{module}.{n}", value))
    for name, cls in [entry for entry in found.values() if inspect.isclass(entry[1])]:
        for method, function in _methods(cls):
            if not (issubclass(cls, wf.nn.Module) and method in STATED):
                found.setdefault(id(function), (f"{name}.{method}", function))
    return dict(found.values())


DOCUMENTED = _documented()
HOOKED = [n for n in DOCUMENTED if {n.rpartition(".")[2], ".".join(n.split(".")[-2:])} & HOOKS]
EXCEPTIONS = [
    n for n, v in DOCUMENTED.items() if inspect.isclass(v) and issubclass(v, BaseException)
]
EXPLAINED = sorted(set(DOCUMENTED) - set(HOOKED) - set(EXCEPTIONS))


def _text(name: str) -> str:
    value = DOCUMENTED[name]
    own = vars(value).get("__doc__") if inspect.isclass(value) else inspect.getdoc(value)
    return inspect.cleandoc(own or "")


def _parameters(name: str) -> list[str]:
    value = DOCUMENTED[name]
    if inspect.isclass(value) and issubclass(value, Enum):
        return []
    given = inspect.signature(value) if inspect.isclass(value) else signature_of(value)
    return [n for n in given.parameters if n not in ("self", "cls")]


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
            assert value.__module__.startswith("weft"), f"{name}.{n} is from {value.__module__}"
            assert name == "weft.nn.init" or not n.endswith("_"), f"{name}.{n}"


@pytest.mark.parametrize("name", FOLDERS)
def test_folders_are_not_listed_and_can_be_imported(name):
    assert importlib.import_module(f"weft.{name}").__name__ == f"weft.{name}"
    assert name not in dir(wf) and name not in wf.__all__


def test_messages_name_public_names_only():
    for name in ("Any", "TYPE_CHECKING", "np", "BOXED"):
        with pytest.raises(AttributeError) as raised:
            getattr(wf, name)
        assert f"wf.linalg.{name}" not in str(raised.value)


def test_help_of_compile_shows_the_function():
    importlib.import_module("weft.compiler.jit")
    assert inspect.isfunction(wf.compile) and "native code" in (wf.compile.__doc__ or "")


def test_everything_has_a_docstring():
    assert len(EXPLAINED) > 800
    missing = [n for n in DOCUMENTED if len(_text(n).split()) < 2]
    assert not missing


def test_docstrings_explain_every_argument():
    """A line for each: `name  meaning`, several names with commas between."""
    missing = {}
    for name in EXPLAINED:
        lines = _text(name).partition(">>>")[0].splitlines()
        entries = [re.match(r"(\w+(?:, \w+)*)  +\S", line) for line in lines]
        told = {n for e in entries if e for n in e[1].split(", ")}
        missing[name] = sorted(set(_parameters(name)) - told)
    assert not {n: m for n, m in missing.items() if m}


def test_docstrings_have_examples():
    assert not [n for n in EXPLAINED if ">>>" not in _text(n)]


def test_methods_have_the_docstrings_of_functions():
    others = {"grad", "tensor"}  # of tensors these are something else
    shared = {n for n in dir(wf.Tensor) if n in wf.__all__} - others
    assert len(shared) > 100
    for name in shared:
        assert inspect.getdoc(getattr(wf.Tensor, name)) == inspect.getdoc(getattr(wf, name)), name


def _collected() -> set[str]:
    """The docstrings that `tests/test_doctests.py` runs."""
    finder = doctest.DocTestFinder()
    modules = {v.__module__ for v in DOCUMENTED.values()}
    return {
        t.docstring for m in modules for t in finder.find(importlib.import_module(m)) if t.examples
    }


def test_examples_that_no_module_shows():
    """Those of rows, whose functions are in no module under their own names."""
    seen, parser = _collected(), doctest.DocTestParser()
    ran = 0
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for name, value in DOCUMENTED.items():
        text = value.__doc__ or ""
        if text not in seen and ">>>" in text:
            runner.run(parser.get_doctest(text, {}, name, None, 0))
            ran += 1
    assert ran > 100 and runner.summarize(verbose=False).failed == 0
