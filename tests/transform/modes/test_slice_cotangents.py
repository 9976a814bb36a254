"""Cotangents of slices, which are added up in the memory of one array."""

from itertools import permutations

import numpy as np
import pytest
import torch

import weft as wf

DEVICES = ("cpu", "torch")
rng = np.random.default_rng(0)


def cubes(parts):
    """A sum in which every part has a cotangent of its own."""
    return sum(((k + 1) * (p * p * p)).sum() for k, p in enumerate(parts))


PROGRAMS = {
    "apart": lambda x: cubes([x[:2], x[2:4], x[4:]]),
    "overlapping": lambda x: cubes([x[:4], x[1:5], x[2], x[2]]),
    "of columns": lambda x: cubes([x[:, :1], x[:, 1:], x[:, 1]]),
    "one": lambda x: cubes([x[1:3]]),
    "with new axes": lambda x: cubes([x[None, 1:], x[..., None, 0]]),
    "beside all of it, before": lambda x: cubes([x, x[1:], x[:2]]),
    "beside all of it, after": lambda x: cubes([x[1:], x[:2], x]),
    "of a result": lambda x: cubes([(x * x)[1:], x]) + cubes([(y := x * x)[0], y[1:3], y]),
    "of slices": lambda x: cubes([x[1:][0], x[1:][1:]]),
    "empty": lambda x: cubes([x[2:2], x[:3]]),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_beside_torch(name, device):
    a = rng.standard_normal((5, 3))
    x, y = wf.tensor(a, requires_grad=True, device=device), torch.tensor(a, requires_grad=True)
    for _ in range(2):  # the second time beside the gradient that is there
        PROGRAMS[name](x).backward()
        PROGRAMS[name](y).backward()
        np.testing.assert_allclose(x.grad.to("cpu").numpy(), y.grad.numpy(), rtol=1e-13)


@pytest.mark.parametrize("device", DEVICES)
def test_backwards(device):
    a = rng.standard_normal((5, 3))
    x = wf.tensor(a, requires_grad=True, device=device)
    grads = cubes([x[::-1], x[3::-2, ::-1], x[1:]]).backward()
    expected = 3 * a * a
    expected[3::-2] += 6 * a[3::-2] ** 2
    expected[1:] += 9 * a[1:] ** 2
    np.testing.assert_allclose(grads[x].to("cpu").numpy(), expected, rtol=1e-13)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_dtypes(dtype):
    x = wf.tensor(rng.standard_normal((4, 2)), dtype=dtype, requires_grad=True)
    grads = (x[:3].real.sum() + (2 * x[1:]).real.sum()).backward()
    assert grads[x].dtype == x.dtype
    np.testing.assert_array_equal(
        grads[x].numpy().real.astype(float), np.repeat([[1.0], [3.0], [3.0], [2.0]], 2, 1)
    )


@pytest.mark.parametrize("device", DEVICES)
def test_an_array_that_others_have_too_is_not_written_to(device):
    x, y = (wf.tensor(np.ones(4), requires_grad=True, device=device) for _ in range(2))
    part = x[1:] * 2.0
    whole = x + y  # one array is the cotangent of both
    grads = (whole.sum() + part.sum()).backward()
    assert grads[x].tolist() == [1, 3, 3, 3] and grads[y].tolist() == [1, 1, 1, 1]


def test_beside_a_cotangent_that_has_a_tangent():
    """A reverse sweep inside forward mode: only some of the cotangents are dual."""
    a = rng.standard_normal(4)

    def f(x, c):
        return (x[1:] * 2.0).sum() + (x * c).sum() + (x[:2] * 3.0).sum()

    def slope(c):
        return wf.grad(f)(wf.tensor(a), c)

    c, t = wf.tensor(rng.standard_normal(4)), wf.tensor(rng.standard_normal(4))
    value, tangent = wf.jvp(slope, (c,), (t,))
    np.testing.assert_allclose(value.numpy(), c.numpy() + np.array([3, 5, 2, 2]))
    np.testing.assert_allclose(tangent.numpy(), t.numpy())


def test_second_derivatives_and_hooks_and_anomalies():
    a = rng.standard_normal((5, 3))
    x = wf.tensor(a)
    wf.check_grads(PROGRAMS["overlapping"], (x,), order=2, modes=("fwd", "rev"))
    x = wf.tensor(a, requires_grad=True)
    y = x * 1.0
    met = []
    y.register_hook(lambda g: met.append(g.numpy().copy()))
    PROGRAMS["overlapping"](y).backward()
    np.testing.assert_array_equal(met[0], x.grad.numpy())
    with wf.detect_anomaly(), pytest.raises(wf.errors.AnomalyError):
        z = wf.tensor(np.zeros(3), requires_grad=True)
        wf.sqrt(z[1:]).sum().backward()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("order", [*permutations(range(4))])
def test_of_numbers(order, device):
    """A 0-d array's cotangents are NumPy's scalars, which cannot be written to."""
    x = wf.tensor(2.0, requires_grad=True, device=device)
    programs = (
        *(lambda: x * 2.0, lambda: x * x),
        *(lambda: x[()] * 8.0, lambda: x[None].sum() * 16.0),
    )
    sum((programs[k]() for k in order), wf.zeros((), device=device)).backward()
    assert x.grad.item() == 30.0
