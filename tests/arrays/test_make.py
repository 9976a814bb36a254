"""Tensors from data of every kind, and from nothing."""

import array
import collections
import decimal

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors


@pytest.fixture
def default_float64():
    wf.set_default_dtype("float64")
    yield
    wf.set_default_dtype("float32")


def shares(a, t) -> bool:
    return np.shares_memory(a, t.numpy())


def test_tensor_copies_and_asarray_shares():
    a = np.arange(3.0)
    assert not shares(a, wf.tensor(a)) and shares(a, wf.asarray(a))
    assert shares(a, wf.asarray(a, copy=False)) and not shares(a, wf.asarray(a, copy=True))
    a[0] = 7.0
    assert wf.asarray(a)[0].item() == 7.0
    x = wf.tensor([1.0], requires_grad=True)
    assert wf.asarray(x) is x and wf.asarray(x, copy=True).requires_grad
    y = wf.tensor(x)
    assert not y.requires_grad and not np.shares_memory(y._data, x._data)
    t = torch.ones(2)
    assert wf.asarray(t)._data is t and wf.tensor(t)._data is not t


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (1, "int64"),
        (1.0, "float32"),
        (True, "bool"),
        (1j, "complex64"),
        ([], "float32"),
        ([[], []], "float32"),
        ([1, 2.0], "float32"),
        ([1, 1j], "complex64"),
        ([True, 1], "int64"),
        ((1, (2, 3))[1], "int64"),
        (range(3), "int64"),
        (collections.deque([1.0, 2.0]), "float32"),
        (np.float64(1), "float64"),
        (np.float32(1), "float32"),
        (np.int8(1), "int8"),
        (np.arange(3.0), "float64"),
        (np.array([1, 2], ">i2"), "int16"),
        ([np.float64(1), 2.0], "float64"),
        ([np.float32(1), 2.0], "float32"),
        ([np.int8(1), 2], "int8"),
        ([np.int8(1), 2.0], "float32"),
        ([np.arange(3), [1, 2, 3]], "int64"),
        (array.array("d", [1.0, 2.0]), "float64"),
        (memoryview(b"ab"), "uint8"),
        (bytearray(b"ab"), "uint8"),
        (2**63, "uint64"),
    ],
)
def test_dtype_of_data(data, dtype):
    for t in (wf.asarray(data), wf.tensor(data)):
        assert t.dtype == wf.canonical_dtype(dtype) and t.device == "cpu"
        np.testing.assert_array_equal(t.numpy(), np.asarray(data))


@pytest.mark.parametrize("spelling", ["float64", wf.float64, np.float64, torch.float64])
def test_dtype_may_be_given_in_any_vocabulary(spelling):
    assert wf.tensor([1], dtype=spelling).dtype == wf.float64
    assert wf.zeros(2, dtype=spelling).dtype == wf.float64
    assert wf.tensor([0.1], dtype=spelling).item() == 0.1  # without a detour by float32


def test_python_types_as_dtypes(default_float64):
    types = (bool, int, float, complex)
    assert [wf.ones(1, dtype=t).dtype for t in types] == [
        wf.bool,
        wf.int64,
        wf.float64,
        wf.complex128,
    ]


def test_set_default_dtype(default_float64):
    made = [
        wf.tensor(1.0),
        wf.asarray([1, 2.5]),
        wf.zeros(2),
        wf.ones(2),
        wf.empty(2),
        wf.eye(2),
        wf.full(2, 1.5),
        wf.arange(3.0),
        wf.linspace(0, 1, 3),
        wf.randn(2),
        wf.rand(2),
        wf.tensor([1]) / 2,
        wf.tensor([1]) * 1.5,
        wf.mean(wf.tensor([1, 2])),
        wf.sin(wf.tensor([1])),
        wf.fft.fftfreq(4),
    ]
    assert [t.dtype for t in made] == [wf.float64] * len(made)
    assert wf.tensor(1j).dtype == wf.complex128
    assert wf.tensor(np.float32([1])).dtype == wf.float32


