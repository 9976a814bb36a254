"""Overwritten memory is noticed by what saved it, and by nothing else."""

import numpy as np
import pytest

import weft as wf
from weft import errors


@pytest.fixture(params=["cpu", "torch"])
def device(request):
    return request.param


def pair(device):
    x = wf.ones((2, 3), dtype="float64", device=device, requires_grad=True)
    return x, wf.full((2, 3), 2.0, dtype="float64", device=device)


SAVING = {
    "an argument": lambda x, w: (x * w).sum(),
    "a view": lambda x, w: (x.T @ w[:, :2]).sum(),
    "a transpose": lambda x, w: (x @ w.T).sum(),
    "a broadcast": lambda x, w: (x[:1, :1] * wf.broadcast_to(w[0], (9999, 3))).sum(),
    "windows": lambda x, w: (x[:, :2] * wf.sliding_window(w[0], 2)).sum(),
    "inside a condition": lambda x, w: wf.maximum(x, w).sum(),
}


@pytest.mark.parametrize("name", SAVING)
def test_noticed(device, name):
    x, w = pair(device)
    y = SAVING[name](x, w)
    wf.add(w, 1.0, out=w)
    with pytest.raises(errors.SavedValueOverwritten, match=r"\(at test_versions.py:\d+\) saved"):
        y.backward()


UNAFFECTED = {
    "a sum": lambda x, w: (x + w).sum(),
    "a copy": lambda x, w: (x * w.clone()).sum(),
    "a result of its own": lambda x, w: wf.exp(x + w).sum(),
}


@pytest.mark.parametrize("name", UNAFFECTED)
def test_no_false_alarm(device, name):
    x, w = pair(device)
    expected = UNAFFECTED[name](x, w).backward()[x].tolist()
    y = UNAFFECTED[name](x, w)
    wf.add(w, 1.0, out=w)
    assert y.backward()[x].tolist() == expected


def test_memory_that_is_used_again_carries_no_stamp(device):
    x, _ = pair(device)
    for k in range(200):
        buffer = wf.full((2, 3), float(k), dtype="float64", device=device)
        wf.add(buffer, 0.0, out=buffer)
        del buffer
        w = wf.full((2, 3), float(k), dtype="float64", device=device)
        assert (x * w).sum().backward()[x].tolist() == [[float(k)] * 3] * 2


def test_memory_shared_with_numpy():
    a = np.ones(3)
    x = wf.ones(3, dtype="float64", requires_grad=True)
    y = (x * wf.asarray(a)).sum()
    same = wf.asarray(a)
    wf.mul(same, 5.0, out=same)
    assert a.tolist() == [5.0] * 3
    with pytest.raises(errors.SavedValueOverwritten):
        y.backward()
