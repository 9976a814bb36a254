"""`x.at[key]` of random keys, as NumPy's `ufunc.at`: every kind of entry beside every other."""

import os

import numpy as np
import pytest

import weft as wf

RUNS = 400 if os.environ.get("WEFT_SOAK") else 40
WAYS = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "set": None,
}
SHAPE = (3, 4, 2, 3)


def entry(rng, shape, n):
    """One entry of a key and how many axes it takes; arrays have n elements, with duplicates."""
    kind, length = rng.choice(["int", "slice", "none", "array", "mask", "masks"]), shape[0]
    if kind == "int":
        return int(rng.integers(-length, length)), 1
    if kind == "slice":
        step = int(rng.choice([-2, -1, 1, 2]))
        return slice(None, None, step), 1
    if kind == "none":
        return None, 0
    if kind == "array":
        size = (2, n) if rng.random() < 0.2 else int(rng.choice([1, n]))
        return rng.integers(-length, length, size), 1
    axes = 1 if kind == "mask" or len(shape) < 2 else 2
    mask = np.zeros(shape[:axes], bool)
    count = min(int(rng.choice([1, n])), mask.size)
    mask.reshape(-1)[rng.permutation(mask.size)[:count]] = True
    return mask, axes


def random_key(rng):
    key, rest, n = [], SHAPE, int(rng.integers(2, 4))
    while rest and (not key or rng.random() < 0.75):
        e, axes = entry(rng, rest, n)
        key.append(e)
        rest = rest[axes:]
    if rng.random() < 0.3:
        key.append(Ellipsis)
    return tuple(key)


def is_mask(e):
    return isinstance(e, np.ndarray) and e.dtype == bool


def random_case(seed, masks=True):
    """A key that NumPy takes, an array and values for it."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.5, 2.0, SHAPE)
    while True:
        key = random_key(rng)
        if not masks and any(map(is_mask, key)):
            continue
        try:
            shape = x[key].shape
        except IndexError:  # arrays of different lengths
            continue
        some = [n if rng.random() < 0.8 else 1 for n in shape]
        return x, key, rng.uniform(0.5, 2.0, some)


def reference(way, x, key, v):
    new = x.copy()
    if WAYS[way] is None:
        new[key] = v
    else:
        WAYS[way].at(new, key, v)
    return new


@pytest.mark.parametrize("seed", range(RUNS))
def test_eager_as_numpy(seed):
    x, key, v = random_case(seed)
    for way in WAYS:
        got = getattr(wf.asarray(x).at[key], way)(wf.asarray(v))
        expected = reference(way, x, key, v)
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-13, err_msg=f"{way} at {key}")


@pytest.mark.parametrize("seed", range(RUNS // 4))
def test_compiled_as_numpy(seed):
    """With index arrays as arguments; what a mask selects has no known length."""
    x, key, v = random_case(seed, masks=False)

    def run(x, v, *arrays):
        given = iter(arrays)
        full = tuple([next(given) if isinstance(e, np.ndarray) else e for e in key])
        return [getattr(x.at[full], way)(v) for way in WAYS]

    arrays = [wf.asarray(e) for e in key if isinstance(e, np.ndarray)]
    made = wf.compile(run)(wf.asarray(x), wf.asarray(v), *arrays)
    for way, got in zip(WAYS, made, strict=True):
        expected = reference(way, x, key, v)
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-12, err_msg=f"{way} at {key}")


MASKED = {
    "read": lambda x, m: x[m],
    "add": lambda x, m: x.at[m].add(wf.asarray([1.0, 2.0])),
    "multiply": lambda x, m: x.at[m].multiply(2.0),
}


@pytest.mark.parametrize(
    "form", [np.asarray, np.ndarray.tolist, wf.asarray], ids=["numpy", "list", "weft"]
)
@pytest.mark.parametrize("name", MASKED)
def test_a_captured_mask_is_refused_as_a_mask(name, form):
    mask = form(np.array([True, False, True]))
    with pytest.raises(wf.errors.StagingError, match=r"^x\[mask\]: .* wf\.where"):
        wf.compile(lambda x: MASKED[name](x, mask))(wf.ones(3))
