"""What kernels allocate beside their results: as stated by row, for large arrays."""

import numpy as np
import pytest

import weft as wf
from weft.backend.numpy import activate, elementwise
from weft.backend.shared import threads
from weft.core.backends import guard, unguard
from weft.profile import phantom

F = wf.nn.functional
# Of what a kernel takes at most: lines and other small arrays are not stated.
SHARE, SMALL = 0.06, 20_000


def arrays(rng, dtype):
    x = wf.tensor(rng.standard_normal((40, 64, 48)).astype(np.float32)).to(dtype)
    w = wf.tensor(rng.standard_normal((48, 48)).astype(np.float32)).to(dtype)
    return x, w


def images(x):
    return x.reshape(20, 6, 32, 32)


FUNCTIONS = {
    "matmul": lambda x, w: x @ w,
    "transposed": lambda x, w: x.reshape(-1, 48).mT @ x.reshape(-1, 48),
    "linear": lambda x, w: F.linear(x, w, w[0]),
    "linear of a view": lambda x, w: F.linear(x.swapaxes(0, 1), w, w[0]),
    "softmax": lambda x, w: F.softmax(x, -1),
    "log_softmax": lambda x, w: F.log_softmax(x, 1),
    "logsumexp": lambda x, w: wf.logsumexp(x, -1),
    "mean": lambda x, w: x.mean(0),
    "var": lambda x, w: x.var(-1),
    "layer_norm": lambda x, w: F.layer_norm(x, (48,), w[0], w[1]),
    "batch_norm": lambda x, w: F.batch_norm(images(x), None, None, training=True),
    "gelu": lambda x, w: F.gelu(x),
    "silu": lambda x, w: F.silu(x),
    "relu": lambda x, w: F.relu(x),
    "tanh": lambda x, w: wf.tanh(x),
    "power": lambda x, w: x**4,
    "where": lambda x, w: wf.where(x > 0, x, x * 2),
    "maximum": lambda x, w: wf.maximum(x, w[0]),
    "conv": lambda x, w: F.conv2d(images(x), w.reshape(-1)[:324].reshape(6, 6, 3, 3), padding=1),
    "max_pool": lambda x, w: F.max_pool2d(images(x), 2),
    "avg_pool": lambda x, w: F.avg_pool2d(images(x), 2),
    "attention": lambda x, w: F.scaled_dot_product_attention(*[x.reshape(20, 2, 64, 48)] * 3),
    "concat": lambda x, w: wf.concat([x, x]),
    "sort": lambda x, w: wf.sort(x),
    "cumsum": lambda x, w: wf.cumsum(x, 1),
    "slice": lambda x, w: x[:, ::2] * x[:, 1::2],
    "take": lambda x, w: x[wf.arange(20)],
    "exp of a view": lambda x, w: wf.exp(x.swapaxes(1, 2)),
}


def stand_in(a):
    """A phantom with the strides of an array."""
    if isinstance(a, list | tuple):
        return type(a)(map(stand_in, a)) if type(a) in (list, tuple) else a
    if not isinstance(a, np.ndarray) or any(s < 0 for s in a.strides):
        return a
    return phantom.strided(a.shape, a.dtype, [s // a.itemsize for s in a.strides])


def simulated(op, kernel, args):
    """(bytes that stay, bytes at most, strides of the results) of a simulated call."""
    with phantom.simulation() as ledger:
        given = [stand_in(a) for a in args]
        before = ledger.live
        ledger.reset_peak()
        start = ledger.peak
        made = phantom._simulated(op, kernel)(*given)
        outs = [made] if op.outputs == 1 else made
        strides = [x.strides for x in outs]
        return ledger.live - before, ledger.peak - start, strides


class Comparison:
    """Wraps kernels: each call is counted, and simulated."""

    def __init__(self):
        self.wrong, self.calls, self._inside = [], 0, False

    def __call__(self, op, kernel):
        def call(*args):
            if self._inside:
                return kernel(*args)
            self._inside = True
            try:
                return self._compare(op, kernel, args)
            finally:
                self._inside = False

        return call

    def _compare(self, op, kernel, args):
        with wf.profile.Counter() as counter:
            made = kernel(*args)
        outs = [made] if op.outputs == 1 else made
        if max([np.size(x) for x in outs]) > 1000:
            self.calls += 1
            live, peak, strides = simulated(op, kernel, args)
            kept = counter.live - live  # zeros that are kept are new in each simulation
            near = abs(counter.peak - peak - min(kept, 0)) <= SHARE * counter.peak + SMALL
            if not near or strides != [x.strides for x in outs] or kept > SMALL:
                self.wrong.append((op.name, counter.live, live, counter.peak, peak))
        return made


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_kernels_allocate_what_is_stated(name, dtype, monkeypatch):
    monkeypatch.setattr(threads, "LIMIT", 1)
    x, w = arrays(np.random.default_rng(0), dtype)
    x.requires_grad_()
    w.requires_grad_()
    ones = wf.ones_like(FUNCTIONS[name](x, w))  # so that cotangents are arrays of their own
    elementwise._zeros.cache_clear()
    activate._zeros.cache_clear()
    comparison = Comparison()
    guard(np.ndarray, comparison)
    try:
        y = FUNCTIONS[name](x, w)
        (y * ones).sum().backward()
    finally:
        unguard(np.ndarray, comparison)
    assert comparison.calls and not comparison.wrong
