"""NumPy kernels that take another way for large arrays, or for short ones, against plain NumPy."""

import math

import numpy as np
import pytest
from scipy import special

from weft.backend.numpy import namespace as xp

SIZES = (5, 100, 5000, 100_003)
EDGES = {"ordinary": None, "zero": 0.0, "negative zero": -0.0, "NaN": np.nan, "infinite": -np.inf}


def normal(n, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(n).astype(dtype)


def with_edge(x, edge):
    if edge is not None:
        x[len(x) // 2] = edge
    return x


@pytest.mark.parametrize("edge", EDGES.values(), ids=EDGES)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sign_product(n, edge, dtype):
    t, x = normal(n, dtype), with_edge(normal(n, dtype, 1), edge)
    np.testing.assert_array_equal(xp.sign_product(t, x, np.abs(x)), t * np.sign(x))


def test_sign_product_of_strided_and_broadcast_arguments():
    x = normal(20_000)[::2]
    for t in (normal(20_000, seed=1)[::2], np.float32(2), np.broadcast_to(np.float32(3), x.shape)):
        np.testing.assert_array_equal(xp.sign_product(t, x, np.abs(x)), t * np.sign(x))


@pytest.mark.parametrize("n", SIZES)
def test_gate(n):
    t, mask = with_edge(normal(n), np.nan), normal(n, seed=1) > 0
    np.testing.assert_array_equal(xp.gate(t, mask), t * mask)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("tied", [False, True])
def test_tie_share(n, tied):
    a, b = normal(n), normal(n, seed=1)
    if tied:
        a[: n // 2] = b[: n // 2]
    expected = np.where(a == b, 0.5, a > b)
    share = xp.tie_share(a, b)
    assert share.dtype == np.float32
    np.testing.assert_array_equal(share, expected)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_expit(n, dtype):
    x, kind = 30 * normal(n, dtype), np.finfo(dtype)
    x[:2] = -1e4, 1e4  # the exponential overflows, which nobody needs to hear of
    np.testing.assert_allclose(
        xp.expit(x), special.expit(x.astype(np.float64)), rtol=4 * kind.eps, atol=kind.tiny
    )


@pytest.mark.parametrize("n", (*SIZES, 16_384, 17_407))
@pytest.mark.parametrize("keepdims", [False, True])
def test_sum_of_a_line(n, keepdims):
    x = np.abs(normal(n))
    total = np.asarray(xp.sum(x, (0,), keepdims))
    assert total.shape == ((1,) if keepdims else ())
    np.testing.assert_allclose(total.item(), math.fsum(x.tolist()), rtol=1e-6)


@pytest.mark.parametrize("n", SIZES)
def test_exponentials_of_a_line(n):
    x = 3 * normal(n)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(xp.softmax(x, 0), special.softmax(wide), rtol=1e-5)
    y = np.asarray(xp.logsumexp(x, (0,), False))
    np.testing.assert_allclose(y, special.logsumexp(wide), rtol=1e-6)
    np.testing.assert_allclose(xp.shares(x, (0,)), special.softmax(wide), rtol=1e-5)


@pytest.mark.parametrize("n", (5, 5000))
def test_exponentials_of_infinities(n):
    nothing = np.full(n, -np.inf, np.float32)
    y = np.asarray(xp.logsumexp(nothing, (0,), False))
    assert y == -np.inf
    np.testing.assert_array_equal(xp.shares(nothing, (0,)), np.zeros(n))
    one = nothing.copy()
    one[2] = 1.0
    np.testing.assert_array_equal(xp.softmax(one, 0), np.arange(n) == 2)
    np.testing.assert_array_equal(xp.shares(one, (0,)), np.arange(n) == 2)


@pytest.mark.parametrize("axes", [(), (0,), (1,), (0, 2), (-1,)])
def test_flip(axes):
    x = np.arange(24).reshape(2, 3, 4)
    np.testing.assert_array_equal(xp.flip(x, axes), np.flip(x, axes))


@pytest.mark.parametrize("n", SIZES)
def test_extreme_share_over_everything(n):
    x = normal(n)
    x[[1, 3]] = 9.0
    share = xp.extreme_share(x, np.max(x), (0,))
    np.testing.assert_array_equal(np.flatnonzero(share), [1, 3])
    np.testing.assert_array_equal(share[[1, 3]], [0.5, 0.5])


def test_quietly_restores_the_reactions():
    def divide(a, b):
        assert np.geterr()["divide"] == "ignore"
        return np.divide(a, b)

    with np.errstate(all="raise"):
        assert xp.quietly(divide, 1.0, 0.0) == np.inf
        assert np.geterr()["divide"] == "raise"
        with pytest.raises(TypeError):
            xp.quietly(divide, 1.0)
        assert np.geterr()["divide"] == "raise"


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_where(n, dtype):
    a, b, c = normal(n, dtype), with_edge(normal(n, dtype, 1), np.nan), normal(n, seed=2) > 0
    for left, right in ((a, b), (b, 0), (0, b), (b, 0.0), (-0.0, b), (2.0, b), (a[:1], b)):
        chosen = xp.where(c, left, right)
        expected = np.where(c, np.asarray(left, dtype), np.asarray(right, dtype))
        np.testing.assert_array_equal(chosen, expected)
        np.testing.assert_array_equal(np.signbit(chosen), np.signbit(expected))
        assert chosen.dtype == dtype
    column = np.array([[True], [False]])
    np.testing.assert_array_equal(xp.where(column, b, 0), np.where(column, b, 0))


@pytest.mark.parametrize("shape", [(3, 4, 500), (32, 5, 40, 25), (200, 8, 16, 30), (2, 2, 2, 2, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_sum_over_images_and_places(shape, keepdims):
    x = np.abs(normal(shape))
    axes = (0, *range(2, len(shape)))
    wide = np.add.reduce(x, axes, np.float64, keepdims=keepdims)
    np.testing.assert_allclose(xp.sum(x, axes, keepdims), wide, rtol=1e-5)
    assert xp.sum(x, axes, keepdims).shape == wide.shape


@pytest.mark.parametrize("n", (*SIZES, 700_001))
def test_relu(n):
    x = with_edge(normal(n), np.nan)
    np.testing.assert_array_equal(xp.relu(x), np.maximum(x, 0))
    np.testing.assert_array_equal(xp.relu(x[::2]), np.maximum(x[::2], 0))
