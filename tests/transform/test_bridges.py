"""Weft functions inside PyTorch's and JAX's differentiation."""

import numpy as np
import pytest
import torch

import weft as wf


def f(x, y):
    return wf.tanh(x * y).sum(axis=0), (x**3).sum()


def reference(x, y):
    return torch.tanh(x * y).sum(0), (x**3).sum()


def inputs():
    rng = np.random.default_rng(0)
    return [torch.tensor(rng.normal(size=s), requires_grad=True) for s in ((4, 3), (3,))]


def test_to_torch_first_order():
    ours, theirs = inputs(), inputs()
    for g, args in ((wf.to_torch(f), ours), (reference, theirs)):
        a, b = g(*args)
        ((a * a).sum() + 2 * b).backward()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-12, atol=1e-12)


def test_to_torch_passes_gradgradcheck():
    bridged = wf.to_torch(lambda x, y: wf.exp(x) * wf.sin(y))
    x, y = (torch.rand(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(bridged, (x, y))
    assert torch.autograd.gradgradcheck(bridged, (x, y))


def test_to_torch_with_other_arguments():
    bridged = wf.to_torch(lambda x, power, i: x[i] ** power)
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    bridged(x, 2, torch.tensor([0, 2])).sum().backward()
    assert x.grad.tolist() == [2.0, 0.0, 6.0]


def test_to_torch_unused_argument():
    x, y = inputs()
    wf.to_torch(lambda x, y: (x * x).sum())(x, y).backward()
    assert y.grad is None or not y.grad.any()


jax = pytest.importorskip("jax", reason="the test extra installs JAX")


def test_to_jax_gradients():
    jax.config.update("jax_enable_x64", True)
    x, y = (t.detach().numpy() for t in inputs())

    def loss(g):
        def of(x, y):
            a, b = g(x, y)
            return (a * a).sum() + 2 * b

        return of

    jnp = jax.numpy
    ours = jax.grad(loss(wf.to_jax(f)), (0, 1))(x, y)
    theirs = jax.grad(loss(lambda x, y: (jnp.tanh(x * y).sum(0), (x**3).sum())), (0, 1))(x, y)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    compiled = jax.jit(jax.grad(loss(wf.to_jax(f)), (0, 1)))(x, y)
    np.testing.assert_allclose(compiled[0], ours[0], rtol=1e-14)


def test_to_jax_second_order():
    jax.config.update("jax_enable_x64", True)
    cube = wf.to_jax(lambda x: (x**3).sum())
    assert float(jax.grad(jax.grad(cube))(2.0)) == 12.0
