"""Applying operations: what comes in, and what a failed computation says."""

import pickle

import numpy as np
import pytest
import torch

import weft as wf
from weft import errors
from weft.core import dispatch, explain, op
from weft.core.settings import GENERAL, PLAIN, RECORD, Settings


@pytest.fixture(params=["cpu", "torch"])
def device(request):
    return request.param


def test_numpy_scalars_go_where_the_tensors_are(device):
    x = wf.ones(2, device=device, requires_grad=True)
    for y in (x * np.float32(2), np.float32(2) * x, wf.where(x > 0, x, np.float32(0))):
        assert y.device == device and y.requires_grad and y.dtype == wf.float32


def test_lifting_names_the_operation():
    with pytest.raises(errors.DTypeError, match=r"^add: got str, expected a number"):
        dispatch.lift_foreign(op.TABLE["add"], (wf.ones(1), "a"))


class _Fails:
    """A row whose computation raises what it is told to."""

    def __init__(self, error):
        self.error = error

    def __call__(self, x):
        return explain.explain_error(op.TABLE["exp"], (x,), (), self.error)


def test_a_fault_of_the_shapes_explains_any_failure():
    row = op.TABLE["add"]
    args = (wf.ones(2), wf.ones(3))
    found = explain.explain_error(row, args, (), RuntimeError("whatever the backend says"))
    assert type(found) is errors.ShapeError and "(2,), (3,)" in found.message


@pytest.mark.parametrize(
    "cause",
    [
        TypeError("ufunc 'exp' not supported for the input types"),
        NotImplementedError("\"exp\" not implemented for 'Bool'"),
        RuntimeError("expected scalar type Float but found Double"),
    ],
)
def test_refused_dtypes(cause):
    found = _Fails(cause)(wf.ones(2))
    assert type(found) is errors.DTypeError
    assert found.message.startswith("exp: not defined for float32") and str(cause) in found.message


def test_other_failures_keep_their_kind_and_gain_the_line():
    cause = MemoryError("no room")
    found = _Fails(cause)(wf.ones(2))
    assert found is cause and "in exp, called at test_dispatch.py:" in found.__notes__[0]
    ours = errors.ShapeError("exp: no")
    assert _Fails(ours)(wf.ones(2)) is ours
    singular = _Fails(np.linalg.LinAlgError("exp: singular"))(wf.ones(2))
    assert type(singular) is errors.LinAlgError and "test_dispatch.py" in str(singular)


@pytest.mark.usefixtures("no_graphs")
def test_a_failed_call_leaves_no_trace(device):
    wf.clear_tape()
    x = wf.ones(3, device=device, requires_grad=True)
    for _ in range(3):
        with pytest.raises(errors.ShapeError):
            wf.exp(x * wf.ones(4, device=device))
    assert wf.memory_stats().tensors == 0 and x.grad is None
    assert x.sum().backward()[x].tolist() == [1.0] * 3


def test_the_ways():
    assert Settings().way is RECORD and Settings(grad=False).way is PLAIN
    assert Settings(anomaly=True).way is Settings(saved_hooks=(id, id)).way is GENERAL


def test_only_python_scalars_make_a_tensor():
    y = wf.add(1, 2.5)
    assert y.item() == 3.5 and y.dtype == wf.float32 and y.device == "cpu"


def test_raw_arrays_in_raw_arrays_out():
    from weft.ops.elementwise import exp, multiply

    assert type(exp(np.ones(2))) is np.ndarray and type(exp(torch.ones(2))) is torch.Tensor
    assert type(multiply(np.ones(2), 2.0)) is np.ndarray


@pytest.mark.parametrize("other", ["float32", "float64", "bfloat16", "int64"])
def test_an_array_whose_dtype_is_another_object(other):
    x = pickle.loads(pickle.dumps(wf.Parameter(np.ones(3, np.float32))))
    assert x._data.dtype is not np.dtype("float32")
    y = wf.tensor([1, 2, 3], dtype=other)
    expected = wf.ones(3, dtype="float32") + y
    for z in (x + y, y + x):
        assert z.tolist() == [2.0, 3.0, 4.0] and z.dtype == expected.dtype
