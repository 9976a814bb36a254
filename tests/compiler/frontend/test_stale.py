"""A compiled function notices whatever eager mode would notice, or refuses.

Every kind of value is put where a function finds it, by every path; then it is rebound, changed in
place, deleted or put in another order. The compiled function must give what the function itself
gives, or raise.
"""

import io
import itertools
import math
import os
import random
import sys
import types
import warnings

import numpy as np
import pytest

import weft as wf
from weft import errors

from .stale.kinds import KINDS
from .stale.more import MORE
from .stale.paths import PATHS

# Python 3.13 announces another meaning of partials that are attributes of classes.
pytestmark = pytest.mark.filterwarnings("ignore:functools.partial will be:FutureWarning")

KINDS = {**KINDS, **MORE}
TEXT = io.StringIO("text")
X = [1.0, -2.0, 3.0]
CHANGES = ("rebind", "mutate", "reorder", "delete", "rebind to an equal one")
COMBINATIONS = [
    (kind, path, change)
    for kind in KINDS
    for path in PATHS
    for change in CHANGES
    if (change != "mutate" or KINDS[kind].change is not None)
    and (change != "reorder" or KINDS[kind].reorder is not None)
    and (change != "delete" or PATHS[path].take is not None)
]


def outcome(f, x):
    """What a call gives, or the kind of error."""
    try:
        return np.asarray(f(x).detach())
    except Exception as e:
        return type(e)


def alike(a, b) -> bool:
    if isinstance(a, type) or isinstance(b, type):
        return a is b
    same = np.allclose(a, b, rtol=1e-6, atol=0, equal_nan=True)  # a few roundings of float32
    return a.dtype == b.dtype and a.shape == b.shape and same


def apply(change: str, kind, path) -> None:
    if change == "rebind":
        path.put(kind.make(1))
    elif change == "rebind to an equal one":
        path.put(kind.make(0))
    elif change == "delete":
        path.take()
    else:
        value = path.read()
        (kind.change if change == "mutate" else kind.reorder)(value)


def is_silent(kind_name: str, path_name: str, change: str) -> str | None:
    """What is wrong with a combination; None if nothing is."""
    kind, path = KINDS[kind_name], PATHS[path_name]()
    path.put(kind.make(0))

    def f(x):
        return kind.use(path.read(), x)

    x = wf.tensor(X)
    compiled = wf.compile(f)
    for when in ("before", "before", "after", "again"):
        if when == "after":
            apply(change, kind, path)
        want, found = outcome(f, x), outcome(compiled, x)
        if isinstance(found, type) and issubclass(found, errors.WeftError):
            return None  # refused
        if not alike(found, want):
            return f"{when}, compiled gave {found}, eager {want}"
    if change == "rebind to an equal one" and len(compiled.recompilations) > 1:
        return f"made again for an equal value: {compiled.recompilations}"
    return None


def _checked(combinations) -> list[str]:
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for c in combinations:
            why = is_silent(*c)
            if why is not None:
                wrong.append(f"{c}: {why}")
    return wrong


@pytest.mark.parametrize("path", PATHS)
def test_changes_are_noticed(path):
    """All kinds that are rebound, and some of the other changes; all of them for `make soak`."""
    every = [c for c in COMBINATIONS if c[1] == path]
    if not os.environ.get("WEFT_SOAK"):
        every = random.Random(path).sample(every, 24)
    assert _checked(every) == []


def test_there_are_enough_combinations():
    assert len(COMBINATIONS) >= 400


WORLD = {
    "os.environ": lambda x: x * len(os.environ["HOME"]),
    "os.getenv": lambda x: x * len(os.getenv("HOME")),
    "environ.get": lambda x: x * len(os.environ.get("NOTHING", "")),
    "in environ": lambda x: x * ("HOME" in os.environ),
    "globals()": lambda x: x * len(globals()["X" + ""]),
    "StringIO": lambda x: x * len(TEXT.getvalue()),
    "np.geterr": lambda x: x * len(np.geterr()["over"]),
}


@pytest.mark.parametrize("name", WORLD)
def test_what_reads_the_world_is_refused(name):
    with pytest.raises(errors.StagingError, match=r"cannot watch"):
        wf.compile(WORLD[name])(wf.tensor(X))


def test_modules_that_are_replaced(monkeypatch):
    def f(x):
        import settings_of_a_test  # type: ignore[import-not-found]

        return x * settings_of_a_test.value * len(sys.argv) * math.tau

    def module(value):
        made = types.ModuleType("settings_of_a_test")
        made.value = value
        monkeypatch.setitem(sys.modules, "settings_of_a_test", made)

    x, compiled = wf.tensor(X), wf.compile(f)
    changes = [
        lambda: module(2.0),
        lambda: module(3.0),
        lambda: monkeypatch.setattr(sys, "argv", ["a", "b", "c"]),
        lambda: sys.argv.append("d"),
        lambda: monkeypatch.setattr(math, "tau", 3.0),
    ]
    for change in changes:
        change()
        assert alike(outcome(compiled, x), outcome(f, x))


ITERATORS = {
    "generator": lambda: (float(k) for k in range(9)),
    "count": lambda: itertools.count(1.0),
    "iterator": lambda: iter([1.0, 2.0]),
    "map": lambda: map(float, [1, 2]),
    "zip": lambda: zip([1.0], [2.0], strict=True),
    "numpy's generator": lambda: np.random.default_rng(0),
    "python's generator": lambda: random.Random(0),
}


@pytest.mark.parametrize("name", ITERATORS)
def test_what_cannot_be_compared_is_refused(name):
    held = ITERATORS[name]()

    def f(x):
        if isinstance(held, random.Random):
            return x * held.random()
        return x * held.normal() if isinstance(held, np.random.Generator) else (next(held), x)[1]

    with pytest.raises(errors.StagingError, match=r"cannot be seen|cannot watch"):
        wf.compile(f)(wf.tensor(X))
