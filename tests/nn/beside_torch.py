"""The same call of a functional in Weft and in PyTorch: values, indices and gradients."""

import numpy as np
import torch

import weft as wf


def compare(name: str, *args, device: str = "cpu", rtol: float = 1e-11, **options) -> None:
    """Call a functional of both libraries with float64 arrays and demand the same of both."""
    ours = [_leaf(a, device) for a in args]
    theirs = [torch.tensor(a, requires_grad=True) if _array(a) else a for a in args]
    y = getattr(wf.nn.functional, name)(*ours, **options)
    z = getattr(torch.nn.functional, name)(*theirs, **options)
    if isinstance(z, tuple):
        np.testing.assert_array_equal(y[1].numpy(), z[1].numpy())
        assert y[1].dtype == wf.int64
        y, z = y[0], z[0]
    expected = z.detach().numpy()
    close(y.detach().numpy(), expected, rtol)
    seed = np.random.default_rng(3).standard_normal(expected.shape)
    grads = y.backward(wf.tensor(seed, device=device))
    z.backward(torch.tensor(seed))
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(b, torch.Tensor):
            close(grads[a].numpy(), b.grad.numpy(), rtol)


def close(found, expected, rtol: float) -> None:
    """Sums of products: the error is relative to the largest of them."""
    assert found.shape == expected.shape
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=1.0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=rtol * scale)


def _array(a) -> bool:
    return isinstance(a, np.ndarray)


def _leaf(a, device: str):
    return wf.tensor(a, requires_grad=True, device=device) if _array(a) else a
