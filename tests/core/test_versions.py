"""Overwritten memory is noticed by what saved it, and by nothing else."""

import gc

import numpy as np
import pytest

import weft as wf
from weft import errors
from weft.core import versions


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


def test_stamps_go_with_their_buffers():
    before = len(versions._STAMPS), len(versions._ARRAYS)
    kept = []
    for k in range(2000):
        whole = wf.zeros((4, 3))
        wf.add(whole, 1.0, out=whole)
        if k % 500 == 0:
            kept.append(whole)
    del whole
    assert len(versions._STAMPS) - before[0] == len(kept) == len(versions._ARRAYS) - before[1]


def test_compiled_steps_leave_no_stamps_of_memory_that_is_gone():
    before = len(versions._STAMPS)
    for _ in range(3):
        p = wf.tensor([1.0, 2.0])
        wf.compile(lambda p=p: p.copy_(p * 2.0))()
        del p
    gc.collect()
    assert len(versions._STAMPS) <= before


def test_younger_nodes_are_not_checked(monkeypatch):
    """A write costs the passes through graphs that were there, and no later ones."""
    x, w = pair("cpu")
    old = (x * w).sum()
    buffer = wf.zeros((3,))
    wf.add(buffer, 1.0, out=buffer)
    young = (x * w).sum()
    checked = []
    monkeypatch.setattr(versions, "check", lambda node, saved: checked.append(node.name))
    young.backward()
    assert checked == []
    old.backward()
    assert "multiply" in checked


VIEWS = [lambda m: m, lambda m: m.T, lambda m: m[:1], lambda m: m[:, ::-1], lambda m: m.clone()]
FORMS = [
    lambda y, v: y * v,
    lambda y, v: y + v,
    lambda y, v: y @ (v.T @ v),
    lambda y, v: wf.exp(-y) * v,
    lambda y, v: wf.maximum(y, v),
]


def written(seed: int, device: str, copies: bool):
    """The gradient of a random program that writes into its memory between its operations.

    copies  whether each operation gets a copy of what it reads, which nobody writes into
    """
    rng = np.random.default_rng(seed)
    x = wf.full((2, 2), 1.5, dtype="float64", device=device, requires_grad=True)
    memory = [wf.tensor(rng.uniform(0.5, 2.0, (2, 2)), device=device) for _ in range(3)]
    y = x
    for _ in range(rng.integers(2, 6)):
        v = VIEWS[rng.integers(len(VIEWS))](memory[rng.integers(3)])
        y = FORMS[rng.integers(len(FORMS))](y, v.clone() if copies else v)
        if rng.random() < 0.25:
            m = memory[rng.integers(3)]
            wf.multiply(m, 1.25, out=m)
    return y.sum().backward()[x].numpy()


def test_random_writes_never_change_a_gradient_silently(device):
    """A pass gives what it would have given without the writes, or raises."""
    raised = 0
    for seed in range(400):
        try:
            got = written(seed, device, copies=False)
        except errors.SavedValueOverwritten:
            raised += 1
        else:
            np.testing.assert_allclose(got, written(seed, device, copies=True), rtol=1e-12)
    assert 50 < raised < 350
