"""Functions made of a GPU's units, with units that are off by one unit in the last place."""

from unittest.mock import Mock

import mpmath as mp
import numpy as np
import pytest

from weft.compiler.cpu.emit_kernel import ENTRY, Image, link
from weft.compiler.cpu.loops import lower
from weft.compiler.emit import quick_angles, sums, units
from weft.compiler.emit.arithmetic import by_lanes, narrow, widen
from weft.compiler.emit.code import LLModule, LLValue
from weft.compiler.ir.kernel import Kernel, Operand, Result, Step
from weft.compiler.native.machine import compile_module, host
from weft.core import dtypes
from weft.graph.graph import Literal

F = dtypes.float32
FUNCTIONS = {
    "exp": mp.exp,
    "tanh": mp.tanh,
    "expit": lambda x: 1 / (1 + mp.exp(-x)),
    "softplus": lambda x: mp.log1p(mp.exp(x)),
    "sin": mp.sin,
    "cos": mp.cos,
    "tan": mp.tan,
}


def off_by(ulp: int, seed: int):
    """A unit: the nearest number, and a unit more, or less, by the argument's bits; 1 is exact."""

    def moved(x: LLValue, y: LLValue) -> LLValue:
        bit = ((x.bits * 0x9E3779B1) ^ seed).logical_shift(31)
        near = y.bits + (bit + bit - 1) * ulp
        fit = (y > 2.0**-100) & (y < 2.0**100) & y.compare("ne", 1.0)
        return fit.choose(near, y.bits).as_float("float")

    return moved


def model(monkeypatch, ulp: int, seed: int = 0) -> None:
    moved = off_by(ulp, seed)
    power = lambda x: narrow(by_lanes("exp2", [widen(x)]))  # noqa: E731
    monkeypatch.setattr(units, "exp2_unit", lambda x: moved(x, power(x)))
    monkeypatch.setattr(units, "reciprocal", lambda x: moved(x, 1.0 / x))


def by_units(row: str, x: np.ndarray, bound: float | None = None) -> np.ndarray:
    """A row of numbers; of numbers that are known to lie within ±bound, if there is one."""
    steps = [Step(row, (0,), F)]
    if bound is not None:
        clipped = Step("minimum", (0, Literal(bound)), F), Step("maximum", (1, Literal(-bound)), F)
        steps = [*clipped, Step(row, (2,), F)]
    results = (Result(len(steps), (1,)),)
    kernel = Kernel(x.shape, (Operand(F, (1,)),), tuple(steps), results)
    # Without AVX-512's instructions, which come before the units.
    module = LLModule(host().attributes.replace("512", "256"), ("freestanding", "units"))
    nest = lower(kernel, module, ENTRY)
    out = np.empty_like(x)
    symbols = tuple(sorted(module.symbols))
    link(Image(compile_module(module), symbols, nest.count, nest.grain, False))([x, out])
    return out


def numbers(count: int = 1500) -> np.ndarray:
    rng = np.random.default_rng(0)
    parts = [
        *(rng.uniform(-r, r, count) for r in (1.0, 5.0, 30.0, 88.7)),
        rng.uniform(-104, 0, count),
        *(rng.uniform(*r, count) for r in ((0.7, 0.9), (0.89, 1.0), (88.3, 88.72))),
        2.0 ** rng.uniform(-140, 0, count) * rng.choice([-1, 1], count),
    ]
    return np.concatenate(parts).astype(np.float32)


def worst(row: str, x: np.ndarray) -> float:
    mp.mp.prec = 160
    most = 0.0
    for value, at in zip(by_units(row, x), x, strict=True):
        want = FUNCTIONS[row](mp.mpf(float(at)))
        exponent = max(int(mp.floor(mp.log(abs(want), 2))) if want else -149, -126)
        most = max(most, float(abs(mp.mpf(float(value)) - want) / mp.mpf(2) ** (exponent - 23)))
    return most


@pytest.mark.parametrize("seed", [0, 1 << 31])
@pytest.mark.parametrize("row", FUNCTIONS)
def test_functions_are_right_to_two_units(row, seed, monkeypatch):
    model(monkeypatch, 1, seed)
    off = worst(row, numbers())
    print(f"{row}: {off:.2f} units")
    assert off <= 2.0


def test_worse_units_show(monkeypatch):
    model(monkeypatch, 4)
    assert worst("exp", numbers(200)) > 2.0


EDGES = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 88.72, 88.73, 89, 200, 3e38, -88, -103, -104, -110, -3e38],
    np.float32,
)


@pytest.mark.parametrize("row", ["exp", "tanh", "expit"])
def test_the_ends_of_the_range(row, monkeypatch):
    model(monkeypatch, 0)
    got = by_units(row, EDGES)
    wide = EDGES.astype(np.float64)
    with np.errstate(over="ignore"):
        want = {"exp": np.exp(wide), "tanh": np.tanh(wide), "expit": 1 / (1 + np.exp(-wide))}[row]
        want = want.astype(np.float32)
    np.testing.assert_allclose(got, want, rtol=3e-7, atol=1.5e-45)
    assert np.array_equal(np.signbit(got[:4]), np.signbit(want[:4]))


