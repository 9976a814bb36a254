"""Speaking with NumPy, PyTorch, scikit-learn, copy and pickle without losing a gradient."""

import copy
import pickle
import statistics
import sys

import numpy as np
import pytest
import sklearn
import sklearn.metrics
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.metrics import pairwise
from sklearn.preprocessing import MinMaxScaler

import weft as wf
from weft import errors


def leaf(values=(1.0, 2.0, 3.0), device="cpu"):
    return wf.tensor(np.asarray(values, dtype=float), device=device, requires_grad=True)


class TestArray:
    def test_untracked_tensors_are_arrays(self):
        x = wf.tensor([1.0, 2.0])
        assert np.shares_memory(np.asarray(x), x._data) and np.asarray(x).dtype == np.float32
        assert np.asarray(x, dtype=np.float64).dtype == np.float64
        assert not np.shares_memory(np.array(x), x._data)
        with pytest.raises(ValueError, match="copy"):
            np.array(x, dtype=np.float64, copy=False)
        assert np.asarray(wf.tensor([1.0], device="torch")).tolist() == [1.0]
        np.testing.assert_allclose(x, [1.0, 2.0])
        assert np.arange(5)[wf.tensor([0, 1])].tolist() == [0, 1]

    def test_the_view_is_read_only(self):
        x = wf.tensor([1.0, 2.0])
        for view in (x.numpy(), np.asarray(x), np.from_dlpack(x), leaf().detach().numpy()):
            assert not view.flags.writeable
            with pytest.raises(ValueError, match="read-only"):
                view[0] = 5.0
        on_torch = wf.tensor([1.0], device="torch")
        assert not on_torch.numpy().flags.writeable
        assert np.shares_memory(on_torch.numpy(), on_torch._data.numpy())


DROPPING = {
    "numpy()": lambda x: x.numpy(),
    "np.asarray": np.asarray,
    "np.array": np.array,
    "an array of tensors": lambda x: np.array([x, x]),
    "an array of scalars": lambda x: np.array([1.0, x[0]]),
    "np.from_dlpack": np.from_dlpack,
    "torch.from_dlpack": torch.from_dlpack,
    "torch.as_tensor": torch.as_tensor,
    "torch()": lambda x: x.torch(),
    "a slice of an array": lambda x: np.zeros(3).__setitem__(slice(None), x),
    "in-place arithmetic": lambda x: np.zeros(3).__iadd__(x),
    "np.vectorize": lambda x: np.vectorize(lambda v: v + 1)(x),
    "a list of tensors": lambda x: np.mean([x, x], axis=0),
    "np.random": lambda x: np.random.default_rng(0).normal(x),
    "a metric that is a float": lambda x: dispatched(
        sklearn.metrics.mean_squared_error, x, x.detach()
    ),
}


@pytest.mark.parametrize("name", DROPPING)
def test_what_would_drop_the_gradient_raises(name):
    words = r"would drop its gradient; use x.detach\(\).*\(at test_interchange.py:\d+\)"
    with pytest.raises(errors.InterchangeError, match=words):
        DROPPING[name](leaf())


def test_filling_an_array_with_numbers_raises():
    a, x = np.zeros(3), leaf()
    for fill in ("a[0] = x[0]", "a[0] += x[1]"):
        with pytest.raises((ValueError, errors.InterchangeError)) as e:
            exec(fill, {"a": a, "x": x})
        found = e.value if isinstance(e.value, errors.InterchangeError) else e.value.__cause__
        assert isinstance(found, errors.InterchangeError) and "x.detach()" in str(found)
    assert not a.any()
    with wf.no_grad():
        a[0] = x[0]
    a[1], a[2] = float(x[1]), x[2].item()  # whoever says so gets the number
    assert a.tolist() == [1.0, 2.0, 3.0]
    assert statistics.fmean([float(v) for v in x]) == 2.0 and f"{x[0]:.1f}" == "1.0"


class TestDlpack:
    def test_to_numpy_and_torch_without_a_copy(self):
        x, y = wf.tensor([1.0, 2.0]), wf.tensor([1.0, 2.0], device="torch")
        assert np.shares_memory(np.from_dlpack(x), x._data)
        assert torch.from_dlpack(x).data_ptr() == x._data.ctypes.data
        assert np.from_dlpack(y).ctypes.data == y._data.data_ptr()
        assert torch.from_dlpack(y).data_ptr() == y._data.data_ptr()
        assert x.torch().data_ptr() == x._data.ctypes.data and y.torch() is y._data
        assert x.__dlpack_device__() == y.__dlpack_device__() == (1, 0)

    def test_there_and_back(self):
        x = wf.tensor([[1.0, 2.0], [3.0, 4.0]])[:, ::-1]
        for back in (wf.from_dlpack(np.from_dlpack(x)), wf.from_dlpack(torch.tensor(x.tolist()))):
            assert back.device == "cpu" and back.tolist() == x.tolist()
        assert wf.asarray(torch.from_dlpack(wf.ones(2))).device == "torch"

    def test_copies_on_request(self):
        x = wf.tensor([1.0, 2.0])
        copied = np.from_dlpack(x, copy=True)
        assert not np.shares_memory(copied, x._data)

    def test_a_shared_gradient_is_not_handed_out_for_writing(self):
        x = leaf()
        g = (x * x).sum().backward()[x]
        exported = g.torch()
        exported[0] = 100.0
        assert g.tolist() == x.grad.tolist() == [2.0, 4.0, 6.0]

    def test_half_precision(self):
        x = wf.ones(2, dtype="bfloat16")
        assert x.torch().dtype == torch.bfloat16 and x.torch().tolist() == [1.0, 1.0]
        with pytest.raises(errors.InterchangeError, match=r"bfloat16.*x.torch\(\)"):
            torch.from_dlpack(x)
        assert torch.from_dlpack(x.to("float16")).dtype == torch.float16


