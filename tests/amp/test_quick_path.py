"""Random programs under autocast: the quick path of dispatch computes and records as the other.

`Settings.way` lets callers stay on their quick path in an autocast block. Each program runs so, and
once more with every row sent through the general path. Values, dtypes, gradients, errors and the
recorded nodes must be the same.
"""

import numpy as np
import pytest

import weft as wf
from weft.core import call
from weft.core.node import Leaf, Node
from weft.core.recording import is_pick
from weft.core.settings import GENERAL, Settings

from .devices import DEVICES, host

F = wf.nn.functional
SHAPE = (2, 4, 8)
DTYPES = ("float32", "bfloat16", "float16", "float64", "int64")
FLOATS = DTYPES[:4]


def _attend(rng, p, x, y):
    q, k, v = (t.reshape(2, 2, 2, 8) for t in (x, y, p.w.sum() * 0 + x))
    return F.scaled_dot_product_attention(q, k, v, is_causal=bool(rng.integers(2))).reshape(SHAPE)


def _write(rng, p, x, y):
    """A product before and after a write to the weight."""
    before = F.linear(x, p.w, p.b)
    with wf.no_grad():
        p.w.copy_(p.w * 0.5)
    return before + F.linear(y, p.w, p.b)


def _written_unsaved(rng, p, x, y):
    """The same for a parameter whose values are not saved: the gradient is defined."""
    before = x + p.b
    with wf.no_grad():
        p.b.copy_(p.b * 0.5)
    return before * 0.5 + p.b


def _pushed(rng, p, x, y):
    value, tangent = wf.jvp(lambda t: F.linear(wf.tanh(t) + y, p.w, p.b), (x,), (x * 0.5,))
    return value + tangent


def _index(rng, p, x, y):
    return wf.stack([x[:, :, int(rng.integers(8))]] * 8, axis=2)


def _normed(rng, p, x, y):
    return F.layer_norm(x, (8,), p.scale, p.b)


STEPS = {
    "add": lambda rng, p, x, y: x + y,
    "subtract": lambda rng, p, x, y: x - y,
    "multiply": lambda rng, p, x, y: x * y,
    "add parameter": lambda rng, p, x, y: x + p.b,
    "number": lambda rng, p, x, y: 2 - x * 0.25,
    "square": lambda rng, p, x, y: x * x,
    "reshape": lambda rng, p, x, y: x.reshape(8, 8).reshape(SHAPE),
    "swap": lambda rng, p, x, y: x.swapaxes(0, 1).swapaxes(0, 1),
    "index": _index,
    "exp": lambda rng, p, x, y: wf.exp(wf.tanh(x)),
    "gelu": lambda rng, p, x, y: F.gelu(x),
    "relu": lambda rng, p, x, y: F.relu(x),
    "norm": _normed,
    "linear": lambda rng, p, x, y: F.linear(x, p.w, p.b),
    "linear twice": lambda rng, p, x, y: F.linear(x, p.w, p.b) + F.linear(y, p.w),
    "product": lambda rng, p, x, y: x @ p.w,
    "einsum": lambda rng, p, x, y: wf.einsum("abc,cd->abd", x, p.w),
    "attention": _attend,
    "where": lambda rng, p, x, y: wf.where(x > 0, x, y),
    "compare": lambda rng, p, x, y: x * (x > y),
    "sum": lambda rng, p, x, y: x.sum(-1, keepdims=True) * 0.125 + y,
    "concat": lambda rng, p, x, y: wf.concat([x, y], axis=1)[:, ::2],
    "rows": lambda rng, p, x, y: wf.take(x, wf.tensor([0, 2, 1, 2], device=x.device), axis=1),
    "softmax": lambda rng, p, x, y: F.softmax(x, -1),
    "cast": lambda rng, p, x, y: x.to(FLOATS[rng.integers(4)]),
    "detach": lambda rng, p, x, y: x.detach() + y,
    "batch": lambda rng, p, x, y: wf.vmap(lambda t: F.linear(t, p.w, p.b) * t[0])(x),
    "push": _pushed,
    "write": _write,
    "write unsaved": _written_unsaved,
}


def _config():
    """Columns that override the table's, also of rows that make views."""
    return wf.AmpConfig(
        precision_mode="bfloat16",
        loss_scaler=None,
        keep_fp32_ops=["add"],
        autocast_ops=["reshape", "multiply"],
    )


BLOCKS = {
    "none": None,
    "autocast": lambda: wf.amp.autocast("bfloat16"),
    "float16": lambda: wf.amp.autocast("float16"),
    "off": lambda: wf.amp.autocast(enabled=False),
    "columns": lambda: wf.amp.autocast(_config()),
    "no_grad": lambda: wf.no_grad(),
    "anomaly": lambda: wf.detect_anomaly(),
}


class Parameters:
    def __init__(self, rng, device):
        def made(*shape):
            dtype = FLOATS[rng.choice(4, p=[0.7, 0.1, 0.1, 0.1])]
            return wf.Parameter(wf.tensor(rng.normal(size=shape) * 0.3, dtype=dtype, device=device))

        self.w, self.b, self.scale = made(8, 8), made(8), made(8)

    def all(self):
        return [self.w, self.b, self.scale]


