"""Max pooling on a GPU, against NumPy's kernels: every bit, wherever taps are."""

import numpy as np
import pytest
from tests.backend.torch.test_pools import values, window

from weft.backend.numpy import pool
from weft.compiler.cuda.routines import pools
from weft.compiler.cuda.routines.pools import GridMaxPool, GridPoolPut
from weft.core import dtypes

from .staged import EmulatedRoutine, seeds

DTYPES = (dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.float16)


def swapped(x: np.ndarray, last: bool) -> np.ndarray:
    """(images, channels, sizes), or channels last; contiguous."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1) if last else x)


def case(seed):
    """Shapes, windows that begin before the array or with it, and whether channels are last."""
    rng = np.random.default_rng(seed)
    size, kernel, stride, padding, dilation = window(rng, 1 + seed % 2)
    padding = tuple((max(a, 0), b + min(a, 0)) for a, b in padding)
    lead = tuple(rng.integers(1, 5, 2).tolist())
    how = kernel, stride, padding, dilation
    return rng, lead, size, how, bool(rng.integers(2))


@pytest.mark.parametrize("seed", seeds(60))
def test_random_windows(seed):
    rng, lead, size, how, last = case(seed)
    dtype = DTYPES[rng.integers(4)]
    x = values(rng, (*lead, *size), ("plain", "inf", "nan", "nothing")[rng.integers(4)])
    want, numbers = pool.max_pool(x, *how)
    shapes = [swapped(a, last).shape for a in (x, want)]
    found = pools._windows("_last" if last else "", *shapes, how)
    y, taps = EmulatedRoutine(GridMaxPool(dtype, numbers.dtype, found), 8).both(
        swapped(x.astype(dtype), last)
    )
    np.testing.assert_array_equal(y.astype("float64").reshape(shapes[1]), swapped(want, last))
    np.testing.assert_array_equal(taps.reshape(shapes[1]), swapped(numbers, last))

    taps = rng.integers(0, int(np.prod(how[0])), want.shape).astype(numbers.dtype)
    g = rng.integers(-8, 9, want.shape).astype("float64")
    for chosen in (taps, numbers):
        given = swapped(g.astype(dtype), last), swapped(chosen, last)
        (put,) = EmulatedRoutine(GridPoolPut(dtype, numbers.dtype, found), 8).both(*given)
        back = swapped(pool.pool_put(g, chosen, *how), last)
        np.testing.assert_array_equal(put.astype("float64").reshape(shapes[0]), back)


def test_sums_are_rounded_once():
    """All windows of one element put numbers there; half types are summed in float32."""
    how = (3,), (1,), ((0, 0),), (1,)
    g, taps = np.array([[[1.0, 2.0**-9, 2.0**-9]]]), np.array([[[2, 1, 0]]], np.uint8)
    found = pools._windows("", (1, 1, 5), (1, 1, 3), how)
    (put,) = EmulatedRoutine(GridPoolPut(dtypes.bfloat16, taps.dtype, found)).both(
        g.astype(dtypes.bfloat16), taps
    )
    want = np.float32(1 + 2.0**-8).astype(dtypes.bfloat16)
    assert put.reshape(-1)[2] == want


def test_what_has_no_code():
    def why(shape, pooled, *how):
        return pools._windows("", shape, pooled, how)

    assert "nothing" in why((0, 4), (0, 2), (2,), (2,), ((0, 0),), (1,))
    assert "large" in why((8, 8), (1, 1), (8, 8), (1, 1), ((0, 0),) * 2, (1, 1))
    assert "begin" in why((5,), (4,), (1,), (1,), ((-1, 0),), (1,))
