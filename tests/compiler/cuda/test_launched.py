"""Kernels and routines launched between guard regions, on a GPU and on an emulated one."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from ml_dtypes import finfo

from weft.compiler.cuda.gpu import GridFunctions
from weft.compiler.cuda.ptx import NoPtx
from weft.compiler.ir.kernel import Kernel, Operand, Result, Step
from weft.core import dtypes

from . import staged, test_programs, test_random_grids, test_routines_draws
from . import test_routines_indices as indices
from . import test_routines_running as running
from .emulated_gpu import EmulatedGpu
from .launched import Launched, Touched, card
from .programs import Case
from .test_random_grids import narrow_case, random_case, random_rows

GPUS = ["emulated", *(["cuda"] if torch.cuda.is_available() else [])]
COUNT = {"emulated": 40, "cuda": 2000}
ROUTINES = {
    "take": indices.test_take,
    "take_along": indices.test_take_along,
    "index_put": indices.test_index_put,
    "last_writes": indices.test_last_writes,
    "draws": test_routines_draws.test_every_bit_is_the_cpus,
}
# Those whose plans are changed for some seeds.
CHANGED = {
    "segment_sums": indices.test_segment_sums,
    "scattered_sums": indices.test_scattered_sums,
    "running": running.test_against_numpy,
}


def gpu_named(name: str):
    return card() if name == "cuda" else EmulatedGpu()


def cases(**counts: int) -> list:
    """(gpu, seed) of so many random cases."""
    return [(name, seed) for name in GPUS for seed in range(counts[name])]


def bound_on(name: str, case: Case) -> float:
    """A GPU's own units round otherwise: a step of a half type may be off by a unit of 20."""
    half = set(case.kernel.dtypes) & set(dtypes.HALF)
    return max([20 * float(finfo(d).eps) for d in half] if name == "cuda" else [], default=0.0)


def launch_between_guards(name: str, case: Case) -> None:
    unit = max(case.bound, bound_on(name, case))
    try:
        test_random_grids.check(case, partial(Launched, gpu_named(name)), unit)
    except NoPtx as e:
        pytest.skip(str(e))  # float64's sine, say: the emulator has the host's


@pytest.mark.parametrize(("name", "seed"), cases(**COUNT))
def test_random_kernels_write_their_results_only(name, seed):
    launch_between_guards(name, random_case(seed))


@pytest.mark.parametrize(("name", "seed"), cases(**COUNT))
def test_random_rows_write_their_results_only(name, seed, monkeypatch):
    launch_between_guards(name, random_rows(seed, monkeypatch))


@pytest.mark.parametrize(("name", "seed"), cases(emulated=6, cuda=300))
def test_narrow_numbers_are_read_before_and_after_a_fold(name, seed):
    launch_between_guards(name, narrow_case(seed))


@pytest.fixture
def launched(monkeypatch):
    """What tests emulate is launched on a GPU."""

    def replaced(name: str) -> None:
        gpu = gpu_named(name)
        make = lambda what, aligned=16, faults=frozenset(): Launched(gpu, what, aligned)  # noqa: E731
        monkeypatch.setattr(staged, "_EMULATED", {})
        for module in (staged, test_programs):
            monkeypatch.setattr(module, "Emulated", make)

    return replaced


@pytest.mark.parametrize(("name", "seed"), cases(emulated=4, cuda=100))
@pytest.mark.parametrize("routine", [*ROUTINES, *CHANGED])
def test_random_routines(name, seed, routine, launched, monkeypatch):
    launched(name)
    if routine in ROUTINES:
        ROUTINES[routine](seed)
    else:
        CHANGED[routine](seed, monkeypatch)


@pytest.mark.parametrize("name", [n for n in GPUS if n == "cuda"])
@pytest.mark.parametrize("program", test_programs.CASES)
def test_kernels_of_programs(name, program, launched):
    launched(name)
    test_programs.test_kernels_of_programs_are_the_cpus(program)


# -- the checks can fail ---------------------------------------------------------------------


class Careless(EmulatedGpu):
    """A GPU whose kernels also change one byte, `at` so many from where an array begins."""

    def __init__(self, array: int, at: int):
        super().__init__()
        self.array, self.at = array, at

    def functions(self, works):
        made = super().functions(works)
        return GridFunctions({w: self._spoilt(b) for w, b in made.launches.items()}, False)

    def _spoilt(self, bind):
        def bound(words, positions):
            launch = bind(words, positions)

            def go():
                launch()
                at = int(words[positions[self.array]]) + self.at
                memory = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * 1).from_address(at))
                memory ^= 1

            return go

        return bound


def doubling(strides: tuple[int, int] = (3, 1)) -> Kernel:
    """2x of four rows of three, which lie as the strides say."""
    F = dtypes.float32
    return Kernel((4, 3), (Operand(F, (3, 1)),), (Step("add", (0, 0), F),), (Result(1, strides),))


@pytest.mark.parametrize(("array", "at"), [(1, -1), (1, 48), (1, 4000), (0, 0), (0, 47), (0, -17)])
def test_a_byte_outside_of_the_result_shows(array, at):
    x, y = np.ones((4, 3), np.float32), np.zeros((4, 3), np.float32)
    Launched(EmulatedGpu(), doubling()).run(x, y)
    np.testing.assert_array_equal(y, 2 * x)
    with pytest.raises(Touched):
        Launched(Careless(array, at), doubling()).run(x, y)


def test_a_byte_in_a_gap_shows():
    x, wide = np.ones((4, 3), np.float32), np.zeros((4, 5), np.float32)
    Launched(EmulatedGpu(), doubling((5, 1))).run(x, wide[:, :3])
    np.testing.assert_array_equal(wide[:, :3], 2 * x)
    assert not wide[:, 3:].any()
    with pytest.raises(Touched):
        Launched(Careless(1, 4 * 3), doubling((5, 1))).run(x, wide[:, :3])


def test_wrong_strides_show():
    """Kernels that read the elements of another order."""

    def wrong(kernel: Kernel, aligned: int) -> Launched:
        first = kernel.operands[0]
        strides = (*first.strides[:-1], 0) if first.strides else ()
        operands = (replace(first, strides=strides), *kernel.operands[1:])
        return Launched(EmulatedGpu(), replace(kernel, operands=operands), aligned)

    found = 0
    for seed in range(20):
        try:
            test_random_grids.check(random_case(seed), wrong)
        except AssertionError:
            found += 1
    assert found >= 5
