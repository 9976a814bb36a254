"""Reading and writing by random keys, against NumPy's values and PyTorch's gradients."""

import numpy as np
import pytest
import torch

import weft as wf


@pytest.fixture(params=["cpu", "torch"])
def device(request):
    return request.param


def leaf(values, device):
    return wf.tensor(np.asarray(values, dtype=float), device=device, requires_grad=True)


def random_slice(rng, n):
    start, stop = rng.integers(-n - 1, n + 2, size=2)
    step = rng.choice([-3, -2, -1, 1, 2])
    bounds = [None if rng.random() < 0.3 else int(b) for b in (start, stop)]
    return slice(*bounds, int(step))


def random_array(rng, n, common):
    shape = common[rng.integers(len(common)) :] if rng.random() < 0.5 else common
    return rng.integers(-n, n, size=shape)


def random_key(rng, shape):
    """Any mixture of ints, slices, None, Ellipsis, masks and integer arrays for the shape."""
    common = tuple(rng.integers(1, 4, size=rng.integers(1, 3)))
    use_mask = rng.random() < 0.25
    key, axis = [], 0
    while axis < len(shape) and rng.random() < 0.85:
        kind = rng.choice(["int", "slice", "mask" if use_mask else "array"])
        if kind == "int":
            key.append(int(rng.integers(-shape[axis], shape[axis])))
        elif kind == "slice":
            key.append(random_slice(rng, shape[axis]))
        elif kind == "array":
            key.append(random_array(rng, shape[axis], common))
        else:
            width = int(rng.integers(1, min(2, len(shape) - axis) + 1))
            key.append(rng.random(shape[axis : axis + width]) < 0.5)
            axis, use_mask, common = axis + width - 1, False, (1,)
        axis += 1
    if rng.random() < 0.3:
        key.insert(rng.integers(len(key) + 1), Ellipsis)
    if rng.random() < 0.3:
        key.insert(rng.integers(len(key) + 1), None)
    return key[0] if len(key) == 1 and rng.random() < 0.5 else tuple(key)


def as_tensors(key, device):
    """The same key with tensors for arrays."""
    if isinstance(key, tuple):
        return tuple(as_tensors(k, device) for k in key)
    return wf.asarray(key, device=device) if isinstance(key, np.ndarray) else key


def as_torch(key):
    if isinstance(key, tuple):
        return tuple(as_torch(k) for k in key)
    return torch.from_numpy(key) if isinstance(key, np.ndarray) else key


def torch_agrees(a, key, places) -> bool:
    """Whether torch takes the key (no negative steps) and means by it what NumPy means.

    It puts the axes of arrays that integers stand between elsewhere, and does not say which of
    duplicate writes wins.
    """
    keys = key if isinstance(key, tuple) else (key,)
    if any(isinstance(k, slice) and k.step < 0 for k in keys):
        return False
    distinct = len(np.unique(places)) == places.size
    return distinct and tuple(torch.from_numpy(a)[as_torch(key)].shape) == places.shape


def draws(seed, count=10):
    """Arrays with keys that NumPy takes, and the places each key names in flat order."""
    rng = np.random.default_rng(seed)
    found = 0
    while found < count:
        shape = tuple(int(n) for n in rng.integers(1, 5, size=rng.integers(1, 5)))
        key = random_key(rng, shape)
        try:
            places = np.arange(np.prod(shape)).reshape(shape)[key]
        except IndexError:  # a mask beside arrays that do not broadcast with it
            continue
        found += 1
        yield rng, rng.normal(size=shape), key, places


@pytest.mark.parametrize("seed", range(20))
def test_reading_by_any_key(device, seed):
    for rng, a, key, places in draws(seed):
        x = leaf(a, device)
        y = x[key if rng.random() < 0.5 else as_tensors(key, device)]
        np.testing.assert_array_equal(y.detach().numpy(), a[key], err_msg=str(key))
        w = rng.normal(size=places.shape)
        got = (y * wf.asarray(w, device=device)).sum().backward()[x].numpy()
        expected = np.zeros(a.size)
        np.add.at(expected, places, w)
        np.testing.assert_allclose(got.ravel(), expected, atol=1e-15, err_msg=str(key))


def last_writes(places, size) -> np.ndarray:
    """Which of the writes to flat places survive: the last one to each."""
    writer = np.full(size, -1)
    for order, place in enumerate(places.ravel()):
        writer[place] = order
    return writer[places.ravel()] == np.arange(places.size)


@pytest.mark.parametrize("seed", range(20))
def test_writing_by_any_key(device, seed):
    for rng, a, key, places in draws(100 + seed):
        keep = rng.random() < 0.5
        shape = tuple(n if keep or rng.random() < 0.5 else 1 for n in places.shape)
        value, w = rng.normal(size=shape), rng.normal(size=a.shape)
        x, v = leaf(a, device), leaf(value, device)
        y = x.clone()
        y[as_tensors(key, device) if keep else key] = v
        expected, kept = a.copy().ravel(), last_writes(places, a.size)
        expected[places.ravel()[kept]] = np.broadcast_to(value, places.shape).ravel()[kept]
        np.testing.assert_array_equal(y.detach().numpy().ravel(), expected, err_msg=str(key))
        grads = (y * wf.asarray(w, device=device)).sum().backward()
        gx, gv = w.copy().ravel(), np.where(kept, w.ravel()[places.ravel()], 0)
        gx[places] = 0
        np.testing.assert_array_equal(grads[x].numpy().ravel(), gx, err_msg=str(key))
        gv = gv.reshape(places.shape)
        axes = tuple(k for k, n in enumerate(shape) if n == 1 != places.shape[k])
        expected_v = gv.sum(axes, keepdims=True)
        np.testing.assert_allclose(grads[v].numpy(), expected_v, atol=1e-14, err_msg=str(key))


@pytest.mark.parametrize("seed", range(20))
def test_writing_agrees_with_torch(device, seed):
    for rng, a, key, places in draws(200 + seed):
        if not torch_agrees(a, key, places):
            continue
        value, w = rng.normal(size=places.shape), rng.normal(size=a.shape)
        x, v = leaf(a, device), leaf(value, device)
        tx, tv = (torch.tensor(t, requires_grad=True) for t in (a, value))
        y, ty = wf.exp(x), torch.exp(tx).clone()  # exp saves its result, which torch overwrites
        y[key], ty[as_torch(key)] = v * v, tv * tv
        grads = (y * y * wf.asarray(w, device=device)).sum().backward()
        (ty * ty * torch.tensor(w)).sum().backward()
        np.testing.assert_allclose(grads[x].numpy(), tx.grad.numpy(), rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(grads[v].numpy(), tv.grad.numpy(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("seed", range(10))
def test_adding_at_any_key(device, seed):
    for rng, a, key, places in draws(300 + seed):
        value = rng.normal(size=places.shape)
        x, v = leaf(a, device), leaf(value, device)
        y = x.at[key].add(v)
        expected = a.copy()
        np.add.at(expected, key, value)
        np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-14, atol=1e-14)
        grads = (y * y).sum().backward()
        np.testing.assert_allclose(grads[x].numpy(), 2 * expected, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(grads[v].numpy(), 2 * expected[key], rtol=1e-13, atol=1e-13)
