"""What NumPy decides where several answers would do, on PyTorch's arrays: equal elements, zeros."""

import numpy as np
import pytest
import torch

import weft as wf

DEVICES = ["torch", *(["cuda"] if torch.cuda.is_available() else [])]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8"]
UNSIGNED = ["uint16", "uint32", "uint64"]
# Functions of places: of equal elements the first counts.
PLACES = {
    "argmax": lambda x: wf.argmax(x, axis=-1),
    "argmin": lambda x: wf.argmin(x, axis=-1),
    "argsort": lambda x: wf.argsort(x, axis=-1),
    "argsort down": lambda x: wf.argsort(x, axis=-1, descending=True),
    "topk": lambda x: wf.topk(x, 3)[1],
    "topk of the smallest": lambda x: wf.topk(x, 3, largest=False)[1],
    "max_with_indices": lambda x: wf.max_with_indices(x, axis=-1)[1],
    "min_with_indices": lambda x: wf.min_with_indices(x, axis=-1)[1],
}


def with_equals(rng, dtype):
    shape = (int(rng.integers(1, 6)), int(rng.integers(3, 400)))
    x = rng.integers(0, 4, shape).astype(dtype if dtype != "bfloat16" else "float32")
    if np.issubdtype(x.dtype, np.floating):
        x[rng.random(shape) < 0.1] = rng.choice((np.nan, np.inf, -np.inf))
    return x


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", PLACES)
def test_of_equal_elements_the_first_counts(name, compiled, device):
    rng = np.random.default_rng(len(name))
    f = PLACES[name]
    for dtype in ("float32", "float64", "bfloat16", "bool", *INTEGERS):
        x = with_equals(rng, dtype)
        given = wf.tensor(x).to(dtype)
        want = f(given).numpy()
        g = wf.compile(f) if compiled else f
        for _ in range(3):
            got = g(given.to(device)).to("cpu").numpy()
            np.testing.assert_array_equal(got, want, err_msg=f"{dtype} {x.shape}")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_by_zero_are_zero(dtype, compiled, device):
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0, 5, 40).astype(dtype) - np.array(1, dtype) for _ in range(2))
    b[::3] = 0
    ways = (lambda x, y: (x // y, x % y, x // 0, x % 0, 7 // y, 7 % y),)
    with np.errstate(all="ignore"):
        seven = np.array(7, dtype)
        want = (a // b, a % b, a * 0, a * 0, seven // b, seven % b)
    for f in ways:
        g = wf.compile(f) if compiled else f
        found = g(*(wf.tensor(v, device=device) for v in (a, b)))
        for x, y in zip(found, want, strict=True):
            np.testing.assert_array_equal(x.to("cpu").numpy(), y)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [*INTEGERS, *UNSIGNED])
def test_bits(dtype, device):
    rng = np.random.default_rng(2)
    most = np.iinfo(dtype).max
    a, b = (rng.integers(0, most, 30, dtype=dtype, endpoint=True) for _ in range(2))
    x, y = (wf.tensor(v, device=device) for v in (a, b))
    pairs = (
        (x & y, a & b),
        (x | y, a | b),
        (x ^ y, a ^ b),
        (~x, ~a),
        (x & 3, a & np.array(3, dtype)),
    )
    for got, want in pairs:
        assert got.dtype.name == dtype
        np.testing.assert_array_equal(got.to("cpu").numpy(), want)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_cross_entropy_of_half_types(dtype, device):
    rng = np.random.default_rng(3)
    x = wf.tensor(rng.standard_normal((6, 9)) * 4).to(dtype)
    classes = rng.integers(0, 9, 6)
    f = wf.value_and_grad(
        lambda x: wf.nn.functional.cross_entropy(x, wf.tensor(classes).to(x.device))
    )
    want, slope = f(x.to("float64"))
    got, found = f(x.to(device))
    assert found.dtype.name == dtype
    np.testing.assert_allclose(float(got), float(want), rtol=1e-2)
    np.testing.assert_allclose(found.to("cpu").to("float64").numpy(), slope.numpy(), atol=2e-3)
