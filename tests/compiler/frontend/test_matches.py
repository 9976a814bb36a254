"""Guards only compare: whatever was changed before a call, `Program.matches` changes nothing.

Programs go through the changes of the tests beside this one. Before and after every comparison all
that the program, the optimizer and the tensors hold is written down, and must be the same.
"""

import os
import random
import types
import warnings

import numpy as np
import pytest

import weft as wf
from weft.compiler.compiled import Compiled
from weft.compiler.frontend.variant import Variant
from weft.core.value import Value

from . import test_changed_between_steps as steps
from . import test_stale as stale

SOAK = bool(os.environ.get("WEFT_SOAK"))
# Code and what it is made of does not change, and is large.
PASSED = (type, types.ModuleType, types.CodeType, types.BuiltinFunctionType, Compiled)


def written_down(root) -> list:
    """Everything that can be reached from an object of ours, by identity and by content."""
    todo, seen, found = [root], set(), []
    while todo:
        x = todo.pop()
        if id(x) in seen or isinstance(x, PASSED):
            continue
        seen.add(id(x))
        parts = list(parts_of(x))
        found.append((id(x), [id(p) for p in parts], x.tobytes() if is_small(x) else None))
        todo += parts
    return found


def is_small(x) -> bool:
    return isinstance(x, np.ndarray) and x.size < 1000


def parts_of(x):
    if isinstance(x, dict):
        yield from x
        yield from x.values()
    elif isinstance(x, list | tuple | set | frozenset):
        yield from x
    elif isinstance(x, types.MethodType):
        yield x.__self__
    elif isinstance(x, types.FunctionType):
        yield from [c.cell_contents for c in x.__closure__ or ()]
    elif isinstance(x, Value):
        yield from (x._data, x._node)
    elif type(x).__module__.startswith("weft."):
        yield from [getattr(x, n) for n in getattr(type(x), "__slots__", ()) if hasattr(x, n)]
        yield from [v for n, v in getattr(x, "__dict__", {}).items() if n != "executable"]


@pytest.fixture
def compared(monkeypatch):
    """Look around every comparison; what they gave."""
    matches, gave = Variant.matches, []

    def checked(self, call):
        both = self, call
        before = written_down(both)
        try:
            gave.append(matches(self, call))
        finally:
            assert written_down(both) == before
        return gave[-1]

    monkeypatch.setattr(Variant, "matches", checked)
    return gave


@pytest.mark.parametrize("name", list(steps.OPTIMIZERS)[: None if SOAK else 2])
def test_comparing_changes_nothing_of_a_step(compared, name):
    twin, rng = steps.Twin(name, compiled=True), np.random.default_rng(len(name))
    for change in [None, None, *rng.permutation(list(steps.CHANGES))]:
        if change is not None:
            steps.CHANGES[change](twin, rng)
        twin.step(wf.tensor(rng.standard_normal((6, 5))), wf.tensor(rng.standard_normal((6, 3))))
    assert {True, False} <= set(compared)


@pytest.mark.parametrize("path", stale.PATHS)
def test_comparing_changes_nothing_that_is_found(compared, path):
    every = [c for c in stale.COMBINATIONS if c[1] == path]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for c in random.Random(path).sample(every, 8 if SOAK else 2):
            stale.is_silent(*c)


def test_a_tensor_with_another_array_is_renewed(compared):
    """One that the program does not read, and which gets another array again and again."""
    seen = wf.ones(3)
    step = wf.compile(lambda x, by: x * by * seen.shape[0])
    x = wf.tensor([1.0, 2.0])
    for k in range(4):
        seen._data = np.full(3, float(k), np.float32)
        assert step(x, 2.0).tolist() == [6.0, 12.0]
    assert not step.recompilations and not any(compared)
    seen._data = np.ones(4, np.float32)
    assert step(x, 2.0).tolist() == [8.0, 16.0] and len(step.recompilations) == 1
