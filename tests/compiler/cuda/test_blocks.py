"""What one block of threads computes by itself: products and kernels, beside NumPy and the CPU."""

import os
from dataclasses import dataclass

import numpy as np
import pytest
from ml_dtypes import finfo

from weft.compiler.cpu.emit_kernel import native
from weft.compiler.cuda import folds, teams
from weft.compiler.cuda.machine import Machine
from weft.compiler.cuda.routines import products
from weft.compiler.cuda.routines.inline import BlockArray, InlineKernel, Threads
from weft.compiler.cuda.routines.products import GridProduct, ProductEmitter, plan_product
from weft.compiler.cuda.routines.routine import RoutineStage
from weft.compiler.emit.code import lanes_of
from weft.compiler.ir.schedule import GemmStep
from weft.core import dtypes
from weft.core.record import record

from .emulator import Emulated
from .loops import emulated, emulating_anew
from .programs import Case
from .test_random_grids import copied, random_case, random_rows

COUNT = 3_000 if os.environ.get("WEFT_SOAK") else 60


@record
class Alone(RoutineStage):
    """A product or a kernel as the only call of a block."""

    work: GridProduct | InlineKernel
    threads: int

    @property
    def grid(self) -> int:
        return 1

    @property
    def block(self) -> int:
        return self.threads

    def emit(self, machine: Machine) -> None:
        arrays = [BlockArray(p, k) for k, p in enumerate(machine.pointers)]
        if isinstance(self.work, GridProduct):
            emitter = ProductEmitter(self.work, Threads(machine, self.block, None), arrays)
            emitter.emit(emitter.hold() if self.work.held else None)
        else:
            room = machine.shared(lanes_of("i8"), self.work.room) if self.work.room else None
            self.work.emit(Threads(machine, self.block, room), arrays)
        machine.finish()


# -- products --------------------------------------------------------------------------------------

SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 32, 33, 64, 65, 100)


