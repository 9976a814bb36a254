"""Running sums, products, recurrences and extremes of a GPU, against NumPy."""

import numpy as np
import pytest

from weft.compiler.cuda.routines import running, scans
from weft.compiler.cuda.routines.lines import PartStage, ScanStage
from weft.compiler.cuda.routines.running import GridRunning, LineStage
from weft.core import dtypes

from .emulator import AccessOutside
from .staged import EmulatedRoutine, seeds

KINDS = ("cumsum", "cumprod", "linear_recurrence", "logcumsumexp", "cummax", "cummin")
WHOLE = (dtypes.int8, dtypes.uint8, dtypes.int32, dtypes.int64, dtypes.uint64)
# About a warp, a block and several turns of it, whole groups of elements or not.
LENGTHS = (1, 2, 5, 63, 64, 65, 100, 128, 130, 1000, 1024, 1027, 2048, 2500, 5000, 20_000)


def dtype_of(rng: np.random.Generator, kind: str) -> np.dtype:
    real = rng.random() < 0.6 or kind in ("logcumsumexp", "linear_recurrence")
    kinds = (dtypes.float32, dtypes.float64) if real else WHOLE
    return kinds[rng.integers(len(kinds))]


def numbers(rng: np.random.Generator, kind: str, dtype: np.dtype, shape) -> np.ndarray:
    """Ties, infinities and NaN where they are not the whole answer."""
    if dtype not in dtypes.REAL:
        limits = np.iinfo(dtype)
        return rng.integers(max(limits.min, -9), min(limits.max, 9), shape).astype(dtype)
    if kind in ("cummax", "cummin"):
        x = rng.integers(-99, 99, shape).astype(dtype)
        for odd in (np.inf, -np.inf, np.nan, -0.0):
            x[rng.random(shape) < rng.choice((0, 0.01, 0.001))] = odd
        return x
    if kind == "cumprod":
        return (rng.choice((-1.0, 1.0), shape) * np.exp(rng.normal(size=shape))).astype(dtype)
    return (rng.standard_normal(shape) * 3).astype(dtype)


def check_extremes(kind: str, x: np.ndarray, got: list[np.ndarray]) -> None:
    fold = np.maximum if kind == "cummax" else np.minimum
    with np.errstate(invalid="ignore"):
        want = fold.accumulate(x, 1)
    np.testing.assert_array_equal(got[0], want)
    taken = (x == want) | (np.isnan(x) if x.dtype.kind == "f" else False)
    places = np.where(taken, np.arange(x.shape[1])[:, None], 0)
    np.testing.assert_array_equal(got[1], np.maximum.accumulate(places, 1))


