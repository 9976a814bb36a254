"""Conversions: to the bit what NumPy and ml_dtypes make of them."""

import numpy as np
import pytest

from weft.core import dtypes

from ..kernels import of_row


def cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return of_row("cast", (x,), (dtype,), dtype)


@pytest.fixture(autouse=True)
def quiet():
    """NumPy warns of NaN and overflow, which these tests mean."""
    with np.errstate(all="ignore"):
        yield


def same(got: np.ndarray, want: np.ndarray) -> None:
    nan = np.isnan(want.astype(np.float64))
    assert (np.isnan(got.astype(np.float64)) == nan).all()
    bits = np.dtype(f"i{want.itemsize}")
    np.testing.assert_array_equal(got.view(bits)[~nan], want.view(bits)[~nan])


@pytest.mark.parametrize("half", dtypes.HALF, ids=str)
def test_every_half_number_is_read_and_written(half):
    x = np.arange(65536, dtype=np.uint16).view(half)
    x = x[~np.isnan(x)]
    same(cast(x, dtypes.float32), x.astype(np.float32))
    same(cast(x, dtypes.float64), x.astype(np.float64))
    same(cast(x.astype(np.float32), half), x)


@pytest.mark.parametrize("half", dtypes.HALF, ids=str)
@pytest.mark.parametrize("source", [dtypes.float32, dtypes.float64], ids=str)
def test_ties_between_half_numbers_go_to_even(source, half):
    x = np.arange(65536, dtype=np.uint16).view(half).astype(source)
    x = np.unique(x[np.isfinite(x)])
    middle = x[1:] / 2 + x[:-1] / 2
    for values in (middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf)):
        same(cast(values, half), values.astype(half))


@pytest.mark.parametrize("target", (dtypes.bool_, *dtypes.SIGNED, *dtypes.UNSIGNED), ids=str)
@pytest.mark.parametrize("source", dtypes.REAL, ids=str)
def test_floats_are_cut_to_integers(source, target):
    top = 2.0 ** min(8 * target.itemsize - 1, 15) - 1
    low = -top if target.kind == "i" else 0.0
    x = np.random.default_rng(0).uniform(low, top, 100).astype(source)
    x = x[x.astype(np.float64) <= top]
    np.testing.assert_array_equal(cast(x, target), x.astype(np.float64).astype(target))


def test_large_floats_are_cut_to_wide_integers():
    x = np.array([2.0**63, 2.0**63 + 2**20, 1.8e19, 3.5, 0.0])
    np.testing.assert_array_equal(cast(x, dtypes.uint64), x.astype(np.uint64))
    np.testing.assert_array_equal(cast(-x[2:] / 2, dtypes.int64), (-x[2:] / 2).astype(np.int64))


@pytest.mark.parametrize("target", dtypes.REAL, ids=str)
@pytest.mark.parametrize("source", (*dtypes.SIGNED, *dtypes.UNSIGNED), ids=str)
def test_integers_become_floats(source, target):
    info = np.iinfo(source)
    x = np.random.default_rng(0).integers(info.min, info.max, 200, source, endpoint=True)
    got, want = cast(x, target), x.astype(target)
    if source.itemsize <= 2 or target not in dtypes.HALF:
        same(got, want)
    else:  # by way of float64 here, of float32 there: at most the last bit
        bits = got.view(np.int16).astype(int) - want.view(np.int16)
        assert np.abs(bits).max() <= 1
