"""Random grid kernels in the emulator beside the CPU's: the same bits in both orders of threads."""

import os

import numpy as np
import pytest

from weft.compiler.cpu.emit_kernel import native
from weft.compiler.cuda import flat, folds, machine
from weft.compiler.cuda.counted import Counted
from weft.compiler.cuda.flat import plan_flat
from weft.compiler.cuda.folds import plan_folds
from weft.compiler.cuda.kernels import build_kernel
from weft.compiler.ir.kernel import FoldStep, Kernel, Operand, Result, Step
from weft.core import dtypes
from weft.graph.graph import Literal

from .assembler import assemble, needs_ptxas
from .emulator import Emulated
from .programs import Case, GridProgram, LongRowsProgram, RowsProgram

COUNT = 20_000 if os.environ.get("WEFT_SOAK") else 150


def copied(a: np.ndarray) -> np.ndarray:
    """A copy of an array's memory, gaps included, and the same view of it."""
    low, high = np.lib.array_utils.byte_bounds(a)
    here = a.__array_interface__["data"][0]
    memory = np.empty(high - low + 64, np.uint8)
    start = -memory.ctypes.data % 16 + low % 16
    source = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * (high - low)).from_address(low))
    memory[start : start + high - low] = source
    return np.ndarray(a.shape, a.dtype, memory, start + here - low, a.strides)


def emulate(case: Case, down: bool, emulated) -> list[np.ndarray]:
    """The results; those that take an operand's memory are written there."""
    operands = [copied(a) for a in case.operands]
    for operand, array in zip(case.kernel.operands, operands, strict=True):
        if isinstance(operand, Counted):
            array[...] = 55  # nobody reads it
    outs = [copied(a) for a in case.outs]
    for r, o in case.shared.items():
        outs[r] = operands[o][(*(slice(n) for n in outs[r].shape), ...)]
    emulated.run(*operands, *outs, down=down)
    return outs


def check(case: Case, make=Emulated, unit: float | None = None) -> None:
    """Compare what `make` runs with the CPU; `unit`: how far values may be off, if not the case's.

    Two runs, in opposite orders of threads where that can be chosen, give the same bits.
    """
    outs = [copied(a) for a in case.outs]
    native(case.kernel)([*case.operands, *outs])
    machine = make(case.kernel, case.aligned)
    up, down = (emulate(case, order, machine) for order in (False, True))
    unit = case.bound if unit is None else unit
    for result, want, a, b in zip(case.kernel.results, outs, up, down, strict=True):
        np.testing.assert_array_equal(a, b, err_msg="the order of threads shows")
        exact = case.kernel.dtypes[result.value] in (*dtypes.SIGNED, *dtypes.UNSIGNED)
        terms = case.kernel.piece if result.over_rows else 1
        bound = 0.0 if exact else unit * terms
        np.testing.assert_allclose(
            a.astype(np.float64), want.astype(np.float64), rtol=0, atol=bound
        )


def random_case(seed: int) -> Case:
    with np.errstate(all="ignore"):
        return GridProgram(seed).case()


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_random_grid_is_the_cpus(seed):
    check(random_case(seed))


# Limits at which short lines take the ways of long ones: loops, sums of runs, shared memory.
LOW = (
    {"UNROLLED": 1, "BODY": 2, "MANY": 2, "BLOCK": 64},
    {"UNROLLED": 2, "OWN": 16, "BLOCK": 128, "SHARED": 1 << 11},
    {"LINES": 1, "THREADS": 1 << 30, "BLOCKS": 1, "UNROLLED": 4},
    {"UNROLLED": 0, "BLOCK": 64, "SHORT": 32},
)


