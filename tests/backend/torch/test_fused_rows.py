"""Rows that ATen has as one kernel use it, forwards and backwards."""

from collections import Counter

import numpy as np
import pytest

import weft as wf
from weft.backend.shared import crossentropy

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

F = wf.nn.functional


class Calls(TorchDispatchMode):
    """Counts ATen's calls by name."""

    def __init__(self):
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def leaf(*shape, dtype="float32"):
    values = np.random.default_rng(0).standard_normal(shape)
    return wf.Parameter(wf.tensor(values, dtype=dtype, device="torch"))


def calls_of(f, *args):
    """ATen's calls for f and its pull-back."""
    y = f(*args)
    g = wf.ones(y.shape, dtype=y.dtype, device="torch")
    with Calls() as calls:
        f(*args).backward(g)
    return calls.counts


ACTIVATIONS = {
    "gelu": (F.gelu, "gelu", "gelu_backward"),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), "gelu", "gelu_backward"),
    "silu": (F.silu, "silu", "silu_backward"),
    "sigmoid": (wf.sigmoid, "sigmoid", "sigmoid_backward"),
    "tanh": (wf.tanh, "tanh", "tanh_backward"),
    "softmax": (lambda x: F.softmax(x, -1), "_softmax", "_softmax_backward_data"),
    "log_softmax": (
        lambda x: F.log_softmax(x, -1),
        "_log_softmax",
        "_log_softmax_backward_data",
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_one_kernel_each_way(name, dtype):
    f, forward, backward = ACTIVATIONS[name]
    counts = calls_of(f, leaf(4, 8, dtype=dtype))
    assert counts == {forward: 1, backward: 1}


def test_complex_slopes_are_not_conjugated():
    z = wf.tensor(np.array([0.3 + 0.2j, -1.0 + 0.5j]), device="torch")
    _, t = wf.jvp(wf.tanh, (z,), (wf.ones_like(z),))
    np.testing.assert_allclose(t.numpy(), 1 - np.tanh(z.numpy()) ** 2, rtol=1e-12)


def test_layer_norm_is_one_kernel_each_way():
    counts = calls_of(lambda *a: F.layer_norm(a[0], (8,), *a[1:]), leaf(4, 8), leaf(8), leaf(8))
    assert counts == {"native_layer_norm": 1, "native_layer_norm_backward": 1}


def test_layer_norm_under_autocast_is_one_kernel_each_way():
    x, w, b = leaf(4, 8, dtype="bfloat16"), leaf(8), leaf(8)

    def f(x, w, b):
        with wf.amp.autocast("bfloat16"):
            return F.layer_norm(x, (8,), w, b)

    y = f(x, w, b)
    assert y.dtype == wf.float32
    grads = y.backward(wf.ones(y.shape, device="torch"))
    wide = [torch.tensor(v.detach().to("float32").numpy(), requires_grad=True) for v in (x, w, b)]
    torch.nn.functional.layer_norm(wide[0], (8,), *wide[1:]).backward(torch.ones(4, 8))
    for ours, theirs in zip((x, w, b), wide, strict=True):
        found = grads[ours].to("float32").numpy()
        limit = 2.0**-8 if ours.dtype == wf.bfloat16 else 1e-6
        np.testing.assert_allclose(found, theirs.grad.numpy(), rtol=limit, atol=limit)
    counts = calls_of(f, leaf(4, 8, dtype="bfloat16"), leaf(8), leaf(8))
    assert counts == {"native_layer_norm": 1, "native_layer_norm_backward": 1, "_to_copy": 2}


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk", [8, 40, 1 << 19])
def test_cross_entropy_in_chunks(chunk, smoothing, monkeypatch):
    monkeypatch.setitem(crossentropy.CHUNK, "torch", chunk)
    x, labels = leaf(9, 8), torch.tensor([0, 7, 3, -100, 2, 2, 5, -100, 1])
    loss = F.cross_entropy(x, wf.asarray(labels), label_smoothing=smoothing)
    found = loss.backward()[x].numpy()
    y = torch.tensor(x.detach().numpy(), requires_grad=True)
    expected = torch.nn.functional.cross_entropy(y, labels, label_smoothing=smoothing)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    np.testing.assert_allclose(found, y.grad.numpy(), rtol=1e-5, atol=1e-7)
