"""Tensors from nothing: filled, evenly spaced, and on the devices there are."""

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors


@pytest.fixture(params=["cpu", "torch"])
def device(request):
    return request.param


@pytest.mark.parametrize("shape", [3, (), (2, 3), [2, 0], np.int64(2), np.array([2, 3])])
def test_shapes(device, shape):
    for make, value in ((wf.zeros, 0), (wf.ones, 1)):
        t = make(shape, device=device)
        np.testing.assert_array_equal(t.numpy(), np.full(shape, value), strict=False)
        assert t.shape == np.zeros(shape).shape and t.dtype == wf.float32
        assert t.device == device and not t.requires_grad
        assert make(shape, device=device, requires_grad=True).requires_grad
    assert wf.empty(shape, device=device).shape == np.zeros(shape).shape


def test_full(device):
    assert wf.full(2, 3, device=device).dtype == wf.int64
    assert wf.full(2, 3.0, device=device).dtype == wf.float32
    assert wf.full(2, np.float64(3), device=device).dtype == wf.float64
    assert wf.full(2, True, device=device).dtype == wf.bool
    assert wf.full(2, 1, dtype="bfloat16", device=device).tolist() == [1.0, 1.0]


def test_full_keeps_the_gradient(device):
    x = wf.tensor(2.0, device=device, requires_grad=True)
    for y in (wf.full((2, 3), x), wf.full_like(wf.ones((2, 3), device=device), x)):
        assert y.device == device and y.tolist() == [[2.0] * 3] * 2
        assert (y * y).sum().backward()[x].item() == 24.0


def test_likes(device):
    x = wf.ones((2, 3), dtype="float16", device=device, requires_grad=True)
    for like in (wf.zeros_like(x), wf.ones_like(x), wf.full_like(x, 7), wf.empty_like(x)):
        assert (like.shape, like.dtype, like.device) == (x.shape, x.dtype, device)
        assert not like.requires_grad
    assert wf.zeros_like(x, dtype="int32").dtype == wf.int32
    assert wf.zeros_like(np.ones(2)).dtype == wf.float64
    assert wf.zeros_like(torch.ones(2)).device == "torch"


RANGES = [(5,), (2, 5), (5, 0, -2), (5, 0), (0, 1, 0.1), (1.0, 0, -0.3), (2**62, 2**62 + 3)]


@pytest.mark.parametrize("arguments", RANGES)
def test_arange(device, arguments):
    t = wf.arange(*arguments, device=device)
    expected = np.arange(*arguments)
    np.testing.assert_array_equal(t.numpy(), expected.astype(t.dtype))
    assert t.dtype == (wf.int64 if expected.dtype == np.int64 else wf.float32)
    assert wf.arange(*map(wf.tensor, arguments)).shape == t.shape


@pytest.mark.parametrize("endpoint", [True, False])
@pytest.mark.parametrize("num", [0, 1, 2, 7])
def test_linspace(device, num, endpoint):
    t = wf.linspace(-1, 2.5, num, dtype="float64", endpoint=endpoint, device=device)
    np.testing.assert_array_equal(t.numpy(), np.linspace(-1, 2.5, num, endpoint=endpoint))
    assert wf.linspace(0, 1j, 3).dtype == wf.complex64
    assert wf.linspace(0, 10, 5, dtype="int64").tolist() == [0, 2, 5, 7, 10]


def test_linspace_is_differentiable(device):
    start = wf.tensor(1.0, dtype="float64", device=device, requires_grad=True)
    stop = wf.tensor(3.0, dtype="float64", device=device, requires_grad=True)
    y = wf.linspace(start, stop, 5)
    assert y.device == device and y.tolist() == [1.0, 1.5, 2.0, 2.5, 3.0]
    grads = (y * wf.arange(5.0, dtype="float64", device=device)).sum().backward()
    assert [grads[start].item(), grads[stop].item()] == [2.5, 7.5]