@pytest.mark.parametrize("seed", range(COUNT, COUNT + COUNT // 2))
def test_a_random_grid_is_the_cpus_at_low_limits(seed, monkeypatch):
    for name, value in LOW[seed % len(LOW)].items():
        monkeypatch.setattr(folds, name, value)
    monkeypatch.setattr(flat, "THREADS", 64)
    case = random_case(seed)
    check(case)


def random_rows(seed: int, monkeypatch) -> Case:
    """Rows of any length; in most cases even one whole group is enough for wide accesses."""
    if seed % 4:
        for module in (flat, folds):
            monkeypatch.setattr(module, "WHOLE", 1)
    if seed % 3 == 0:
        for name, value in LOW[seed // 3 % len(LOW)].items():
            monkeypatch.setattr(folds, name, value)
    with np.errstate(all="ignore"):
        return RowsProgram(seed).case()


def narrow_case(seed: int) -> Case:
    """The first place of an extreme of narrow numbers: they are read before and after a fold."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(("int8", "uint8", "int16", "uint16", "int32", "float16")[seed % 6])
    rows, n = (
        int(rng.integers(1, 9)),
        int(rng.integers(1, 3000) if seed % 2 else rng.integers(1, 40)),
    )
    shape, folded = ((n,), (0,)) if seed % 4 < 2 else ((rows, n), (1,))
    x = rng.integers(0, int(rng.choice((2, 100))), shape).astype(dtype)
    places = np.arange(n, dtype=np.int32)
    kind = ("max", "min")[int(rng.integers(2))]
    steps = (
        FoldStep(kind, 0, dtype),
        Step("equal", (0, 2), np.dtype(bool), ()),
        Step("where", (3, 1, Literal(n)), np.dtype(np.int32), ()),
        FoldStep("min", 4, np.dtype(np.int32)),
        Step("add", (0, 2), dtype, ()),
    )
    lead, kept = shape[:-1], (*shape[:-1], 1)
    along = (n, 1) if lead else (1,)
    fixed = (1, 0) if lead else (0,)
    operands = (Operand(dtype, along), Operand(np.dtype(np.int32), (*(0,) * len(lead), 1)))
    results = (Result(2, fixed), Result(5, fixed), Result(6, along))
    outs = [np.full(kept, 77, dtype), np.full(kept, 77, np.int32), np.full(shape, 77, dtype)]
    return Case(Kernel(shape, operands, steps, results, folded), [x, places], outs, {})


@pytest.mark.parametrize("seed", range(24))
def test_narrow_numbers_are_read_before_and_after_a_fold(seed):
    case = narrow_case(seed)
    check(case)
    outs = [copied(a) for a in case.outs]
    native(case.kernel)([*case.operands, *outs])
    extreme = np.max if case.kernel.steps[0].kind == "max" else np.min
    find = np.argmax if case.kernel.steps[0].kind == "max" else np.argmin
    np.testing.assert_array_equal(outs[0], extreme(case.operands[0], -1, keepdims=True))
    np.testing.assert_array_equal(outs[1], find(case.operands[0], -1, keepdims=True))


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_rows_are_the_cpus(seed, monkeypatch):
    check(random_rows(seed, monkeypatch))


def test_random_rows_end_after_whole_groups(monkeypatch):
    """In many of the cases above some elements are left after the last whole group."""
    kinds = {plan_flat: 0, plan_folds: 0}
    for seed in range(100):
        with monkeypatch.context() as patch:
            case = random_rows(seed, patch)
            plan = plan_folds if case.kernel.folded else plan_flat
            kinds[plan] += plan(case.kernel, case.aligned).rest > 0
    assert min(kinds.values()) >= 8, kinds


def long_rows(seed: int, monkeypatch) -> Case:
    """Rows that are too long for registers, so that shared memory holds them."""
    for name, value in LOW[-1].items():
        monkeypatch.setattr(folds, name, value)
    monkeypatch.setattr(folds, "BLOCK", (64, 128, 1024)[seed % 3])
    with np.errstate(all="ignore"):
        return LongRowsProgram(seed).case()


@pytest.mark.parametrize("seed", range(COUNT // 3))
def test_random_long_rows_are_the_cpus(seed, monkeypatch):
    check(long_rows(seed, monkeypatch))


def test_random_long_rows_are_held(monkeypatch):
    cases = [long_rows(seed, monkeypatch) for seed in range(30)]
    plans = [plan_folds(case.kernel, case.aligned) for case in cases]
    assert sum(plan.held and plan.rest > 0 for plan in plans) >= 12
    assert sum(not plan.held for plan in plans) >= 1


@needs_ptxas
def test_lines_of_more_shared_memory_than_usual_are_assembled(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "STATIC", 64)
    built = [build_kernel(long_rows(seed, monkeypatch).kernel) for seed in range(20)]
    assert sum(kernel.shared > 256 for kernel in built) >= 6
    assemble(built, tmp_path)


@needs_ptxas
@pytest.mark.parametrize("sm", [90, 80])
def test_random_grids_are_assembled_and_spill_nothing(sm, tmp_path, monkeypatch):
    built = []
    for seed in range(COUNT // 4 if sm == 90 else COUNT // 10):
        case = random_case(seed)
        if dtypes.float64 not in case.kernel.dtypes:
            built.append(build_kernel(case.kernel, sm))
    for seed in range(COUNT // 10):
        case = random_rows(seed, monkeypatch)
        if dtypes.float64 not in case.kernel.dtypes:
            built.append(build_kernel(case.kernel, sm, case.aligned))
    figures = assemble(built, tmp_path, sm)
    assert not [name for name, found in figures.items() if found.spilled]