@pytest.mark.parametrize("dtype", ["int32", "complex64", "nonsense", None])
def test_the_default_must_be_a_real_float(dtype):
    with pytest.raises(errors.DTypeError):
        wf.set_default_dtype(dtype)
    assert wf.zeros(1).dtype == wf.float32


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_a_python_scalar_never_widens(dtype, device):
    x = wf.ones(3, dtype=dtype, device=device)
    results = [x + 1, 1 - x, x * 2.0, 2.0 / x, x / 3, x**2, x**0.5, 2.0**x, wf.add(x, True)]
    results += [wf.where(x == 1, x, 0.0), x.at[0].set(2.5), wf.stack([x, x]) * 1e-3]
    assert {r.dtype for r in results} == {x.dtype}
    if not wf.isdtype(x.dtype, "complex floating"):
        assert wf.maximum(x, 0.5).dtype == wf.clip(x, 0.1, 0.9).dtype == x.dtype
    y = wf.ones(3, dtype="int8", device=device)
    assert (y + 1).dtype == (2 * y).dtype == wf.int8 and (y * 1.5).dtype == wf.float32


@pytest.mark.parametrize("device", ["cpu", "torch"])
def test_a_numpy_scalar_is_an_array(device):
    x = wf.ones(2, device=device)
    for y in (x * np.float64(2), np.float64(2) * x, x + np.array(1.0).item() * np.float64(1)):
        assert y.dtype == wf.float64 and y.device == device
    assert (x * np.float32(2)).dtype == (np.int64(2) * x).dtype == wf.float32


class TestNestedTensors:
    def test_the_gradient_is_kept(self):
        x = wf.tensor(2.0, requires_grad=True)
        for make in (wf.tensor, wf.asarray):
            y = make([[x, 1], [2, x * x]])
            assert y.tolist() == [[2.0, 1.0], [2.0, 4.0]]
            assert (y * y).sum().backward()[x].item() == 2 * 2 + 2 * 4 * 4
        y = wf.tensor((wf.Parameter([1.0, 2.0]), [3.0, x]))
        assert y.requires_grad and y.tolist() == [[1.0, 2.0], [3.0, 2.0]]

    @pytest.mark.parametrize("device", ["cpu", "torch"])
    def test_numbers_go_along(self, device):
        x = wf.tensor(1.0, dtype="bfloat16", device=device)
        y = wf.tensor([[x, 2.0], [3.0, 4]])
        assert y.dtype == wf.bfloat16 and y.device == device
        assert wf.asarray([wf.tensor(1), 2.5]).dtype == wf.float32
        assert wf.asarray([x, wf.tensor(1.0, dtype="float64", device=device)]).dtype == wf.float64

    def test_of_torch(self):
        y = wf.asarray([torch.tensor(1.0), 2.0])
        assert y.device == "torch" and y.tolist() == [1.0, 2.0]
        assert wf.asarray([torch.tensor(1.0), 2.0], device="cpu").device == "cpu"

    def test_mistakes(self):
        x = wf.tensor(1.0)
        with pytest.raises(errors.ShapeError, match="stack"):
            wf.tensor([x, [1.0, 2.0]])
        with pytest.raises(errors.DeviceError, match="stack"):
            wf.tensor([x, torch.tensor(1.0)])
        with pytest.raises(errors.DTypeError, match="str"):
            wf.tensor([x, "a"])


