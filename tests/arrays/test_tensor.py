"""Tensor: its attributes, operators, conversions, and where it lives."""

import gc
import math
import operator
import weakref

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors


@pytest.fixture(params=["cpu", "torch"])
def device(request):
    return request.param


def other(device):
    return "cpu" if device == "torch" else "torch"


def leaf(values, device="cpu"):
    return wf.tensor(np.asarray(values, dtype=float), device=device, requires_grad=True)


def test_attributes(device):
    x = wf.zeros((2, 3), dtype="float64", device=device)
    assert (x.shape, x.ndim, x.size, x.itemsize, x.nbytes) == ((2, 3), 2, 6, 8, 48)
    assert type(x.shape) is tuple and len(x) == 2
    assert (x.dtype, x.device) == (wf.float64, device)
    assert x.T.shape == (3, 2) and wf.zeros((2, 3, 4), device=device).mT.shape == (2, 4, 3)
    assert x.__array_namespace__() is wf
    assert x.__array_namespace__(api_version="2025.12") is wf
    with pytest.raises(AttributeError):
        x.nonsense = 1


def test_state_of_differentiation(device):
    x = wf.ones(2, device=device)
    assert not x.requires_grad and x.is_leaf and x.grad is None
    assert x.requires_grad_() is x and x.requires_grad and x.is_leaf
    y = x * 2
    assert y.requires_grad and not y.is_leaf and y.grad is None
    assert not y.detach().requires_grad and not wf.stop_gradient(y).requires_grad
    with pytest.raises(errors.GradientError, match=r"multiply \(at test_tensor.py:\d+\).*detach"):
        y.requires_grad_(False)
    assert not x.requires_grad_(False).requires_grad


def test_ids_are_distinct_and_stay():
    x, y = leaf([1.0]), leaf([1.0])
    assert isinstance(x.id, int) and x.id != y.id
    before = x.id
    (x * y).sum().backward()
    assert x.id == before and wf.Tensor is wf.TrackedTensor


class TestGradientAttribute:
    def test_set_and_clear(self, device):
        x = leaf([1.0, 2.0], device)
        x.grad = wf.ones(2, device=device)  # float32: kept in the tensor's own dtype
        assert x.grad.dtype == wf.float64
        (x * 2).sum().backward()
        assert x.grad.tolist() == [3.0, 3.0]
        x.grad = None
        assert x.grad is None
        if device == "cpu":
            x.grad = np.array([5.0, 6.0])
            assert isinstance(x.grad, wf.Tensor) and x.grad.tolist() == [5.0, 6.0]

    def test_mistakes(self, device):
        x = leaf([1.0, 2.0], device)
        with pytest.raises(errors.ShapeError, match=r"\(3,\).*\(2,\)"):
            x.grad = wf.ones(3, device=device)
        with pytest.raises(errors.DeviceError):
            x.grad = wf.ones(2, device=other(device))
        with pytest.raises(errors.DTypeError):
            x.grad = "ones"
        with pytest.raises(errors.GradientError, match="leaf"):
            (x * 2).grad = x.detach()


OPERATORS = {
    operator.add: (1, -2),
    operator.sub: (1, -2),
    operator.mul: (2, -3),
    operator.truediv: (2, -3),
    operator.floordiv: (7, -3),
    operator.mod: (7, -3),
    operator.pow: (2, 3),
    operator.lt: (1, 2),
    operator.le: (1, 1),
    operator.gt: (1, 2),
    operator.ge: (1, 1),
    operator.eq: (1, 1),
    operator.ne: (1, 2),
    operator.and_: (6, 3),
    operator.or_: (6, 3),
    operator.xor: (6, 3),
    operator.lshift: (1, 3),
    operator.rshift: (16, 3),
}
BITS = {operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift}


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.__name__)
def test_operators_from_both_sides(device, op):
    a, b = OPERATORS[op]
    dtype = "int64" if op in BITS else "float64"
    x, y = (wf.tensor([v], dtype=dtype, device=device) for v in (a, b))
    expected = op(np.array([a], dtype), np.array([b], dtype)).tolist()
    assert op(x, y).tolist() == op(x, b).tolist() == op(a, y).tolist() == expected
    raw = np.array([a], dtype) if device == "cpu" else torch.tensor([a], dtype=x._data.dtype)
    assert op(raw, y).tolist() == expected and isinstance(op(raw, y), wf.Tensor)


def test_unary_operators_and_matmul(device):
    x = wf.tensor([-1.5, 2.0], device=device)
    assert (-x).tolist() == [1.5, -2.0] and (+x).tolist() == x.tolist()
    assert abs(x).tolist() == [1.5, 2.0]
    assert (~(x > 0)).tolist() == [True, False]
    assert (x @ x).item() == 6.25
    y = x
    y += 1
    y *= 2
    assert y is x and x.tolist() == [-1.0, 6.0]  # one object with two names, as in NumPy


