"""Products and sums of half types accumulate in float32, on both backends."""

import time

import numpy as np
import pytest

import weft as wf

from .devices import DEVICES, host

HALF = ["float16", "bfloat16"]
F = wf.nn.functional


def drawn(rng, shape, dtype, device):
    return wf.tensor(rng.standard_normal(shape), dtype=dtype, device=device)


def exactly(f, *args):
    """f in float64, rounded once."""
    return f(*[a.to("float64") for a in args]).to(args[0].dtype)


def one_rounding(found, expected, dtype, length: int) -> None:
    """Within a rounding of the half type, and what float32 loses over sums of that length."""
    half = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    x, y = host(found.to("float64")), host(expected.to("float64"))
    scale = np.abs(y).max()
    assert np.abs(x - y).max() <= (2 * half + length * 2.0**-24) * scale


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize(
    ("shapes", "f"),
    [
        (((3, 4000), (4000, 5)), lambda a, b: a @ b),
        (((2, 3, 4000), (4000, 5)), lambda a, b: a @ b),
        (((2, 3, 4000), (2, 4000, 5)), lambda a, b: a @ b),
        (((4000,), (4000,)), lambda a, b: a @ b),
        (((3, 4000), (4000, 5)), lambda a, b: wf.einsum("ij,jk->ki", a, b)),
        (((3, 4000), (5, 4000), (5,)), lambda x, w, b: F.linear(x, w, b)),
        (((1, 40, 10, 10), (2, 40, 7, 7)), lambda x, w: F.conv2d(x, w)),
        (((1, 1, 3, 64), (1, 1, 900, 64)), lambda q, k: F.scaled_dot_product_attention(q, k, k)),
        (((4000, 3),), lambda x: x.sum(0)),
        (((4000, 3),), lambda x: (x * x).mean(0)),
        (((4000, 3),), lambda x: wf.linalg.vector_norm(x, axis=0)),
        (((4000, 3),), lambda x: wf.softmax(x, 0)),
        (((3, 4000),), lambda x: F.layer_norm(x, (4000,))),
    ],
)
def test_one_rounding_in_all(shapes, f, dtype, device):
    rng = np.random.default_rng(0)
    args = [drawn(rng, s, dtype, device) for s in shapes]
    one_rounding(f(*args), exactly(f, *args), dtype, 4000)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", HALF)
def test_sums_do_not_stall(dtype, device):
    """In a half type adding ones ends at 2048 or 256."""
    ones = wf.ones(10000, dtype=dtype, device=device)
    assert ones.sum().item() == pytest.approx(10000, rel=2**-8)
    assert (ones @ ones).item() == pytest.approx(10000, rel=2**-8)
    assert wf.cumsum(ones)[-1].item() == pytest.approx(10000, rel=2**-8)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", HALF)
def test_gradients_of_a_shared_weight_accumulate_in_float32(dtype, device):
    rng = np.random.default_rng(1)
    x = drawn(rng, (4000, 3), "float32", device)
    w = wf.ones((2, 3), device=device, requires_grad=True)
    b = wf.zeros(2, device=device, requires_grad=True)
    with wf.amp.autocast(dtype):
        loss = F.linear(x, w, b).sum()
    grads = loss.backward()
    expected = host(x.to(dtype).to("float64").sum(0))
    eps = {"float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    scale = np.abs(expected).max()
    np.testing.assert_allclose(host(grads[w]), [expected, expected], rtol=0, atol=eps * scale)
    assert grads[b].tolist() == pytest.approx([4000.0, 4000.0], rel=eps)


@pytest.mark.parametrize("dtype", HALF)
def test_a_product_on_numpy_is_blas_and_casts(dtype):
    """Element by element it would take hundreds of times as long as the product in float32."""
    x = wf.tensor(np.random.default_rng(2).standard_normal((384, 384)), dtype="float32")
    y = x.to(dtype)

    def seconds(a):
        best = 1.0
        for _ in range(5):
            start = time.perf_counter()
            a @ a
            best = min(best, time.perf_counter() - start)
        return best

    assert seconds(y) < 12 * seconds(x) + 2e-3