def recurrence(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    out = b.copy()
    for t in range(1, b.shape[1]):
        out[:, t] = b[:, t] + a[:, t] * out[:, t - 1]
    return out


def check(kind: str, given: list[np.ndarray], got: list[np.ndarray], scanned: bool) -> None:
    x, (y, *_) = given[-1], got
    eps = np.finfo(x.dtype).eps if x.dtype.kind == "f" else 0
    if kind in ("cummax", "cummin"):
        check_extremes(kind, x, got)
    elif kind == "linear_recurrence":
        np.testing.assert_array_equal(y, recurrence(*given))
    elif kind == "cumprod":
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(y, np.cumprod(x, 1, x.dtype))
    elif kind == "cumsum" and not (scanned and eps):
        np.testing.assert_array_equal(y, np.cumsum(x, 1, x.dtype))
    elif kind == "cumsum":
        # A thread adds 4 numbers, and 5 + 8 times those of others, of its part and of parts;
        # and there is a rounding for each turn.
        terms = 40 + x.shape[1] // 1024
        bound = terms * eps * np.cumsum(np.abs(x), 1, np.float64)
        want = np.cumsum(x, 1, np.longdouble)
        assert (np.abs(y - want) <= bound).all()
    else:
        want = np.logaddexp.accumulate(x.astype(np.longdouble), 1)
        steps = 40 + x.shape[1] // 1024 if scanned else x.shape[1]
        bound = 3 * steps * eps * np.maximum(np.maximum.accumulate(np.abs(want), 1), 1)
        assert (np.abs(y - want) <= bound).all()


@pytest.mark.parametrize("seed", seeds(72))
def test_against_numpy(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(running, "_PART", int(rng.choice((1024, 4096))))
    kind = KINDS[seed % len(KINDS)]
    dtype, n = dtype_of(rng, kind), int(rng.choice(LENGTHS))
    lead, row = int(rng.choice((1, 2, 3))), int(rng.choice((1, 1, 1, 2, 33)))
    routine = GridRunning(kind, dtype, lead, n, row)
    given = [numbers(rng, kind, dtype, (lead, n, row)) for _ in routine.operands]
    if kind == "linear_recurrence":
        given[0] = np.sin(given[0])
    run = EmulatedRoutine(routine, int(rng.choice([a for a in (8, 16) if a >= dtype.itemsize])))
    check(kind, given, run.both(*given), isinstance(routine.stages[-1], ScanStage))


def test_what_overflows_in_parts_is_computed_from_the_beginning():
    n = 512
    x = np.ones((1, n, 1), np.float32)
    x[0, :200], x[0, 300:] = 1e-30, 1e30
    for kind, given in (("cumprod", [x]), ("linear_recurrence", [x, np.zeros_like(x)])):
        routine = GridRunning(kind, dtypes.float32, 1, n, 1)
        assert isinstance(routine.stages[0], LineStage)
        assert np.isfinite(EmulatedRoutine(routine).both(*given)[0]).all()


def test_negative_zeros_and_infinities():
    zeros = np.full((2, 200, 1), -0.0, np.float32)
    for kind in ("cumsum", "cummax", "cummin"):
        made = EmulatedRoutine(GridRunning(kind, dtypes.float32, 2, 200, 1)).both(zeros)[0]
        assert np.signbit(made).all()
    x = np.zeros((1, 300, 1), np.float32)
    x[0, 0], x[0, 100], x[0, 200] = -np.inf, np.inf, np.nan
    (made,) = EmulatedRoutine(GridRunning("logcumsumexp", dtypes.float32, 1, 300, 1)).both(x)
    line = made[0, :, 0]
    assert line[0] == -np.inf and np.isfinite(line[1:100]).all()
    assert (line[100:200] == np.inf).all() and np.isnan(line[200:]).all()


# -- planted faults --------------------------------------------------------------------------


def is_right(run: EmulatedRoutine, x: np.ndarray) -> bool:
    want = np.cumsum(x, 1, x.dtype)
    try:
        return all(np.array_equal(run.run(x, down=d)[0], want) for d in (False, True))
    except AccessOutside:
        return False


def sums(n: int) -> tuple[GridRunning, np.ndarray]:
    x = np.random.default_rng(0).integers(-9, 9, (2, n, 1)).astype(np.int32)
    return GridRunning("cumsum", dtypes.int32, 2, n, 1), x


@pytest.mark.parametrize(("n", "barriers"), [(2500, [2]), (9000, [2, 3])])
def test_each_barrier_missing_shows(n, barriers):
    routine, x = sums(n)
    whole = EmulatedRoutine(routine)
    assert is_right(whole, x) and [stage.barriers for stage in whole.stages] == barriers
    for stage, count in enumerate(barriers):
        for k in range(count):
            assert not is_right(EmulatedRoutine(routine, faults={stage: {k}}), x), (stage, k)


def test_a_wrong_order_shows(monkeypatch):
    routine, x = sums(2500)
    exchange = scans.exchange_number
    monkeypatch.setattr(scans, "exchange_number", lambda m, v, d: exchange(m, v, d ^ 3 or 1))
    assert not is_right(EmulatedRoutine(routine, shared=False), x)


def test_a_line_too_long_shows(monkeypatch):
    routine, x = sums(2500)
    monkeypatch.setattr(PartStage, "lanes", 16)
    assert not is_right(EmulatedRoutine(routine, shared=False), x)