def test_identity_hash_and_equality():
    x, y = leaf([1.0]), leaf([1.0])
    assert len({x, y, x}) == 2 and {x: "found"}[x] == "found"
    assert (x == y).tolist() == [True] and (x != y).tolist() == [False]
    assert (x == None) is False and (x != None) is True  # noqa: E711
    assert x in [x]


def test_weak_references():
    x = leaf([1.0])
    seen = []
    r = weakref.ref(x, seen.append)
    assert r() is x
    y = x * 2
    gc.disable()
    try:
        del x, y
        assert r() is None and seen == [r]
    finally:
        gc.enable()


class TestIteration:
    def test_over_the_first_axis(self, device):
        x = leaf([[1.0, 2.0], [3.0, 4.0]], device)
        first, second = x
        assert (first * second).sum().backward()[x].tolist() == [[3.0, 4.0], [1.0, 2.0]]
        assert [row.tolist() for row in reversed(x)] == [[3.0, 4.0], [1.0, 2.0]]
        assert list(wf.zeros((0, 2), device=device)) == []
        assert 3.0 in x and 5.0 not in x

    def test_built_in_functions(self):
        x = leaf([3.0, 1.0, 2.0])
        total = sum(x)
        assert total.backward()[x].tolist() == [1.0, 1.0, 1.0]
        assert max(x).item() == 3.0 and [v.item() for v in sorted(x)] == [1.0, 2.0, 3.0]

    def test_a_scalar_has_nothing_to_loop_over(self, device):
        x = wf.tensor(1.0, device=device)
        for use in (iter, list, tuple, len):
            with pytest.raises(errors.Unsized, match=r"0-d.*test_tensor.py"):
                use(x)
        assert not np.iterable(x)  # it asks for a TypeError


class TestNumbers:
    def test_conversions(self, device):
        one = wf.tensor([[2.5]], device=device)
        assert (float(one), int(one), complex(one), bool(one)) == (2.5, 2, 2.5 + 0j, True)
        assert not wf.tensor(0.0, device=device)
        assert math.sin(one) == math.sin(2.5) and math.floor(one) == 2
        n = wf.tensor(2, device=device)
        assert [10, 20, 30][n] == 30 and list(range(n)) == [0, 1]
        assert np.arange(5)[n] == 2

    @pytest.mark.parametrize("value", [1, 1.5, True, 1j])
    def test_items_are_python_numbers(self, device, value):
        x = wf.tensor(value, device=device)
        assert x.item() == value and type(x.item()) is type(value)
        assert x.to_scalar() == value and type(x.tolist()) is type(value)

    def test_half_precision_items(self, device):
        for dtype in ("float16", "bfloat16"):
            x = wf.tensor([0.5, 2.0], dtype=dtype, device=device)
            assert x.tolist() == x.to_vec() == [0.5, 2.0] and type(x[0].item()) is float

    def test_lists(self, device):
        x = wf.arange(4, device=device).reshape(2, 2).T
        assert x.tolist() == [[0, 2], [1, 3]] and x.to_vec() == [0, 2, 1, 3]
        assert leaf([1.0], device).tolist() == [1.0]

    @pytest.mark.parametrize("use", [bool, int, float, complex, wf.Tensor.item])
    def test_only_one_element_has_a_value(self, device, use):
        for shape in ((3,), (0,), (1, 2)):
            with pytest.raises(errors.ShapeError, match=r"test_tensor.py:\d+"):
                use(wf.ones(shape, device=device))

    def test_only_integers_are_indices(self, device):
        for value in (1.0, True, 1j):
            with pytest.raises(errors.DTypeError, match=r"integer.*test_tensor.py"):
                range(wf.tensor(value, device=device))
        with pytest.raises(TypeError):
            float(wf.tensor(1j, device=device))


