"""Products of matrices in pieces, beside NumPy's own."""

import numpy as np
import pytest

from weft.backend.numpy import namespace as xp
from weft.backend.numpy import products
from weft.backend.shared import threads

rng = np.random.default_rng(0)


def rounding(terms: int, dtype: type) -> float:
    """What sums of products may be off by, relative to the sum of magnitudes.

    Each part of a complex product is two products.
    """
    return float(np.finfo(dtype).eps * np.sqrt(2 * terms if dtype == np.complex64 else terms))


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
    scale = np.abs(a).astype(np.float64) @ np.abs(b) * rounding(k, dtype)
    y = products.product(a, b)
    assert y.dtype == dtype and y.base is None
    assert (np.abs(y - expected) <= scale + 1e-30).all()
    error = np.abs(products.product(a, b, bias) - (expected + bias))
    assert (error <= scale + np.finfo(dtype).eps * np.abs(expected + bias) + 1e-30).all()


def test_whole_numbers_stay_whole():
    a = rng.integers(-9, 9, (300, 300))
    np.testing.assert_array_equal(products.product(a, a), a @ a)
    expected = a @ a, a.T @ a, a.sum(0)
    assert all(map(np.array_equal, products.gradients(a, a, a), expected))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("sizes", [(700, 90, 100), (2, 1500, 1500), (1, 2100, 2100), (5, 3, 2)])
def test_gradients_of_a_linear_layer(sizes, dtype):
    n, m, k = sizes
    g, x, w = normal(n, m, dtype=dtype), normal(n, k, dtype=dtype), normal(m, k, dtype=dtype)
    wide = np.promote_types(dtype, np.float64)
    ones = np.ones((n, 1))
    for found, a, b in zip(products.gradients(g, x, w), (g, g.T, g.T), (w, x, ones), strict=True):
        expected = a.astype(wide) @ b.astype(wide)
        bound = np.abs(a).astype(np.float64) @ np.abs(b) * rounding(a.shape[1], dtype)
        assert found.dtype == dtype and found.base is None
        assert (np.abs(found.reshape(expected.shape) - expected) <= bound).all()


@pytest.mark.parametrize("length", [1, 2, 3, 5, 257, 1024, 100_000])
def test_pieces_are_all_of_it_once(length):
    for work in (products.LARGE, products.PIECE, 1 << 40):
        pieces = products._pieces(length, work)
        assert [i for p in pieces for i in range(*p.indices(length))] == list(range(length))
        assert all(p.start < p.stop for p in pieces)


def test_the_number_of_threads_does_not_show(monkeypatch):
    x, w, b = normal(1000, 90), normal(120, 90), normal(120)
    g = normal(1000, 120)

    def found(cores):
        monkeypatch.setattr(threads, "cores", lambda: cores)
        return xp.linear(x, w, b), xp.matmul(g, w), xp.matmul(g.T, x), *xp.linear_gradient(g, x, w)

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