def test_eye(device):
    for arguments, k in (((3,), 0), ((2, 3), 1), ((3, 2), -1), ((0,), 0)):
        t = wf.eye(*arguments, k=k, device=device)
        np.testing.assert_array_equal(t.numpy(), np.eye(*arguments, k=k))


BAD = {
    "negative": (errors.ShapeError, lambda: wf.zeros((2, -1))),
    "negative empty": (errors.ShapeError, lambda: wf.empty(-1)),
    "negative eye": (errors.ShapeError, lambda: wf.eye(-1)),
    "float": (errors.DTypeError, lambda: wf.zeros(2.5)),
    "floats": (errors.DTypeError, lambda: wf.ones((2.0,))),
    "string": (errors.DTypeError, lambda: wf.zeros("ab")),
    "None": (errors.DTypeError, lambda: wf.zeros(None)),
    "eye of floats": (errors.DTypeError, lambda: wf.eye(2.5)),
    "integers requiring a gradient": (
        errors.NotDifferentiable,
        lambda: wf.zeros(2, dtype="int32", requires_grad=True),
    ),
    "filling with a list": (errors.ShapeError, lambda: wf.full(2, [1, 2])),
    "filling with a string": (errors.DTypeError, lambda: wf.full(2, "a")),
    "filling with nothing": (errors.DTypeError, lambda: wf.full(2, None)),
    "filling integers with NaN": (
        errors.ArgumentError,
        lambda: wf.full(2, float("nan"), dtype="int32"),
    ),
    "filling with too much": (errors.ArgumentError, lambda: wf.full(2, 300, dtype="int8")),
    "step 0": (errors.ArgumentError, lambda: wf.arange(0, 5, 0)),
    "to NaN": (errors.ArgumentError, lambda: wf.arange(float("nan"))),
    "to infinity": (errors.ArgumentError, lambda: wf.arange(float("inf"))),
    "to a string": (errors.DTypeError, lambda: wf.arange("5")),
    "to a complex number": (errors.DTypeError, lambda: wf.arange(3j)),
    "to what is differentiated": (
        errors.InterchangeError,
        lambda: wf.arange(wf.tensor(3.0, requires_grad=True)),
    ),
    "beyond the dtype": (errors.ArgumentError, lambda: wf.arange(300, dtype="int8")),
    "a negative number": (errors.ArgumentError, lambda: wf.linspace(0, 1, -1)),
    "a fractional number": (errors.DTypeError, lambda: wf.linspace(0, 1, 2.5)),
    "from a string": (errors.DTypeError, lambda: wf.linspace("a", 1, 2)),
    "complex as real": (errors.DTypeError, lambda: wf.linspace(0, 1j, 2, dtype="float32")),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes(name):
    error, call = BAD[name]
    with pytest.raises(error, match=r"\(at test_fill.py:\d+\)"):
        call()


DEVICES = ["tpu", "", "CPU", "cpu:0", "torch:0", "torch:1", "gpu", "mps", "cuda:x", "cuda:-1", 3]


@pytest.mark.parametrize("name", DEVICES)
def test_no_such_device(name):
    with pytest.raises(errors.DeviceError, match=r"expected 'cpu'.*\(at test_fill.py:\d+\)"):
        wf.tensor([1.0], device=name)
    with pytest.raises(errors.DeviceError):
        wf.zeros(2, device=name)
    with pytest.raises(errors.DeviceError):
        wf.ones(2).to_device(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the machine has a CUDA device")
@pytest.mark.parametrize("name", ["cuda", "cuda:0", "cuda:1", torch.device("cuda:1")])
def test_no_cuda_device_here(name):
    with pytest.raises(errors.DeviceError, match="no CUDA device"):
        wf.ones(2, device=name)
    with pytest.raises(errors.DeviceError, match="no CUDA device"):
        wf.ones(2).to(name)


def test_torch_devices_are_understood():
    assert wf.ones(2, device=torch.device("cpu")).device == "torch"
    assert wf.ones(2).to(torch.device("cpu")).device == "torch"
    assert wf.ones(2, device="torch").to("cpu").device == "cpu"
