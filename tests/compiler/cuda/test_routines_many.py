"""Launches of several kernels in the emulator: bit by bit what each of them computes alone."""

import os
from dataclasses import replace
from math import gcd

import numpy as np
import pytest

from weft.compiler.cuda.many import together
from weft.compiler.cuda.routines import many
from weft.compiler.cuda.routines.many import ManyStage, plan_part
from weft.compiler.cuda.stage import build_stage
from weft.compiler.ir.kernel import Kernel, Operand, Result, Step
from weft.compiler.ir.schedule import KernelStep
from weft.core import dtypes

from .assembler import assemble, needs_ptxas
from .emulator import AccessOutside, Emulated
from .programs import LENGTHS, GridProgram
from .test_random_grids import copied

COUNT = 2000 if os.environ.get("WEFT_SOAK") else 40
Part = tuple[Kernel, list[np.ndarray], list[np.ndarray]]


def line_of(rng: np.random.Generator, shape: tuple[int, ...]) -> Kernel:
    """a·x + y of contiguous arrays, and a number a."""
    n = int(np.prod(shape))
    along = tuple([n // int(np.prod(shape[: a + 1])) for a in range(len(shape))])
    kind = (dtypes.float32, dtypes.bfloat16, dtypes.float64)[rng.integers(3)]
    still = (0,) * len(shape)
    steps = (Step("multiply", (0, 1), kind), Step("add", (3, 2), kind))
    operands = (Operand(kind, still), Operand(kind, along), Operand(kind, along))
    return Kernel(shape, operands, steps, (Result(4, along),))


def arrays_of(rng: np.random.Generator, kernel: Kernel) -> tuple[list, list]:
    """Operands and results of a contiguous kernel without folds."""
    every = (*kernel.operands, *kernel.results)
    kinds = many.dtypes_of(kernel)
    shapes = [kernel.domain if any(x.strides) else () for x in every]
    made = [rng.uniform(0.5, 2, s).astype(d) for s, d in zip(shapes, kinds, strict=True)]
    return made[: len(kernel.operands)], made[len(kernel.operands) :]


def lines(rng: np.random.Generator) -> list[Part]:
    """Lines of different lengths, which may share the number that they are multiplied by."""
    first = line_of(rng, (int(rng.choice(LENGTHS)),))
    parts: list[Part] = []
    number = arrays_of(rng, first)[0][0]
    for _ in range(rng.integers(1, 7)):
        n = int(rng.choice(LENGTHS))
        kernel = replace(first, domain=(n,)) if n > 1 else line_of(rng, ())
        operands, results = arrays_of(rng, kernel)
        if n > 1 and rng.random() < 0.5:
            operands[0] = number
        parts.append((kernel, operands, results))
    return parts


def random_parts(rng: np.random.Generator) -> list[Part]:
    """Random kernels, some of them several times with different arrays."""
    parts: list[Part] = []
    for _ in range(rng.integers(1, 4)):
        with np.errstate(all="ignore"):
            case = GridProgram(int(rng.integers(1 << 30))).case()
        for _ in range(rng.integers(1, 4)):
            operands = [copied(a) for a in case.operands]
            for a in operands:
                if not any(s == 0 and n > 1 for n, s in zip(a.shape, a.strides, strict=True)):
                    a[...] = rng.permutation(a.ravel()).reshape(a.shape)
            parts.append((case.kernel, operands, [copied(a) for a in case.outs]))
    return parts


def launches(rng: np.random.Generator, parts: list[Part]) -> list[tuple[int, list[Part]]]:
    """The parts that may be launched together, in a random order, and their alignment."""
    arrays = [a for _, operands, results in parts for a in (*operands, *results)]
    aligned = gcd(16, *(a.ctypes.data for a in arrays))
    found: dict[int, list[Part]] = {}
    for n in rng.permutation(len(parts)):
        plan = plan_part(parts[n][0], aligned)[1]
        if plan.grid:
            found.setdefault(plan.block, []).append(parts[n])
    return [(aligned, some) for some in found.values()]


def stage_of(parts: list[Part], aligned: int) -> tuple[ManyStage, list[np.ndarray]]:
    """A launch of these parts, and its arrays."""
    known: dict[int, tuple[int, np.ndarray]] = {}

    def number(a: np.ndarray) -> int:
        return known.setdefault(id(a), (len(known), a))[0]

    steps = [KernelStep(k, tuple(map(number, o)), tuple(map(number, r))) for k, o, r in parts]
    step = together(steps, aligned)
    by_number = dict(known.values())
    (stage,) = step.routine.stages
    return stage, [by_number[i] for i in (*step.operands, *step.results)]


def check(aligned: int, parts: list[Part]) -> None:
    alone = []
    for kernel, operands, results in parts:
        outs = [copied(a) for a in results]
        Emulated(kernel, aligned).run(*operands, *outs)
        alone += outs
    stage, arrays = stage_of(parts, aligned)
    emulated = Emulated(stage, aligned)
    made = [a for _, _, results in parts for a in results]
    for down in (False, True):
        for a in made:
            a[...] = 77
        emulated.run(*arrays, down=down)
        for a, want in zip(made, alone, strict=True):
            np.testing.assert_array_equal(a, want)


@pytest.mark.parametrize("seed", range(COUNT))
def test_kernels_together_compute_what_they_do_alone(seed):
    rng = np.random.default_rng(seed)
    parts = lines(rng) + (random_parts(rng) if seed % 2 else [])
    for aligned, some in launches(rng, parts):
        check(aligned, some)


@pytest.mark.parametrize("seed", range(4))
def test_large_kernels_together_compute_what_they_do_alone(seed):
    """Casts, sums in place and products of millions of elements, and of few."""
    rng = np.random.default_rng(seed)
    first = line_of(rng, (300,))
    sizes = [int(n) for n in rng.choice((9, 300, (1 << 20) + 8, (1 << 20) + 3, 3 << 19), 4)]
    parts = [(k, *arrays_of(rng, k)) for k in [replace(first, domain=(n,)) for n in sizes]]
    wide = [Operand(dtypes.float32, (1,))]
    cast = Kernel((9,), tuple(wide), (Step("cast", (0,), dtypes.bfloat16),), (Result(1, (1,)),))
    kernels = [replace(cast, domain=(n,)) for n in (sizes[0], (1 << 21) + 5)]
    for aligned, some in launches(rng, parts + [(k, *arrays_of(rng, k)) for k in kernels]):
        check(aligned, some)


def _wrong_array(places: tuple[int, ...], first: int, length: int):
    return (places[1], places[1], *places[2:]), first, length


def _wrong_block(places: tuple[int, ...], first: int, length: int):
    return places, max(first - 1, 0), length


def _long(places: tuple[int, ...], first: int, length: int):
    return places, first, length + 1


@pytest.mark.parametrize("fault", [_wrong_array, _wrong_block, _long])
def test_faults_are_found(monkeypatch, fault):
    """A pointer of another array, the blocks of a neighbour, one element too many."""
    rng = np.random.default_rng(3)
    kernel = line_of(rng, (300,))
    kernels = [replace(kernel, domain=(n,)) for n in (300, 513, 700)]
    parts = [(k, *arrays_of(rng, k)) for k in kernels]
    check(16, parts)
    plain = many._Member

    def faulty(first: int, places: tuple[int, ...], length: int):
        places, first, length = fault(places, first, length)
        return plain(first, places, length)

    monkeypatch.setattr(many, "_Member", faulty)
    with pytest.raises((AssertionError, AccessOutside)):
        check(16, parts)


@needs_ptxas
def test_launches_are_assembled(tmp_path):
    rng = np.random.default_rng(0)
    stages = []
    for seed in range(12):
        parts = lines(rng) + (random_parts(rng) if seed % 2 else [])
        parts = [p for p in parts if not p[0].piece]
        stages += [stage_of(some, aligned)[0] for aligned, some in launches(rng, parts)]
    kernels = [build_stage(stage, 90) for stage in dict.fromkeys(stages)]
    figures = assemble(kernels, tmp_path)
    assert len(figures) == len(kernels)


@needs_ptxas
def test_hundreds_of_parameters_are_assembled(tmp_path):
    rng = np.random.default_rng(0)
    kernel = line_of(rng, (300,))
    parts = [(k, *arrays_of(rng, k)) for k in [kernel] * 100]
    stage, arrays = stage_of(parts, 16)
    assert len(arrays) == 400
    (figures,) = assemble([build_stage(stage, 90, stops=True)], tmp_path).values()
    assert not figures.spilled