@dataclass
class ProductCase:
    """A random product with its arrays, which have more columns than the matrices."""

    seed: int

    def __post_init__(self) -> None:
        rng = self.rng = np.random.default_rng(self.seed)
        self.dtype = (np.float32, np.float32, np.float64, np.float16)[rng.integers(4)]
        m, n, k = (int(x) for x in rng.choice(SIZES, 3))
        batch = tuple(int(x) for x in rng.choice((1, 2, 3), rng.integers(0, 3)))
        turned = [bool(x) for x in rng.random(2) < 0.5]
        shapes = [(k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n), (m, n)]
        self.whole = [self._array(batch, shape, keeps=i == 2) for i, shape in enumerate(shapes)]
        strides = [tuple(s // a.itemsize for s in a.strides) for a in self.whole]
        alpha, beta = (float(x) for x in rng.choice((1.0, 0.5), 2) * (1, rng.integers(0, 2)))
        self.step = GemmStep(
            *(0, 1, 2, m, n, k),
            *(s[-2] for s in strides),
            *turned,
            batch,
            *(s[:-2] for s in strides),
            alpha,
            beta,
        )
        self.stays = bool(rng.random() < 0.5)

    def _array(self, batch: tuple[int, ...], shape: tuple[int, int], keeps: bool) -> np.ndarray:
        """Numbers with gaps between rows; of an operand some axes of the batch are the same."""
        rows, columns = shape
        wide = columns + int(self.rng.choice((0, 0, 4, 3)))
        held = tuple(n if keeps or self.rng.random() < 0.7 else 1 for n in batch)
        numbers = self.rng.standard_normal((*held, rows, wide)).astype(self.dtype)
        return np.broadcast_to(numbers, (*batch, rows, wide))[..., :columns]

    def want(self) -> np.ndarray:
        a, b, c = (x.astype(np.float64) for x in self.whole)
        a = a.swapaxes(-1, -2) if self.step.transpose_a else a
        b = b.swapaxes(-1, -2) if self.step.transpose_b else b
        return self.step.alpha * (a @ b) + self.step.beta * c

    @property
    def bound(self) -> float:
        """Terms are below 20 each."""
        wide = np.float32 if self.dtype == np.float16 else self.dtype
        lost = float(finfo(wide).eps) * 20 * (self.step.k + 4)
        return lost + (float(finfo(self.dtype).eps) * 50 if wide != self.dtype else 0)


def multiply(case: ProductCase, threads: int, down: bool) -> np.ndarray:
    arrays = [copied(a) for a in case.whole]
    aligned = 16 if arrays[0].ctypes.data % 16 == 0 else arrays[0].itemsize
    dtype = np.dtype(case.dtype)
    product = plan_product(case.step, dtype, threads, aligned, case.stays)
    emulated(Alone((0, 1, 2), product, threads)).run(*arrays, down=down)
    return arrays[2]


@pytest.mark.parametrize("seed", range(COUNT))
def test_a_random_product_is_numpys(seed):
    case = ProductCase(seed)
    threads = (64, 256)[seed % 2]
    up, down = (multiply(case, threads, way) for way in (False, True))
    np.testing.assert_array_equal(up, down)
    np.testing.assert_allclose(up.astype(np.float64), case.want(), rtol=0, atol=case.bound)


def test_a_sum_that_is_left_out_shows(monkeypatch):
    monkeypatch.setattr(products, "fold_warp", lambda machine, parts, width: list(parts))
    with emulating_anew(), pytest.raises(AssertionError):
        for seed in range(20):
            test_a_random_product_is_numpys(seed)


# -- kernels ---------------------------------------------------------------------------------------


def compute(case: Case, stage: Emulated, down: bool) -> list[np.ndarray]:
    operands, outs = ([copied(a) for a in x] for x in (case.operands, case.outs))
    for r, o in case.shared.items():
        outs[r] = operands[o][(*(slice(n) for n in outs[r].shape), ...)]
    stage.run(*operands, *outs, down=down)
    return outs


def check_kernel(case: Case, threads: int) -> None:
    outs = [copied(a) for a in case.outs]
    native(case.kernel)([*case.operands, *outs])
    inline = InlineKernel(case.kernel, threads, case.aligned)
    arrays = tuple(range(len(case.operands) + len(case.outs)))
    stage = emulated(Alone(arrays, inline, threads))
    up, down = (compute(case, stage, way) for way in (False, True))
    for result, want, a, b in zip(case.kernel.results, outs, up, down, strict=True):
        np.testing.assert_array_equal(a, b, err_msg="the order of threads shows")
        exact = case.kernel.dtypes[result.value] in dtypes.SIGNED
        terms = case.kernel.piece if result.over_rows else 1
        bound = 0.0 if exact else case.bound * terms
        np.testing.assert_allclose(a.astype(float), want.astype(float), rtol=0, atol=bound)


@pytest.mark.parametrize("seed", range(1000, 1000 + COUNT))
def test_a_random_kernel_in_one_block_is_the_cpus(seed, monkeypatch):
    if seed % 3 == 0:  # lines are long
        monkeypatch.setattr(folds, "UNROLLED", 1)
        monkeypatch.setattr(folds, "MANY", 2)
    check_kernel(random_case(seed), (64, 256)[seed % 2])


@pytest.mark.parametrize("seed", range(COUNT // 2))
def test_random_rows_in_one_block_are_the_cpus(seed, monkeypatch):
    check_kernel(random_rows(seed, monkeypatch), (64, 256)[seed % 2])


def test_folds_that_threads_do_not_exchange_show(monkeypatch):
    monkeypatch.setattr(teams, "fold_warp", lambda machine, parts, width: list(parts))
    with emulating_anew(), pytest.raises(AssertionError):
        for seed in range(1000, 1040):
            check_kernel(random_case(seed), 64)
