"""Loops and branches as grid routines in the emulator: the same results as eager."""

import pytest

import weft as wf
from weft.compiler.ir.schedule import LibraryStep, NativeStep
from weft.compiler.pipeline import using

from ..test_loops import PROGRAMS, PYTHON, alike, t
from .loops import GRIDS


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name):
    f, *args = PROGRAMS[name]
    args = [t(a) for a in args]
    compiled = wf.compile(f)
    with using(GRIDS):
        alike(f(*args), compiled(*args))
        steps = compiled._last().executable.schedule.steps
    print([s for s in steps if isinstance(s, LibraryStep)])
