"""Reading and writing parts of tensors: values, gradients, and nobody else's memory."""

import operator

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors


@pytest.fixture(params=["cpu", "torch"])
def device(request):
    return request.param


def leaf(values, device="cpu"):
    return wf.tensor(np.asarray(values, dtype=float), device=device, requires_grad=True)


PLACES = {
    "set": [0.0, 2.0, 2.0, 3.0],
    "add": [0.0, 6.0, 2.0, 3.0],
    "subtract": [0.0, -4.0, 2.0, 3.0],
    "multiply": [0.0, 6.0, 2.0, 3.0],
    "divide": [0.0, 1 / 6, 2.0, 3.0],
    "maximum": [0.0, 3.0, 2.0, 3.0],
    "minimum": [0.0, 1.0, 2.0, 3.0],
}


@pytest.mark.parametrize("name", PLACES)
def test_at_leaves_the_tensor_alone(device, name):
    x = wf.arange(4.0, device=device)
    y = getattr(x.at[[1, 1]], name)(wf.tensor([3.0, 2.0], device=device))
    assert y.tolist() == pytest.approx(PLACES[name])
    assert x.tolist() == [0.0, 1.0, 2.0, 3.0] and x.at[1].get().item() == 1.0


def test_at_index_by_flat_position(device):
    x = leaf([[1.0, 2.0], [3.0, 4.0]], device)
    y = x.add_at_index(2, 10.0).sub_at_index(-1, 1.0)
    assert y.tolist() == [[1.0, 2.0], [13.0, 3.0]]
    assert (y * y).sum().backward()[x].tolist() == [[2.0, 4.0], [26.0, 6.0]]
    with pytest.raises(errors.IndexingError, match="position 4 is out of range for 4"):
        x.add_at_index(4, 1.0)


def test_augmented_assignment_through_a_mask(device):
    x = leaf([1.0, -2.0, 3.0], device)
    y = x * 1
    y[y < 0] += 10.0
    y[[0, 0]] += wf.asarray([1.0, 2.0], device=device)  # one addition: the last write wins
    assert y.tolist() == [3.0, 8.0, 3.0]
    assert (y * y).sum().backward()[x].tolist() == [6.0, 16.0, 6.0]


def test_a_recurrence_by_assignment(device):
    x = wf.tensor(2.0, dtype="float64", device=device, requires_grad=True)
    y = wf.zeros(5, dtype="float64", device=device)
    y[0] = x
    for i in range(1, 5):
        y[i] = y[i - 1] * x
    assert y.tolist() == [2.0, 4.0, 8.0, 16.0, 32.0]
    assert y.sum().backward()[x].item() == sum(k * 2.0 ** (k - 1) for k in range(1, 6))


def test_second_order_through_assignment(device):
    x = leaf([1.0, 2.0], device)
    y = x * 1
    y[0] = x[1] ** 3
    g = (y * y).sum().backward(create_graph=True)[x]
    assert g.tolist() == [0.0, 6 * 2.0**5 + 4.0]
    assert g.sum().backward()[x].tolist() == [0.0, 30 * 2.0**4 + 2.0]


def test_overlapping_source_and_target(device):
    y = wf.arange(5.0, device=device)
    y[1:] = y[:-1]
    assert y.tolist() == [0.0, 0.0, 1.0, 2.0, 3.0]
    y[:] = y[::-1]
    assert y.tolist() == [3.0, 2.0, 1.0, 0.0, 0.0]
    y[0], y[1] = y[1], y[0]
    assert y.tolist() == [2.0, 3.0, 1.0, 0.0, 0.0]


def test_edges(device):
    y = wf.tensor(1.0, device=device)
    y[()] = 5.0
    assert y.item() == 5.0
    y[...] = 6.0
    assert y.item() == 6.0
    y = wf.zeros((2, 2), device=device)
    y[None] = wf.ones((1, 2, 2), device=device)
    y[[]] = 7.0
    y[False] = 8.0
    assert y.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    y[True] = 9.0
    assert y.tolist() == [[9.0, 9.0], [9.0, 9.0]]


def test_assigning_keeps_the_dtype(device):
    y = wf.zeros(3, dtype="float16", device=device)
    y[0] = np.float64(0.5)
    y[1] = wf.tensor(2.0, dtype="float64", device=device)
    assert y.dtype == wf.float16 and y.tolist() == [0.5, 2.0, 0.0]
    y = wf.zeros(1, dtype="float64", device=device)
    y[0] = 0.1
    assert y.item() == 0.1  # not rounded to the default float on the way
    y = wf.zeros(2, dtype="int64", device=device)
    y[0] = 2.7
    assert y.tolist() == [2, 0]


