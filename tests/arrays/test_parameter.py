"""Parameters and collections of them: MISSION's section 3."""

import copy
import pickle

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors
from weft.arrays.parameter import Parameter


@pytest.fixture(params=["cpu", "torch"])
def device(request):
    return request.param


def parameter(device, values=(1.0, 2.0)):
    return wf.Parameter(wf.tensor(list(values), device=device))


def test_a_parameter_owns_its_memory(device):
    a = np.ones(2)
    p = wf.Parameter(a)
    a[0] = 9.0
    assert p.tolist() == [1.0, 1.0] and p.dtype == wf.float64
    t = wf.ones(2, device=device, requires_grad=True)
    q = wf.Parameter(t * 2)
    assert q.is_leaf and q.requires_grad and q.device == device and q.shape == (2,)
    assert isinstance(q, wf.Tensor) and type(q * 2) is wf.Tensor
    assert not wf.Parameter([1.0], requires_grad=False).requires_grad
    assert wf.Parameter(torch.ones(2)).device == "torch"


def test_constructors():
    wf.random.seed(0)
    p = wf.Parameter.randn((1000,), 5.0, 0.1)
    assert p.shape == (1000,) and abs(p.detach().mean().item() - 5.0) < 0.05
    assert wf.Parameter.randn((2, 3), mean=1.0, std=0.0).tolist() == [[1.0] * 3] * 2
    z = wf.Parameter.zeros((2, 2), dtype="float64")
    assert z.tolist() == [[0.0, 0.0]] * 2 and z.dtype == wf.float64 and z.requires_grad
    with pytest.raises(wf.NotDifferentiable, match="int64"):
        wf.Parameter([1, 2])


def test_ids_are_distinct():
    p, q = wf.Parameter([1.0]), wf.Parameter([1.0])
    assert p.id != q.id and len({p, q}) == 2
    grads = (p * q).sum().backward()
    assert grads.get(p.id) is grads[p] and set(grads) == {p.id, q.id}


def test_tensor_stays_connected(device):
    p = parameter(device)
    t = p.tensor()
    assert type(t) is wf.Tensor and t.requires_grad
    grads = (t * t).sum().backward()
    assert grads[p].tolist() == grads[t].tolist() == p.grad.tolist() == [2.0, 4.0]


def test_gradients(device):
    p = parameter(device)
    assert p.grad is None
    (p * 2).sum().backward()
    (p * 3).sum().backward()
    assert p.grad.tolist() == [5.0, 5.0]
    p.zero_grad()
    assert p.grad is None
    p.set_grad(wf.ones(2, dtype="float64", device=device))
    assert p.grad.dtype == wf.float32
    frozen = wf.Parameter([1.0], requires_grad=False)
    frozen.zero_grad()
    assert frozen.grad is None


def test_updates(device):
    p = parameter(device)
    (p * p).sum().backward()
    p.update(0.25)
    assert p.tolist() == [0.5, 1.0] and p.grad.tolist() == [2.0, 4.0]
    p.apply_update(wf.tensor([0.5, 1.0], device=device))
    assert p.tolist() == [0.0, 0.0] and p.requires_grad
    p.update(wf.tensor(1.0, device=device))
    assert p.tolist() == [-2.0, -4.0]
    assert (p * p).sum().backward()[p].tolist() == [-4.0, -8.0]
    if device == "cpu":
        p.apply_update(np.array([1.0, 1.0]))
        assert p.tolist() == [-3.0, -5.0] and p.dtype == wf.float32


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "complex64"])
def test_updates_in_every_dtype(device, dtype):
    p = wf.Parameter(wf.ones(2, dtype=dtype, device=device))
    p.set_grad(wf.ones(2, dtype=dtype, device=device))
    p.update(0.5)
    assert p.dtype == wf.canonical_dtype(dtype) and p.tolist() == [0.5, 0.5]


