"""`x.at[key].multiply(v)` and its kin: NumPy's `ufunc.at`, where every duplicate counts."""

import numpy as np
import pytest

import weft as wf
from weft import errors

rng = np.random.default_rng(0)
X = rng.uniform(0.5, 2.0, (3, 4))
KEYS = {
    "integer": 1,
    "slice": slice(0, 2),
    "indices": np.array([2, 0]),
    "duplicates": np.array([1, 0, 1, -2, 1, 0]),
    "all alike": np.array([2] * 7),
    "pairs": (np.array([0, 0, 2, 0]), np.array([1, -3, 3, 1])),
    "column": (slice(None), np.array([3, 1, 3])),
    "turned": (np.array([0, 1, 0]), slice(None), np.array([0])),
    "matrix of indices": np.array([[0, 1], [1, 1]]),
    "mask": X > 1.0,
    "rows by mask": np.array([True, False, True]),
    "none": np.array([], int),
}
WAYS = {
    "multiply": np.multiply,
    "mul": np.multiply,
    "divide": np.divide,
    "power": None,
    "maximum": np.maximum,
    "max": np.maximum,
    "minimum": np.minimum,
    "min": np.minimum,
    "add": np.add,
    "sub": np.subtract,
}
CASES = [(k, w) for k in KEYS for w in WAYS if k != "turned"]


def reference(x, key, v, way):
    """NumPy's own, in place; powers are those of the products."""
    x = x.copy()
    if way == "power":
        exponents = np.ones_like(x)
        np.multiply.at(exponents, key, v)
        return x**exponents
    WAYS[way].at(x, key, v)
    return x


def values_for(key):
    return rng.uniform(0.5, 2.0, X[key].shape)


@pytest.mark.parametrize("name, way", CASES)
def test_values_and_derivatives(name, way):
    key = KEYS[name]
    v = values_for(key)

    def f(x, v):
        return getattr(x.at[key], way)(v)

    x, v = wf.tensor(X), wf.tensor(v)
    want = reference(X, key, v.numpy(), way)
    np.testing.assert_allclose(f(x, v).numpy(), want, rtol=1e-12)
    wf.check_grads(f, (x, v), order=1)
    batch = wf.vmap(f)(wf.stack([x, x]), wf.stack([v, v]))
    np.testing.assert_allclose(batch[1].numpy(), want, rtol=1e-12)
    if "mask" not in name:  # whose results have shapes that a program does not know
        np.testing.assert_allclose(wf.compile(f)(x, v).numpy(), want, rtol=1e-6)
    one = reference(X, key, 1.5, way)
    np.testing.assert_allclose(f(x, 1.5).numpy(), one, rtol=1e-12)


@pytest.mark.parametrize("way", ["mul", "max", "min", "power"])
def test_indices_that_are_values(way):
    """Indices of a program, and those of a batch, which are not known when they are joined."""
    x, i = wf.tensor(X), wf.tensor([[1, 0, 1, -2], [2, 2, 2, 0]])
    v = wf.tensor(rng.uniform(0.5, 2.0, (4, 4)))

    def f(x, i, v):
        return getattr(x.at[i], way)(v)

    want = [reference(X, np.asarray(k), v.numpy(), way) for k in i]
    np.testing.assert_allclose(wf.vmap(f, in_axes=(None, 0, None))(x, i, v).numpy(), want)
    np.testing.assert_allclose(wf.compile(f)(x, i[0], v).numpy(), want[0], rtol=1e-6)
    np.testing.assert_allclose(wf.compile(f)(x, i[1], v).numpy(), want[1], rtol=1e-6)
    per = wf.vmap(wf.grad(lambda v, i: (f(x, i, v) ** 2).sum()), in_axes=(None, 0))(v, i)
    for k in range(2):
        alone = wf.grad(lambda v, k=k: (f(x, i[k], v) ** 2).sum())(v)
        np.testing.assert_allclose(per[k].numpy(), alone.numpy(), rtol=1e-10)


def test_zeros_among_the_factors():
    x, v = wf.tensor([2.0, 3.0]), wf.tensor([0.0, 4.0, 5.0])
    slope = wf.grad(lambda v: x.at[np.array([0, 0, 1])].multiply(v).sum())(v)
    assert slope.tolist() == [8.0, 0.0, 3.0]


def test_integers_and_application():
    x = wf.tensor([1, 2, 3])
    assert x.at[np.array([0, 0, 2])].max(wf.tensor([5, 4, 1])).tolist() == [5, 2, 3]
    assert x.at[np.array([0, 0])].multiply(3).tolist() == [9, 2, 3]
    assert wf.tensor([1.0, 4.0]).at[1].apply(wf.sqrt).tolist() == [1.0, 2.0]
    with pytest.raises(errors.IndexingError):
        x.at[np.array([0, 3])].max(1)


@pytest.mark.parametrize("device", ["torch"])
def test_on_torch(device):
    x = wf.tensor(X, device=device)
    got = x.at[KEYS["duplicates"]].multiply(1.5)
    np.testing.assert_allclose(got.numpy(), reference(X, KEYS["duplicates"], 1.5, "multiply"))