class TestNobodyElseChanges:
    """Value semantics: whoever shared the memory keeps the old values."""

    def test_detached_and_views(self, device):
        y = wf.zeros((2, 2), device=device)
        others = [y.detach(), y[0], y.T, y.reshape(4), y.numpy(), np.asarray(y)]
        y[0, 0] = 1.0
        assert y.tolist() == [[1.0, 0.0], [0.0, 0.0]]
        assert all(not np.asarray(o).any() for o in others)
        copy = y[0].clone()
        copy[1] = 5.0
        assert copy.tolist() == [1.0, 5.0] and y.tolist() == [[1.0, 0.0], [0.0, 0.0]]

    @pytest.mark.parametrize("part", [slice(None), slice(1, None)])
    def test_numpy_arrays(self, part):
        a = np.zeros(4)
        y = wf.asarray(a[part])
        y[0] = 1.0
        assert y[0].item() == 1.0 and not a.any()

    def test_read_only_numpy_arrays(self):
        a = np.zeros(3)
        a.flags.writeable = False
        y = wf.asarray(a)
        y[0] = 1.0
        assert y.tolist() == [1.0, 0.0, 0.0] and not a.any()

    def test_torch_tensors(self):
        t = torch.zeros(3)
        y, on_cpu = wf.asarray(t), wf.from_dlpack(t)
        y[0] = on_cpu[0] = 1.0
        assert y[0].item() == on_cpu[0].item() == 1.0 and not t.any()

    def test_exported_memory(self):
        y = wf.zeros(3)
        exported = [torch.from_dlpack(y), np.from_dlpack(y), y.torch()]
        y[0] = 1.0
        assert not any(e.any() for e in exported)

    def test_saved_values(self, device):
        x = leaf([1.0, 2.0], device)
        y = wf.asarray([3.0, 4.0], device=device)
        z, h = x * y, x.exp()
        squared = h * h
        y[0] = 100.0
        h[0] = 100.0
        assert z.sum().backward()[x].tolist() == [3.0, 4.0]
        expected = 2 * np.exp([2.0, 4.0])
        np.testing.assert_allclose(squared.sum().backward()[x].tolist(), expected, rtol=1e-14)

    def test_parameters_and_gradients(self, device):
        p = wf.Parameter(wf.zeros(2, device=device))
        value = p.detach().clone()
        value[0] = 1.0
        assert p.tolist() == [0.0, 0.0]
        grads = (p * 3).sum().backward()
        g = grads[p]
        g[0] = 100.0
        assert p.grad.tolist() == [3.0, 3.0]

    def test_broadcast_memory(self, device):
        y = wf.broadcast_to(wf.zeros(1, device=device), (3,)).clone()
        y[0] = 1.0
        assert y.tolist() == [1.0, 0.0, 0.0]


def test_alone_it_writes_in_place():
    y = wf.zeros(1000)
    address = y._data.ctypes.data
    y[0] = 1.0
    y[y == 0] = 2.0
    assert y._data.ctypes.data == address


class Holder:
    def __init__(self, tensor):
        self.tensor = tensor

    @property
    def alias(self):
        return self.tensor


class TestTemporaries:
    """`y[0][1] = v` raises; whatever has a name or a place is assigned."""

    def test_lost_assignments_raise(self):
        y = wf.zeros((2, 2))
        with pytest.raises(errors.TemporaryAssignment, match=r"y\[i, j\] = v"):
            y[0][1] = 3.0
        with pytest.raises(errors.TemporaryAssignment):
            y[0:1][0] = 3.0
        with pytest.raises(errors.TemporaryAssignment):
            y[0][0:1] = 3.0
        with pytest.raises(errors.TemporaryAssignment):
            y[0][1] += 3.0
        with pytest.raises(errors.TemporaryAssignment):
            y.T[0] = 3.0
        with pytest.raises(errors.TemporaryAssignment):
            wf.zeros(3)[0] = 1.0
        with pytest.raises(errors.TemporaryAssignment):
            [y][0][0][1] = 3.0
        assert not y.any()

    def test_what_is_held_is_assigned(self):
        items, named, holder = [wf.zeros(2)], {"a": wf.zeros(2)}, Holder(wf.zeros(2))
        items[0][1] = named["a"][1] = holder.tensor[1] = 3.0
        holder.alias[0] = 4.0
        assert [t.tolist() for t in (items[0], named["a"])] == [[0.0, 3.0]] * 2
        assert holder.tensor.tolist() == [4.0, 3.0]
        (walrus := wf.zeros(2))[0] = 1.0
        assert walrus.tolist() == [1.0, 0.0]

        def change(t):
            t[0] = 5.0
            return t

        y = wf.zeros(2)
        change(y)
        assert y.tolist() == change(wf.zeros(2)).tolist() == [5.0, 0.0]

    def test_explicit_calls(self):
        y = wf.zeros(3)
        y.__setitem__(0, 1.0)
        operator.setitem(y, 1, 2.0)
        [y.__setitem__(i, 3.0) for i in (2,)]
        assert y.tolist() == [1.0, 2.0, 3.0]


