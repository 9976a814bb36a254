"""Random graphs beside their rows: axes of one length, products, parts, and memory that is given.

All lengths are alike, so that an axis that is taken for another one shows in the values and not in
the shapes.
"""

import os

import numpy as np
import pytest

import weft as wf

from ..passes.graphs import traced
from ..schedules import Machine, compiled

GRAPHS = 8000 if os.environ.get("WEFT_SOAK") else 100
F = wf.nn.functional
SHAPES = [(4, 4), (4,), (4, 1), (1, 4), (2, 4, 4), (4, 4, 4), ()]


def fits(shape, target) -> bool:
    try:
        return np.broadcast_shapes(shape, target) == target
    except ValueError:
        return False


# (how many axes it takes at least, the function)
UNARY = [
    *((0, f) for f in (wf.tanh, wf.sin, wf.relu, lambda x: x * 0.5 + 1, lambda x: x * x)),
    (0, lambda x: wf.astype(wf.astype(x, "float64"), "float32")),
    *((1, lambda x, a=a: wf.softmax(x, a)) for a in (-1, 0)),
    (1, lambda x: wf.log_softmax(x, -1)),
    *((1, lambda x, a=a: x.sum(a)) for a in (0, -1)),
    (1, lambda x: x.mean(-1, keepdims=True)),
    (1, lambda x: x.max(0, keepdims=True)),
    (1, lambda x: wf.var(x, axis=-1, keepdims=True)),
    (2, lambda x: x.swapaxes(-1, -2)),
    (1, lambda x: x[::-1]),
    (1, lambda x: x[..., 1:3].sum(-1, keepdims=True) if x.shape[-1] == 4 else x),
    (0, lambda x: x.reshape((-1,))),
    (0, lambda x: x.reshape((4, 4)) if x.size == 16 else x),
    (0, lambda x: x.reshape((2, 4, 4)) if x.size == 32 else x),
    (0, lambda x: wf.broadcast_to(x, (2, 4, 4)) if fits(x.shape, (2, 4, 4)) else x),
    (1, lambda x: wf.concat([x, x * 2])),
    (0, lambda x: wf.stack([x, x + 1])),
    (0, lambda x: wf.roll(x, 1)),
    (1, wf.sort),
    (2, wf.tril),
    (1, lambda x: x.at[0].set(x[-1] * 2)),
    (1, lambda x: F.layer_norm(x, x.shape[-1:]) if x.shape[-1] > 1 else x),
    # Looks at few numbers: at none of them, and at each of them many times.
    (0, lambda x: wf.concat([x.reshape(-1), x[None][1:].reshape(-1)])),
    (1, lambda x: wf.concat([x.swapaxes(0, -1), x.swapaxes(0, -1)[:0]])),
    (0, lambda x: wf.broadcast_to(x[None], (300, *x.shape)).max(0)),
]
BINARY = [
    *(wf.multiply, wf.add, wf.subtract, wf.maximum),
    lambda x, y: wf.where(x > y, x, y * 0.5),
    lambda x, y: x / (1 + y * y),
]


def multiplies(x, y) -> bool:
    if not x.ndim or not y.ndim or x.shape[-1] != y.shape[max(y.ndim - 2, 0)]:
        return False
    batches = x.shape[:-2], y.shape[:-2]
    return fits(*batches) or fits(*batches[::-1])


def program(rng):
    """A function of five arrays: steps that take values made so far, and what it returns."""
    steps = rng.random((int(rng.integers(4, 22)), 4))
    returned = rng.random(int(rng.integers(1, 5)))

    def extended(kind: float, k: float, x, y):
        if kind < 0.5:
            axes, f = UNARY[int(k * len(UNARY))]
            return f(x) if x.ndim >= axes else None
        if kind < 0.65:
            return (x @ y) * 0.3 if multiplies(x, y) else None
        alike = fits(x.shape, y.shape) or fits(y.shape, x.shape)
        return BINARY[int(k * len(BINARY))](x, y) if alike else None

    def f(*values):
        values = list(values)
        for kind, k, p, q in steps:
            x, y = (values[int(r * len(values))] for r in (p, q))
            z = extended(kind, k, x, y)
            if z is not None and z.size <= 256:
                values.append(z)
        return *(values[int(r * len(values))] for r in returned), values[-1]

    return f


def descent(f):
    """A step down the gradient of what f returns, squared."""

    def step(*arrays):
        def loss(xs):
            return sum((r * r).mean() for r in f(*xs))

        value, grads = wf.value_and_grad(loss)(list(arrays))
        return value, *(x - 0.1 * g for x, g in zip(arrays, grads, strict=True))

    return step


def given(rng, arrays, wanted) -> dict[int, int]:
    """Some outputs, each with an input of its type whose memory it may take."""
    found: dict[int, int] = {}
    for k in map(int, rng.permutation(len(wanted))):
        alike = [n for n, a in enumerate(arrays) if a.shape == wanted[k].shape]
        alike = [n for n in alike if n not in found.values() and wanted[k].dtype == np.float32]
        if alike and rng.random() < 0.8:
            found[k] = alike[0]
    return found


def check_graph(seed: int, by_native: bool) -> None:
    rng = np.random.default_rng(seed)
    shapes = [SHAPES[k] for k in rng.integers(0, len(SHAPES), 5)]
    arrays = [rng.normal(size=s).astype(np.float32) for s in shapes]
    f = program(rng)
    graph = traced(descent(f) if seed % 2 else f, *arrays)
    want = [np.asarray(graph.values[i]) for i in graph.outputs]
    schedule = compiled(graph, given(rng, arrays, want))
    for a, b in zip(Machine(schedule, arrays, by_native).run(), want, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        # Some twenty steps that each may double the error of a value, of which 2⁻²⁴ is lost.
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4 * max(1.0, np.abs(b).max(initial=0)))


@pytest.mark.parametrize("batch", range(10))
def test_random_graphs_by_rows(batch):
    for seed in range(batch, GRAPHS, 10):
        check_graph(seed, by_native=False)


@pytest.mark.parametrize("seed", range(20000, 20000 + GRAPHS // 8))
def test_random_graphs_by_native_kernels(seed):
    check_graph(seed, by_native=True)