def test_an_update_before_backward_is_noticed(device):
    p = parameter(device)
    y = (p * p).sum()
    p.apply_update(wf.ones(2, device=device))
    with pytest.raises(errors.SavedValueOverwritten, match=r"multiply \(at test_parameter.py"):
        y.backward()


BAD = {
    "no gradient": (errors.MissingGradient, lambda p: p.update(0.1)),
    "gradient's shape": (errors.ShapeError, lambda p: p.set_grad(wf.ones(3))),
    "update's shape": (errors.ShapeError, lambda p: p.apply_update(wf.ones(1))),
    "a number": (errors.ShapeError, lambda p: p.apply_update(1.0)),
    "gradient's device": (errors.DeviceError, lambda p: p.set_grad(wf.ones(2, device="torch"))),
    "update's device": (errors.DeviceError, lambda p: p.apply_update(wf.ones(2, device="torch"))),
    "complex update": (errors.DTypeError, lambda p: p.apply_update(wf.tensor([1j, 1j]))),
    "nothing": (errors.DTypeError, lambda p: p.apply_update(None)),
    "copy_": (errors.InPlaceOnTracked, lambda p: p.copy_([5.0, 6.0])),
    "assignment": (errors.InPlaceOnTracked, lambda p: p.__setitem__(0, 5.0)),
}


@pytest.mark.parametrize("name", BAD)
def test_mistakes_leave_the_parameter_alone(name):
    error, call = BAD[name]
    p = parameter("cpu")
    with pytest.raises(error, match=r"\(at test_parameter.py:\d+\)"):
        call(p)
    assert p.tolist() == [1.0, 2.0] and p.requires_grad and p.grad is None


def test_under_no_grad_values_may_be_replaced(device):
    p = parameter(device)
    with wf.no_grad():
        p.copy_([5.0, 6.0])
        p[1] = 7.0
    assert p.tolist() == [5.0, 7.0]
    assert (p * p).sum().backward()[p].tolist() == [10.0, 14.0]


def pickled(p):
    return pickle.loads(pickle.dumps(p))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled])
def test_copies_are_parameters(device, copied):
    p = parameter(device)
    q = copied(p)
    assert type(q) is Parameter and q.requires_grad and q.device == device and q.id != p.id
    q.apply_update(wf.ones(2, device=device))
    assert p.tolist() == [1.0, 2.0] and q.tolist() == [0.0, 1.0]


def test_deepcopy_keeps_shared_parameters_shared():
    p = parameter("cpu")
    model = copy.deepcopy({"encoder": p, "decoder": [p]})
    assert model["encoder"] is model["decoder"][0] is not p


class TestParameterDict:
    def test_in_the_order_of_insertion(self):
        b, a = wf.Parameter([2.0]), wf.Parameter([1.0])
        d = wf.ParameterDict({"b": b})
        d.insert("a", a)
        d["c"] = wf.Parameter([3.0])
        assert list(d) == [name for name, _ in d.named_parameters()] == ["b", "a", "c"]
        assert d.get("a") is d["a"] is d.parameters()[1] is a
        assert d.get("none") is None and d.get("none", 3) == 3
        assert len(d) == 3 and "a" in d and "z" not in d
        d.insert("b", a)
        assert d.named_parameters()[0] == ("b", a) and repr(d).startswith("ParameterDict(b: (1,)")

    def test_zero_grad(self):
        d = wf.ParameterDict({"w": wf.Parameter([1.0])})
        (d["w"] * 2).sum().backward()
        d.zero_grad()
        assert d["w"].grad is None

    def test_mistakes(self):
        d = wf.ParameterDict({"w": wf.Parameter([1.0])})
        for name, value in (("a", 3.0), ("a", wf.ones(2)), (3, wf.Parameter([1.0]))):
            with pytest.raises(errors.DTypeError, match=r"insert.*Parameter.*test_parameter.py"):
                d.insert(name, value)
        with pytest.raises(errors.MissingParameter, match=r"'v', only w.*test_parameter.py"):
            d["v"]
        assert isinstance(errors.MissingParameter("v"), KeyError)