BAD = {
    "string": ("a", errors.DTypeError, "str"),
    "bytes": (b"ab", errors.DTypeError, "S2"),
    "None": (None, errors.DTypeError, "NoneType"),
    "object": (object(), errors.DTypeError, "object"),
    "dict": ({}, errors.DTypeError, "dict"),
    "set": ({1}, errors.DTypeError, "set"),
    "generator": ((i for i in range(2)), errors.DTypeError, "generator"),
    "function": (len, errors.DTypeError, "builtin"),
    "ragged": ([[1, 2], [3]], errors.ArgumentError, "inhomogeneous"),
    "ragged arrays": ([np.arange(3), [1, 2]], errors.ArgumentError, "inhomogeneous"),
    "strings": (["1.5"], errors.DTypeError, "str"),
    "None inside": ([1.0, None], errors.DTypeError, "NoneType"),
    "too large": (2**64, errors.IntegerOutOfRange, "out of bounds for uint64"),
    "decimal": ([decimal.Decimal(1)], errors.DTypeError, "object"),
    "object array": (np.array([1, None]), errors.DTypeError, "object"),
    "string array": (np.array(["a"]), errors.DTypeError, "<U1"),
    "dates": (np.array(["2020"], "M8[Y]"), errors.DTypeError, "datetime64"),
    "records": (np.zeros(1, "i4,i4"), errors.DTypeError, "f0"),
    "long double": (np.zeros(1, np.longdouble), errors.DTypeError, "float128"),
    "masked": (np.ma.array([1.0, 2.0], mask=[0, 1]), errors.InterchangeError, "filled"),
    "torch with grad": (torch.ones(1, requires_grad=True), errors.InterchangeError, "detach"),
    "torch parameter": (torch.nn.Parameter(torch.ones(1)), errors.InterchangeError, "detach"),
    "torch sparse": (torch.eye(2).to_sparse(), errors.DTypeError, "sparse"),
    "torch float8": (torch.ones(1).to(torch.float8_e4m3fn), errors.DTypeError, "float8"),
    "torch meta": (torch.ones(1, device="meta"), errors.DTypeError, "meta"),
    "torch dtype": (torch.float32, errors.DTypeError, "dtype"),
    "torch module": (torch.nn.Linear(1, 1), errors.DTypeError, "Linear"),
}


@pytest.mark.parametrize("name", BAD)
def test_junk_is_refused(name):
    data, error, words = BAD[name]
    with pytest.raises(error, match=rf"asarray.*{words}.*\(at test_make.py:\d+\)"):
        wf.asarray(data)
    with pytest.raises(error):
        wf.tensor(data)
    with pytest.raises(error):
        wf.Parameter(data)


@pytest.mark.parametrize(
    ("data", "dtype", "error"),
    [
        ([1.0], "float31", errors.DTypeError),
        ([1.0], object, errors.DTypeError),
        ([1.0], np.longdouble, errors.DTypeError),
        ([1.0], 3, errors.DTypeError),
        (["1"], "float32", errors.DTypeError),
        ([None], "float32", errors.DTypeError),
        ([1j], "float32", errors.DTypeError),
        (np.array([1j]), "float32", errors.DTypeError),
        (wf.tensor([1j]), "float32", errors.DTypeError),
        (torch.tensor([1j]), "float32", errors.DTypeError),
        ([300], "int8", errors.ArgumentError),
        ([-1], "uint8", errors.ArgumentError),
        ([float("nan")], "int64", errors.ArgumentError),
    ],
)
def test_what_a_dtype_does_not_hold_is_refused(data, dtype, error):
    with pytest.raises(error, match=r"\(at test_make.py:\d+\)"):
        wf.tensor(data, dtype=dtype)


@pytest.mark.parametrize("data", [[1, 2], [True], np.arange(3)])
def test_integers_cannot_require_a_gradient(data):
    with pytest.raises(wf.NotDifferentiable, match=r"x.to\('float32'\)"):
        wf.tensor(data, requires_grad=True)
    assert wf.tensor(data, dtype="float32", requires_grad=True).requires_grad


def test_copy_false_is_honoured():
    with pytest.raises(errors.ArgumentError, match="dtype"):
        wf.asarray(np.ones(2), dtype="float32", copy=False)
    with pytest.raises(errors.ArgumentError, match="device"):
        wf.asarray(np.ones(2), device="torch", copy=False)
    with pytest.raises(errors.ArgumentError, match="dtype"):
        wf.asarray(wf.ones(2), dtype="float64", copy=False)