@pytest.mark.skipif(sys.version_info < (3, 12), reason="__buffer__ is new in Python 3.12")
def test_the_buffer_protocol():
    x = wf.tensor([1.0, 2.0])
    view = memoryview(x)
    assert view.readonly and view.tolist() == [1.0, 2.0] and view.format == "f"
    assert np.shares_memory(np.frombuffer(x, dtype=np.float32), x._data)
    with pytest.raises(errors.InterchangeError, match=r"x.detach\(\)"):
        memoryview(leaf())


MADE = {
    "plain": lambda d: wf.tensor([1.0, 2.0], device=d),
    "leaf": lambda d: leaf(device=d),
    "scalar": lambda d: wf.tensor(1.0, device=d),
    "empty": lambda d: wf.zeros((0, 3), device=d),
    "transposed": lambda d: wf.arange(6.0, device=d).reshape(2, 3).T,
    "reversed": lambda d: wf.flip(wf.arange(3.0, device=d)),
    "bfloat16": lambda d: wf.ones(2, dtype="bfloat16", device=d),
    "complex": lambda d: wf.conj(wf.tensor([1j, 2.0], device=d)),
    "gradient": lambda d: (lambda x: (x * x).sum().backward()[x])(leaf(device=d)),
}


class TestCopying:
    @pytest.mark.parametrize("device", ["cpu", "torch"])
    @pytest.mark.parametrize("name", MADE)
    def test_values_device_and_state_survive(self, name, device):
        x = MADE[name](device)
        for y in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
            assert (y.shape, y.dtype, y.device) == (x.shape, x.dtype, x.device)
            assert y.tolist() == x.tolist() and y.requires_grad == x.requires_grad and y.is_leaf
            assert y is not x and y.id != x.id

    def test_copies_are_independent(self):
        x = wf.tensor([1.0, 2.0])
        for y in (copy.copy(x), copy.deepcopy(x)):
            wf.mul(y, 5.0, out=y)
        assert x.tolist() == [1.0, 2.0]

    def test_shared_tensors_stay_shared(self):
        x = leaf()
        twice = copy.deepcopy([x, {"x": x}])
        assert twice[0] is twice[1]["x"] is not x
        again = pickle.loads(pickle.dumps([x, x]))
        assert again[0] is again[1]

    def test_results_are_refused(self):
        y = leaf() * 2
        words = r"multiply \(at test_interchange.py:\d+\).*x.detach\(\).*\(at test_interchange.py"
        for use in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(errors.InterchangeError, match=words):
                use(y)
        assert copy.copy(y.detach()).tolist() == [2.0, 4.0, 6.0]


class TestTorch:
    def test_its_tensors_are_operands(self):
        t, x = torch.tensor([1.0, 2.0]), wf.tensor([3.0, 4.0], device="torch", requires_grad=True)
        for y in (t * x, x * t, wf.mul(t, x), t + x - t, torch.ones(2) @ x * t):
            assert isinstance(y, wf.Tensor) and y.requires_grad and y.device == "torch"
        assert (t * x).sum().backward()[x].tolist() == [1.0, 2.0]

    def test_its_own_graph_is_refused(self):
        x = wf.ones(2, device="torch")
        for t in (torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(2))):
            for use in (lambda t: x * t, lambda t: t * x, wf.asarray, wf.tensor, wf.from_dlpack):
                with pytest.raises(errors.InterchangeError, match=r"x.detach\(\)"):
                    use(t)
        assert (x * torch.nn.Parameter(torch.ones(2)).detach()).tolist() == [1.0, 1.0]

    def test_subclasses_become_plain(self):
        t = torch.nn.Parameter(torch.ones(2), requires_grad=False)
        x = wf.asarray(t)
        assert type(x._data) is torch.Tensor and x._data.data_ptr() == t.data_ptr()


def dispatched(function, *args, **options):
    with sklearn.config_context(array_api_dispatch=True):
        return function(*args, **options)


POINTS = np.random.default_rng(0).normal(size=(6, 3))
LEARNING = {
    "rbf_kernel": lambda x: pairwise.rbf_kernel(x, x[:2] + 1.0),
    "cosine_similarity": lambda x: pairwise.cosine_similarity(x, x[:2] + 1.0),
    "euclidean_distances": lambda x: pairwise.euclidean_distances(x, x[:2] + 1.0),
    "MinMaxScaler": lambda x: MinMaxScaler().fit_transform(x),
    "PCA": lambda x: PCA(2, svd_solver="full").fit(x).explained_variance_,
    "Ridge": lambda x: Ridge(solver="svd").fit(x[:, :2], x[:, 2]).coef_,
}


@pytest.mark.parametrize("name", LEARNING)
def test_scikit_learn_keeps_the_gradient(name):
    f, x = LEARNING[name], leaf(POINTS)
    y = dispatched(f, x)
    assert isinstance(y, wf.Tensor) and y.requires_grad
    np.testing.assert_allclose(y.detach().numpy(), f(POINTS), rtol=1e-10, atol=1e-12)
    w = np.random.default_rng(1).normal(size=y.shape)
    gradient = (y * w).sum().backward()[x].numpy()
    direction = np.random.default_rng(2).normal(size=POINTS.shape)

    def along(h):
        return float((f(POINTS + h * direction) * w).sum())

    h = 1e-4  # central differences of fourth order: the error is O(h⁴)
    slope = (8 * (along(h) - along(-h)) - (along(2 * h) - along(-2 * h))) / (12 * h)
    np.testing.assert_allclose((gradient * direction).sum(), slope, rtol=1e-8, atol=1e-10)
