"""Products of matrices in pieces, beside NumPy's own."""

import numpy as np
import pytest

from weft.backend import numpy_ as xp
from weft.backend import products, threads

rng = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype == np.complex64 else x).astype(dtype)


LAYOUTS = {
    "rows": lambda m, n, dtype: normal(m, n, dtype=dtype),
    "columns": lambda m, n, dtype: normal(n, m, dtype=dtype).T,
    "every other": lambda m, n, dtype: normal(m, 2 * n, dtype=dtype)[:, ::2],
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("left", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("sizes", [(700, 130, 100), (130, 700, 100), (1, 3000, 3000), (3, 9, 2)])
def test_products(left, right, sizes, dtype):
    m, k, n = sizes
    a, b, bias = left(m, k, dtype), right(k, n, dtype), normal(n, dtype=dtype)
    wide = np.promote_types(dtype, np.float64)
    expected = a.astype(wide) @ b.astype(wide)
    scale = np.abs(a).astype(np.float64) @ np.abs(b) * np.finfo(dtype).eps * np.sqrt(k)
    y = products.product(a, b)
    assert y.dtype == dtype and y.base is None
    assert (np.abs(y - expected) <= scale + 1e-30).all()
    error = np.abs(products.product(a, b, bias) - (expected + bias))
    assert (error <= scale + np.finfo(dtype).eps * np.abs(expected + bias) + 1e-30).all()


def test_whole_numbers_stay_whole():
    a = rng.integers(-9, 9, (300, 300))
    np.testing.assert_array_equal(products.product(a, a), a @ a)


def test_the_number_of_threads_does_not_show(monkeypatch):
    x, w, b = normal(1000, 90), normal(120, 90), normal(120)
    g = normal(1000, 120)

    def found(cores):
        monkeypatch.setattr(threads, "cores", lambda: cores)
        return xp.linear(x, w, b), xp.matmul(g, w), xp.matmul(g.T, x)

    once = found(1)
    for cores in (2, 3, 8):
        assert all(map(np.array_equal, once, found(cores)))


def test_large_products_leave_the_threads_of_blas_asleep(monkeypatch):
    """All of them are shared, none is handed to BLAS while it has its threads."""
    shared = []
    share = threads.share
    monkeypatch.setattr(threads, "share", lambda *args: shared.append(1) or share(*args))
    for a, b in ((normal(512, 128), normal(128, 128)), (normal(128, 512).T, normal(128, 300))):
        shared.clear()
        products.product(a, b)
        assert shared == [1]