class TestTracked:
    """Assignments that would cut or falsify a gradient raise."""

    def test_a_leaf(self, device):
        x = leaf([1.0, 2.0], device)
        with pytest.raises(errors.InPlaceOnTracked, match=r"x.at\[i\].set\(v\)"):
            x[0] = 5.0
        with pytest.raises(errors.InPlaceOnTracked):
            x[0] += 5.0
        watched = wf.GradientTape().watch(wf.zeros(2, device=device))
        watched[0] = 1.0  # the tape is gone, and its watch with it
        tape = wf.GradientTape()
        with pytest.raises(errors.InPlaceOnTracked):
            tape.watch(watched)[0] = 2.0

    def test_a_leaf_under_no_grad_stays_a_leaf(self, device):
        x = leaf([1.0, 2.0], device)
        y = (x * x).sum()
        with wf.no_grad():
            x[0] = 7.0
        assert x.requires_grad and x.tolist() == [7.0, 2.0]
        assert y.backward()[x].tolist() == [2.0, 4.0]  # of the values it was computed with
        assert (x * x).sum().backward()[x].tolist() == [14.0, 4.0]

    def test_a_result_under_no_grad(self, device):
        y = leaf([1.0, 2.0], device) * 2
        with wf.no_grad(), pytest.raises(errors.InPlaceOnTracked, match="made by multiply"):
            y[0] = 7.0

    def test_into_integers(self, device):
        x, y = leaf(2.5, device), wf.zeros(3, dtype="int64", device=device)
        with pytest.raises(errors.NotDifferentiable, match=r"int64.*detach"):
            y[0] = x
        with pytest.raises(errors.NotDifferentiable):
            y[:2] = [x, 1]
        with pytest.raises(errors.NotDifferentiable):
            y.at[0].set(x)
        with wf.no_grad():
            y[0] = x
        assert y.tolist() == [2, 0, 0]

    def test_a_severed_gradient_keeps_its_mark(self):
        x = leaf([1.0, 2.0])
        g = (x * x).sum().backward()[x]
        y = wf.zeros(2, dtype="float64")
        y[0] = g[0]
        with pytest.raises(errors.GradientNotRecorded, match="create_graph"):
            y.sum().backward()


BAD = {
    "shape": (errors.ShapeError, slice(0, 2), lambda d: wf.ones(3, device=d)),
    "too many axes": (errors.ShapeError, 0, lambda d: wf.ones(2, device=d)),
    "mask": (errors.ShapeError, [True, False, True], lambda d: wf.ones(3, device=d)),
    "index": (errors.IndexingError, 7, lambda d: 1.0),
    "array of indices": (errors.IndexingError, [0, 7], lambda d: 1.0),
    "negative index": (errors.IndexingError, [0, -4], lambda d: 1.0),
    "mask of another shape": (errors.IndexingError, [True, False], lambda d: 1.0),
    "float index": (errors.IndexingError, 1.0, lambda d: 1.0),
    "string index": (errors.IndexingError, "a", lambda d: 1.0),
    "step": (errors.IndexingError, slice(None, None, 0), lambda d: 1.0),
    "too many indices": (errors.IndexingError, (0, 0), lambda d: 1.0),
    "two ellipses": (errors.IndexingError, (..., ...), lambda d: 1.0),
    "complex value": (errors.DTypeError, 0, lambda d: 1j),
    "complex tensor": (errors.DTypeError, 0, lambda d: wf.asarray(1j, device=d)),
    "string": (errors.DTypeError, 0, lambda d: "a"),
    "nothing": (errors.DTypeError, 0, lambda d: None),
}


@pytest.mark.parametrize("name", BAD)
def test_a_refused_assignment_changes_nothing(device, name):
    error, key, value = BAD[name]
    y = wf.arange(3.0, device=device)
    with pytest.raises(error, match=r"\(at test_assignment.py:\d+\)"):
        y[key] = value(device)
    with pytest.raises(error):
        y.at[key].set(value(device))
    assert y.tolist() == [0.0, 1.0, 2.0]
