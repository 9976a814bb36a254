"""Long kernels without folds: rare cases are computed again, and leave the usual ones alone."""

import numpy as np
import pytest

from weft.compiler.cuda import flat
from weft.compiler.cuda.flat import plan_flat
from weft.compiler.emit.code import lanes_of
from weft.compiler.ir.kernel import Kernel, Operand, Result, Step
from weft.core import dtypes

from .emulator import Emulated

F = dtypes.float32
ROWS = {
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "add": np.add,
    "multiply": np.multiply,
    "strong_product": lambda g, d: np.where((g == 0) | (d == 0), 0.0, g * d),
}
HEAVY, BINARY = ("sin", "cos", "tanh"), ("add", "multiply", "strong_product")
RARE = (1e5 + 1, -3e38, 2e7, np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45)


def random_kernel(rng: np.random.Generator, size: int) -> Kernel:
    """Some waves of the two operands and of waves, and light steps of all of these.

    Waves of waves are of small numbers, for which fewer instructions are emitted.
    """
    steps = [Step(str(rng.choice(HEAVY)), (int(rng.integers(2 + k)),), F) for k in range(4)]
    for _ in range(rng.integers(2, 6)):
        pair = rng.choice(2 + len(steps), 2)
        steps.append(Step(str(rng.choice(BINARY)), (int(pair[0]), int(pair[1])), F))
    results = (Result(1 + len(steps), (1,)), Result(2 + int(rng.integers(4)), (1,)))
    return Kernel((size,), (Operand(F, (1,)), Operand(F, (1,))), tuple(steps), results)


def reference(kernel: Kernel, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    """All values: waves in float64 and rounded, sums and products in float32."""
    values = [x, y]
    with np.errstate(all="ignore"):
        for step in kernel.steps:
            kind = np.float64 if step.row in HEAVY else np.float32
            made = ROWS[step.row](*[values[i].astype(kind) for i in step.inputs])
            values.append(made.astype(np.float32))
    return values


def emulated(kernel: Kernel, *arrays: np.ndarray) -> list[np.ndarray]:
    outs = [np.full(kernel.domain, 77, np.float32) for _ in kernel.results]
    Emulated(kernel).run(*arrays, *outs)
    return outs


@pytest.mark.parametrize("seed", range(12))
def test_rare_numbers_among_usual_ones(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.choice([64, 1000, 1003]))
    kernel = random_kernel(rng, size)
    usual = [rng.uniform(-3, 3, size).astype(np.float32) for _ in range(2)]
    mixed = [a.copy() for a in usual]
    for a in mixed:
        a[rng.random(size) < 0.1] = rng.choice(RARE)
    plain = emulated(kernel, *usual)
    same = (mixed[0] == usual[0]) & (mixed[1] == usual[1])
    values = reference(kernel, *mixed)
    for r, got, alone in zip(kernel.results, emulated(kernel, *mixed), plain, strict=True):
        want = values[r.value]
        assert np.array_equal(np.isnan(got), np.isnan(want))
        finite = np.isfinite(want)
        assert np.array_equal(got[~finite], want[~finite], equal_nan=True)
        # Terms may cancel: errors are relative to the largest value on the way.
        scale = np.nanmax(np.where(np.isfinite(values), np.abs(values), 0), 0)[finite]
        assert np.all(np.abs(got[finite] - want[finite]) <= 1e-5 * scale)
        assert np.array_equal(got[same].view(np.int32), alone[same].view(np.int32))


def test_products_of_zero_and_infinity_are_zeros_in_chains():
    waves = tuple([Step("sin", (0,), F)] * 3)
    steps = (*waves, Step("strong_product", (0, 1), F))
    kernel = Kernel((8,), (Operand(F, (1,)),) * 2, steps, (Result(5, (1,)),))
    assert flat.is_chain(kernel)
    g = np.array([0, -0.0, np.inf, np.nan, 2, np.nan, -1, 0], np.float32)
    d = np.array([np.inf, np.nan, 0, 0, 3, 1, 0, 5], np.float32)
    (y,) = emulated(kernel, g, d)
    np.testing.assert_array_equal(y, [0, 0, 0, 0, 6, np.nan, 0, 0])
    assert not np.signbit(y[[0, 1, 2, 3, 6, 7]]).any()


def test_results_may_replace_operands():
    steps = (*[Step("sin", (0,), F)] * 3, Step("cos", (3,), F))
    kernel = Kernel((64,), (Operand(F, (1,)),), steps, (Result(4, (1,)),))
    assert plan_flat(kernel, 16).lanes > 1
    x = np.linspace(-2, 2, 64).astype(np.float32)
    x[::7] = 1e6
    want = np.cos(np.sin(x.astype(np.float64)))
    Emulated(kernel).run(x, x)
    np.testing.assert_allclose(x, want, rtol=1e-6)


def test_a_rare_case_that_is_forgotten_shows(monkeypatch):
    never = lambda mask: mask.code.constant(lanes_of("i1"), False)  # noqa: E731
    monkeypatch.setattr(flat, "anywhere", never)
    with pytest.raises(AssertionError):
        test_products_of_zero_and_infinity_are_zeros_in_chains()
