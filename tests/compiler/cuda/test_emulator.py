"""The emulator finds what it is there for: faults that are planted in correct kernels."""

from dataclasses import replace

import numpy as np
import pytest

from weft.compiler.cuda import flat, folds, held
from weft.compiler.emit.code import lanes_of
from weft.compiler.ir.kernel import FoldStep, Kernel, Operand, Result, Step
from weft.core import dtypes

from . import emulator
from .emulator import AccessOutside, Emulated, HostMachine

F = dtypes.float32


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(0.5, 1.5, shape).astype(np.float32)


def row_sums(rows: int, columns: int) -> Kernel:
    steps = (FoldStep("sum", 0, F), Step("multiply", (0, 1), F), FoldStep("max", 2, F))
    results = (Result(2, (columns, 1)), Result(3, (1, 0)))
    return Kernel((rows, columns), (Operand(F, (columns, 1)),), steps, results, (1,))


def column_sums(rows: int, columns: int) -> Kernel:
    operand = Operand(F, (1, columns))
    return Kernel((columns, rows), (operand,), (FoldStep("sum", 0, F),), (Result(1, (1, 0)),), (1,))


def norms_in_pieces(rows: int, columns: int, piece: int) -> Kernel:
    steps = (FoldStep("sum", 0, F), Step("multiply", (0, 1), F))
    results = (Result(2, (columns, 1)), Result(2, (columns, 1), "sum"))
    return Kernel((rows, columns), (Operand(F, (columns, 1)),), steps, results, (1,), piece)


def wanted(kernel: Kernel, x: np.ndarray) -> list[np.ndarray]:
    if kernel.domain != x.shape:
        return [x.sum(0)]
    y = x * x.sum(1, keepdims=True)
    if not kernel.piece:
        return [y, y.max(1)]
    return [y, np.add.reduceat(y, range(0, len(x), kernel.piece))]


def is_right(kernel: Kernel, x: np.ndarray, down: bool, faults=frozenset()) -> bool:
    want = wanted(kernel, x)
    outs = [np.full(w.shape, 77, np.float32) for w in want]
    Emulated(kernel, faults=frozenset(faults)).run(x.copy(), *outs, down=down)
    return all(np.allclose(a, b, rtol=1e-5) for a, b in zip(outs, want, strict=True))


KERNELS = {
    "lines": (row_sums(3, 4096), (3, 4096)),
    "columns": (column_sums(64, 40), (64, 40)),
    "pieces": (norms_in_pieces(10, 1024, 4), (10, 1024)),
    "short pieces": (norms_in_pieces(50, 64, 16), (50, 64)),
}


def test_a_fold_that_nobody_needs_is_no_round():
    """Shared memory that is used once for each row needs a barrier after it."""
    kernel, shape = KERNELS["pieces"]
    unused = FoldStep("max", 1, F)  # of a folded value: it would be a second round
    kernel = replace(kernel, steps=(*kernel.steps, unused))
    assert Emulated(kernel).barriers == Emulated(KERNELS["pieces"][0]).barriers
    assert all(is_right(kernel, numbers(*shape), down) for down in (False, True))


@pytest.mark.parametrize("name", KERNELS)
def test_a_barrier_that_is_missing_shows(name):
    kernel, shape = KERNELS[name]
    x, barriers = numbers(*shape), Emulated(kernel).barriers
    assert barriers
    assert is_right(kernel, x, False) and is_right(kernel, x, True)
    for k in range(barriers):
        assert not all(is_right(kernel, x, down, {k}) for down in (False, True)), k


def test_a_group_too_many_or_too_few_shows(monkeypatch):
    n = 1003
    kernel = Kernel((n,), (Operand(F, (1,)),), (Step("exp", (0,), F),), (Result(1, (1,)),))
    x, plan = numbers(n), flat.plan_flat
    for more in (0, 1, -1):
        monkeypatch.setattr(
            "weft.compiler.cuda.kernels.plan_flat",
            lambda *args, more=more: replace(plan(*args), rest=3 + more),
        )
        out = np.full(n, 77, np.float32)
        try:
            Emulated(kernel).run(x, out)
            right = np.allclose(out, np.exp(x))
        except AccessOutside:
            right = False
        assert right == (more == 0)


def test_a_line_that_is_read_again_after_it_was_written_shows(monkeypatch):
    """x·max x in the place of x, and then x²: right only where x stays in registers."""
    monkeypatch.setattr(held, "HELD", 0)
    columns = 4096
    steps = (
        *(Step("negative", (0,), F), FoldStep("max", 0, F)),
        *(Step("multiply", (0, 2), F), FoldStep("sum", 3, F)),
    )
    results = (Result(1, (columns, 1)), Result(4, (1, 0)))
    kernel = Kernel((2, columns), (Operand(F, (columns, 1)),), steps, results, (1,))
    for unrolled in (8, 1):
        monkeypatch.setattr(folds, "UNROLLED", unrolled)
        x, total = numbers(2, columns), np.full(2, 77, np.float32)
        want = (x * x.max(1, keepdims=True)).sum(1)
        Emulated(kernel).run(x, x, total)
        monkeypatch.setattr(folds, "BLOCK", 256)
        assert np.allclose(total, want, rtol=1e-5) == (unrolled == 8)


def test_elements_in_another_order_in_place_show():
    n = 512
    back = Kernel((n,), (Operand(F, (-1,)),), (Step("exp", (0,), F),), (Result(1, (1,)),))
    made = []
    for down in (False, True):
        x = numbers(n)
        Emulated(back, 4).run(x[::-1], x, down=down)
        made.append(x)
    assert not np.array_equal(*made)


def test_a_wrong_alignment_shows():
    n = 1024
    kernel = Kernel((n,), (Operand(F, (1,)),), (Step("exp", (0,), F),), (Result(1, (1,)),))
    memory, out = numbers(n + 8), np.zeros(n, np.float32)
    start = -memory.ctypes.data % 16 // 4
    Emulated(kernel).run(memory[start : start + n], out)
    with pytest.raises(AccessOutside, match="array 0"):
        Emulated(kernel).run(memory[start + 1 : start + 1 + n], out)


def test_threads_that_wait_in_different_places_show(monkeypatch):
    def emit(kernel, plan, machine: HostMachine, aligned):
        code = machine.code
        inside, after = code.label(), code.label()
        code.go_if(machine.thread().equals(3), inside, after)
        code.start(inside)
        machine.barrier()
        code.go(after)
        code.start(after)
        machine.finish()

    monkeypatch.setattr(emulator, "emit_grid", emit)
    kernel = Kernel((64,), (Operand(F, (1,)),), (Step("exp", (0,), F),), (Result(1, (1,)),))
    with pytest.raises(AccessOutside, match="wait elsewhere"):
        Emulated(kernel).run(numbers(64), numbers(64))


def test_shared_memory_that_nobody_has_written_is_nan(monkeypatch):
    def emit(kernel, plan, machine: HostMachine, aligned):
        room = machine.shared(lanes_of("float"), 1)
        value = machine.code.load(lanes_of("float"), room, 4)
        machine.code.store(value, machine.pointers[1], 4)
        machine.finish()

    monkeypatch.setattr(emulator, "emit_grid", emit)
    kernel = Kernel((64,), (Operand(F, (1,)),), (Step("exp", (0,), F),), (Result(1, (1,)),))
    out = numbers(64)
    Emulated(kernel).run(numbers(64), out)
    assert np.isnan(out[0])