def test_small_angles_keep_their_signs(monkeypatch):
    model(monkeypatch, 0)
    x = np.array([0.0, 1e-45, 3e-39, 1e-38, 1e-25, 1e-19, 1e-15, 1e-8], np.float32)
    x = np.concatenate([x, -x])
    assert np.array_equal(by_units("sin", x).view(np.int32), x.view(np.int32))
    assert np.all(by_units("cos", x) == 1.0)


def neighbours(*places: float, count: int = 300) -> np.ndarray:
    bits = np.array(places, np.float32).view(np.int32)[:, None] + np.arange(-count, count)
    return bits.astype(np.int32).view(np.float32).ravel()


# Bounds within which other instructions are emitted, by what, and functions in float64.
BOUNDED = {
    "sin": (2.3, (quick_angles, "_near_waves"), np.sin),
    "cos": (2.3, (quick_angles, "_near_waves"), np.cos),
    "exp": (86.0, (units, "_normal_exp"), np.exp),
}


@pytest.mark.parametrize("seed", [0, 1 << 31])
@pytest.mark.parametrize("row", BOUNDED)
def test_functions_of_bounded_numbers(row, seed, monkeypatch):
    model(monkeypatch, 1, seed)
    bound, (module, name), function = BOUNDED[row]
    emitter = Mock(wraps=getattr(module, name))
    monkeypatch.setattr(module, name, emitter)
    rng = np.random.default_rng(seed)
    even = rng.uniform(-bound, bound, 1_000_000).astype(np.float32)
    small = (2.0 ** rng.uniform(-140, 0, 10_000) * rng.choice([-1, 1], 10_000)).astype(np.float32)
    turns = neighbours(np.pi / 2, -np.pi / 2, np.pi / 4, -np.pi / 4, bound, -bound)
    x = np.concatenate([even, small, turns[abs(turns) <= bound]])
    want = function(x.astype(np.float64))
    unit = np.ldexp(1.0, np.maximum(np.frexp(want)[1], -125) - 24)
    off = np.max(np.abs(by_units(row, x, bound) - want) / unit)
    print(f"{row} within {bound}: {off:.2f} units")
    assert off <= 2.0
    assert emitter.called
    emitter.reset_mock()
    by_units(row, x[:9], 2 * bound)
    assert not emitter.called


@pytest.mark.parametrize("row", BOUNDED)
def test_bounds_say_nothing_of_nan(row, monkeypatch):
    model(monkeypatch, 0)
    x = np.array([np.nan, 0.0, -0.0], np.float32)
    bound, _, function = BOUNDED[row]
    got, want = by_units(row, x, bound), function(x)
    assert np.array_equal(got, want, equal_nan=True)
    assert np.array_equal(np.signbit(got[1:]), np.signbit(want[1:]))


@pytest.mark.parametrize("row", ["sin", "cos"])
def test_far_angles_and_none(row):
    x = np.array([1e5, -1e5, 100001, 16367173 * 2.0**72, -3.4e38, 2e7], np.float32)
    assert worst(row, x) <= 2.0
    assert np.isnan(by_units(row, np.array([np.inf, -np.inf, np.nan], np.float32))).all()


ODD = np.array([0.0, -0.0, 1.5, -2.0, 1e-45, 3e38, np.inf, -np.inf, np.nan], np.float32)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("low", "high"), [(-3.0, 0.0), (-1.0, 3.0), (None, None)])
def test_strong_products_with_a_factor_that_is_never_zero(low, high, first, monkeypatch):
    """exp(x) of a bounded x is not zero, or it is NaN: only the other factor is compared."""
    model(monkeypatch, 0)
    seen: list[bool] = []

    def smaller(a: LLValue, b: LLValue) -> LLValue:
        found = chosen(a, b)
        seen.append(found in (a, b))
        return found

    chosen = sums._smaller_factor
    monkeypatch.setattr(sums, "_smaller_factor", smaller)
    clips = [Step("maximum", (1, Literal(low)), F), Step("minimum", (2, Literal(high)), F)]
    steps = clips if low is not None else [Step("negative", (1,), F), Step("negative", (2,), F)]
    steps = [*steps, Step("exp", (3,), F)]
    steps.append(Step("strong_product", (0, 4) if first else (4, 0), F))
    g, x = (a.ravel() for a in np.meshgrid(ODD, ODD))
    operands = Operand(F, (1,)), Operand(F, (1,))
    kernel = Kernel(g.shape, operands, tuple(steps), (Result(5, (1,)),))
    features = ("contract", "freestanding", "units")
    module = LLModule(host().attributes.replace("512", "256"), features)
    nest = lower(kernel, module, ENTRY)
    out = np.empty_like(g)
    symbols = tuple(sorted(module.symbols))
    link(Image(compile_module(module), symbols, nest.count, nest.grain, False))([g, x, out])
    with np.errstate(all="ignore"):
        e = np.exp(np.clip(x, low, high))
        want = np.where((g == 0) | (e == 0), np.float32(0), g * e)
    np.testing.assert_allclose(out, want, rtol=1e-6)
    assert seen
    assert all(seen) == any(seen) == (low is not None)