def test_the_seeds_constructors():
    t = wf.Tensor.from_vec([1.0, 2.0, 3.0, 4.0], [2, 2])
    assert t.tolist() == [[1.0, 2.0], [3.0, 4.0]] and t.dtype == wf.float32
    assert wf.Tensor.from_vec(np.arange(2.0)).dtype == wf.float64
    a = np.ones((2, 2))
    assert not shares(a, wf.Tensor.from_array(a))
    assert wf.Tensor.scalar(3.0).shape == () and wf.Tensor.scalar(3.0).dtype == wf.float32
    with pytest.raises(errors.ShapeError, match="3 elements"):
        wf.Tensor.from_vec([1.0, 2.0, 3.0], (2, 2))
    with pytest.raises(errors.ShapeError, match="one number"):
        wf.Tensor.scalar([1.0, 2.0])
    with pytest.raises(TypeError, match=r"wf.tensor\(data\)"):
        wf.Tensor([1.0])


class TestFromDlpack:
    def test_shares_memory(self):
        a, t = np.arange(3.0), torch.arange(3.0)
        assert shares(a, wf.from_dlpack(a))
        x = wf.from_dlpack(t)
        assert x.device == "cpu" and shares(t.numpy(), x)
        assert not shares(a, wf.from_dlpack(a, copy=True))
        assert shares(a, wf.from_dlpack(a, copy=False))

    def test_read_only_memory(self):
        a = np.arange(3.0)
        a.flags.writeable = False
        assert shares(a, wf.from_dlpack(a))

    def test_bfloat16_of_torch(self):
        x = wf.from_dlpack(torch.ones(2, dtype=torch.bfloat16))
        assert x.device == "cpu" and x.dtype == wf.bfloat16 and x.tolist() == [1.0, 1.0]

    def test_devices(self):
        assert wf.from_dlpack(np.ones(2), device="torch").device == "torch"
        x = wf.ones(2, requires_grad=True)
        assert wf.from_dlpack(x) is x

    @pytest.mark.parametrize("data", [[1, 2], None, "a", 3])
    def test_junk(self, data):
        with pytest.raises(errors.DTypeError, match=r"from_dlpack.*asarray"):
            wf.from_dlpack(data)

    def test_torch_with_a_gradient(self):
        with pytest.raises(errors.InterchangeError, match="detach"):
            wf.from_dlpack(torch.ones(2, requires_grad=True))


ARRAYS = [
    3,
    2.5,
    [[1, 2], [3, 4]],
    [True, False],
    [],
    np.arange(6.0).reshape(2, 3),
    np.float32(1.5),
    np.array(2),
    [np.ones(2), [3.0, 4.0]],
    range(3),
]


@pytest.mark.parametrize("data", ARRAYS, ids=repr)
@pytest.mark.parametrize("dtype", [None, "float32", "int16", "complex128", float])
@pytest.mark.parametrize("ndmin", [0, 1, 3])
def test_array_is_numpys(data, dtype, ndmin):
    expected = np.array(data, dtype=dtype, ndmin=ndmin)
    got = wf.array(data, dtype, ndmin=ndmin)
    assert got.shape == expected.shape and got.tolist() == expected.tolist()
    if dtype is not None or isinstance(data, np.ndarray | np.generic):
        assert got.dtype == expected.dtype
    else:
        assert got.dtype == wf.tensor(data).dtype


def test_array_copies_and_keeps_the_gradient():
    a = np.arange(3.0)
    assert not shares(a, wf.array(a)) and shares(a, wf.array(a, copy=None))
    assert shares(a, wf.array(a, copy=False))
    with pytest.raises(errors.ArgumentError, match="copy=False"):
        wf.array(a, "float32", copy=False)
    x = wf.tensor([1.0, 2.0], requires_grad=True)
    y = wf.array(x)
    assert not np.shares_memory(y._data, x._data)
    assert (y * y).sum().backward()[x].tolist() == [2.0, 4.0]
    assert wf.array([x, x], ndmin=3).sum().backward()[x].tolist() == [2.0, 2.0]
    assert wf.array(object=[1.0]).tolist() == [1.0]
    assert wf.array([1.0], device="torch").device == "torch"
    assert wf.array(torch.ones(2)).device == "torch"
    with pytest.raises(errors.WeftError, match="ndmin"):
        wf.array([1.0], ndmin="2")
