"""Random loops in the emulator: eager's results, the same bits in both orders of threads."""

import os

import numpy as np
import optree
import pytest

import weft as wf
from weft.compiler.cuda.routines import control, rows
from weft.compiler.cuda.routines.carries import DoubleBuffer
from weft.compiler.cuda.routines.control import ControlRoutine
from weft.compiler.cuda.routines.slices import SliceEmitter
from weft.compiler.cuda.routines.uses import AFTER, BEFORE, Spans
from weft.compiler.cuda.stage import build_stage
from weft.compiler.ir.schedule import NativeStep
from weft.compiler.pipeline import using

from .assembler import assemble, needs_ptxas
from .loops import GRIDS, emulating_anew
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
def test_a_random_loop_is_eagers(seed, monkeypatch, tmp_path):
    if seed % 2:  # scratch memory is an array, whose ends are checked
        monkeypatch.setattr(control, "SHARED", 0)
        monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))  # which stores its size
    assert check(seed)


# -- planted mistakes ------------------------------------------------------------------------------


def swap_carries(monkeypatch):
    halves = DoubleBuffer.halves

    def swapped(self, count):
        made = halves(self, count)
        return {BEFORE: made[AFTER], AFTER: made[BEFORE]}

    monkeypatch.setattr(DoubleBuffer, "halves", swapped)


def load_later_slices(monkeypatch):
    load = SliceEmitter.load
    monkeypatch.setattr(SliceEmitter, "load", lambda self, count: load(self, count + 1))


def never_wait(monkeypatch):
    monkeypatch.setattr(Spans, "enter", lambda self, uses, room: False)


def split_all_rows(monkeypatch):
    monkeypatch.setattr(rows, "_by_rows", lambda x, sizes, axis, count: True)


@pytest.mark.parametrize("plant", [swap_carries, load_later_slices, never_wait, split_all_rows])
def test_a_planted_mistake_shows(plant, monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    plant(monkeypatch)
    with emulating_anew(), pytest.raises(AssertionError):
        for seed in range(100):
            check(seed)


# -- PTX -------------------------------------------------------------------------------------------


@needs_ptxas
@pytest.mark.parametrize("sm", [90, 80])
def test_random_loops_are_assembled_and_spill_nothing(sm, tmp_path):
    built = []
    for seed in range(COUNT // 5 if sm == 90 else COUNT // 15):
        for routine in check(seed):
            built += [build_stage(s, sm) for s in routine.stages]
    figures = assemble(built, tmp_path, sm)
    assert len(figures) == len({k.name for k in built}) > 0
    assert not [name for name, found in figures.items() if found.spilled]