def _nodes(y):
    """(name, dtype, shape) of what was recorded for y, in the order of recording.

    The quick path makes casts, and the choice of a first result, parts of other nodes.
    """
    found, waiting = {}, [y._node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Leaf | Node) and node.id not in found:
            found[node.id] = node
            waiting += getattr(node, "parents", ()) or ()
    shown = [found[k] for k in sorted(found)]
    return [
        _shown(n) for n in shown if n.name != "cast" and not (isinstance(n, Node) and is_pick(n.op))
    ]


def _shown(node):
    """What is compared of a node; of several results, the first one."""
    several = isinstance(node.dtype, tuple)
    dtype, shape = (node.dtype[0], node.shape[0]) if several else (node.dtype, node.shape)
    return node.name, str(dtype), tuple(shape)


def _grow(rng, p, values, steps: int):
    for _ in range(steps):
        x, y = (values[rng.integers(len(values))] for _ in range(2))
        names = list(STEPS)
        step = STEPS[names[rng.integers(len(names))]]
        block = BLOCKS[
            list(BLOCKS)[rng.choice(len(BLOCKS), p=[0.6, 0.1, 0.08, 0.08, 0.04, 0.05, 0.05])]
        ]
        if block is None:
            values.append(step(rng, p, x, y))
        else:
            with block():
                values.append(step(rng, p, x, y))
    return values


def outcome(seed: int, device: str):
    """Everything that a program shows: values, dtypes, gradients, nodes, or its error."""
    rng = np.random.default_rng(seed)
    p = Parameters(rng, device)
    values = []
    for _ in range(3):
        dtype = DTYPES[rng.choice(5, p=[0.4, 0.3, 0.1, 0.1, 0.1])]
        x = wf.tensor(rng.normal(size=SHAPE) * 2, device=device).to(dtype)
        values.append(x.requires_grad_() if dtype != "int64" and rng.integers(2) else x)
    leaves = [*p.all(), *(v for v in values if v.requires_grad)]
    try:
        with wf.amp.autocast(("bfloat16", "float16")[rng.integers(2)]):
            values = _grow(rng, p, values, int(rng.integers(2, 9)))
            y = values[-1] + values[rng.integers(len(values))]
        shown = [(str(v.dtype), v.requires_grad, host(v)) for v in (*values, y)]
        nodes = _nodes(y)
        if y.requires_grad:
            y.to("float64").sum().backward()
        grads = [None if v.grad is None else (str(v.grad.dtype), host(v.grad)) for v in leaves]
    except wf.errors.WeftError as e:
        return type(e), str(e)
    return shown, nodes, grads


def on_general_path(monkeypatch):
    """Send every row under autocast through `apply`, and mixed dtypes through `harmonise`."""
    decide = Settings.__post_init__

    def decided(self):
        decide(self)
        if self.autocast is not None:
            object.__setattr__(self, "way", GENERAL)
            object.__setattr__(self, "way_uncast", GENERAL)

    monkeypatch.setattr(Settings, "__post_init__", decided)
    monkeypatch.setattr(call, "promote_pair", lambda x, y: None)


def same(a, b) -> bool:
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=True)
    if isinstance(a, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("batch", range(6))
def test_random_programs_are_the_same_on_both_paths(batch, device, monkeypatch):
    seeds = range(100 * batch, 100 * batch + 40)
    quick = [outcome(seed, device) for seed in seeds]
    on_general_path(monkeypatch)
    for seed, found in zip(seeds, quick, strict=True):
        assert same(found, outcome(seed, device)), (seed, found)


@pytest.mark.parametrize("device", DEVICES)
def test_most_of_the_programs_run(device):
    found = [outcome(seed, device) for seed in range(60)]
    assert sum(len(f) == 3 for f in found) > 30


def _image_loss(x, w):
    """Two convolutions and a norm of their results."""
    y = F.conv2d(wf.tanh(F.conv2d(x, w, padding=1)), w, padding=1)
    return F.layer_norm(y, (8,), wf.ones(8, device=x.device), wf.ones(8, device=x.device))


PENALISED = {
    "linear": lambda x, w: F.linear(wf.tanh(F.linear(x[0, 0], w[0, 0], w[0, 0, 0])), w[0, 1]),
    "matmul": lambda x, w: wf.tanh(x @ w[0]) @ w[1],
    "constant input": lambda x, w: wf.tanh(x.detach() @ w[0]) * 0.5,
    "convolution": _image_loss,
}


def penalty(name, device):
    """Gradients, and gradients of their squares: autocast's casts are differentiated twice."""
    rng = np.random.default_rng(5)
    shapes = ((2, 4, 8, 8), (4, 4, 3, 3)) if name == "convolution" else ((2, 2, 8, 8),) * 2
    x, w = (wf.tensor(rng.normal(size=s) * 0.3, dtype="float32", device=device) for s in shapes)
    x, w = x.requires_grad_(), w.requires_grad_()
    with wf.amp.autocast("bfloat16"):
        y = PENALISED[name](x, w).to("float32")
    g = (y * y).sum().backward(create_graph=True)[w]
    assert g.dtype == wf.float32
    second = (g * g).sum().backward()
    return host(g.detach()), host(second[w])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", PENALISED)
def test_second_derivatives_are_the_same_on_both_paths(name, device, monkeypatch):
    """Up to rounding: the general path adds cotangents of one cast in bfloat16."""
    first, second = penalty(name, device)
    on_general_path(monkeypatch)
    expected = penalty(name, device)
    assert np.array_equal(first, expected[0])
    size = np.abs(expected[1]).max()
    assert np.abs(second - expected[1]).max() <= 2**-7 * size and size > 0
