"""Random loops in the emulator: eager's results, the same bits in both orders of threads."""

import os

import numpy as np
import optree
import pytest

import weft as wf
from weft.compiler.cuda.routines import control
from weft.compiler.cuda.routines.control import ControlRoutine
from weft.compiler.ir.schedule import NativeStep
from weft.compiler.pipeline import using

from .loops import GRIDS
from .random_loops import LoopProgram, differentiated

COUNT = 2_000 if os.environ.get("WEFT_SOAK") else 60


def check(seed: int) -> list[ControlRoutine]:
    """Compare a program with eager; its routines."""
    program = LoopProgram(seed)
    f = differentiated(program) if program.gradient else program
    arrays = [wf.tensor(a) for a in program.arrays]
    compiled = wf.compile(f)
    with using(GRIDS):
        made = optree.tree_leaves(compiled(*arrays))
        steps = compiled._last().executable.schedule.steps
    for x, y in zip(optree.tree_leaves(f(*arrays)), made, strict=True):
        x, y = x.detach().numpy(), y.detach().numpy()
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        bound = program.bound * np.abs(x).max(initial=1.0)
        np.testing.assert_allclose(y, x, rtol=0, atol=bound if x.dtype.kind == "f" else 0)
    return [
        s.routine
        for s in steps
        if isinstance(s, NativeStep)
        if isinstance(s.routine, ControlRoutine)
    ]


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_random_loop_is_eagers(seed, monkeypatch):
    if seed % 2:  # scratch memory is an array, whose ends are checked
        monkeypatch.setattr(control, "SHARED", 0)
    assert check(seed)