class TestMoving:
    def test_there_and_back(self, device):
        x = leaf([1.0, 2.0], device)
        y = x.to(other(device))
        assert (y.device, y.dtype, y.tolist()) == (other(device), wf.float64, [1.0, 2.0])
        assert (y**3).sum().backward(retain_graph=True)[x].tolist() == [3.0, 12.0]
        grads = (y.to(device) * x * y.to(device)).sum().backward(create_graph=True)
        assert grads[x].device == device and grads[x].tolist() == [3.0, 12.0]
        assert grads[x].sum().backward()[x].tolist() == [6.0, 12.0]

    def test_a_moved_gradient_is_no_alias_of_the_seed(self, device):
        x = wf.ones(2, device=device, requires_grad=True)
        seed = wf.ones(2, device=other(device))
        grads = x.to(other(device)).backward(seed)
        wf.mul(seed, 5.0, out=seed)
        assert grads[x].tolist() == x.grad.tolist() == [1.0, 1.0]

    @pytest.mark.parametrize("dtype", "bool int8 uint64 float16 bfloat16 complex64".split())
    def test_every_dtype_moves(self, device, dtype):
        x = wf.tensor([1, 0], dtype=dtype, device=device)
        y = x.to(other(device))
        assert y.dtype == x.dtype and y.tolist() == x.tolist()

    def test_nothing_to_do(self, device):
        x = wf.ones(2, device=device)
        assert x.to(device) is x and x.to("float32") is x and x.to_device(device) is x

    def test_dtypes(self, device):
        x = leaf([1.7, 2.0], device)
        y = x.to("float32")
        assert y.dtype == wf.float32
        assert (y * y).sum().backward()[x].dtype == wf.float64
        assert x.to(torch.float16).dtype == wf.float16 and x.to(np.int64).tolist() == [1, 2]
        assert not x.to("int64").requires_grad
        z = x.to("complex64")
        assert (z * z.conj()).real.sum().backward()[x].dtype == wf.float64

    def test_mistakes(self, device):
        x = wf.ones(2, device=device)
        for target in ("float31", "tpu", None, 3, object):
            with pytest.raises(errors.DTypeError, match=r"test_tensor.py"):
                x.to(target)
        with pytest.raises(errors.DTypeError, match=r"imaginary.*wf.real"):
            x.to("complex64").to("float32")
        with pytest.raises(errors.ArgumentError, match="stream"):
            x.to_device(device, stream=1)


MIXED = {
    "add": lambda x, y: x + y,
    "multiply": lambda x, y: wf.mul(x, y),
    "pow": lambda x, y: x**y,
    "less": lambda x, y: x < y,
    "matmul": lambda x, y: x @ y,
    "maximum": lambda x, y: wf.maximum(x, y),
    "where": lambda x, y: wf.where(x > 0, y, y),
    "concat": lambda x, y: wf.concat([x, y]),
    "stack": lambda x, y: wf.stack([x, y]),
    "einsum": lambda x, y: wf.einsum("i,i->", x, y),
    "solve": lambda x, y: wf.linalg.solve(wf.eye(3, device=x.device), y),
    "clip": lambda x, y: wf.clip(x, y, None),
    "take": lambda x, y: x[y.to("int64")],
    "searchsorted": lambda x, y: wf.searchsorted(x, y),
}


@pytest.mark.parametrize("name", MIXED)
def test_devices_do_not_mix(device, name):
    x, y = wf.ones(3, device=device), wf.ones(3, device=other(device))
    words = rf"{name}.*'{device}' and '{other(device)}'|{name}.*'{other(device)}' and '{device}'"
    with pytest.raises(errors.DeviceError, match=words) as e:
        MIXED[name](x, y)
    assert ".to('" in e.value.message and "test_tensor.py:" in str(e.value)
    with pytest.raises(errors.DeviceError):
        MIXED[name](x.requires_grad_(), y)


def test_numbers_and_lists_have_no_device(device):
    x = wf.tensor([1.0, 2.0, 3.0], device=device)
    assert wf.where(x > 1, 1, 2.5).tolist() == [2.5, 1.0, 1.0]
    assert wf.isclose(x, 2.0).tolist() == wf.isclose(2.0, x).tolist() == [False, True, False]
    assert wf.searchsorted(x, 2.5).item() == 2 and wf.searchsorted(x, [0.5, 3.5]).tolist() == [0, 3]
    assert wf.isin(x, [2.0, 3.0]).tolist() == [False, True, True]
    assert wf.interp(1.5, x, [0.0, 1.0, 2.0]).item() == 0.5
    assert wf.histogram(x, [0.0, 1.5, 4.0]).tolist() == [1, 2]
    assert wf.take(x, [0, 2]).tolist() == x[[0, 2]].tolist() == [1.0, 3.0]


def test_foreign_arrays_have_devices_too():
    x, y = wf.ones(3), wf.ones(3, device="torch")
    for call in (lambda: x * torch.ones(3), lambda: torch.ones(3) * x, lambda: np.ones(3) * y):
        with pytest.raises(errors.DeviceError, match="multiply"):
            call()
    assert (y * torch.ones(3)).device == (torch.ones(3) * y).device == "torch"
    with pytest.raises(errors.InterchangeError, match="detach"):
        y * torch.ones(3, requires_grad=True)
