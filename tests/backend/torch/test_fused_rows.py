"""Rows that ATen has as one kernel use it, forwards and backwards."""

from collections import Counter

import numpy as np
import pytest

import weft as wf
from weft.backend.shared import crossentropy
from weft.core.backends import BACKENDS

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


VIEWS = {"view", "reshape", "_unsafe_view", "t", "transpose", "expand"}
IMAGES = {
    "group_norm": lambda x, w, b: F.group_norm(x, 2, w, b),
    "instance_norm": lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
    "batch_norm": lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
}


@pytest.mark.parametrize("name", IMAGES)
def test_norms_of_images_are_one_kernel_each_way(name):
    counts = calls_of(IMAGES[name], leaf(3, 4, 2, 5), leaf(4), leaf(4))
    kernel = "batch" if name == "batch_norm" else "group"
    rest = {call: n for call, n in counts.items() if call not in VIEWS}
    assert rest == {f"native_{kernel}_norm": 1, f"native_{kernel}_norm_backward": 1}


DEVICES = ("torch", *(["cuda"] if torch.cuda.is_available() else []))
NORMS = {
    "layer_norm": (lambda fn, x, w, b: fn.layer_norm(x, (5,), w, b), (6, 5), 5),
    "rms_norm": (lambda fn, x, w, b: fn.rms_norm(x, (5,), w, 1e-6) + b, (6, 5), 5),
    "group_norm": (lambda fn, x, w, b: fn.group_norm(x, 2, w, b), (3, 4, 2, 5), 4),
    "instance_norm": (lambda fn, x, w, b: fn.instance_norm(x, weight=w, bias=b), (3, 4, 7), 4),
    "batch_norm": (lambda fn, x, w, b: fn.batch_norm(x, None, None, w, b, True), (3, 4, 2, 5), 4),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", NORMS)
def test_norms_beside_torch_in_float64(name, dtype, device):
    """Values, gradients, and gradients of gradients, whose statistics are not those of halves."""
    f, shape, width = NORMS[name]
    rng = np.random.default_rng(1)
    given = [rng.standard_normal(s) + 0.5 for s in (shape, (width,), (width,))]
    ours = [wf.tensor(v, dtype=dtype, device=device, requires_grad=True) for v in given]
    wide = [v.detach().to("cpu").to("float64").numpy() for v in ours]  # rounded already
    theirs = [torch.tensor(v, requires_grad=True) for v in wide]
    y, z = f(F, *ours), f(torch.nn.functional, *theirs)
    weighing = wf.tensor(rng.standard_normal(shape), dtype=dtype, device=device)
    weights = torch.tensor(weighing.to("cpu").to("float64").numpy())
    limit = 2.0**-6 if dtype == "bfloat16" else 1e-5
    _near(y, z, limit)
    grads = wf.grad(lambda *a: (f(F, *a) * weighing).sum(), argnums=(0, 1, 2))(*ours)
    expected = torch.autograd.grad((z * weights).sum(), theirs, create_graph=True)
    for a, b in zip(grads, expected, strict=True):
        _near(a, b, limit)
    if dtype == "float32":
        inner = wf.grad(lambda x: (f(F, x, *ours[1:]) * weighing).sum())
        second = wf.grad(lambda x: (inner(x) * inner(x)).sum())(ours[0])
        (found,) = torch.autograd.grad((expected[0] ** 2).sum(), theirs[:1])
        _near(second, found, 1e-4)


def _near(found, expected, limit: float) -> None:
    """Within a limit of the largest element."""
    found, expected = found.detach().to("cpu").to("float64").numpy(), expected.detach().numpy()
    assert np.abs(found - expected).max() <= limit * np.abs(expected).max()


def test_mean_cross_entropy_is_two_kernels_each_way():
    x, labels = leaf(9, 8), wf.asarray(torch.arange(9) % 8)
    counts = calls_of(lambda x: F.cross_entropy(x, labels), x)
    assert counts["nll_loss_forward"] == counts["nll_loss_backward"] == 1
    assert counts["_log_softmax"] == counts["_log_softmax_backward_data"] == 1
    assert sum(counts.values()) <= 9  # and what divides by the number of targets


@pytest.mark.parametrize("labels", [[0, 7, 3], [0, -100, 3], [-100, -100, -100]])
def test_mean_cross_entropy_beside_torch(labels):
    """Also over no target, of which PyTorch makes NaN."""
    x = leaf(3, 8)
    loss = F.cross_entropy(x, wf.asarray(torch.tensor(labels)))
    found = loss.backward()[x].numpy()
    y = torch.tensor(x.detach().numpy(), requires_grad=True)
    expected = torch.nn.functional.cross_entropy(y, torch.tensor(labels), reduction="sum")
    expected = expected / max(sum(k != -100 for k in labels), 1)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    np.testing.assert_allclose(found, y.grad.numpy(), rtol=1e-5, atol=1e-7)


def test_a_class_out_of_range_is_named():
    labels = wf.asarray(torch.tensor([0, 8, -100]))
    with pytest.raises(wf.errors.IndexingError, match="class 8 of 8; expected 0 to 7"):
        F.cross_entropy(leaf(3, 8), labels)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_zero_wins_in_products_and_nan_over_other_numbers(dtype):
    """Also where kernels take several numbers at once, of which some of PyTorch's lose NaN."""
    zero_where_zero = BACKENDS[torch.Tensor].zero_where_zero
    g = torch.tensor([0.0, -0.0, 2.0, float("nan"), 1e-8, float("inf")], dtype=dtype)
    d = torch.tensor([float("inf"), float("nan"), float("inf"), 1.0, 3.0, 0.0], dtype=dtype)
    for times in (1, 40):
        x, y = g.repeat(times), d.repeat(times)
        found = zero_where_zero(x * y, x)
        expected = [0.0 if a == 0 else a * b for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        np.testing.assert_allclose(found.double().numpy(), expected, rtol=1e-2)


def test_a_square_is_pulled_back_by_one_product():
    counts = calls_of(lambda x: x * x, leaf(4, 8))
    assert counts == {"mul": 2, "add": 1}


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
