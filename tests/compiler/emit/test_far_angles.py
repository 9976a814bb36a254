"""Circular functions without a C library, beside mpmath: numbers as large as float32 has."""

import mpmath as mp
import numpy as np
import pytest

from weft.compiler.cpu.emit_kernel import ENTRY, Image, link
from weft.compiler.cpu.loops import lower
from weft.compiler.emit.code import LLModule
from weft.compiler.ir.kernel import Kernel, Operand, Result, Step
from weft.compiler.native.machine import compile_module, host
from weft.core import dtypes

F = dtypes.float32
FUNCTIONS = {"sin": mp.sin, "cos": mp.cos, "tan": mp.tan}
# The float32 that is closest to a multiple of π/2, relative to itself, is the first one.
HARD = (16367173 * 2.0**72, 3.4028235e38, 1e5, 100001.0, 131072.0, 2.0**127, 2.0**31)


def numbers(seed: int, count: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    wide = 2.0 ** rng.uniform(16, 127.9, count)
    near = rng.uniform(0, 2e5, count // 4)
    quarter = np.pi / 2 * rng.integers(1 << 17, 1 << 40, count // 4)
    x = np.concatenate([HARD, wide, near, quarter])
    return (x * rng.choice([-1, 1], len(x))).astype(np.float32)


def freestanding(row: str, x: np.ndarray) -> np.ndarray:
    """A row by native code that calls nothing."""
    kernel = Kernel(x.shape, (Operand(F, (1,)),), (Step(row, (0,), F),), (Result(1, (1,)),))
    module = LLModule(host().attributes, ("freestanding",))
    nest = lower(kernel, module, ENTRY)
    assert not module.symbols
    out = np.empty_like(x)
    link(Image(compile_module(module), (), nest.count, nest.grain, False))([x, out])
    return out


@pytest.mark.parametrize("row", FUNCTIONS)
def test_large_angles_are_right_to_two_units(row):
    x = numbers(0, 2000)
    mp.mp.prec = 400
    worst = 0.0
    for value, at in zip(freestanding(row, x), x, strict=True):
        want = FUNCTIONS[row](mp.mpf(float(at)))
        unit = mp.mpf(2) ** (int(mp.floor(mp.log(abs(want), 2))) - 23)
        worst = max(worst, float(abs(mp.mpf(float(value)) - want) / unit))
    assert worst <= 2.0


@pytest.mark.parametrize("row", FUNCTIONS)
def test_infinities_and_nan_have_no_angle(row):
    assert np.isnan(freestanding(row, np.array([np.inf, -np.inf, np.nan], np.float32))).all()


@pytest.mark.parametrize("row", FUNCTIONS)
def test_small_angles_have_the_bits_of_the_usual_code(row):
    x = np.random.default_rng(1).uniform(-1e5, 1e5, 1000).astype(np.float32)
    kernel = Kernel(x.shape, (Operand(F, (1,)),), (Step(row, (0,), F),), (Result(1, (1,)),))
    module = LLModule(host().attributes)
    nest = lower(kernel, module, ENTRY)
    out = np.empty_like(x)
    symbols = tuple(sorted(module.symbols))
    link(Image(compile_module(module), symbols, nest.count, nest.grain, False))([x, out])
    np.testing.assert_array_equal(out, freestanding(row, x))
