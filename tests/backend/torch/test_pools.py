"""The pooling rows on PyTorch's arrays: values, taps and sums are those of NumPy's kernels."""

import numpy as np
import pytest

from weft.backend.numpy import pool as by_numpy
from weft.backend.shared.window_sizes import counts_of, tap_dtype

torch = pytest.importorskip("torch")
from weft.backend.torch import pool as by_torch  # noqa: E402

DTYPES = ("float32", "float64", "float16", "bfloat16")
DEVICES = ("cpu", *(("cuda",) if torch.cuda.is_available() else ()))


def window(rng, axes):
    """Sizes, and how windows slide: padding may be negative, or more than half a window."""
    found = []
    while len(found) < axes:
        n, k, s, d = (int(rng.integers(1, top)) for top in (9, 5, 4, 3))
        a, extent = int(rng.integers(-1, k + 1)), d * (k - 1) + 1
        steps = int(rng.integers(0, 4))
        b = steps * s + extent - n - a
        if n + min(a, 0) + min(b, 0) > 0 and abs(b) <= k + s:
            found.append((n, k, s, (a, b), d))
    return tuple(zip(*found, strict=True))


def values(rng, shape, kind):
    """Few different numbers, so that many are equal; some infinities, some NaN."""
    x = rng.integers(-3, 4, shape).astype("float64") / 2
    if kind != "plain":
        odd = [np.inf, -np.inf, -np.inf] + [np.nan] * (kind == "nan")
        x = np.where(rng.random(shape) < 0.4, rng.choice(odd, shape), x)
    return np.full(shape, -np.inf) if kind == "nothing" else x


def turned(x, rng):
    """The same tensor, its memory in channels-last order or behind a stride."""
    if x.ndim == 4 and rng.random() < 0.5:
        return x.contiguous(memory_format=torch.channels_last)
    return x.repeat_interleave(2, 0)[::2] if x.ndim and rng.random() < 0.3 else x


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", range(200))
def test_random_windows(seed, device):
    rng = np.random.default_rng(seed)
    axes = 1 + seed % 3
    size, kernel, stride, padding, dilation = window(rng, axes)
    lead = tuple(rng.integers(0 if seed % 10 == 0 else 1, 4, int(rng.integers(0, 4))).tolist())
    how = (kernel, stride, padding, dilation)
    counts = counts_of(size, *how)
    name = DTYPES[int(rng.integers(len(DTYPES)))]
    kind = ("plain", "inf", "nan", "nothing")[int(rng.integers(4))]
    x = values(rng, (*lead, *size), kind)
    given = turned(torch.tensor(x, dtype=getattr(torch, name), device=device), rng)

    y, taps = by_torch.max_pool(given, *how)
    want, want_taps = by_numpy.max_pool(x, *how)
    assert y.dtype is given.dtype and taps.cpu().numpy().dtype == tap_dtype(kernel)
    np.testing.assert_array_equal(y.double().cpu().numpy(), want)
    np.testing.assert_array_equal(taps.cpu().numpy(), want_taps)

    other = rng.integers(0, int(np.prod(kernel)), (*lead, *counts)).astype(want_taps.dtype)
    both = turned(torch.tensor(other, device=device), rng)
    np.testing.assert_array_equal(
        by_torch.pool_pick(given, both, *how).double().cpu().numpy(),
        by_numpy.pool_pick(x, other, *how),
    )
    g = rng.integers(-8, 9, (*lead, *counts)).astype("float64")
    cotangent = turned(torch.tensor(g, dtype=given.dtype, device=device), rng)
    for t, n in ((both, other), (taps, want_taps)):
        put = by_torch.pool_put(cotangent, t, *how)
        assert put.dtype is given.dtype
        np.testing.assert_array_equal(put.double().cpu().numpy(), by_numpy.pool_put(g, n, *how))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", range(120))
def test_random_sums(seed, device):
    rng = np.random.default_rng(seed)
    size, kernel, stride, padding, dilation = window(rng, 1 + seed % 3)
    size = tuple(n - (d - 1) * (k - 1) for n, k, d in zip(size, kernel, dilation, strict=True))
    if min(size) < 1:
        return
    lead = tuple(rng.integers(0 if seed % 10 == 0 else 1, 4, int(rng.integers(0, 4))).tolist())
    how = (kernel, stride, padding)
    counts = counts_of(size, *how, (1,) * len(size))
    dtype = getattr(torch, DTYPES[int(rng.integers(len(DTYPES)))])
    x = values(rng, (*lead, *size), ("plain", "nan")[seed % 2])
    g = values(rng, (*lead, *counts), "plain")
    for row, given in (("sum_pool", x), ("spread_pool", g)):
        got = getattr(by_torch, row)(
            turned(torch.tensor(given, dtype=dtype, device=device), rng), *how
        )
        assert got.dtype is dtype
        with np.errstate(invalid="ignore"):  # ∞ − ∞
            want = getattr(by_numpy, row)(given, *how)
        np.testing.assert_array_equal(got.double().cpu().numpy(), want)


def test_many_taps():
    """Windows of more than 256 elements have taps of 64 bits."""
    rng = np.random.default_rng(0)
    x, how = rng.normal(size=(2, 3, 20, 19)), ((17, 17), (1, 2), ((8, 8), (0, 0)), (1, 1))
    y, taps = by_torch.max_pool(torch.tensor(x), *how)
    want, numbers = by_numpy.max_pool(x, *how)
    np.testing.assert_array_equal(y.numpy(), want)
    np.testing.assert_array_equal(taps.numpy(), numbers)
    np.testing.assert_allclose(
        by_torch.pool_put(y, taps, *how).numpy(), by_numpy.pool_put(want, numbers, *how)
    )


def test_pools_keep_the_order_of_memory():
    """What lies channels-last stays so, in one call of ATen each way."""
    x = torch.randn(2, 8, 6, 6).contiguous(memory_format=torch.channels_last)
    how = ((3, 3), (2, 2), ((1, 0), (1, 0)), (1, 1))
    y, taps = by_torch.max_pool(x, *how)
    for made in (y, taps, by_torch.pool_put(y, taps, *how), by_torch.sum_pool(x, *how[:3])):
        assert made.is_contiguous(memory_format=torch.channels_last)
