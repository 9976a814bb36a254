"""Kernels that are taken apart: the same bits, and only where nothing is shared."""

from dataclasses import replace

import numpy as np

from weft import errors
from weft.compiler.fusion import apart
from weft.compiler.fusion.apart import take_apart
from weft.compiler.fusion.budget import apply_checkpoints
from weft.compiler.ir.kernel import Kernel, Operand, Result, Step
from weft.compiler.ir.schedule import KernelStep, Schedule
from weft.compiler.memory import call_bytes, plan
from weft.compiler.pipeline import current_target
from weft.core import dtypes
from weft.core.checkpointing import MIB, CheckpointConfig

from ..programs import Program
from .test_budget import bits, random_schedule

W = 8
N = W * W
F32 = np.dtype(dtypes.float32)


def two_rows(p: Program, pairs, operands) -> None:
    """One kernel with a row for each (operand, result), whose result is transposed."""
    accessed = tuple(Operand(F32, (W, 1)) for _ in operands)
    steps = tuple(Step("exp", (operands.index(i),), F32, ()) for i, _ in pairs)
    results = tuple(Result(len(operands) + k, (1, W)) for k in range(len(pairs)))
    kernel = Kernel((W, W), accessed, steps, results)
    p.steps.append(KernelStep(kernel, tuple(operands), tuple(r for _, r in pairs)))


def kernel_of(shared: bool, takes: bool) -> Schedule:
    p = Program()
    x, y = p.buffer("input", N), p.buffer("input", N)
    u = p.buffer("output", N, takes=y if takes else None)
    v = p.buffer("output", N)
    two_rows(p, [(x, u), (x if shared else y, v)], [x] if shared else [x, y])
    return p.schedule(u, v)


def test_kernels_are_taken_apart_where_nothing_is_shared(monkeypatch):
    monkeypatch.setattr(apart, "_LARGE", 0)
    assert len(take_apart(kernel_of(shared=False, takes=False)).steps) == 2
    assert len(take_apart(kernel_of(shared=True, takes=False)).steps) == 1
    # The first part would overwrite what the second one reads.
    assert len(take_apart(kernel_of(shared=False, takes=True)).steps) == 1


def test_random_schedules_taken_apart_give_the_same_bits(monkeypatch):
    monkeypatch.setattr(apart, "_LARGE", 0)
    monkeypatch.setattr(apart, "_SMALL", 1e9)  # only values and memory that is overwritten matter
    changed = 0
    for seed in range(60):
        schedule, arrays = random_schedule(seed)
        made = take_apart(schedule)
        assert bits(made, arrays) == bits(schedule, arrays)
        changed += made is not schedule
    assert changed > 10


def test_a_budget_below_the_largest_kernel_is_kept_if_that_can_be_taken_apart():
    p = Program()
    x = p.buffer("input", N)
    a, b, c, d = (p.buffer("scratch", N) for _ in range(4))
    y, z = (p.buffer("output", N) for _ in range(2))
    p.row("sin", [x], a)
    p.row("cos", [x], b)
    two_rows(p, [(a, c), (b, d)], [a, b])
    p.row("negative", [c], y)
    p.row("negative", [d], z)
    schedule, target = p.schedule(y, z), current_target()
    made, placed = smallest(schedule, target)
    assert plan(schedule, target.alignment).size == 4 * N * 4
    assert placed.size < 4 * N * 4
    arrays = [np.linspace(-1, 1, N, dtype=np.float32)]
    assert bits(made, arrays) == bits(schedule, arrays)


def smallest(schedule: Schedule, target):
    """What the budget gives that a refusal names."""
    placed = plan(schedule, target.alignment)
    taken = call_bytes(schedule, placed)
    budget = taken.fixed + taken.tables + 4
    try:
        config = CheckpointConfig("auto", memory_budget_mb=budget / MIB)
        return apply_checkpoints(schedule, placed, target, config)
    except errors.BudgetExceeded as e:
        config = replace(config, memory_budget_mb=e.smallest / MIB)
        return apply_checkpoints(schedule, placed, target, config)
