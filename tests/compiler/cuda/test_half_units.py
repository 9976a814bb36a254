"""Functions of half types made of a GPU's units: every number, with units that are off by two."""

import numpy as np
import pytest
from scipy.special import expit, ndtr

from weft.compiler.cpu.emit_kernel import ENTRY, Image, link
from weft.compiler.cpu.loops import lower
from weft.compiler.cuda.kernels import build_kernel
from weft.compiler.emit import half_units, units
from weft.compiler.emit.arithmetic import by_lanes, narrow, size, widen
from weft.compiler.emit.code import LLModule, LLValue
from weft.compiler.ir.kernel import Kernel, Operand, Result, Step
from weft.compiler.native.machine import compile_module, host
from weft.core import dtypes

from .test_units import off_by

ROOT = np.sqrt(2 / np.pi)
HALF = (dtypes.bfloat16, dtypes.float16)
# Units in the last place of a result; and, where terms cancel, the error of their sum beside the
# largest: some roundings of float32.
LIMIT, SUM = 0.51, 2.0**-21
# The least exponent of normal numbers, and the bits after the first.
LEAST = {dtypes.bfloat16: -126, dtypes.float16: -14}
BITS = {dtypes.bfloat16: 7, dtypes.float16: 10}


def _gelu_tanh_slope(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    u = 2 * ROOT * (x + 0.044715 * x**3)
    return expit(u), 2 * ROOT * (x + 3 * 0.044715 * x**3) * expit(u) * expit(-u)


# The terms of each function in float64, of finite numbers that are not far beyond its range.
FUNCTIONS = {
    "exp": lambda x: (np.exp(x),),
    "tanh": lambda x: (np.tanh(x),),
    "expit": lambda x: (expit(x),),
    "silu": lambda x: (x * expit(x),),
    "silu_slope": lambda x: (expit(x), x * expit(x) * expit(-x)),
    "gelu": lambda x: (x * ndtr(x),),
    "gelu_slope": lambda x: (ndtr(x), x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)),
    "gelu_tanh": lambda x: (x * expit(2 * ROOT * (x + 0.044715 * x**3)),),
    "gelu_tanh_slope": _gelu_tanh_slope,
}
# The values at −∞ and ∞.
ENDS = {
    "exp": (0.0, np.inf),
    "tanh": (-1.0, 1.0),
    **dict.fromkeys(("expit", "silu_slope", "gelu_slope", "gelu_tanh_slope"), (0.0, 1.0)),
    **dict.fromkeys(("silu", "gelu", "gelu_tanh"), (-0.0, np.inf)),
}
# Rows that are x far to the right; and those of the sign of x.
LINEAR = ("silu", "gelu", "gelu_tanh")
ODD = ("tanh", *LINEAR)


def model(monkeypatch, ulp: int, seed: int) -> None:
    """Units that are off by some units in the last place, and have no denormal numbers."""
    moved = off_by(ulp, seed)

    def flushed(x: LLValue) -> LLValue:
        return (size(x) < 2.0**-126).choose(x.same(0.0), x)

    def power(x: LLValue) -> LLValue:
        return flushed(moved(x, narrow(by_lanes("exp2", [widen(x)]))))

    monkeypatch.setattr(units, "exp2_unit", power)
    monkeypatch.setattr(units, "reciprocal", lambda x: flushed(moved(x, 1.0 / flushed(x))))


def by_units(row: str, x: np.ndarray) -> np.ndarray:
    kind = x.dtype
    step = Step(row, (0,), kind)
    kernel = Kernel(x.shape, (Operand(kind, (1,)),), (step,), (Result(1, (1,)),))
    module = LLModule(host().attributes.replace("512", "256"), ("freestanding", "units"))
    nest = lower(kernel, module, ENTRY)
    out = np.empty_like(x)
    symbols = tuple(sorted(module.symbols))
    link(Image(compile_module(module), symbols, nest.count, nest.grain, False))([x, out])
    return out


def every(kind: np.dtype) -> np.ndarray:
    """All numbers of a half type, NaN among them."""
    return np.arange(1 << 16, dtype=np.uint16).view(kind)


def unit(want: np.ndarray, kind: np.dtype) -> np.ndarray:
    """A unit in the last place, also of denormal numbers."""
    exponent = np.frexp(want)[1] - 1
    return np.ldexp(1.0, np.maximum(exponent, LEAST[kind]) - BITS[kind])


def worst(row: str, kind: np.dtype) -> float:
    """The largest error in units in the last place, less what a sum of two terms may be off by."""
    x = every(kind)
    with np.errstate(invalid="ignore"):  # NaN
        wide, got = (a.astype(np.float64) for a in (x, by_units(row, x)))
    assert np.array_equal(np.isnan(got), np.isnan(wide))
    for end, value in zip((-np.inf, np.inf), ENDS[row], strict=True):
        assert np.all(got[wide == end] == value)
    if row in ODD:
        signs = np.signbit(got) == np.signbit(wide)
        assert np.all(signs | np.isnan(wide))
    finite = np.isfinite(wide)
    wide, got = wide[finite], got[finite]
    with np.errstate(over="ignore", under="ignore"):
        terms = FUNCTIONS[row](np.clip(wide, -1e3, 1e3))
    if row in LINEAR:
        terms = (np.where(wide > 1e3, wide, terms[0]),)
    # The number beyond the largest is infinity.
    top = 2.0 ** (2 - LEAST[kind])
    want, got = (np.clip(a, -top, top) for a in (sum(terms), got))
    off = np.abs(got - want)
    if len(terms) > 1:
        off = np.maximum(off - SUM * np.max(np.abs(terms), 0), 0)
    return float(np.max(off / unit(want, kind)))


@pytest.mark.parametrize("seed", [0, 1 << 31])
@pytest.mark.parametrize("kind", HALF, ids=str)
@pytest.mark.parametrize("row", FUNCTIONS)
def test_every_number_is_rounded_well(row, kind, seed, monkeypatch):
    model(monkeypatch, 2, seed)
    off = worst(row, kind)
    print(f"{row} {kind}: {off:.4f} units")
    assert off <= LIMIT


@pytest.mark.parametrize("row", FUNCTIONS)
def test_worse_units_show(row, monkeypatch):
    """With units of half precision themselves."""
    model(monkeypatch, 1 << 11, 0)
    assert worst(row, dtypes.float16) > LIMIT


@pytest.mark.parametrize("kind", HALF, ids=str)
def test_small_results_need_scaled_powers(kind, monkeypatch):
    """In bfloat16 they are beyond what the units give."""
    model(monkeypatch, 0, 0)
    monkeypatch.setattr(half_units, "_SHIFT", dict.fromkeys(HALF, 0))
    assert (worst("gelu_tanh", kind) > 1) == (kind == dtypes.bfloat16)


@pytest.mark.parametrize("row", FUNCTIONS)
def test_float32_is_as_it_was(row, monkeypatch):
    """Only results of half types are computed by fewer instructions."""

    def ptx(kind: np.dtype) -> str:
        step = Step(row, (0,), kind)
        kernel = Kernel((1 << 12,), (Operand(kind, (1,)),), (step,), (Result(1, (1,)),))
        return build_kernel(kernel, 90).ptx

    before = {kind: ptx(kind) for kind in (*HALF, dtypes.float32)}
    monkeypatch.setattr(half_units, "EMITTERS", {})
    after = {kind: ptx(kind) for kind in before}
    assert before[dtypes.float32] == after[dtypes.float32]
    for kind in HALF:
        assert before[kind].count(";") < after[kind].count(";")
