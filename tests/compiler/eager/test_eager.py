"""Eager kernels that are compiled for large arrays: beside PyTorch and SciPy, in any layout."""

import numpy as np
import pytest
import torch
from scipy import special

import weft as wf
from weft.backend.numpy import activate as numpy_activate
from weft.backend.numpy import namespace as xp
from weft.backend.numpy import neural as numpy_neural
from weft.backend.shared import threads
from weft.compiler.eager import kernels as eager
from weft.compiler.eager.flat import FlatKernel

F, T = wf.nn.functional, torch.nn.functional
rng = np.random.default_rng(0)
EXACT = {
    "gelu": lambda x: x * special.ndtr(x),
    "gelu_slope": lambda x: special.ndtr(x) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi),
    "silu": lambda x: x * special.expit(x),
    "softplus": lambda x: np.logaddexp(0, x),
}


@pytest.fixture
def made(monkeypatch):
    """The arrays that kernels were given."""
    seen, run, over = [], eager._run, FlatKernel.over
    monkeypatch.setattr(eager, "_run", lambda *args: seen.append(args[1]) or run(*args))
    monkeypatch.setattr(
        FlatKernel, "over", lambda self, given: seen.append(given) or over(self, given)
    )
    return seen


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [eager.LARGE, eager.LARGE + 5, eager.SHARED + 3])
@pytest.mark.parametrize("name", EXACT)
def test_activations(name, size, dtype, made):
    x = normal(size, dtype=dtype) * 3
    y = getattr(xp, name)(x)
    assert made and y.dtype == dtype and y.shape == x.shape
    x = x.astype(np.float64)
    expected = EXACT[name](x)
    # exp(-x²/2) has the rounding of x², here as in SciPy; the slope is a sum with terms of xφ(x).
    terms = np.abs(expected) + np.abs(x) * np.exp(-x * x / 2)
    info = np.finfo(dtype)
    assert (np.abs(y - expected) <= info.eps * (8 + 2 * x * x) * terms + info.tiny).all()


@pytest.mark.parametrize("name", eager.ACTIVATIONS)
def test_as_the_kernels_for_small_arrays(name):
    x = normal(eager.LARGE + 1)
    small = getattr(numpy_activate, name)(x)
    np.testing.assert_allclose(getattr(xp, name)(x), small, rtol=1e-5, atol=4e-6)


def test_layouts_and_dtypes(made):
    x = normal(300, 500)
    for view in (x.T, x[:, ::-1], np.asfortranarray(x), x[None]):
        np.testing.assert_array_equal(xp.gelu(view), xp.gelu(np.ascontiguousarray(view)))
    assert made
    made.clear()
    assert xp.gelu(x.astype(np.float16)).dtype == np.float16
    assert xp.gelu(x[:10]).shape == (10, 500)
    assert not made  # half types and small arrays are left to NumPy


def beside(ours, theirs, arrays, size):
    """Values and gradients beside float64, with the rounding of sums of so many terms.

    Gradients of weights are sums of one term of each row, about as large as 1.
    """
    mine = [wf.tensor(a, requires_grad=True) for a in arrays]
    yours = [torch.tensor(a, requires_grad=True, dtype=torch.float64) for a in arrays]
    y, z = ours(*mine), theirs(*yours)
    seed = normal(*y.shape).astype(arrays[0].dtype)
    grads = (y * wf.tensor(seed)).sum().backward()
    (z * torch.tensor(seed)).sum().backward()
    slopes = [(grads[a], b.grad) for a, b in zip(mine, yours, strict=True)]
    pairs = [(y.detach(), z.detach()), *slopes]
    for a, b in pairs:
        scale = max(size * max(np.abs(b.numpy()).max(), 1), 4 * y.size / a.size)
        bound = np.finfo(arrays[0].dtype).eps * scale
        assert a.dtype == arrays[0].dtype
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=0, atol=bound)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(700, 100), (5, 140, 8, 17), (eager.LARGE, 3), (1, eager.LARGE)])
@pytest.mark.parametrize("axes", [1, 2])
def test_layer_norm(shape, axes, dtype, made):
    last = shape[-axes:]
    arrays = normal(*shape, dtype=dtype), normal(*last, dtype=dtype), normal(*last, dtype=dtype)
    beside(
        lambda x, w, b: F.layer_norm(x, last, w, b, eps=1e-3),
        lambda x, w, b: T.layer_norm(x, last, w, b, eps=1e-3),
        arrays,
        64,
    )
    assert len(made) == 2 * (np.prod(last) >= eager.LINE)  # there and back


def test_layer_norm_of_other_dtypes_and_layouts(made):
    x, w = normal(64, 2048), normal(2048)
    results = numpy_neural.layer_norm(x, w, w, 1e-5, x.dtype)
    for view in (np.asfortranarray(x), np.repeat(x, 2, 0)[::2]):
        for a, b in zip(xp.layer_norm(view, w, w, 1e-5, x.dtype), results, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert made
    made.clear()
    half = xp.layer_norm(*(a.astype(np.float16) for a in (x, w, w)), 1e-5, np.dtype(np.float32))
    assert [a.dtype.itemsize for a in half] == [2, 2, 4] and not made


def test_the_number_of_threads_does_not_show(monkeypatch):
    x, w = normal(3000, 200), normal(200)

    def found(cores):
        monkeypatch.setattr(threads, "cores", lambda: cores)
        out, y, variance = xp.layer_norm(x, w, w, 1e-5, x.dtype)
        return xp.gelu(x), out, y, variance, *xp.layer_norm_gradient(out, y, variance, w, 1e-5)

    once = found(1)
    for cores in (2, 5):
        assert all(map(np.array_equal, once, found(cores)))
